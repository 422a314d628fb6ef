//! Bulk data that is on its way when both ends are about to be joined.
//!
//! ```text
//!   the end that wrote much stops        Meeting, the other end still in the kernel
//!   the other program reads on           until little enough is left
//!   the end that reads stops             Prepare, Ready
//! ```
//!
//! A pair takes along what was written and not sent, an area of it at most. An end that stops while more waits for
//! it would keep the kernel from sending the rest.

use super::Broker;
use super::links::AREA;
use super::state::{Meeting, State};
use super::stay_reason::StayReason;
use baton_ipc::message::Reply;
use baton_kernel::both_ends::unsent;
use baton_policy::Refusal;
use std::time::{Duration, Instant};

/// How long a program that has written much stands still while the other one reads.
const READS_WITHIN: Duration = Duration::from_millis(10);

impl Broker {
    /// Stops the program of the second end, since that of the first has stopped. If much of what the first has
    /// written is not sent yet, it waits; if it is the second that has written much, that one stops before the
    /// first.
    pub(super) fn stop_other(&mut self, [id, peer]: [u64; 2]) {
        if self.has_much_unsent(id) {
            if self.may_drain(id) {
                return self.links.meetings.push([id, peer]);
            }
            return self.does_not_meet(id, Refusal::TooMuchQueued.into());
        }
        if self.has_much_unsent(peer) {
            if self.connections.get(id).is_some_and(|it| it.adoption.is_none()) {
                return self.does_not_meet(id, Refusal::TooMuchQueued.into());
            }
            self.wait_alone(id);
        }
        let Some((other, kernel)) = self.connections.take(peer, State::in_kernel) else { return };
        other.enter(State::Preparing(kernel));
        let client = other.client;
        self.tell_client(client, &Reply::Prepare { id: peer }, Vec::new());
    }

    /// True if more is unsent than a pair takes along.
    fn has_much_unsent(&self, id: u64) -> bool {
        let unsent = self.connections.get(id).and_then(|connection| unsent(&connection.fd).ok());
        unsent.is_some_and(|bytes| bytes > AREA)
    }

    /// Notes that an end waits until the other program has read, and says whether it may wait on.
    fn may_drain(&mut self, id: u64) -> bool {
        match self.connections.get_mut(id).map(|connection| &mut connection.state) {
            Some(State::Meeting(Meeting { drains, .. })) => {
                drains.get_or_insert_with(Instant::now).elapsed() < READS_WITHIN
            }
            _ => false,
        }
    }
}
