//! Places by the responses of connections ([`baton_policy::responses`]), as they are seen or as an oracle knows
//! them.

use super::{Candidate, Choice, Selection, Sent, look, prices};
use crate::costs::Costs;
use crate::nic::Id;
use baton_policy::places::{MOVES_AT_MOST, Prices};
use baton_policy::responses::{Course, Prospect};
use baton_policy::rules::Room;
use baton_policy::survival::Survival;
use std::collections::HashMap;

/// A connection as the selection has seen it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    course: Course,
    /// Packets of its last send.
    queued: u64,
    /// Packets of its response that are still to be written: an oracle's knowledge.
    unwritten: u64,
    moves: u8,
    there: bool,
}

/// Places by what each connection is about to send. As an oracle it knows which responses are written whole
/// and how much of the others is left at least, and moves a connection as often as it likes.
#[derive(Clone, Debug)]
pub struct ByResponse {
    prices: Prices,
    oracle: bool,
    lives: Survival,
    responses: Survival,
    seen: HashMap<Id, Seen>,
    there: Vec<Id>,
    hand: usize,
}

impl ByResponse {
    /// By responses as they are seen, with the prices of a NIC of these costs.
    pub fn seen(costs: &Costs) -> ByResponse {
        ByResponse::new(costs, false)
    }

    /// By responses as an oracle knows them, with the same prices.
    pub fn oracle(costs: &Costs) -> ByResponse {
        ByResponse::new(costs, true)
    }

    fn new(costs: &Costs, oracle: bool) -> ByResponse {
        let (lives, responses, seen) = Default::default();
        ByResponse { prices: prices(costs), oracle, lives, responses, seen, there: Vec::new(), hand: 0 }
    }

    fn prospect(&self, seen: &Seen, now_ns: u64) -> Prospect {
        let life = self.lives.expected(seen.course.packets()).packets;
        let (left, queued) = match self.oracle {
            true if seen.unwritten == 0 => (0, seen.queued),
            true => (seen.unwritten.max(life), seen.queued),
            false => {
                // One that has its place has sent them.
                let queued = if seen.there { 0 } else { seen.queued };
                (self.responses.expected(seen.course.response()).packets, queued)
            }
        };
        seen.course.prospect(left + queued, life, now_ns)
    }

    fn note(&mut self, id: Id) {
        if let Some(seen) = self.seen.get_mut(&id) {
            (seen.there, seen.moves) = (true, seen.moves.saturating_add(1));
        }
        self.there.push(id);
    }
}

impl Selection for ByResponse {
    fn choose(&mut self, candidate: &Candidate, room: Room) -> Choice {
        let Candidate { id, now_ns, .. } = *candidate;
        let Some(seen) = self.seen.get(&id) else { return Choice::Wait };
        let newcomer = self.prospect(seen, now_ns);
        let may_move = self.oracle || seen.moves < MOVES_AT_MOST;
        if !may_move || room.at_most == 0 || !self.prices.pays(newcomer.packets()) {
            return Choice::Wait;
        }
        if room.connections < room.at_most {
            self.note(id);
            return Choice::Move;
        }
        let looked = look(&mut self.hand, self.there.len());
        let there = looked.filter_map(|at| Some((at, self.prospect(self.seen.get(&self.there[at])?, now_ns))));
        let Some(loser) = newcomer.takes_over(there, self.prices) else { return Choice::Wait };
        let loser = self.there.swap_remove(loser);
        if let Some(seen) = self.seen.get_mut(&loser) {
            seen.there = false;
        }
        self.note(id);
        Choice::Replace(loser)
    }

    fn sends(&mut self, sent: &Sent) {
        let seen = self.seen.entry(sent.id).or_default();
        (seen.queued, seen.unwritten) = (sent.packets, sent.unwritten);
        if let Some(response) = seen.course.add(sent.now_ns, sent.packets, sent.received) {
            self.responses.ended(response);
        }
    }

    fn ended(&mut self, id: Id, sends: u64) {
        self.lives.ended(sends);
        let Some(seen) = self.seen.remove(&id) else { return };
        self.responses.ended(seen.course.response());
        if seen.there {
            self.there.retain(|&other| other != id);
        }
    }
}
