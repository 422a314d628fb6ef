//! The report on captures: plain figures, in the form in which `--json` prints them.
//!
//! The names at the top level are part of the interface.

pub use crate::acks::Acks;
use crate::classifier::Tunnelled;
use crate::cost::{Estimate, Prices};
use crate::flows::Sort;
use crate::link::{ReservedBits, UnknownLinks};
use crate::per_file::Figures;
use crate::read::Facts;
pub use crate::rules::Rules;
use crate::tally::{Beside, Tally};
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The flows that a report lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The most that are listed.
    pub top: usize,
    /// The order in which they are listed.
    pub sort: Sort,
}

/// The figures of one or several captures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Whether coalescing would help.
    pub verdict: Verdict,
    /// Every packet record.
    pub frames_in: u64,
    /// Frames and runs that a stack would see.
    pub frames_out: u64,
    /// Frames that were joined to another: `frames_in` less `frames_out`.
    pub eliminated: u64,
    /// Runs of two segments or more.
    pub runs: u64,
    /// Frames that went on alone, by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// `eliminated` of `frames_in`, 0 to 1.
    pub eliminated_share: f64,
    /// The rules of coalescing that were applied.
    pub rules: Rules,
    /// Runs, single segments among them, by length.
    pub run_lengths: Vec<RunLength>,
    /// Runs, single segments among them, by what ended them.
    pub flushes: BTreeMap<&'static str, u64>,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Data segments that the coalescer held, even if alone.
    pub segments: u64,
    /// Time that passed in the captures, in seconds: from each one's first frame to its last, and added.
    pub seconds: f64,
    /// Frames whose time stamps went back.
    pub stamps_back: u64,
    /// Records whose length the frame's IP header contradicts. Of these, what the header says counts.
    pub lengths_bounded: u64,
    /// Segments that no wire had: the capture was taken above GRO or TSO, where they are joined already or not cut yet.
    pub joined_before: u64,
    /// TCP segments in tunnels, by kind: `tunnels` those that a coalescer does not see, `inner` those that count as if
    /// captured behind the tunnel's end.
    #[serde(flatten)]
    pub tunnelled: Tunnelled,
    /// How long a segment is held, in nanoseconds.
    pub added_delay_ns: Delay,
    /// Acknowledgments.
    pub acks: Acks,
    /// CPU time, by a model.
    pub cpu: Estimate,
    /// These rules and others on the same frames, side by side.
    pub profiles: Vec<ProfileLine>,
    /// The flows that come first in the order of `flows_by`.
    pub flows: Vec<FlowLine>,
    /// The figure by which flows are ordered.
    pub flows_by: Sort,
    /// How many flows are in the table. If some lost their place, figures of flows are lower
    /// bounds.
    pub flows_known: usize,
    /// How many flows lost their place in the table.
    pub flows_forgotten: u64,
    /// Frames of link types that cannot be read, by link type.
    pub unknown_links: UnknownLinks,
    /// Bits that are set though the format of the capture reserves them.
    pub reserved_bits: ReservedBits,
    /// Captures.
    pub files: Vec<FileLine>,
}

/// The outcome of one set of rules.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProfileLine {
    /// The rules that made it.
    pub rules: Rules,
    /// Frames and runs that a stack would see.
    pub frames_out: u64,
    /// Frames that were joined to another.
    pub eliminated: u64,
    /// `eliminated` of all frames, 0 to 1.
    pub eliminated_share: f64,
    /// Runs of two segments or more.
    pub runs: u64,
    /// The share of CPU time saved by the model, of 1.
    pub cpu_saved: f64,
}

/// Runs of one length, or of neighbouring lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RunLength {
    /// Shortest length.
    pub from: u32,
    /// Longest length.
    pub to: u32,
    /// The number of runs.
    pub runs: u64,
}

/// How long segments are held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Delay {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest delay.
    pub max: u64,
    /// Segments that are not included, because too many were held at once.
    pub unmeasured: u64,
    /// Segments by delay, from the shortest to the longest.
    pub histogram: Vec<DelayBucket>,
}

/// Segments whose delay is at most a bound, and above that of the bucket before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DelayBucket {
    /// The bound in nanoseconds: 0, or 1, 2 or 5 times a power of ten.
    pub up_to: u64,
    /// The number of segments.
    pub segments: u64,
}

/// A flow: one direction of a connection.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowLine {
    /// Source address and port.
    pub source: String,
    /// Destination address and port.
    pub destination: String,
    /// Frames that came in.
    pub frames_in: u64,
    /// Frames and runs that came out.
    pub frames_out: u64,
    /// The share that was joined to another, 0 to 1.
    pub eliminated_share: f64,
    /// Payload of its eligible segments in bytes.
    pub payload_bytes: u64,
}

/// One capture.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileLine {
    /// Path of the capture.
    pub path: String,
    /// The error that stopped the reading before the file's end.
    pub trouble: Option<String>,
    /// Its size on disk in bytes, if it is a regular file.
    pub bytes: Option<u64>,
    /// The facts that its headers state, if it has any that can be read.
    pub facts: Option<Facts>,
    /// The figures of this capture alone; `None` if it could not be opened.
    pub figures: Option<Figures>,
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// All rules that saw the frames, in the order rsc, ra, gro.
fn profiles(tally: &Tally, rules: &Rules, prices: Prices) -> Vec<ProfileLine> {
    let Tally { frames_out, eliminated, runs, segments, .. } = *tally;
    let main = Beside { rules: rules.clone(), frames_out, eliminated, runs, segments };
    let mut all: Vec<&Beside> = tally.beside.iter().chain([&main]).collect();
    all.sort_by_key(|beside| ["rsc", "ra", "gro"].iter().position(|name| *name == beside.rules.profile));
    let line = |beside: &Beside| ProfileLine {
        rules: beside.rules.clone(),
        frames_out: beside.frames_out,
        eliminated: beside.eliminated,
        eliminated_share: share(beside.eliminated, tally.frames_in),
        runs: beside.runs,
        cpu_saved: prices.estimate(tally.frames_in, beside.frames_out, tally.wire_bytes, beside.segments).saved,
    };
    all.into_iter().map(line).collect()
}

impl Report {
    /// The figures of a tally, which these rules made.
    pub fn new(tally: &Tally, rules: Rules, prices: Prices, listing: Listing, files: Vec<FileLine>) -> Report {
        let [p50, p99, max] = tally.delays.percentiles();
        let flows = tally.flows.top(listing.top, listing.sort).into_iter().map(|(flow, counts)| FlowLine {
            source: std::net::SocketAddr::new(flow.src(), flow.src_port()).to_string(),
            destination: std::net::SocketAddr::new(flow.dst(), flow.dst_port()).to_string(),
            frames_in: counts.frames_in,
            frames_out: counts.frames_out,
            eliminated_share: share(counts.frames_in - counts.frames_out, counts.frames_in),
            payload_bytes: counts.payload_bytes,
        });
        let line = |(from, to, runs)| RunLength { from, to, runs };
        let bucket = |(up_to, segments)| DelayBucket { up_to, segments };
        let cpu = prices.estimate(tally.frames_in, tally.frames_out, tally.wire_bytes, tally.segments);
        Report {
            verdict: Verdict::of(tally, cpu.saved),
            frames_in: tally.frames_in,
            frames_out: tally.frames_out,
            eliminated: tally.eliminated,
            runs: tally.runs,
            reasons: tally.reasons.clone(),
            eliminated_share: share(tally.eliminated, tally.frames_in),
            profiles: profiles(tally, &rules, prices),
            rules,
            run_lengths: tally.lengths.iter().map(line).collect(),
            flushes: tally.causes.clone(),
            wire_bytes: tally.wire_bytes,
            segments: tally.segments,
            seconds: tally.passed_ns as f64 * 1e-9,
            stamps_back: tally.stamps_back,
            lengths_bounded: tally.lengths_bounded,
            joined_before: tally.joined_before,
            tunnelled: tally.tunnelled.clone(),
            added_delay_ns: Delay {
                p50,
                p99,
                max,
                unmeasured: tally.delays.unmeasured(),
                histogram: tally.delays.buckets().into_iter().map(bucket).collect(),
            },
            acks: Acks::of(tally),
            cpu,
            flows: flows.collect(),
            flows_by: listing.sort,
            flows_known: tally.flows.known(),
            flows_forgotten: tally.flows.forgotten(),
            unknown_links: tally.unknown_links.clone(),
            reserved_bits: tally.reserved_bits,
            files,
        }
    }

    /// True if a capture could not be read to its end.
    pub fn is_partial(&self) -> bool {
        self.files.iter().any(|file| file.trouble.is_some())
    }
}
