//! The clients: each asks, waits for the response, asks again, and closes. Another follows when the server
//! has closed too, since only then the connection has ended. A client that holds its rate asks as late as
//! that bids.

use super::{Connection, Event, Place, World};
use crate::nic::Id;
use crate::stack::Peer;
use crate::workload::REQUEST_BYTES;
use baton_policy::load::Observed;
use baton_tcp::segment::Segment;
use baton_tcp::time::Instant;

/// A SYN without answer is repeated after this time (RFC 2988 §2.1, of 2000; `Tcb` has RFC 6298's second).
const SYN_AGAIN_NS: u64 = 3_000_000_000;

impl Connection {
    /// When a client that holds its rate may ask again: bits by kb/s.
    fn asks_at(&self) -> Option<u64> {
        let kbps = self.session.kbps?;
        Some(self.begun_at + self.response_end * 8_000_000 / u64::from(kbps.max(1)))
    }
}

impl World<'_> {
    pub(super) fn begin(&mut self) {
        let Some(session) = self.workload.session() else { return };
        let id = self.connections.len() as Id;
        let slot = self.free_slots.pop().unwrap_or(u64::from(id));
        let mut connection = Box::new(Connection {
            client: Peer::new(id.wrapping_mul(0x9e37_79b9)),
            server: Peer::new(id.wrapping_mul(0x85eb_ca6b)),
            session,
            place: Place::Host,
            slot,
            offered: false,
            was_on_nic: false,
            held: Vec::new(),
            sends: 0,
            asked: 0,
            served: 0,
            unwritten: 0,
            asked_at: 0,
            begun_at: self.now,
            response_end: 0,
            scheduled: false,
            accepted: false,
            closed: false,
            ended: false,
            followed: false,
            timers: [u64::MAX; 2],
        });
        connection.client.connect(self.instant(), &mut self.shared);
        self.connections.push(Some(connection));
        self.after_client(id);
    }

    pub(super) fn client_receives(&mut self, id: Id, segment: &Segment) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.client.receive(now, &mut self.shared, segment);
        self.after_client(id);
    }

    pub(super) fn client_timer(&mut self, id: Id) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.timers[0] = u64::MAX;
        if connection.client.deadline().is_some_and(|at| at <= now) && !connection.client.is_done() {
            connection.client.expire(now, &mut self.shared);
        }
        self.after_client(id);
    }

    /// Asks, closes and sends after something happened to a client.
    pub(super) fn after_client(&mut self, id: Id) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let complete = connection.client.established && connection.client.received >= connection.response_end;
        if complete && !connection.ended {
            if connection.asked > 0 && connection.asked_at != 0 {
                self.measured.requests += 1;
                self.measured.bytes += u64::from(connection.session.requests[connection.asked - 1].bytes);
                self.measured.response_ns += self.now - connection.asked_at;
                connection.asked_at = 0;
                if let Some(at) = connection.asks_at().filter(|&at| at > self.now) {
                    self.plan(at, Event::ClientAsks(id));
                }
            }
            self.ask(id);
        }
        let Some(connection) = &mut self.connections[id as usize] else { return };
        if connection.ended && connection.client.peer_closed && !connection.followed {
            connection.followed = true;
            // A new connection when one ends.
            self.plan(self.now, Event::Begin);
        }
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let mut frames = core::mem::take(&mut connection.client.frames);
        for &frame in &frames {
            self.carry(id, frame, 1);
        }
        frames.clear();
        if let Some(connection) = &mut self.connections[id as usize] {
            connection.client.frames = frames;
        }
        self.set_timer(id, 0);
        self.bury(id);
    }

    /// Sends the next request or closes, unless the client's rate bids it wait.
    fn ask(&mut self, id: Id) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        if connection.asks_at().is_some_and(|at| at > self.now) {
            return;
        }
        if let Some(&request) = connection.session.requests.get(connection.asked) {
            connection.asked += 1;
            connection.asked_at = self.now;
            connection.response_end += u64::from(request.bytes);
            connection.client.post(now, &mut self.shared, REQUEST_BYTES);
        } else {
            connection.ended = true;
            connection.client.close(now, &mut self.shared);
        }
    }

    pub(super) fn set_timer(&mut self, id: Id, side: usize) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let peer = if side == 0 { &connection.client } else { &connection.server };
        if peer.is_done() {
            return;
        }
        let Some(at) = peer.deadline() else { return };
        let mut at = (at.since(Instant(0)).as_micros() * 1000 + 1000).max(self.now);
        if side == 0 && !connection.client.established {
            at = at.max(connection.begun_at + SYN_AGAIN_NS);
        }
        if at < connection.timers[side] {
            connection.timers[side] = at;
            self.plan(at, if side == 0 { Event::ClientTimer(id) } else { Event::ServerTimer(id) });
        }
    }

    /// Forgets a connection of which neither end has anything left.
    pub(super) fn bury(&mut self, id: Id) {
        let Some(connection) = &self.connections[id as usize] else { return };
        if connection.closed && connection.server.is_done() && connection.client.is_done() {
            if matches!(connection.place, Place::Moving | Place::Nic) {
                self.on_nic -= 1;
            }
            self.selection.ended(id, connection.sends);
            self.free_slots.push(connection.slot);
            self.connections[id as usize] = None;
            self.observe();
        }
    }

    pub(super) fn observe(&mut self) {
        if self.config.load_control {
            self.load.observe(Observed { queued: self.nic.queued(), connections: self.on_nic, roomy: false });
        }
    }
}
