//! Which connections are handed off (CH §3.3): a rule of the policy, `predict`, or an oracle.

use crate::costs::Costs;
use crate::nic::Id;
use crate::stack::MSS;
use crate::workload::Session;
use baton_policy::places::{MOVES_AT_MOST, Pace, Prices};
use baton_policy::rules::{Decision, History, Known, Room, Rule, Wait};
use baton_policy::survival::Survival;
use std::collections::HashMap;

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

/// The rest of a connection: its session, and how far it is.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    /// All its requests.
    pub session: &'a Session,
    /// How many of them have come.
    pub served: usize,
    /// Bytes of the last one's response that are not written yet.
    pub unwritten: u32,
}

impl Ahead<'_> {
    /// Packets still to come, and how many there are for a response. A client that holds its rate pauses
    /// after a response, so its next ones do not count.
    fn left(self) -> (u64, u64) {
        let now = u64::from(self.unwritten.div_ceil(MSS));
        if self.session.kbps.is_some() {
            return (now, now);
        }
        let later = &self.session.requests[self.served..];
        let all = now + later.iter().map(|request| u64::from(request.packets())).sum::<u64>();
        (all, all / (later.len() as u64 + 1))
    }
}

/// Responses a second of a client: any number gives the same order of connections.
const TURNS: u64 = 15;

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

    /// A connection sends, wherever it is. Only an oracle may read what it will do.
    fn sends(&mut self, _id: Id, _packets: u64, _now_ns: u64, _ahead: Ahead<'_>) {}

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

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    pace: Pace,
    sends: u64,
    /// Packets still to come, and their rate: an oracle's knowledge.
    left: u64,
    rate: u64,
    moves: u8,
    there: bool,
}

/// Places by gain: what each connection is expected to send yet, and how fast ([`baton_policy::places`]). As
/// an oracle it knows what each one is still to send.
#[derive(Clone, Debug)]
pub struct ByGain {
    prices: Prices,
    oracle: bool,
    survival: Survival,
    seen: HashMap<Id, Seen>,
    there: Vec<Id>,
    hand: usize,
}

impl ByGain {
    /// The rule `predict`, with the prices of a NIC of these costs.
    pub fn predict(costs: &Costs) -> ByGain {
        ByGain::new(costs, false)
    }

    /// An oracle of connections' lives.
    pub fn oracle(costs: &Costs) -> ByGain {
        ByGain::new(costs, true)
    }

    /// A packet saves what it costs on the host less a message; a move costs a handoff each way. The host has
    /// 2 GHz.
    fn new(costs: &Costs, oracle: bool) -> ByGain {
        let saving_ns = (costs.host_packet.saturating_sub(costs.host_bypass) / 2) as u32;
        let prices = Prices { saving_ns, move_ns: costs.host_handoff as u32 };
        let (survival, seen) = Default::default();
        ByGain { prices, oracle, survival, seen, there: Vec::new(), hand: 0 }
    }

    fn gain(&self, id: Id, now_ns: u64) -> u64 {
        let Some(seen) = self.seen.get(&id) else { return 0 };
        if self.oracle {
            return self.prices.gain(seen.left, seen.rate);
        }
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
        let places = self.there.len();
        let looks = LOOKS.min(places);
        let first = self.hand;
        let looked = (0..looks).map(|step| (first + step) % places);
        let gains: Vec<(usize, u64)> = looked.map(|at| (at, self.gain(self.there[at], now_ns))).collect();
        self.hand = (first + looks) % places.max(1);
        let Some(loser) = self.prices.takes_over(gain, gains) else { return Choice::Wait };
        let loser = self.there.swap_remove(loser);
        if let Some(seen) = self.seen.get_mut(&loser) {
            seen.there = false;
        }
        self.note(id);
        Choice::Replace(loser)
    }

    fn sends(&mut self, id: Id, packets: u64, now_ns: u64, ahead: Ahead<'_>) {
        let seen = self.seen.entry(id).or_default();
        if self.oracle {
            let (left, in_turn) = ahead.left();
            (seen.left, seen.rate) = (left, in_turn * TURNS);
        }
        seen.sends += packets;
        seen.pace.add(now_ns, packets as u32);
    }

    fn ended(&mut self, id: Id, sends: u64) {
        self.survival.ended(sends);
        if self.seen.remove(&id).is_some_and(|seen| seen.there) {
            self.there.retain(|&other| other != id);
        }
    }
}
