//! Records: the counts of a capture in a form that can be kept, and added to those of others.
//!
//! A record is a JSON object on one line. Everything in it adds up exactly: merged, the records of captures, in any
//! order and however grouped, are the record that one process makes of them all. Two tables of fixed size are
//! exceptions once they are full: [`Flows`](crate::flows::Flows), which counts what it forgets, and link types beyond
//! the 64th that cannot be read.
//!
//! ```json
//! {"schema": "baton-trace-record", "version": 1, "tool": "baton 0.2.0",
//!  "rules": {"profile": "rsc", "cache": 4, …},
//!  "files": [{"path": "day/1.pcap", "trouble": null}],
//!  "tally": {"frames_in": 30, "frames_out": 5, …}}
//! ```
//!
//! The version changes whenever a program of the version before would read a record wrongly. A record that
//! contradicts itself is refused, so no sum of records can overflow ([`COUNT_MAX`]).

use crate::cost::Prices;
use crate::report::{FileLine, Listing, Report, Rules};
use crate::tally::{Beside, Tally};
use serde::{Deserialize, Serialize};

/// The name of the schema.
pub const SCHEMA: &str = "baton-trace-record";
/// The version of the schema that is written and read.
pub const VERSION: u32 = 1;
/// The most frames, and the most bytes, that records may count: 2^60, of bytes an exbibyte.
pub const COUNT_MAX: u64 = 1 << 60;

/// The counts of one or several captures under the same rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    schema: String,
    version: u32,
    /// Name and version of the program that made it.
    pub tool: String,
    /// The rules of coalescing that were applied.
    pub rules: Rules,
    /// Paths of the captures, with the errors that stopped the reading.
    pub files: Vec<FileLine>,
    /// Sums over these captures.
    pub tally: Tally,
}

/// The cause for which a record is refused.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The text is not a record: cut, or damaged.
    #[error("it is no record of baton trace: {0}")]
    Malformed(String),
    /// It says that it is something else.
    #[error("its schema is {0:?}, not \"{SCHEMA}\"")]
    Foreign(String),
    /// It has a version that is not read here.
    #[error(
        "it has version {version} of its schema, made by {tool}; this is version {VERSION}: use a newer baton, or \
             make the record again"
    )]
    Version {
        /// The record is of this version.
        version: u32,
        /// The program that made it.
        tool: String,
    },
    /// Its counts cannot be true together.
    #[error("it contradicts itself: {0}")]
    Contradiction(&'static str),
    /// It was made under other rules.
    #[error("it was made under other rules ({theirs}) than the first ({ours}): merge each kind by itself")]
    OtherRules {
        /// The rules of the record that was to be merged, as JSON.
        theirs: String,
        /// The rules of the record that it was to be merged with, as JSON.
        ours: String,
    },
    /// The sum is beyond [`COUNT_MAX`].
    #[error("with it more than 2^60 frames or bytes are counted, which no captures have")]
    TooMuch,
}

/// The part of a record that is looked at first.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
    version: Option<u32>,
    tool: Option<String>,
}

impl Record {
    /// The record of these captures.
    pub fn new(rules: Rules, files: Vec<FileLine>, tally: Tally) -> Record {
        let tool = format!("baton {}", env!("CARGO_PKG_VERSION"));
        Record { schema: SCHEMA.to_owned(), version: VERSION, tool, rules, files, tally }
    }

    /// Reads a record from its line.
    ///
    /// # Errors
    /// It is not a record, has another version, or contradicts itself.
    pub fn read(line: &[u8]) -> Result<Record, RecordError> {
        let malformed = |error: serde_json::Error| {
            RecordError::Malformed(error.to_string().replace(" at line 1 column ", " at column "))
        };
        let head: Head = serde_json::from_slice(line).map_err(malformed)?;
        match (head.schema, head.version) {
            (Some(schema), _) if schema != SCHEMA => return Err(RecordError::Foreign(schema)),
            (Some(_), Some(VERSION)) => {}
            (Some(_), Some(version)) => {
                let tool = head.tool.unwrap_or_else(|| "an unknown program".to_owned());
                return Err(RecordError::Version { version, tool });
            }
            _ => return Err(RecordError::Malformed("it does not name its schema and version".to_owned())),
        }
        let record: Record = serde_json::from_slice(line).map_err(malformed)?;
        check(&record.tally)?;
        Ok(record)
    }

    /// The record as one line, without a line feed.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers, and keys that are strings or numbers")
    }

    /// Adds the record of other captures; their list follows ours.
    ///
    /// # Errors
    /// It was made under other rules, or counts too much. In this case nothing has been added.
    pub fn merge(&mut self, other: Record) -> Result<(), RecordError> {
        let (ours, theirs) = (self.all_rules(), other.all_rules());
        if ours != theirs {
            let text = |rules: &[&Rules]| serde_json::to_string(rules).unwrap_or_default();
            return Err(RecordError::OtherRules { theirs: text(&theirs), ours: text(&ours) });
        }
        let too_much = |ours: u64, theirs: u64| ours.checked_add(theirs).is_none_or(|sum| sum > COUNT_MAX);
        if too_much(self.tally.frames_in, other.tally.frames_in)
            || too_much(self.tally.wire_bytes, other.tally.wire_bytes)
        {
            return Err(RecordError::TooMuch);
        }
        self.tally.merge(&other.tally);
        self.files.extend(other.files);
        Ok(())
    }

    /// The rules that were applied, and those beside them.
    fn all_rules(&self) -> Vec<&Rules> {
        std::iter::once(&self.rules).chain(self.tally.beside.iter().map(|beside| &beside.rules)).collect()
    }

    /// The report on these captures, with these prices for the estimate of CPU time and these flows listed.
    pub fn report(&self, prices: Prices, listing: Listing) -> Report {
        Report::new(&self.tally, self.rules.clone(), prices, listing, self.files.clone())
    }
}

/// Refuses counts that no captures have. All of them are so at most `frames_in`, but the bytes, which are bounded by
/// themselves.
fn check(tally: &Tally) -> Result<(), RecordError> {
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.map(u128::from).sum::<u128>();
    let frames = u128::from(tally.frames_in);
    let ended = sum(&mut tally.causes.values().copied());
    let held = u128::from(tally.segments);
    let eliminated = u128::from(tally.eliminated);
    let acks = sum(&mut tally.acks.iter().map(|acks| acks.without.max(acks.with).max(acks.expanded)));
    let parts = [
        sum(&mut tally.unknown_links.iter().map(|(_, frames)| frames)),
        sum(&mut tally.tunnelled.tunnels.values().chain(tally.tunnelled.inner.values()).copied()),
        tally.flows.frames_in(),
        acks,
        tally.flows.forgotten().into(),
        tally.stamps_back.into(),
        tally.lengths_bounded.into(),
        tally.joined_before.into(),
    ];
    let checks = [
        (tally.frames_in.max(tally.wire_bytes) <= COUNT_MAX, "more than 2^60 frames or bytes"),
        (u128::from(tally.frames_out) + eliminated == frames, "frames out and joined are not those that came in"),
        (
            sum(&mut tally.reasons.values().copied()) + held == frames,
            "frames held and alone are not those that came in",
        ),
        (ended + eliminated == held, "runs and joined segments are not those that were held"),
        (sum(&mut tally.lengths.iter().map(|(_, _, runs)| runs)) == ended, "lengths and ends of runs differ in number"),
        (u128::from(tally.runs) <= ended, "more runs of several segments than runs"),
        (tally.delays.segments() == tally.segments, "delays are not of the segments that were held"),
        (tally.ack_bytes <= tally.wire_bytes, "ACKs have more bytes than all frames"),
        (tally.reserved_bits.headers <= COUNT_MAX, "more than 2^60 headers"),
        (tally.beside.iter().all(|beside| holds(beside, tally.frames_in)), "other rules saw other frames"),
        (parts.iter().all(|part| *part <= frames), "a part of the frames is more than all"),
    ];
    match checks.iter().find(|(holds, _)| !holds) {
        Some((_, contradiction)) => Err(RecordError::Contradiction(contradiction)),
        None => Ok(()),
    }
}

/// True if other rules can have made this of so many frames.
fn holds(beside: &Beside, frames: u64) -> bool {
    let Beside { frames_out, eliminated, runs, segments, .. } = beside;
    frames_out.checked_add(*eliminated) == Some(frames) && runs <= frames_out && *segments <= frames
}
