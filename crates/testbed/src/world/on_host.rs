//! Work of the host's processor: the stack, the bypass layer and the server program.
//!
//! Packets and messages precede the program, as interrupts do.

use super::{
    BUFFERS, Effect, Event, FILES_AT, HEADER_BYTES, Place, RECEIVED_AT, SEND_BUFFER, SENT_AT, STATE_AT, STATE_BYTES,
    Task, World,
};
use crate::nic::{Id, Work};
use crate::stack::{Peer, Shared};
use baton_policy::rules::{Decision, Known, Room, Wait};

impl World<'_> {
    pub(super) fn start_host(&mut self) {
        if self.host_busy {
            return;
        }
        let Some(task) = self.network.pop_front().or_else(|| self.program.pop_front()) else { return };
        self.host_busy = true;
        let (stack, program) = self.do_host(task);
        // 2 GHz.
        let (stack, program) = (stack / 2, program / 2);
        self.measured.stack_ns += stack;
        self.measured.program_ns += program;
        self.plan(self.now + stack + program, Event::HostDone);
    }

    /// Does the task; returns the cycles below the system calls, and those above.
    pub(super) fn do_host(&mut self, task: Task) -> (u64, u64) {
        let now = self.instant();
        match task {
            Task::Packet(id, segment) => {
                if self.is_on_nic(id) {
                    // It crossed the handoff on its way up.
                    self.host_effects.push(Effect::Nic(Work::Tcp(id, segment)));
                    return (self.config.costs.host_bypass, 0);
                }
                self.buffers[0] += 1;
                let header = RECEIVED_AT + (self.buffers[0] - 1) % BUFFERS * 2048;
                let received = self.caches.reference(header, HEADER_BYTES) + self.stack_packet(id);
                (received + self.host_peer(id, |server, shared| server.receive(now, shared, &segment)), 0)
            }
            Task::Timer(id) if self.is_on_nic(id) => {
                self.host_effects.push(Effect::Nic(Work::Timer(id)));
                (self.config.costs.host_bypass, 0)
            }
            Task::Timer(id) => (self.host_peer(id, |server, shared| server.expire(now, shared)), 0),
            Task::Message(id) => {
                if self.wake_program(id) {
                    self.program.push_back(Task::Program(id));
                }
                (self.config.costs.host_bypass, 0)
            }
            Task::Program(id) => self.do_program(id),
        }
    }

    /// The cycles of a packet on the host: instructions, and the connection's state.
    pub(super) fn stack_packet(&mut self, id: Id) -> u64 {
        let slot = self.connections[id as usize].as_ref().map_or(0, |c| c.slot);
        self.config.costs.host_packet + self.caches.reference(STATE_AT + slot * STATE_BYTES, STATE_BYTES)
    }

    /// Calls the server's end on the host and sends its packets; returns the cycles of these.
    pub(super) fn host_peer(&mut self, id: Id, call: impl FnOnce(&mut Peer, &mut Shared)) -> u64 {
        let Some(connection) = &mut self.connections[id as usize] else { return 0 };
        let was_established = connection.server.established;
        call(&mut connection.server, &mut self.shared);
        if connection.server.established && !was_established {
            self.measured.connections += 1;
        }
        let frames = core::mem::take(&mut connection.server.frames);
        let mut cycles = 0;
        for &frame in &frames {
            self.buffers[1] += 1;
            let header = SENT_AT + self.buffers[1] % BUFFERS * 2048;
            cycles += self.caches.reference(header, HEADER_BYTES) + self.stack_packet(id);
            self.host_effects.push(Effect::Nic(Work::HostSent(id, frame)));
        }
        if self.wake_program(id) {
            self.program.push_back(Task::Program(id));
        }
        self.set_timer(id, 1);
        self.bury(id);
        cycles
    }

    /// Accepts, serves a request, or closes.
    pub(super) fn do_program(&mut self, id: Id) -> (u64, u64) {
        let now = self.instant();
        let costs = self.config.costs;
        let Some(connection) = &mut self.connections[id as usize] else { return (0, 0) };
        connection.scheduled = false;
        let (mut stack, mut program) = (0, 0);
        if connection.server.established && !connection.accepted {
            connection.accepted = true;
            stack += self.offer(id);
        }
        let Some(connection) = &mut self.connections[id as usize] else { return (stack, program) };
        if connection.asks() {
            let file = connection.session.files[connection.served];
            connection.served += 1;
            connection.unwritten = self.workload.response_bytes(file);
            program += costs.host_request + self.caches.reference(FILES_AT + u64::from(file) * 512, 512);
        }
        let room = SEND_BUFFER.saturating_sub(connection.server.unacknowledged());
        let bytes = connection.unwritten.min(room);
        if bytes > 0 {
            connection.unwritten -= bytes;
            // CH §5.2: enqueue operations are proportional to sent packets.
            connection.sends += u64::from(bytes.div_ceil(1448));
            stack += self.offer(id);
            stack += self.command(id, Work::Write(id, bytes), |server, shared| server.post(now, shared, bytes));
        } else if connection.server.peer_closed && !connection.closed {
            connection.closed = true;
            stack += self.command(id, Work::Close(id), |server, shared| server.close(now, shared));
        }
        let waits = self.connections[id as usize].as_ref().is_some_and(|c| c.unwritten > 0);
        if !waits && self.wake_program(id) {
            self.program.push_back(Task::Program(id));
        }
        (stack, program)
    }

    /// An operation of the program's socket: through the bypass layer, or on the host.
    pub(super) fn command(&mut self, id: Id, work: Work, call: impl FnOnce(&mut Peer, &mut Shared)) -> u64 {
        let away = self.connections[id as usize].as_ref().is_some_and(|c| c.place != Place::Host);
        if away {
            self.host_effects.push(Effect::Nic(work));
            return self.config.costs.host_bypass;
        }
        self.host_peer(id, call)
    }

    /// Asks the policy whether the connection is to be handed off (CH §3.3).
    pub(super) fn offer(&mut self, id: Id) -> u64 {
        let Some(connection) = &mut self.connections[id as usize] else { return 0 };
        if self.config.places == 0 || connection.offered || connection.place != Place::Host {
            return 0;
        }
        let admitted = if self.load.admits(self.on_nic) { self.load.soft_limit() } else { 0 };
        let (connections, at_most) = (u64::from(self.on_nic), u64::from(admitted));
        let room = Room { connections, at_most, load_limit: u64::MAX };
        let known = Known {
            sends: connection.sends,
            bytes: connection.server.received,
            expected: None,
            history: connection.history,
        };
        match self.selection.decide(&known, room, connection.session.packets) {
            Decision::Move => {
                connection.place = Place::Moving;
                connection.offered = true;
                self.on_nic += 1;
                self.host_effects.push(Effect::Nic(Work::HandOff(id)));
                self.config.costs.host_handoff
            }
            Decision::NotYet(Wait::Room) | Decision::Never(_) => {
                connection.offered = true;
                0
            }
            Decision::NotYet(_) => 0,
        }
    }
}
