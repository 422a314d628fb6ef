//! The end of a connection: the program closes it, it ends in the engine, or it is lost.

use super::Broker;
use super::state::{InPair, State};
use baton_ipc::message::{Loss, Reply};
use baton_ipc::order::Order;
use baton_ipc::record;
use rustix::net::sockopt::{set_socket_linger, socket_linger};
use std::time::Duration;

/// How a connection leaves the service for good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure<'a> {
    /// It ended by itself.
    Ended,
    /// It was lost, for this reason.
    Lost(&'a str),
}

impl Departure<'_> {
    /// As [`Reply::Gone`] says it.
    pub fn loss(self) -> Loss {
        match self {
            Departure::Ended => Loss(None),
            Departure::Lost(text) => Loss(Some(text.to_owned())),
        }
    }
}

impl Broker {
    /// Closes a socket as the kernel does when its program exits: unread bytes make it a reset, and
    /// unsent bytes are still sent.
    pub(super) fn close_in_kernel(&mut self, id: u64, unread: bool) {
        if let Some(connection) = self.connections.known(id) {
            if unread {
                let _ = set_socket_linger(&connection.fd, Some(Duration::ZERO));
            } else if socket_linger(&connection.fd).is_ok_and(|span| span.is_some_and(|span| !span.is_zero())) {
                // The program's exit would not have lingered either.
                let _ = set_socket_linger(&connection.fd, None);
            }
        }
        self.forget(id);
    }

    /// The program asks for the engine's state of a connection. If no engine has the connection,
    /// the program is about to learn where it is. The program may know of an adoption before the
    /// broker does.
    pub(super) fn ask_info(&mut self, id: u64) {
        let Some(connection) = self.connections.known(id) else { return };
        let state = &connection.state;
        if matches!(state, State::Starting(_) | State::Engine(_) | State::Leaving(_) | State::Closing(_)) {
            self.slots[connection.slot].tell(&Order::Info { id }, Vec::new());
        }
    }

    /// The engine no longer has the connection.
    pub(super) fn on_ended(&mut self, id: u64) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get(id) else { return };
        if matches!(connection.state, State::Leaving(_) | State::Closing(_)) {
            self.ended(id);
        }
    }

    /// The connection was in TIME-WAIT, and its peer opens a new one between the same addresses and
    /// ports. The kernel gets the new one, beginning with its SYN.
    pub(super) fn on_reopened(&mut self, id: u64, syn: &[u8]) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get(id) else { return };
        if !matches!(connection.state, State::Engine(_) | State::Leaving(_) | State::Closing(_)) {
            return;
        }
        let (tuple, fd) = (connection.tuple(), connection.fd.clone());
        let interface = self.slots[connection.slot].index;
        // The program may still hold the husk.
        let vacated = baton_kernel::vacate(&fd);
        self.ended(id);
        if vacated.is_ok() {
            // If this fails, the peer sends its SYN again.
            let arrived = self.kernel.arrive(interface, &tuple, syn);
            self.log_failed("giving the kernel the SYN of a new connection", arrived);
        }
    }

    /// The program has closed the connection.
    pub(super) fn on_close(&mut self, id: u64) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        match connection.state {
            // It is closed where it arrives.
            State::Leaving(_) | State::Stranded(_) => {
                connection.closed = true;
                self.note(id);
            }
            State::Engine(_) => {
                let Some(engine) = connection.take(State::running) else { return };
                connection.close(engine);
                let slot = connection.slot;
                self.note(id);
                self.slots[slot].tell(&Order::Watch { id }, Vec::new());
            }
            State::Kernel(_) | State::Preparing(_) | State::Holding(_) | State::Meeting(_) => {
                let waiting = self.who_meet(id);
                self.links.meetings.retain(|ends| !ends.contains(&id));
                self.forget(id);
                waiting.into_iter().for_each(|id| self.look_for_another(id));
            }
            State::Paired(_) => self.close_in_pair(id),
            // The program may know that the engine has the connection before the broker does.
            State::Starting(_) => connection.closed = true,
            // The program repeats this where the connection arrives.
            State::Bringing(_) | State::Standing(_) | State::Closing(_) | State::Between => {}
        }
    }

    /// The connection ended by itself.
    pub(super) fn ended(&mut self, id: u64) {
        self.depart(id, Departure::Ended);
    }

    /// The connection is lost, for the reason in `text`.
    pub(super) fn lost(&mut self, id: u64, text: &str) {
        self.depart(id, Departure::Lost(text));
    }

    fn depart(&mut self, id: u64, departure: Departure<'_>) {
        self.log_departure(id, departure);
        if let Some(connection) = self.connections.known(id) {
            let (client, seq, slot, tuple) = (connection.client, connection.seq(), connection.slot, connection.tuple());
            if connection.state.is_known_to_engine() {
                self.slots[slot].tell(&Order::LetGo { id }, Vec::new());
            }
            self.tell_client(client, &Reply::Gone { seq, id, loss: departure.loss() }, Vec::new());
            self.unhold(slot, tuple);
        }
        self.settled(id, departure == Departure::Ended);
        self.forget(id);
    }

    /// Forgets the connection. Closing its husk sends nothing.
    pub(super) fn forget(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(id) else { return };
        self.prediction.count(&connection, &self.slots);
        self.sent_home.note(&connection);
        self.checkpoints.forget(record::connection(id));
        self.checkpoints.forget(record::queues(id));
        if let State::Paired(InPair { place, .. }) = &connection.state {
            self.leave_link(id, *place);
        }
        if connection.state.is_away() {
            // The interface may be gone, and its map with it.
            let _ = match connection.ending(&self.slots) {
                Some(ending) => self.kernel.unsteer_ended(&connection.plan, ending),
                None => self.kernel.unsteer(&connection.plan),
            };
        }
        if let Some(program) = self.clients.get_mut(&connection.client) {
            program.connections = program.connections.saturating_sub(1);
        }
        let client = connection.client;
        self.closers.add(connection.program.1, connection.fd);
        self.settled(id, true);
        self.forget_memory(client);
    }
}
