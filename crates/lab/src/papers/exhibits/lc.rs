//! LC, *Loosely Coupled TCP Acceleration Architecture*: how busy the TCP Control Engine (TCE) is.

use crate::experiment::{Exhibit, Method};
use crate::papers::LC;

const WHY: &str = "The paper's control engine had a 1.8 GHz CPU of 2003 to itself; ours shares a thread with the Streamer, \
    so its share at the same rate is what compares. The paper prints no values of single message sizes.";

const fn exhibit(id: &'static str, what: &'static str, about: &'static str, why: &'static str) -> Exhibit {
    Exhibit { id, paper: &LC, what, about, method: Method::Measured, why, from: &["tce"] }
}

/// Figures 3 to 6.
pub const EXHIBITS: &[Exhibit] = &[
    exhibit("lc-figure-3", "Figure 3", "receiving: throughput and the TCE's share of a CPU, by message", WHY),
    exhibit(
        "lc-figure-4",
        "Figure 4",
        "receiving at 3.7 Gb/s: the TCE's time by activity",
        "Our TCE reads no queue: it is called for each event in the same thread. So reading events has no time of its own, \
         and processing them is all of its time.",
    ),
    exhibit("lc-figure-5", "Figure 5", "transmitting: throughput and the TCE's share of a CPU, by message", WHY),
    exhibit("lc-figure-6", "Figure 6", "transmitting: the TCE's time", WHY),
];
