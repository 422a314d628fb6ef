//! Pairs that a predecessor was making or ending when it died.
//!
//! ```text
//!   both captured                                  no program was told: both go back as captured
//!   both captured, or joined, and in a slot        the slot has the bytes: both are joined (`take_up_pair`)
//!   one rebuilt, the other joined                  the other is rebuilt, too
//!   both joined, and stopped                       both come home (`take_up_pair`)
//! ```
//!
//! An end that is rebuilt or captured is in repair mode, and resumed only once the other end is rebuilt.

use super::Broker;
use super::pair::head_of;
use super::pair_home::Coming;
use super::state::{Bringing, InKernel, InPair, State};
use super::stay_reason::StayReason;
use baton_kernel::{Captured, is_captured};
use baton_policy::Reason;
use std::collections::BTreeSet;

impl Broker {
    /// Takes home what a predecessor left half-way. Returns the connections that need nothing more.
    pub(super) fn take_up_pairs(&mut self) -> BTreeSet<u64> {
        let between = self.connections.ids(|connection| connection.plan.between.is_some());
        let (runs, moves): (Vec<u64>, Vec<u64>) = between.into_iter().partition(|id| self.runs_already(*id));
        let coming: Vec<Coming> = moves.into_iter().filter_map(|id| self.half_way(id)).collect();
        let done = runs.iter().copied().chain(coming.iter().map(|end| end.id)).collect();
        for id in runs {
            self.goes_on(id);
        }
        let mut rebuilt = Vec::new();
        for end in coming {
            if let Some(connection) = self.connections.known_mut(end.id) {
                connection.why = Reason::BrokerDied;
            }
            match self.rebuild_ends(std::slice::from_ref(&end)) {
                Ok(()) => rebuilt.push(end),
                Err(text) => self.lost(end.id, &text),
            }
        }
        self.resume_ends(rebuilt);
        done
    }

    /// True if it was captured and has been put back since.
    fn runs_already(&self, id: u64) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        matches!(connection.state, State::Bringing(_)) && !is_captured(&connection.fd).unwrap_or(true)
    }

    fn goes_on(&mut self, id: u64) {
        let Some((connection, Bringing { captured, home, .. })) = self.connections.take(id, State::bringing) else {
            return;
        };
        connection.enter(State::Kernel(InKernel { head: Some(head_of(&captured)), home, slot: None }));
        if self.connections.get(id).is_some_and(|connection| self.clients.contains_key(&connection.client)) {
            self.stays_in_kernel(id, broker_died());
        } else {
            self.close_in_kernel(id, !captured.receive_queue.is_empty());
        }
    }

    /// An end as the kernel is to have it, if a predecessor was moving it.
    fn half_way(&self, id: u64) -> Option<Coming> {
        match &self.connections.get(id)?.state {
            State::Bringing(Bringing { captured, .. }) => {
                let captured = Captured::clone(captured);
                Some(Coming { id, head: head_of(&captured), captured, told: Err(broker_died()) })
            }
            State::Paired(InPair { peer, place, .. }) => {
                let other = self.connections.get(*peer)?;
                if !matches!(other.state, State::Kernel(_)) || !is_captured(&other.fd).ok()? {
                    return None;
                }
                let (course, window) = (self.links.stop(*place).ok()?, other.state.captured()?.protocol.rcv_wnd());
                self.coming(id, window, &course, self.links.unread(*place, &course))
            }
            _ => None,
        }
    }
}

fn broker_died() -> StayReason {
    StayReason::new(Reason::BrokerDied, "the broker died during the move")
}
