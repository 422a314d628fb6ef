//! The figures of one capture among several.

use crate::cost::Prices;
use crate::tally::Tally;
use crate::verdict::{Answer, Verdict};
use serde::{Deserialize, Serialize};

/// A few figures of one capture.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Packet records.
    pub frames_in: u64,
    /// Frames that were joined to another.
    pub eliminated: u64,
    /// `eliminated` of `frames_in`, 0 to 1.
    pub eliminated_share: f64,
    /// Whether coalescing would help on this capture.
    pub answer: Answer,
    /// The first frame's stamp, in nanoseconds since 1970.
    pub start_ns: Option<u64>,
    /// Time that passed from the first frame to the last, in seconds.
    pub seconds: f64,
}

impl Figures {
    /// The figures of a tally of one capture.
    pub fn of(tally: &Tally, prices: Prices) -> Figures {
        let Tally { frames_in, frames_out, eliminated, .. } = *tally;
        let saved = prices.estimate(frames_in, frames_out, tally.wire_bytes, tally.segments).saved;
        Figures {
            frames_in,
            eliminated,
            eliminated_share: if frames_in == 0 { 0.0 } else { eliminated as f64 / frames_in as f64 },
            answer: Verdict::of(tally, saved).answer,
            start_ns: tally.start_ns,
            seconds: tally.passed_ns as f64 * 1e-9,
        }
    }
}
