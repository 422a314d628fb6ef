//! The report on captures: plain figures, in the form in which `--json` prints them.
//!
//! The names at the top level are part of the interface.

use crate::cost::{Estimate, Prices};
use crate::tally::Tally;
use baton_coalesce::{Checksums, Limits, Profile, Window};
use serde::Serialize;
use std::collections::BTreeMap;

/// Flows that are listed.
pub const TOP_FLOWS: usize = 10;

/// The figures of one or several captures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
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
    /// From the first to the last frame, in seconds.
    pub seconds: f64,
    /// How long a segment is held, in nanoseconds.
    pub added_delay_ns: Delay,
    /// Acknowledgments.
    pub acks: Acks,
    /// CPU time, by a model.
    pub cpu: Estimate,
    /// The flows with the most frames.
    pub flows: Vec<FlowLine>,
    /// How many flows are in the table. If some lost their place, figures of flows are lower
    /// bounds.
    pub flows_known: usize,
    /// How many flows lost their place in the table.
    pub flows_forgotten: u64,
    /// Frames of link types that cannot be read, by link type.
    pub unknown_links: BTreeMap<u16, u64>,
    /// Captures.
    pub files: Vec<FileLine>,
}

/// The rules that were applied.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rules {
    /// The paper that the rules are from.
    pub profile: &'static str,
    /// Runs held at a time.
    pub cache: u32,
    /// Bytes of payload in a run; in `ra` of a run with its headers.
    pub buffer: u32,
    /// Segments in a run.
    pub limit: Option<u32>,
    /// Frames in a window.
    pub window_packets: Option<u32>,
    /// Length of a window, in microseconds.
    pub window_us: Option<f64>,
    /// `trust` or `verify`.
    pub checksum: &'static str,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Delay {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest delay.
    pub max: u64,
    /// Segments that are not included, because too many were held at once.
    pub unmeasured: u64,
}

/// Acknowledgments of what was received, every second segment of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Acks {
    /// How many a stack makes without coalescing.
    pub without: u64,
    /// How many it makes with ACK offload: one template for a run.
    pub with: u64,
    /// Acknowledgments that the coalesced receiver does not send.
    pub saved: u64,
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
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FileLine {
    /// Path of the capture.
    pub path: String,
    /// The error that stopped the reading before the file's end.
    pub trouble: Option<String>,
}

impl Rules {
    /// The rules in words and numbers.
    pub fn of(limits: &Limits, checksums: Checksums) -> Rules {
        let (window_packets, window_us) = match limits.window {
            Window::Frames(frames) => (Some(frames.get()), None),
            Window::Time(ns) => (None, Some(ns.get() as f64 / 1e3)),
            Window::Input => (None, None),
        };
        Rules {
            profile: limits.profile.name(),
            cache: limits.cache.get(),
            buffer: if limits.profile == Profile::Ra { Limits::RA_BYTES } else { limits.buffer },
            limit: limits.segments.map(|segments| segments.get()),
            window_packets,
            window_us,
            checksum: if checksums == Checksums::Verify { "verify" } else { "trust" },
        }
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Report {
    /// The figures of a tally.
    pub fn new(tally: &Tally, rules: Rules, prices: Prices, files: Vec<FileLine>) -> Report {
        let [p50, p99, max] = tally.delays.percentiles();
        let flows = tally.flows.top(TOP_FLOWS).into_iter().map(|(flow, counts)| FlowLine {
            source: std::net::SocketAddr::new(flow.src(), flow.src_port()).to_string(),
            destination: std::net::SocketAddr::new(flow.dst(), flow.dst_port()).to_string(),
            frames_in: counts.frames_in,
            frames_out: counts.frames_out,
            eliminated_share: share(counts.frames_in - counts.frames_out, counts.frames_in),
            payload_bytes: counts.payload_bytes,
        });
        let line = |(from, to, runs)| RunLength { from, to, runs };
        Report {
            frames_in: tally.frames_in,
            frames_out: tally.frames_out,
            eliminated: tally.eliminated,
            runs: tally.runs,
            reasons: tally.reasons.clone(),
            eliminated_share: share(tally.eliminated, tally.frames_in),
            rules,
            run_lengths: tally.lengths.iter().map(line).collect(),
            flushes: tally.causes.clone(),
            wire_bytes: tally.wire_bytes,
            segments: tally.segments,
            seconds: tally.span_ns.map_or(0.0, |(first, last)| (last - first) as f64 * 1e-9),
            added_delay_ns: Delay { p50, p99, max, unmeasured: tally.delays.unmeasured() },
            acks: Acks {
                without: tally.acks.every_second,
                with: tally.acks.made,
                saved: tally.acks.every_second - tally.acks.made,
            },
            cpu: prices.estimate(tally.frames_in, tally.frames_out, tally.wire_bytes, tally.segments),
            flows: flows.collect(),
            flows_known: tally.flows.known(),
            flows_forgotten: tally.flows.forgotten(),
            unknown_links: tally.unknown_links.clone(),
            files,
        }
    }

    /// True if a capture could not be read to its end.
    pub fn is_partial(&self) -> bool {
        self.files.iter().any(|file| file.trouble.is_some())
    }
}
