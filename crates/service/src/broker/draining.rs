//! Bulk data that is on its way when both ends are about to be joined.
//!
//! ```text
//!   the end that has written much stops   Meeting; the other end is in the kernel, or goes on there
//!   the other program reads               until little enough is left
//!   the end that has read stops           Prepare, Ready
//! ```
//!
//! A pair takes along what was written and not read, an area of it at most. If the end that reads stood still while
//! there is more, the kernel would not send the rest.

use super::Broker;
use super::connection::Connection;
use super::links::AREA;
use super::state::{Drain, Meeting, State};
use super::stay_reason::StayReason;
use baton_ipc::message::Reply;
use baton_kernel::both_ends::{unread, unsent};
use baton_policy::{Reason, Refusal};
use std::time::{Duration, Instant};

/// How long a program that has written much stands still while the other one reads nothing.
const READS_WITHIN: Duration = Duration::from_millis(10);

impl Broker {
    /// The program of the first end has stopped, that of the second has not: stops it, once little of what the
    /// first has written is unsent.
    pub(super) fn stop_other(&mut self, [id, peer]: [u64; 2]) {
        let left = self.left([id, peer]);
        if left > AREA {
            return self.drain([id, peer], left);
        }
        self.stop_in_kernel(peer);
    }

    fn stop_in_kernel(&mut self, id: u64) {
        let Some((connection, kernel)) = self.connections.take(id, State::in_kernel) else { return };
        connection.enter(State::Preparing(kernel));
        let client = connection.client;
        self.tell_client(client, &Reply::Prepare { id }, Vec::new());
    }

    /// The program of the first end hands it over. If it has yet to read much, it goes on, and the second stops
    /// before it. Returns true if so.
    pub(super) fn reads_first(&mut self, [id, peer]: [u64; 2]) -> bool {
        let adopts = self.connections.get(id).is_some_and(|connection| connection.adoption.is_some());
        let runs = self.connections.get(peer).is_some_and(|other| matches!(other.state, State::Kernel(_)));
        if !adopts || !runs || self.left([peer, id]) <= AREA {
            return false;
        }
        self.wait_alone(id);
        self.stop_in_kernel(peer);
        true
    }

    /// Both programs have stopped, that of the first end just now. If the second's has yet to read much, it goes on.
    /// Returns true if so.
    pub(super) fn lets_read(&mut self, [id, peer]: [u64; 2]) -> bool {
        let left = self.left([id, peer]);
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

    /// The first end waits until the program of the second has read what is `left`.
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

    /// Bytes that the program of the first end has written, and that of the second has not read. Those in flight are
    /// soon among them.
    fn left(&self, [id, peer]: [u64; 2]) -> u32 {
        let (from, to) = (self.connections.get(id), self.connections.get(peer));
        let unsent = from.and_then(|connection| unsent(&connection.fd).ok()).unwrap_or(0);
        let unread = to.and_then(|connection| unread(&connection.fd).ok()).unwrap_or(0);
        unsent.saturating_add(unread)
    }
}
