//! Which connections are handed off (CH §3.3): a rule of the policy, `predict`, or by responses.

mod by_response;

use crate::costs::Costs;
use crate::nic::Id;
use baton_policy::places::{MOVES_AT_MOST, Pace, Prices};
use baton_policy::rules::{Decision, History, Known, Room, Rule, Wait};
use baton_policy::survival::Survival;
use std::collections::HashMap;

pub use by_response::ByResponse;

/// A connection that may be handed off.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The connection's number.
    pub id: Id,
    /// Enqueue operations so far, which are in proportion to packets (CH §5.2).
    pub sends: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// The time, in ns.
    pub now_ns: u64,
}

/// A send of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The connection's number.
    pub id: Id,
    /// The packets of it.
    pub packets: u64,
    /// Bytes that the client has sent in all.
    pub received: u64,
    /// Packets of the response that are not written yet. Only an oracle may read it.
    pub unwritten: u64,
    /// The time, in ns.
    pub now_ns: u64,
}

/// The decision for a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Hand it off.
    Move,
    /// Hand it off, and take this one back to the host.
    Replace(Id),
    /// Ask again at its next send.
    Wait,
    /// Do not ask again.
    Never,
}

/// Decides for one connection at a time.
pub trait Selection {
    /// The decision, asked when a connection is established and at each send.
    fn choose(&mut self, candidate: &Candidate, room: Room) -> Choice;

    /// A connection sends, wherever it is.
    fn sends(&mut self, _sent: &Sent) {}

    /// A connection ended after so many sends.
    fn ended(&mut self, _id: Id, _sends: u64) {}
}

impl Selection for Rule {
    fn choose(&mut self, candidate: &Candidate, room: Room) -> Choice {
        let known = Known { sends: candidate.sends, bytes: candidate.bytes, expected: None, history: History::New };
        match self.decide(&known, room) {
            Decision::Move => Choice::Move,
            Decision::NotYet(Wait::Room) | Decision::Never(_) => Choice::Never,
            Decision::NotYet(_) => Choice::Wait,
        }
    }
}

/// How many of those on the NIC are compared with a newcomer.
const LOOKS: usize = 16;

/// The positions among `places` that a newcomer is compared with: a few, in turn. `hand` is where the last look
/// ended.
fn look(hand: &mut usize, places: usize) -> impl Iterator<Item = usize> + use<> {
    let first = *hand;
    let looks = LOOKS.min(places);
    *hand = (first + looks) % places.max(1);
    (0..looks).map(move |step| (first + step) % places)
}

/// The prices of a NIC: a packet saves what it costs on the host less a message; a move costs a handoff each
/// way. The host has 2 GHz.
fn prices(costs: &Costs) -> Prices {
    let saving_ns = (costs.host_packet.saturating_sub(costs.host_bypass) / 2) as u32;
    Prices { saving_ns, move_ns: costs.host_handoff as u32 }
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    pace: Pace,
    sends: u64,
    moves: u8,
    there: bool,
}

/// Places by gain: what each connection is expected to send yet, and how fast ([`baton_policy::places`]).
#[derive(Clone, Debug)]
pub struct ByGain {
    prices: Prices,
    survival: Survival,
    seen: HashMap<Id, Seen>,
    there: Vec<Id>,
    hand: usize,
}

impl ByGain {
    /// The rule `predict`, with the prices of a NIC of these costs.
    pub fn predict(costs: &Costs) -> ByGain {
        let (survival, seen) = Default::default();
        ByGain { prices: prices(costs), survival, seen, there: Vec::new(), hand: 0 }
    }

    fn gain(&self, id: Id, now_ns: u64) -> u64 {
        let Some(seen) = self.seen.get(&id) else { return 0 };
        let rate = seen.pace.per_second(now_ns);
        if seen.there {
            return self.prices.gain_there(rate);
        }
        self.prices.gain(self.survival.expected(seen.sends).packets, rate)
    }

    fn note(&mut self, id: Id) {
        if let Some(seen) = self.seen.get_mut(&id) {
            (seen.there, seen.moves) = (true, seen.moves + 1);
        }
        self.there.push(id);
    }
}

impl Selection for ByGain {
    fn choose(&mut self, candidate: &Candidate, room: Room) -> Choice {
        let Candidate { id, now_ns, .. } = *candidate;
        let gain = self.gain(id, now_ns);
        let moves = self.seen.get(&id).map_or(0, |seen| seen.moves);
        if gain == 0 || moves >= MOVES_AT_MOST || room.at_most == 0 {
            return Choice::Wait;
        }
        if room.connections < room.at_most {
            self.note(id);
            return Choice::Move;
        }
        let looked: Vec<usize> = look(&mut self.hand, self.there.len()).collect();
        let gains = looked.into_iter().map(|at| (at, self.gain(self.there[at], now_ns)));
        let Some(loser) = self.prices.takes_over(gain, gains) else { return Choice::Wait };
        let loser = self.there.swap_remove(loser);
        if let Some(seen) = self.seen.get_mut(&loser) {
            seen.there = false;
        }
        self.note(id);
        Choice::Replace(loser)
    }

    fn sends(&mut self, sent: &Sent) {
        let seen = self.seen.entry(sent.id).or_default();
        seen.sends += sent.packets;
        seen.pace.add(sent.now_ns, sent.packets as u32);
    }

    fn ended(&mut self, id: Id, sends: u64) {
        self.survival.ended(sends);
        if self.seen.remove(&id).is_some_and(|seen| seen.there) {
            self.there.retain(|&other| other != id);
        }
    }
}
