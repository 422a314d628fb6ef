//! Connections for which the kernel has no route. An engine's death or a failed move can strand such
//! a connection, and an engine on XDP may have to give one up: IPv6, for example, has no routes
//! through an interface that is down. The kernel's own connections stand still then, and so do
//! these. The broker keeps their state and tries again at each tick.

use super::Broker;
use super::connection::Connection;
use super::evict::Homecoming;
use super::state::{Arrival, State, Stranded};
use super::stay_reason::StayReason;
use super::transfer::{Direction, Landed};
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, Record};
use baton_policy::Reason;
use std::sync::Arc;
use std::time::Duration;

/// How long the broker keeps a connection that its program has closed. The kernel keeps its own for
/// about as long (`tcp_orphan_retries`).
const ORPHAN: Duration = Duration::from_secs(100);

/// The message about a connection that was about to move.
pub(super) fn no_route() -> StayReason {
    StayReason::new(Reason::Homeless, "the connection's route disappeared just before the move")
}

impl Connection {
    /// Returns true if nobody uses the connection and the broker has kept it for long enough.
    fn is_given_up(&self, has_program: bool) -> bool {
        (self.closed || !has_program) && self.stood_still.is_some_and(|since| since.elapsed() > ORPHAN)
    }
}

impl Broker {
    /// Keeps a connection until the kernel can take it.
    pub(super) fn strand(&mut self, id: u64, stranded: Stranded) {
        let Broker { connections, slots, kernel, checkpoints, journal, .. } = self;
        let Some(connection) = connections.known_mut(id) else { return };
        if connection.stood_still.is_none() {
            connection.stop();
        }
        // A program's engine is gone for good, and its slot may be reused.
        let own = slots.iter().position(|slot| slot.owner.is_none() && slot.index == slots[connection.slot].index);
        let (before, tuple) = (connection.slot, connection.tuple());
        connection.slot = own.unwrap_or(before);
        // If this fails, the frames go to an engine that does not know the connection and drops
        // them too.
        if let Ok(steering) = kernel.steering(connection.plan.way.interface) {
            let held = steering.hold_back(tuple);
            journal.tell_failed("holding back frames of a connection without a route", held);
        }
        let (send, receive) = (&stranded.captured.send_queue, &stranded.captured.receive_queue);
        let queues = Record::Queues { id, send: send.len() as u32, unread: receive.len() as u32 };
        let written = write_queues(send, receive);
        connection.enter(State::Stranded(stranded));
        match written {
            Ok(Some(file)) => checkpoints.keep(record::queues(id), &queues, &[&Arc::new(file)]),
            Ok(None) => checkpoints.forget(record::queues(id)),
            Err(error) => return self.lost(id, &format!("recording what was captured: {error}")),
        }
        self.log_stranded(id);
        self.unhold(before, tuple);
        self.note(id);
        self.settled(id, false);
    }

    /// Offers the stranded connections to the kernel again.
    pub(super) fn try_again(&mut self) {
        for id in self.connections.ids(|connection| matches!(connection.state, State::Stranded(_))) {
            let Some(connection) = self.connections.known_mut(id) else { continue };
            if connection.is_given_up(self.clients.contains_key(&connection.client)) {
                self.lost(id, "there is no route");
                continue;
            }
            let Some(Stranded { captured, unread, arrival }) = connection.take(State::stranded) else { continue };
            let way = match &arrival {
                Arrival::Home { home, .. } => Direction::ToKernel(*home),
                Arrival::Undone(_) => Direction::ToEngine,
            };
            match (self.restore(id, *captured, false, way), arrival) {
                (Landed::NoRoute(captured), arrival) => {
                    if let Some(connection) = self.connections.known_mut(id) {
                        connection.enter(State::Stranded(Stranded { captured, unread, arrival }));
                    }
                }
                (landed, Arrival::Home { home, head, .. }) => {
                    self.finish_rebuild(id, landed, Homecoming { head, home, unread, suspended: None });
                }
                (landed, Arrival::Undone(kernel)) => self.finish_undo(id, landed, kernel, unread, no_route()),
            }
        }
    }
}
