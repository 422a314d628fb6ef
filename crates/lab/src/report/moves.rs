//! Results of the chapter about live connections that move.
//!
//! A [`Way`] is a way of serving: the kernel alone, or Baton with one kind of steering. It has measured
//! downloads that did not move, and one that moved repeatedly ([`Live`]), shown as bytes over time.

use super::{Figure, Run, Wire, median_of, short};
use baton_apps::measure::Median;
use serde::{Deserialize, Serialize};

/// The report's part about a download that moves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moves {
    /// The ways, the kernel first.
    pub ways: Vec<Way>,
}

/// One way of serving a program's downloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Way {
    /// The wire that it ran over.
    pub wire: Wire,
    /// Measured downloads of files of 1 MB.
    pub runs: Vec<Run>,
    /// Measured requests for a file of 1 KB.
    pub requests: Vec<Run>,
    /// The download that moved.
    pub live: Option<Live>,
    /// Why this way is not possible on this machine, if so.
    pub missing: Option<String>,
}

/// A download that moved to the engine and back while it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Live {
    /// Time from the first received byte to the last.
    pub seconds: f64,
    /// Bytes received.
    pub bytes: u64,
    /// Bytes that the program sent.
    pub sent: u64,
    /// SHA-256 of the received bytes.
    pub sha256: String,
    /// True if it equals the digest of the sent bytes.
    pub equal: bool,
    /// Number of moves, including those after the engine's death.
    pub moves: u64,
    /// Longest pause of a move, as reported by the service.
    pub pause_us: u64,
    /// Longest time without a byte at the client, while the engine was alive.
    pub gap_us: u64,
    /// The effects of the engine's death.
    pub killed: Killed,
    /// Length of a slice.
    pub slice_seconds: f64,
    /// Received bytes over time, starting at the first byte.
    pub slices: Vec<Slice>,
}

/// The effects of the engine's death.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Killed {
    /// When it was killed, after the first byte.
    pub at_seconds: f64,
    /// Time from then until the connection continued in the kernel.
    pub home_us: u64,
    /// Time from then until another engine had it.
    pub again_us: u64,
    /// Longest time without a byte at the client around that time.
    pub gap_us: u64,
}

/// The bytes received in a short interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// Bytes.
    pub bytes: u64,
    /// True if an engine had the connection.
    pub engine: bool,
}

impl Moves {
    /// A way's CPU time a byte, divided by the kernel's over the same frames.
    pub fn ratio(&self, way: &Way) -> Option<f64> {
        self.ratio_of(way, &|way| median_of(&way.runs, Figure::CpuPerGb))
    }

    /// A way's CPU time a request, divided by the kernel's over the same frames.
    pub fn request_ratio(&self, way: &Way) -> Option<f64> {
        self.ratio_of(way, &|way| median_of(&way.requests, Figure::CpuPerRequest))
    }

    fn ratio_of(&self, way: &Way, figure: &dyn Fn(&Way) -> Option<Median>) -> Option<f64> {
        let value = |way: &Way| figure(way).map(|value| value.median);
        let baseline = self.ways.iter().find(|other| Some(&other.wire.id) == way.wire.baseline.as_ref())?;
        Some(value(way)? / value(baseline).filter(|&value| value > 0.0)?)
    }
}

/// Title of the chapter.
pub const TITLE: &str = "nginx under baton run";

/// A note that the rows need.
pub const NOTE: &str =
    "xdp disables the interface's receive offloads, also for the kernel's connections on it; tc does not";

impl Live {
    /// Describes the download in a sentence.
    pub fn tell(&self) -> String {
        let ms = |micros: u64| short(micros as f64 / 1e3);
        format!(
            "{} moves while {} MB arrived, longest pause {} ms; engine killed: continued in the kernel after {} ms, longest pause \
             {} ms; digest {}",
            self.moves,
            short(self.bytes as f64 / 1e6),
            ms(self.gap_us),
            ms(self.killed.home_us),
            ms(self.killed.gap_us),
            if self.equal { "equal" } else { "NOT equal" },
        )
    }
}
