//! The outcome of a connection: facts only, no times.

use crate::factors::{Cell, Traffic};
use std::collections::BTreeMap;

/// The observation of both ends over some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// Whether bytes arrive at our end, and at the peer's.
    pub to_us: bool,
    pub to_peer: bool,
    /// `-`, `eof`, or the name of an error.
    pub our_end: String,
    pub peer_end: String,
}

impl Look {
    pub fn goes_on(&self) -> bool {
        self.to_us && self.to_peer && self.our_end == "-" && self.peer_end == "-"
    }

    pub fn moves_at_all(&self) -> bool {
        self.to_us || self.to_peer
    }

    /// The same where our program was killed: what counts is what the peer hears. With bytes under
    /// way, as after a change, it depends on moments whether that is an end or a reset.
    pub fn of_killed(mut self, cell: &Cell) -> Look {
        let is_quiet = cell.traffic == Traffic::Idle && !cell.situation.changes();
        if !is_quiet && self.peer_end != "-" {
            self.peer_end = "over".into();
        }
        Look { to_us: false, to_peer: false, our_end: "killed".into(), ..self }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The observations, each with the step before it.
    pub looks: Vec<(&'static str, Look)>,
    pub facts: BTreeMap<&'static str, bool>,
    /// True if it closed in order, with every byte received once and in order.
    pub ended: bool,
}

impl Outcome {
    /// Describes the differences from the kernel's outcome.
    pub fn differences(&self, kernel: &Outcome) -> Vec<String> {
        let mut lines = Vec::new();
        for ((name, ours), (_, kernels)) in self.looks.iter().zip(&kernel.looks) {
            if ours != kernels {
                lines.push(format!("{name}: {}; the kernel alone: {}", ours.words(), kernels.words()));
            }
        }
        for (fact, holds) in &kernel.facts {
            if self.facts.get(fact) != Some(holds) {
                lines.push(format!("not so: {fact}"));
            }
        }
        if self.ended != kernel.ended {
            lines.push(format!("ended in form: {}; the kernel alone: {}", self.ended, kernel.ended));
        }
        lines
    }
}

impl Look {
    fn words(&self) -> String {
        let Look { to_us, to_peer, our_end, peer_end } = self;
        let way = |goes: bool| if goes { "goes on" } else { "stands" };
        format!("to us {}, to the peer {}, our end {our_end}, the peer's {peer_end}", way(*to_us), way(*to_peer))
    }
}
