//! Bulk data that is on its way when both ends are about to be joined.
//!
//! ```text
//!   the end that has written much stops   Meeting; the other end is in the kernel, or goes on there
//!   the other program reads               until little enough is left
//!   the end that has read stops           Prepare, Ready
//! ```
//!
//! A pair takes along what was written and not sent, an area of it at most. If the end that reads stood still while
//! more is unsent, the kernel would not send the rest.

use super::Broker;
use super::connection::Connection;
use super::links::AREA;
use super::state::{Drain, Meeting, State};
use super::stay_reason::StayReason;
use baton_ipc::message::Reply;
use baton_kernel::both_ends::unsent;
use baton_policy::{Reason, Refusal};
use std::time::{Duration, Instant};

/// How long a program that has written much stands still while the other one reads nothing.
const READS_WITHIN: Duration = Duration::from_millis(10);

impl Broker {
    /// The program of the first end has stopped, that of the second has not: stops it, once little of what the
    /// first has written is unsent.
    pub(super) fn stop_other(&mut self, [id, peer]: [u64; 2]) {
        let left = self.unsent(id);
        if left > AREA {
            return self.drain([id, peer], left);
        }
        let Some((other, kernel)) = self.connections.take(peer, State::in_kernel) else { return };
        other.enter(State::Preparing(kernel));
        let client = other.client;
        self.tell_client(client, &Reply::Prepare { id: peer }, Vec::new());
    }

    /// Both programs have stopped, that of the first end just now. If much of what it has written is unsent, the
    /// second goes on and reads that. Returns true if so.
    pub(super) fn lets_read(&mut self, [id, peer]: [u64; 2]) -> bool {
        let left = self.unsent(id);
        let adopts = match self.connections.get(peer) {
            Some(Connection { state: State::Meeting(Meeting { drains: None, .. }), adoption, .. }) if left > AREA => {
                adoption.is_some()
            }
            _ => return false,
        };
        if adopts {
            self.wait_alone(peer);
        } else {
            self.stays_in_kernel(peer, StayReason::new(Reason::InUse, "it reads what the other end has written"));
        }
        self.drain([id, peer], left);
        true
    }

    /// The first end waits until the program of the second has read. Bytes that are `left` are unsent.
    fn drain(&mut self, [id, peer]: [u64; 2], left: u32) {
        let Some(State::Meeting(meeting)) = self.connections.get_mut(id).map(|it| &mut it.state) else { return };
        let drain = meeting.drains.get_or_insert_with(|| Drain { left, since: Instant::now() });
        if left < drain.left {
            *drain = Drain { left, since: Instant::now() };
        }
        if drain.since.elapsed() < READS_WITHIN {
            self.links.meetings.push([id, peer]);
        } else {
            self.does_not_meet(id, Refusal::TooMuchQueued.into());
        }
    }

    fn unsent(&self, id: u64) -> u32 {
        self.connections.get(id).and_then(|connection| unsent(&connection.fd).ok()).unwrap_or(0)
    }
}
