//! Work of the host's processor: the stack, the bypass layer and the server program.
//!
//! Packets and messages precede the program, as interrupts do. A packet that the host sends reaches the
//! NIC when its own processing is done, not when the whole task is.

use super::{
    BUFFERS, COPIES_AT, Event, FILES_AT, HEADER_BYTES, Place, RECEIVED_AT, SEND_BUFFER, SENT_AT, STATE_AT, STATE_BYTES,
    Task, World,
};
use crate::nic::{Id, Work};
use crate::select::{Candidate, Choice, Sent};
use crate::stack::{MSS, Peer, Shared};
use crate::workload::{HEAD_BYTES, Request};
use baton_policy::load::State;
use baton_policy::rules::Room;

const PAGE_BYTES: u32 = 4096;

/// Cycles of the current task: below the system calls, and above.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Spent {
    stack: u64,
    program: u64,
}

impl World<'_> {
    pub(super) fn start_host(&mut self) {
        if self.host_busy {
            return;
        }
        let Some(task) = self.network.pop_front().or_else(|| self.program.pop_front()) else { return };
        self.host_busy = true;
        self.spent = Spent::default();
        self.do_host(task);
        // 2 GHz.
        let (stack, program) = (self.spent.stack / 2, self.spent.program / 2);
        self.measured.stack_ns += stack;
        self.measured.program_ns += program;
        self.plan(self.now + stack + program, Event::HostDone);
    }

    fn do_host(&mut self, task: Task) {
        let now = self.instant();
        match task {
            Task::Packet(id, segment) => {
                if self.is_on_nic(id) {
                    // It crossed the handoff on its way up.
                    self.spent.stack += self.config.costs.host_bypass;
                    return self.give_nic(Work::Tcp(id, segment));
                }
                let header = RECEIVED_AT + self.buffers[0] % BUFFERS * 2048;
                self.buffers[0] += 1;
                self.spent.stack += self.caches.reference(header, HEADER_BYTES);
                self.stack_packet(id);
                self.host_peer(id, |server, shared| server.receive(now, shared, &segment));
            }
            Task::Timer(id) if self.is_on_nic(id) => {
                self.spent.stack += self.config.costs.host_bypass;
                self.give_nic(Work::Timer(id));
            }
            Task::Timer(id) => self.host_peer(id, |server, shared| server.expire(now, shared)),
            Task::Message(id) => {
                self.spent.stack += self.config.costs.host_bypass;
                if self.wake_program(id) {
                    self.program.push_back(Task::Program(id));
                }
            }
            Task::Restored(id) => {
                self.spent.stack += self.config.costs.host_handoff;
                let Some(connection) = &mut self.connections[id as usize] else { return };
                connection.place = Place::Host;
                for work in core::mem::take(&mut connection.held) {
                    self.command(work);
                }
                self.host_peer(id, |_, _| ());
            }
            Task::Program(id) => self.do_program(id),
        }
    }

    /// Gives work to the NIC at the time that the current task has come to.
    fn give_nic(&mut self, work: Work) {
        self.plan(self.now + (self.spent.stack + self.spent.program) / 2, Event::FromHost(work));
    }

    /// Counts the cycles of a packet on the host: instructions, and the connection's state.
    fn stack_packet(&mut self, id: Id) {
        let slot = self.connections[id as usize].as_ref().map_or(0, |c| c.slot);
        let state = self.caches.reference(STATE_AT + slot * STATE_BYTES, STATE_BYTES);
        self.spent.stack += self.config.costs.host_packet + state;
    }

    /// Calls the server's end on the host and sends its packets.
    fn host_peer(&mut self, id: Id, call: impl FnOnce(&mut Peer, &mut Shared)) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let was_established = connection.server.established;
        call(&mut connection.server, &mut self.shared);
        if connection.server.established && !was_established {
            self.measured.connections += 1;
        }
        let mut frames = core::mem::take(&mut connection.server.frames);
        for &frame in &frames {
            let header = SENT_AT + self.buffers[1] % BUFFERS * 2048;
            self.buffers[1] += 1;
            self.spent.stack += self.caches.reference(header, HEADER_BYTES);
            self.stack_packet(id);
            self.give_nic(Work::HostSent(id, frame));
        }
        frames.clear();
        if let Some(connection) = &mut self.connections[id as usize] {
            connection.server.frames = frames;
        }
        if self.wake_program(id) {
            self.program.push_back(Task::Program(id));
        }
        self.set_timer(id, 1);
        self.bury(id);
    }

    /// Accepts, serves a request, or closes.
    fn do_program(&mut self, id: Id) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.scheduled = false;
        self.spent.program += self.config.costs.host_turn;
        self.measured.turns += 1;
        if connection.server.established && !connection.accepted {
            connection.accepted = true;
            self.offer(id);
        }
        let Some(connection) = &mut self.connections[id as usize] else { return };
        if connection.asks() {
            let request = connection.session.requests[connection.served];
            connection.served += 1;
            connection.unwritten = request.bytes;
            self.answer(request);
            self.write(id, HEAD_BYTES);
        }
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let room = SEND_BUFFER.saturating_sub(connection.server.unacknowledged());
        let bytes = connection.unwritten.min(room);
        if bytes > 0 {
            self.write(id, bytes);
        } else if connection.server.peer_closed && !connection.closed {
            connection.closed = true;
            self.command(Work::Close(id));
        }
        let waits = self.connections[id as usize].as_ref().is_some_and(|c| c.unwritten > 0);
        if !waits && self.wake_program(id) {
            self.program.push_back(Task::Program(id));
        }
    }

    /// Enqueues bytes of the response. The head is a packet of its own, since it is copied, and `sendfile`
    /// sends the file after it.
    fn write(&mut self, id: Id, bytes: u32) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.unwritten -= bytes;
        // CH §5.2: enqueue operations are proportional to sent packets.
        let sends = u64::from(bytes.div_ceil(MSS));
        connection.sends += sends;
        let sent = Sent {
            id,
            packets: sends,
            received: connection.server.received,
            unwritten: connection.unwritten.div_ceil(MSS).into(),
            now_ns: self.now,
        };
        self.selection.sends(&sent);
        self.offer(id);
        self.command(Work::Write(id, bytes));
    }

    /// Makes a response: `sendfile` sends a file by reference, and reads it first if memory does not hold it;
    /// dynamic content is copied (CH §4.2).
    fn answer(&mut self, request: Request) {
        let costs = self.config.costs;
        let content = request.bytes - HEAD_BYTES;
        let file = self.caches.reference(FILES_AT + u64::from(request.file) * 512, 512);
        self.spent.program += file;
        if request.dynamic {
            // The bytes pass through the program's buffer, the pipe's and the socket's.
            self.spent.program += costs.host_dynamic;
            for _ in 0..3 {
                let copy = COPIES_AT + self.buffers[2] % (BUFFERS * 2048);
                self.buffers[2] += u64::from(content);
                self.spent.program += u64::from(content) / 4 + self.caches.reference(copy, u64::from(content));
            }
        } else if !request.cached {
            let pages = u64::from(content.div_ceil(PAGE_BYTES));
            self.measured.pages += pages;
            self.spent.program += costs.host_page * pages;
        }
    }

    /// An operation of the program's socket: through the bypass layer, or on the host.
    fn command(&mut self, work: Work) {
        let now = self.instant();
        let (Work::Write(id, _) | Work::Close(id)) = work else { return };
        let Some(connection) = &mut self.connections[id as usize] else { return };
        match connection.place {
            Place::Host => self.host_peer(id, |server, shared| match work {
                Work::Write(_, bytes) => server.post(now, shared, bytes),
                _ => server.close(now, shared),
            }),
            Place::Moving | Place::Nic => {
                self.spent.stack += self.config.costs.host_bypass;
                self.give_nic(work);
            }
            Place::Leaving | Place::Returning => connection.held.push(work),
        }
    }

    /// Asks the policy whether the connection is to be handed off (CH §3.3).
    fn offer(&mut self, id: Id) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        if self.config.places == 0 || connection.offered || connection.place != Place::Host {
            return;
        }
        // In DECREASE nobody may come, whatever the limit.
        let at_most = if self.load.state() == State::Decrease { 0 } else { self.load.soft_limit() };
        let room = Room { connections: u64::from(self.on_nic), at_most: u64::from(at_most), load_limit: u64::MAX };
        let candidate = Candidate { id, sends: connection.sends, bytes: connection.server.received, now_ns: self.now };
        match self.selection.choose(&candidate, room) {
            Choice::Move => self.hand_off(id),
            Choice::Replace(loser) => {
                if let Some(connection) = &mut self.connections[loser as usize] {
                    connection.place = Place::Leaving;
                    connection.offered = false;
                    self.on_nic -= 1;
                    self.spent.stack += self.config.costs.host_bypass;
                    self.give_nic(Work::Restore(loser));
                }
                self.hand_off(id);
            }
            Choice::Never => connection.offered = true,
            Choice::Wait => {}
        }
    }

    fn hand_off(&mut self, id: Id) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.place = Place::Moving;
        connection.offered = true;
        self.on_nic += 1;
        self.spent.stack += self.config.costs.host_handoff;
        self.give_nic(Work::HandOff(id));
    }
}
