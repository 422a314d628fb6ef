//! The chapter about live connections that move: what was found.
//!
//! A [`Way`] is a way to serve: the kernel alone, or Baton by one kind of steering. It has
//! measured downloads that stayed where they were, and one that moved all the while
//! ([`Live`]), shown as what came when.

use super::{Figure, Run, Wire, median_of, short};
use baton_apps::measure::Median;
use serde::{Deserialize, Serialize};

/// The chapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moves {
    /// The ways, the kernel first.
    pub ways: Vec<Way>,
}

/// One way to serve a program's downloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Way {
    /// How it is named.
    pub wire: Wire,
    /// Measured downloads of files of 1 MB.
    pub runs: Vec<Run>,
    /// Measured requests for a file of 1 KB.
    pub requests: Vec<Run>,
    /// The download that moved.
    pub live: Option<Live>,
    /// Why this machine cannot have it.
    pub missing: Option<String>,
}

/// A download that moved to the engine and back while it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Live {
    /// From the first byte that came to the last.
    pub seconds: f64,
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that the program sent.
    pub sent: u64,
    /// SHA-256 of what came.
    pub sha256: String,
    /// Whether it is that of what was sent.
    pub equal: bool,
    /// Times that the connection changed sides, those after the engine's death included.
    pub moves: u64,
    /// Longest that a move let the connection stand still, by the service's word.
    pub pause_us: u64,
    /// Longest that the client got nothing, while the engine lived.
    pub gap_us: u64,
    /// What the engine's death did.
    pub killed: Killed,
    /// Length of a slice.
    pub slice_seconds: f64,
    /// What came when, from the first byte on.
    pub slices: Vec<Slice>,
}

/// What the engine's death did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Killed {
    /// When it was killed, after the first byte.
    pub at_seconds: f64,
    /// Time from then until the connection went on in the kernel.
    pub home_us: u64,
    /// Time from then until another engine had it.
    pub again_us: u64,
    /// Longest that the client got nothing around that time.
    pub gap_us: u64,
}

/// What came in a short time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// Bytes.
    pub bytes: u64,
    /// Whether an engine had the connection.
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

/// What the chapter is called.
pub const TITLE: &str = "nginx under baton run";

/// What has to be known beside its rows.
pub const NOTE: &str =
    "xdp takes the interface's receive offloads, from the kernel's connections on it too; tc does not";

impl Live {
    /// What happened to it, in a sentence.
    pub fn tell(&self) -> String {
        let ms = |micros: u64| short(micros as f64 / 1e3);
        format!(
            "{} moves while {} MB came, longest pause {} ms; engine killed: on in the kernel after {} ms, longest pause \
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
