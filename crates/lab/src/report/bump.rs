//! The counters of a bump, as text and as JSON.

use super::short;
use baton_bump::Counters;
use baton_coalesce::{Cause, Counts, Reason, Verdict};
use baton_port::packet::PacketCounters;
use baton_port::tap::TapCounters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::Duration;

/// A line that `--json` prints.
#[derive(Serialize, Deserialize, Debug)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// Frames pass.
    Ready {
        /// Interface towards the wire.
        wire: String,
        /// Device towards the kernel's own TCP.
        host: String,
    },
    /// Counters, printed on request and at the end.
    Stats(Report),
}

impl Line {
    /// Writes it to standard output.
    pub fn print(&self) {
        let text = serde_json::to_string(self).expect("counters and names have a JSON form");
        // A closed standard output does not stop the bump.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }
}

/// The counters of a bump.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Time since the start, in seconds.
    pub seconds: f64,
    /// Frames from the wire.
    pub wire_in: u64,
    /// Bytes of the frames from the wire.
    pub wire_in_bytes: u64,
    /// Those that already held several segments.
    pub wire_in_super: u64,
    /// Frames handed to the kernel.
    pub host_in: u64,
    /// Those that are runs of two or more segments.
    pub runs: u64,
    /// Segments that were appended to another.
    pub eliminated: u64,
    /// Frames that did not coalesce, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Runs by what ended them.
    pub causes: BTreeMap<String, u64>,
    /// Frames from the kernel.
    pub host_out: u64,
    /// Bytes of the frames from the kernel.
    pub host_out_bytes: u64,
    /// Frames handed to the wire.
    pub wire_out: u64,
    /// ACKs of the kernel that were expanded into several.
    pub acks_expanded: u64,
    /// Additional ACKs sent for them.
    pub acks_made: u64,
    /// Times that the wire was full and the kernel had to wait.
    pub wire_full: u64,
    /// Frames lost, by reason.
    pub lost: BTreeMap<String, u64>,
}

fn named<'a>(all: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    all.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

impl Report {
    /// Builds the report from the counters of the parts.
    pub fn new(time: Duration, counters: Counters, counts: &Counts, wire: PacketCounters, host: TapCounters) -> Report {
        let lost = [
            ("wire_ring_full", wire.rx_ring_full),
            ("wire_unfit", wire.rx_unfit),
            ("wire_down", wire.tx_link_down),
            ("wire_refused", wire.tx_refused),
            ("host_full", counters.host_full),
            ("host_down", host.tx_link_down),
            ("host_refused", host.tx_refused),
            ("host_short", host.rx_short),
        ];
        Report {
            seconds: time.as_secs_f64(),
            wire_in: counters.wire_in,
            wire_in_bytes: counters.wire_in_bytes,
            wire_in_super: counters.wire_in_super,
            host_in: counters.host_in,
            runs: counters.runs,
            eliminated: counts.eliminated(),
            reasons: named(Reason::ALL.iter().map(|reason| (reason.name(), counts.of(Verdict::Bypass(*reason))))),
            causes: named(Cause::ALL.iter().map(|cause| (cause.name(), counts.flushed(*cause)))),
            host_out: counters.host_out,
            host_out_bytes: counters.host_out_bytes,
            wire_out: counters.wire_out,
            acks_expanded: counters.acks_expanded,
            acks_made: counters.acks_made,
            wire_full: counters.wire_full,
            lost: named(lost.into_iter()),
        }
    }

    /// One line about the traffic since `before`.
    pub fn live(&self, before: &Report) -> String {
        let seconds = (self.seconds - before.seconds).max(f64::MIN_POSITIVE);
        let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
        let (frames, out) = (self.wire_in - before.wire_in, self.host_in - before.host_in);
        format!(
            "in {} Gb/s, {} frames/s, {} a run · out {} Gb/s · {} ACKs/s made · {} lost",
            short(rate(self.wire_in_bytes, before.wire_in_bytes) * 8e-9),
            short(rate(self.wire_in, before.wire_in)),
            short(frames as f64 / out.max(1) as f64),
            short(rate(self.host_out_bytes, before.host_out_bytes) * 8e-9),
            short(rate(self.acks_made, before.acks_made)),
            self.lost.values().sum::<u64>(),
        )
    }
}

fn list(counts: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    parts.join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "from the wire {} frames, {} bytes, in {:.1} s; to the kernel {}, of which {} runs",
            self.wire_in, self.wire_in_bytes, self.seconds, self.host_in, self.runs
        )?;
        writeln!(
            f,
            "from the kernel {} frames, {} bytes; to the wire {}, of which {} ACKs made of {}",
            self.host_out, self.host_out_bytes, self.wire_out, self.acks_made, self.acks_expanded
        )?;
        for (what, counts) in [("not coalesced", &self.reasons), ("runs ended by", &self.causes), ("lost", &self.lost)]
        {
            if !counts.is_empty() {
                writeln!(f, "{what}: {}", list(counts))?;
            }
        }
        Ok(())
    }
}
