//! Work of the NIC's processor: host packets passed on, TCP of the connections that it has, commands.

use super::{Effect, Event, Place, Task, World};
use crate::nic::{Id, Work};
use crate::stack::{Peer, Shared};

impl World<'_> {
    pub(super) fn start_nic(&mut self) {
        if self.nic_busy {
            return;
        }
        let Some(waiting) = self.nic.pop() else { return };
        self.nic_busy = true;
        let instructions = self.do_nic(waiting.work, waiting.since);
        let span = instructions * 1000 / self.config.mips;
        self.measured.nic_busy_ns += span;
        self.plan(self.now + span, Event::NicDone);
    }

    pub(super) fn is_on_nic(&self, id: Id) -> bool {
        self.connections[id as usize].as_ref().is_some_and(|c| c.place.is_nic())
    }

    /// Does the work; returns its cost, in instructions.
    pub(super) fn do_nic(&mut self, work: Work, since: u64) -> u64 {
        let costs = self.config.costs;
        let now = self.instant();
        match work {
            Work::Arrived(id, segment) => {
                let next = if self.is_on_nic(id) { Work::Tcp(id, segment) } else { Work::HostReceived(id, segment) };
                if self.config.host_first {
                    self.nic.push(next, since);
                    self.observe();
                    return costs.nic_lookup;
                }
                self.observe();
                costs.nic_lookup + self.do_nic(next, since)
            }
            Work::HostReceived(id, segment) => {
                self.nic_effects.push(Effect::Host(Task::Packet(id, segment), Some(since)));
                costs.nic_host_packet
            }
            Work::HostSent(id, segment) => {
                self.nic_effects.push(Effect::Wire(id, segment, Some(since)));
                costs.nic_host_packet
            }
            // It crossed the way back.
            Work::Tcp(id, segment) if !self.is_on_nic(id) => self.do_nic(Work::HostReceived(id, segment), since),
            Work::Timer(id) if !self.is_on_nic(id) => 0,
            Work::Tcp(id, segment) => {
                costs.nic_tcp_packet + self.nic_peer(id, |server, shared| server.receive(now, shared, &segment))
            }
            Work::Timer(id) => self.nic_peer(id, |server, shared| server.expire(now, shared)),
            Work::Write(id, bytes) => {
                costs.nic_message + self.nic_peer(id, |server, shared| server.post(now, shared, bytes))
            }
            Work::Close(id) => costs.nic_message + self.nic_peer(id, |server, shared| server.close(now, shared)),
            Work::HandOff(id) => {
                let moved = self.nic_peer(id, |server, shared| {
                    server.change_hands(now, shared);
                });
                if let Some(connection) = &mut self.connections[id as usize] {
                    if connection.place == Place::Moving {
                        connection.place = Place::Nic;
                    }
                    self.measured.handed_off += u64::from(!connection.was_on_nic);
                    connection.was_on_nic = true;
                }
                self.observe();
                costs.nic_handoff + costs.nic_message + moved
            }
            Work::Restore(id) => {
                let moved = self.nic_peer(id, |server, shared| {
                    server.change_hands(now, shared);
                });
                if let Some(connection) = &mut self.connections[id as usize] {
                    connection.place = Place::Returning;
                    self.measured.restored += 1;
                    self.nic_effects.push(Effect::Host(Task::Restored(id), None));
                }
                self.observe();
                costs.nic_handoff + costs.nic_message + moved
            }
        }
    }

    /// Calls the server's end on the NIC, sends its packets, and tells the host what is new.
    pub(super) fn nic_peer(&mut self, id: Id, call: impl FnOnce(&mut Peer, &mut Shared)) -> u64 {
        let Some(connection) = &mut self.connections[id as usize] else { return 0 };
        let unacknowledged = connection.server.unacknowledged();
        call(&mut connection.server, &mut self.shared);
        let acknowledged = unacknowledged > 0 && connection.server.unacknowledged() == 0;
        let mut cost = connection.server.frames.len() as u64 * self.config.costs.nic_tcp_packet;
        for frame in connection.server.frames.drain(..) {
            self.nic_effects.push(Effect::Wire(id, frame, None));
        }
        // One message says that all is acknowledged, and what arrived (CH §2: ACKs are aggregated).
        if acknowledged || self.wake_program(id) {
            if let Some(connection) = &mut self.connections[id as usize] {
                connection.scheduled = false;
            }
            self.nic_effects.push(Effect::Host(Task::Message(id), None));
            cost += self.config.costs.nic_message;
        }
        self.set_timer(id, 1);
        self.bury(id);
        cost
    }
}
