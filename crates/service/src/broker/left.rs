//! Connections for which the kernel has no route. An engine's death or a failed move can leave such
//! a connection behind, and an engine on XDP may have to give one up: IPv6, for example, has no
//! routes through an interface that is down. The kernel's own connections stand still then, and so
//! do these. The broker keeps their state and tries again at each tick.

use super::Broker;
use super::connection::State;
use super::stay_reason::StayReason;
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, Home, Record};
use baton_kernel::Captured;
use baton_kernel::handoff::{Aborted, Outcome};
use baton_kernel::kernel_side::KernelError;
use baton_policy::Reason;
use std::sync::Arc;
use std::time::Duration;

/// How long the broker keeps a connection that its program has closed. The kernel keeps its own for
/// about as long (`tcp_orphan_retries`).
const ORPHAN: Duration = Duration::from_secs(100);

/// Why a connection did not come home.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotBack {
    /// The connection continues in the engine.
    #[error("the connection continues in the engine")]
    GoesOn,
    /// The kernel has no route for it now.
    #[error("the kernel has no route for the connection")]
    NoRoute(Box<Captured>),
    /// The connection is lost.
    #[error("{0}")]
    Lost(String),
}

/// What a program is told about a connection that was about to move.
pub(super) fn no_route() -> StayReason {
    StayReason::new(Reason::Homeless, "the connection's route disappeared just before the move")
}

/// The captured state of a connection that could not become a husk because it has no route.
///
/// # Errors
/// The reason, if the connection is lost.
pub(super) fn without_route(aborted: Aborted<KernelError>) -> Result<Captured, String> {
    match aborted {
        Aborted { outcome: Outcome::Lost { captured: Some(captured), cause, .. }, .. } if cause.is_no_route() => {
            Ok(*captured)
        }
        aborted => Err(aborted.to_string()),
    }
}

impl Broker {
    /// Keeps a connection until the kernel can take it. The program is then sent `told`, or, if
    /// that is `None`, that the connection stays in the kernel.
    pub(super) fn leave_behind(&mut self, id: u64, captured: Captured, told: Option<Home>, unread: bool) {
        let Broker { connections, slots, kernel, checkpoints, journal, .. } = self;
        let Some(connection) = connections.get_mut(&id) else { return };
        if matches!(connection.state, State::Left { .. }) {
            connection.captured = Some(captured);
            return;
        }
        connection.closed |= connection.state == State::Closing;
        if connection.stood_still.is_none() {
            connection.stop();
        }
        // A program's engine is gone for good, and its slot may be reused.
        let own = slots.iter().position(|slot| slot.owner.is_none() && slot.index == slots[connection.slot].index);
        let (before, tuple) = (connection.slot, connection.tuple);
        connection.slot = own.unwrap_or(before);
        // If this fails, the frames go to an engine that does not know the connection and drops
        // them too.
        let way = connection.plan.map_or(0, |plan| plan.way.interface);
        if let Ok(steering) = kernel.steering(way) {
            let held = steering.hold_back(tuple);
            journal.tell_failed("holding back frames of a connection without a route", held);
        }
        let (send, unread_bytes) = (captured.send_queue.len() as u32, captured.receive_queue.len() as u32);
        match write_queues(&captured.send_queue, &captured.receive_queue) {
            Ok(Some(file)) => {
                let queues = Record::Queues { id, send, unread: unread_bytes };
                checkpoints.keep(record::queues(id), &queues, &[&Arc::new(file)]);
            }
            Ok(None) => checkpoints.forget(record::queues(id)),
            Err(error) => return self.lost(id, &format!("recording what was captured: {error}")),
        }
        connection.state = State::Left { told, unread };
        (connection.captured, connection.conn) = (Some(captured), None);
        self.log_left(id);
        self.unhold(before, tuple);
        self.note(id);
        self.settled(id, false);
    }

    /// Offers the connections that were left behind to the kernel again.
    pub(super) fn try_again(&mut self) {
        let left = self.connections.values().filter(|connection| matches!(connection.state, State::Left { .. }));
        let left: Vec<u64> = left.map(|connection| connection.id).collect();
        for id in left {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let State::Left { told, unread } = connection.state else { continue };
            let is_orphan = connection.closed || !self.clients.contains_key(&connection.client);
            if is_orphan && connection.stood_still.is_some_and(|since| since.elapsed() > ORPHAN) {
                self.lost(id, "there is no route");
                continue;
            }
            let Some(home) = told else {
                self.give_back_whole(id, no_route());
                continue;
            };
            let why = connection.why;
            match connection.captured.take() {
                Some(captured) => self.rebuild(id, captured, home, unread, why),
                None => self.lost(id, "the captured state of the connection cannot be read"),
            }
        }
    }
}
