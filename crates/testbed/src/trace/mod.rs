//! Traces of web servers as a workload (CH §4.2): read from a stream, in constant memory.
//!
//! ```text
//!   bytes --log | world_cup--> Item: a record or damage --sessions--> Session --Replay--> the testbed
//! ```
//!
//! A record that cannot be read is skipped, counted, and named with its line or number and its byte
//! offset ([`Damage`]).

pub mod log;
pub mod sessions;
pub mod world_cup;

use crate::measure::Measured;
use crate::select::Selection;
use crate::workload::{Session, Workload};
use crate::world::{Config, run_with};
use core::fmt;
use sessions::Sessions;
use std::io::{self, BufRead};

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Lines of the common (NCSA) or combined log format.
    Log,
    /// The World Cup's records of 20 bytes.
    WorldCup,
}

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When, in seconds since 1970.
    pub seconds: u64,
    /// Which client, as a number or a hash.
    pub client: u64,
    /// Which file, as a number or a hash.
    pub file: u32,
    /// Bytes of the content.
    pub bytes: u32,
}

/// Why a record could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The line is longer than [`log::LONGEST_LINE`].
    TooLong,
    /// The line has no client.
    NoClient,
    /// The line has no time in brackets, or none that exists.
    NoTime,
    /// The line has no request in quotation marks.
    NoRequest,
    /// No status of three digits follows the request.
    NoStatus,
    /// Neither a number nor `-` follows the status.
    NoSize,
    /// The method is none that the World Cup's format has.
    Method,
    /// The trace ends within the record.
    Cut,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::TooLong => "it is too long",
            Why::NoClient => "it has no client",
            Why::NoTime => "it has no valid time in brackets",
            Why::NoRequest => "it has no request in quotation marks",
            Why::NoStatus => "it has no status",
            Why::NoSize => "it has no size",
            Why::Method => "its method is unknown",
            Why::Cut => "the trace ends within it",
        })
    }
}

/// A record that could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Which line or record, from 1 on.
    pub number: u64,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Why it is skipped.
    pub why: Why,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { number, offset, why } = self;
        write!(f, "record {number} at byte {offset}: {why}")
    }
}

/// The next thing that a reader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record that was read.
    Record(Record),
    /// A record that is skipped.
    Damage(Damage),
}

/// How many damages are kept one by one; the others are counted.
const KEPT: usize = 16;

/// All damage of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damages {
    /// How many records were skipped.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Damage>,
    /// Why the trace could not be read to its end.
    pub failed: Option<String>,
}

impl Damages {
    fn add(&mut self, damage: Damage) {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(damage);
        }
    }
}

/// Reads the records of a trace.
pub fn records<'r>(format: Format, input: impl BufRead + 'r) -> Box<dyn Iterator<Item = io::Result<Item>> + 'r> {
    match format {
        Format::Log => Box::new(log::Reader::new(input)),
        Format::WorldCup => Box::new(world_cup::Reader::new(input)),
    }
}

/// A trace as a workload: a client follows another until the trace ends.
pub struct Replay<'r>(Sessions<Box<dyn Iterator<Item = io::Result<Item>> + 'r>>);

impl Workload for Replay<'_> {
    fn session(&mut self) -> Option<Session> {
        self.0.next()
    }
}

/// Runs a configuration with the sessions of a trace.
pub fn replay(
    config: &Config,
    format: Format,
    input: impl BufRead,
    selection: &mut dyn Selection,
) -> (Measured, Damages) {
    let mut trace = Replay(Sessions::new(records(format, input)));
    let measured = run_with(config, &mut trace, selection);
    (measured, trace.0.damages)
}
