//! Which connections are handed off (CH §3.3): a rule of the policy, or an oracle.

use baton_policy::rules::{Decision, Known, Room, Rule, Stay};

/// Decides for one connection at a time.
pub trait Selection {
    /// The decision for a connection of which `known` is known. `packets` is what it will send in its
    /// life; only an oracle may read it.
    fn decide(&mut self, known: &Known, room: Room, packets: u32) -> Decision;
}

impl Selection for Rule {
    fn decide(&mut self, known: &Known, room: Room, _packets: u32) -> Decision {
        Rule::decide(*self, known, room)
    }
}

/// Knows each connection's life, and takes those that send at least so many data packets.
#[derive(Clone, Copy, Debug)]
pub struct Oracle(pub u32);

impl Selection for Oracle {
    fn decide(&mut self, known: &Known, room: Room, packets: u32) -> Decision {
        if packets < self.0 {
            return Decision::Never(Stay::Rule);
        }
        Rule::FirstCome.decide(known, room)
    }
}
