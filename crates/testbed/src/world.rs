//! The testbed in virtual time: clients, wire, NIC, host, and what happens when.
//!
//! ```text
//!   clients ══ 10 Gb/s ══ NIC processor (nic) ── rings ── host processor (caches, program)
//! ```
//!
//! Each processor does one thing at a time. The thing happens at its start; what it sends becomes
//! visible after its cost. Clients cost nothing, as in the paper (§4.1).

use crate::cache::Caches;
use crate::costs::Costs;
use crate::measure::Measured;
use crate::nic::{Id, Queues, Work};
use crate::select::Selection;
use crate::stack::{Peer, Shared};
use crate::workload::{REQUEST_BYTES, Session, Workload};
use baton_policy::load::{LoadControl, Observed, Watermarks};
use baton_policy::rules::{Decision, History, Known, Room};
use baton_tcp::segment::Segment;
use baton_tcp::time::{Duration, Instant};
use core::num::NonZeroU32;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Propagation on the wire, in ns. Estimated: the two machines are directly connected (CH §4.1).
const WIRE_NS: u64 = 500;
/// Headers, frame check sequence, preamble and gap of a packet, in bytes.
const FRAMING_BYTES: u64 = 90;
/// `Hiwat` of CH §5.1; `Lowat` is not in the paper: a quarter.
const WATERMARKS: Option<Watermarks> = Watermarks::new(256, 1024);
/// Connection state on the host, in bytes (CH §2: "around 1KB per connection"), and headers.
const STATE_BYTES: u64 = 1024;
const HEADER_BYTES: u64 = 128;
/// Packet buffers of the driver, each way.
const BUFFERS: u64 = 1024;
/// Where connection state, received headers, sent headers and the program's files lie.
const STATE_AT: u64 = 1 << 32;
const RECEIVED_AT: u64 = 2 << 32;
const SENT_AT: u64 = 3 << 32;
const FILES_AT: u64 = 4 << 32;

/// A configuration of CH table 3.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections at any time.
    pub clients: u32,
    /// The most connections on the NIC; 0 uses no handoff.
    pub places: u32,
    /// Host packets have precedence on the NIC.
    pub host_first: bool,
    /// The load control adapts the limit.
    pub load_control: bool,
    /// Instructions a second of the NIC, in millions.
    pub mips: u64,
    /// Packets before the measurement, and during it.
    pub warm_up: u64,
    /// See `warm_up`.
    pub measured: u64,
    /// The cost of each step.
    pub costs: Costs,
    /// The seed of everything random.
    pub seed: u64,
}

impl Config {
    /// The paper's baseline: 2,048 clients, no handoff, 400 MIPS, 400,000 and 600,000 packets.
    pub fn baseline() -> Config {
        Config {
            clients: 2048,
            places: 0,
            host_first: false,
            load_control: false,
            mips: 400,
            warm_up: 400_000,
            measured: 600_000,
            costs: Costs::default(),
            seed: 1,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Host,
    Moving,
    Nic,
}

/// Something for the host's processor to do.
#[derive(Clone, Copy, Debug)]
enum Task {
    Packet(Id, Segment),
    /// The NIC says that a connection has something new.
    Message(Id),
    Timer(Id),
    Program(Id),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    AtNic(Id, Segment),
    AtClient(Id, Segment),
    NicDone,
    HostDone,
    ClientTimer(Id),
    ServerTimer(Id),
    Begin,
}

struct Connection {
    client: Peer,
    server: Peer,
    session: Session,
    place: Place,
    /// Position among the host's connection states.
    slot: u64,
    history: History,
    offered: bool,
    sends: u64,
    /// Requests sent, answered by the program, and responses received whole.
    asked: usize,
    served: usize,
    asked_at: u64,
    /// Stream position at which the current response ends.
    response_end: u64,
    scheduled: bool,
    accepted: bool,
    closed: bool,
    ended: bool,
    timers: [u64; 2],
}

/// Effects that a processor shows when it is done.
#[derive(Clone, Copy, Debug)]
enum Effect {
    ToWire(Id, Segment, Option<u64>),
    ToHost(Task, Option<u64>),
    ToNic(Work),
}

/// A run.
pub struct World<'a> {
    config: Config,
    selection: &'a mut dyn Selection,
    workload: Workload,
    load: LoadControl,
    now: u64,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Option<Event>>,
    free_events: Vec<usize>,
    planned: u64,
    connections: Vec<Option<Box<Connection>>>,
    free_slots: Vec<u64>,
    wire_free: [u64; 2],
    shared: Shared,
    nic: Queues,
    nic_busy: bool,
    nic_effects: Vec<Effect>,
    on_nic: u32,
    caches: Caches,
    network: VecDeque<Task>,
    program: VecDeque<Task>,
    host_busy: bool,
    host_effects: Vec<Effect>,
    buffers: [u64; 2],
    packets: u64,
    measured: Measured,
    started_ns: u64,
}

/// Runs a configuration of workload W.
pub fn run(config: &Config, selection: &mut dyn Selection) -> Measured {
    let mut world = World::new(config.clone(), selection);
    world.run();
    world.measured
}

impl<'a> World<'a> {
    fn new(config: Config, selection: &'a mut dyn Selection) -> World<'a> {
        let hard_limit = NonZeroU32::new(config.places).unwrap_or(NonZeroU32::MIN);
        let watermarks = WATERMARKS.expect("low is below high");
        World {
            workload: Workload::world_cup(config.seed),
            load: LoadControl::new(hard_limit, watermarks),
            nic: Queues::new(config.host_first),
            selection,
            now: 100_000_000_000,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            free_events: Vec::new(),
            planned: 0,
            connections: Vec::new(),
            free_slots: (0..u64::from(config.clients) * 2).rev().collect(),
            wire_free: [0; 2],
            shared: Shared::default(),
            nic_busy: false,
            nic_effects: Vec::new(),
            on_nic: 0,
            caches: Caches::default(),
            network: VecDeque::new(),
            program: VecDeque::new(),
            host_busy: false,
            host_effects: Vec::new(),
            buffers: [0; 2],
            packets: 0,
            measured: Measured::default(),
            started_ns: 0,
            config,
        }
    }

    fn run(&mut self) {
        // The clients begin one after another, 20 µs apart.
        for client in 0..u64::from(self.config.clients) {
            self.plan(self.now + client * 20_000, Event::Begin);
        }
        let start = self.now;
        let (mut warm, mut course_at) = (false, 0);
        while self.packets < self.config.warm_up + self.config.measured {
            let Some(Reverse((at, key))) = self.agenda.pop() else { break };
            self.now = at;
            let index = (key & 0xff_ffff) as usize;
            let event = self.events[index].take();
            self.free_events.push(index);
            if !warm && self.packets >= self.config.warm_up {
                warm = true;
                let course = core::mem::take(&mut self.measured.course);
                self.measured = Measured { course, ..Measured::default() };
                self.nic.dropped = 0;
                self.started_ns = self.now;
            }
            if self.now >= course_at {
                course_at = self.now + 10_000_000;
                self.measured.course.push((self.now - start, self.load.soft_limit(), self.on_nic));
            }
            if let Some(event) = event {
                self.happen(event);
            }
        }
        self.measured.span_ns = self.now - self.started_ns;
        self.measured.dropped = self.nic.dropped;
    }

    fn plan(&mut self, at: u64, event: Event) {
        let index = self.free_events.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[index] = Some(event);
        self.planned += 1;
        self.agenda.push(Reverse((at, self.planned << 24 | index as u64)));
    }

    fn instant(&self) -> Instant {
        Instant(0) + Duration::from_micros(self.now / 1000)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin => self.begin(),
            Event::AtNic(id, segment) => {
                self.nic.arrive(id, segment, self.now);
                self.start_nic();
            }
            Event::AtClient(id, segment) => self.client_receives(id, &segment),
            Event::ClientTimer(id) => self.client_timer(id),
            Event::ServerTimer(id) => self.server_timer(id),
            Event::NicDone => {
                self.nic_busy = false;
                let effects = core::mem::take(&mut self.nic_effects);
                self.show(&effects);
                self.start_nic();
            }
            Event::HostDone => {
                self.host_busy = false;
                let effects = core::mem::take(&mut self.host_effects);
                self.show(&effects);
                self.start_host();
            }
        }
    }

    fn show(&mut self, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::ToWire(id, segment, since) => {
                    if let Some(since) = since {
                        self.measured.send_delays.push(self.now - since);
                    }
                    self.carry(id, segment, 0);
                }
                Effect::ToHost(task, since) => {
                    if let Some(since) = since {
                        self.measured.receive_delays.push(self.now - since);
                        let buffer = self.buffers[0] % BUFFERS;
                        self.caches.invalidate(RECEIVED_AT + buffer * 2048, HEADER_BYTES);
                    }
                    self.network.push_back(task);
                    self.start_host();
                }
                Effect::ToNic(work) => {
                    self.nic.push(work, self.now);
                    self.start_nic();
                }
            }
        }
    }

    /// Puts a packet on the wire: direction 0 to the clients, 1 to the server.
    fn carry(&mut self, id: Id, segment: Segment, direction: usize) {
        self.packets += 1;
        self.measured.packets += 1;
        if self.connections[id as usize].as_ref().is_some_and(|c| c.place == Place::Nic) {
            self.measured.nic_packets += 1;
        }
        // 10 Gb/s: 0.8 ns a byte.
        let span = (u64::from(segment.lengths.len) + FRAMING_BYTES) * 4 / 5;
        let free = self.wire_free[direction].max(self.now) + span;
        self.wire_free[direction] = free;
        let event = if direction == 0 { Event::AtClient(id, segment) } else { Event::AtNic(id, segment) };
        self.plan(free + WIRE_NS, event);
    }

    // The clients.

    fn begin(&mut self) {
        let id = self.connections.len() as Id;
        let slot = self.free_slots.pop().unwrap_or(u64::from(id));
        let mut connection = Box::new(Connection {
            client: Peer::new(id.wrapping_mul(0x9e37_79b9)),
            server: Peer::new(id.wrapping_mul(0x85eb_ca6b)),
            session: self.workload.session(),
            place: Place::Host,
            slot,
            history: History::New,
            offered: false,
            sends: 0,
            asked: 0,
            served: 0,
            asked_at: 0,
            response_end: 0,
            scheduled: false,
            accepted: false,
            closed: false,
            ended: false,
            timers: [u64::MAX; 2],
        });
        connection.client.connect(self.instant(), &mut self.shared);
        self.connections.push(Some(connection));
        self.after_client(id);
    }

    fn client_receives(&mut self, id: Id, segment: &Segment) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.client.receive(now, &mut self.shared, segment);
        self.after_client(id);
    }

    fn client_timer(&mut self, id: Id) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.timers[0] = u64::MAX;
        if connection.client.deadline().is_some_and(|at| at <= now) && !connection.client.is_done() {
            connection.client.expire(now, &mut self.shared);
        }
        self.after_client(id);
    }

    /// Asks, closes and sends after something happened to a client.
    fn after_client(&mut self, id: Id) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let complete = connection.client.established && connection.client.received >= connection.response_end;
        if complete && !connection.ended {
            if connection.asked > 0 && connection.asked_at != 0 {
                let bytes = connection.session.files[connection.asked - 1];
                self.measured.requests += 1;
                self.measured.bytes += u64::from(self.workload.response_bytes(bytes));
                self.measured.response_ns += self.now - connection.asked_at;
                connection.asked_at = 0;
            }
            if let Some(&file) = connection.session.files.get(connection.asked) {
                connection.asked += 1;
                connection.asked_at = self.now;
                connection.response_end += u64::from(self.workload.response_bytes(file));
                connection.client.post(now, &mut self.shared, REQUEST_BYTES);
            } else {
                connection.ended = true;
                connection.client.close(now, &mut self.shared);
                // A new connection when one ends.
                self.plan(self.now, Event::Begin);
            }
        }
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let frames = core::mem::take(&mut connection.client.frames);
        for &frame in &frames {
            self.carry(id, frame, 1);
        }
        self.set_timer(id, 0);
        self.bury(id);
    }

    fn set_timer(&mut self, id: Id, side: usize) {
        let Some(connection) = &mut self.connections[id as usize] else { return };
        let peer = if side == 0 { &connection.client } else { &connection.server };
        if peer.is_done() {
            return;
        }
        let Some(at) = peer.deadline() else { return };
        let at = (at.since(Instant(0)).as_micros() * 1000 + 1000).max(self.now);
        if at < connection.timers[side] {
            connection.timers[side] = at;
            self.plan(at, if side == 0 { Event::ClientTimer(id) } else { Event::ServerTimer(id) });
        }
    }

    /// Forgets a connection of which neither end has anything left.
    fn bury(&mut self, id: Id) {
        let Some(connection) = &self.connections[id as usize] else { return };
        if connection.closed && connection.server.is_done() && connection.client.is_done() {
            if connection.place != Place::Host {
                self.on_nic -= 1;
            }
            self.free_slots.push(connection.slot);
            self.connections[id as usize] = None;
            self.observe();
        }
    }

    fn observe(&mut self) {
        if self.config.load_control {
            self.load.observe(Observed { queued: self.nic.queued(), connections: self.on_nic });
        }
    }

    // The server's end, on whichever processor.

    fn server_timer(&mut self, id: Id) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.timers[1] = u64::MAX;
        if connection.server.deadline().is_none_or(|at| at > now) {
            return self.set_timer(id, 1);
        }
        if connection.place == Place::Nic {
            self.nic.push(Work::Timer(id), self.now);
            self.start_nic();
        } else {
            self.network.push_back(Task::Timer(id));
            self.start_host();
        }
    }

    /// Has the program look at the connection if there is something for it.
    fn wake_program(&mut self, id: Id) -> bool {
        let Some(connection) = &mut self.connections[id as usize] else { return false };
        let asks = connection.server.received >= (connection.served as u64 + 1) * u64::from(REQUEST_BYTES);
        let closes = connection.server.peer_closed && !connection.closed;
        let accepts = connection.server.established && !connection.accepted;
        let wakes = (asks || closes || accepts) && !connection.scheduled;
        connection.scheduled |= wakes;
        wakes
    }

    // The NIC.

    fn start_nic(&mut self) {
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

    fn is_on_nic(&self, id: Id) -> bool {
        self.connections[id as usize].as_ref().is_some_and(|c| c.place == Place::Nic)
    }

    /// Does the work; returns its cost, in instructions.
    fn do_nic(&mut self, work: Work, since: u64) -> u64 {
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
                self.nic_effects.push(Effect::ToHost(Task::Packet(id, segment), Some(since)));
                costs.nic_host_packet
            }
            Work::HostSent(id, segment) => {
                self.nic_effects.push(Effect::ToWire(id, segment, Some(since)));
                costs.nic_host_packet
            }
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
                    connection.place = Place::Nic;
                    self.measured.handed_off += 1;
                }
                self.observe();
                costs.nic_handoff + costs.nic_message + moved
            }
        }
    }

    /// Calls the server's end on the NIC, sends its packets, and tells the host what is new.
    fn nic_peer(&mut self, id: Id, call: impl FnOnce(&mut Peer, &mut Shared)) -> u64 {
        let Some(connection) = &mut self.connections[id as usize] else { return 0 };
        let unacknowledged = connection.server.unacknowledged();
        call(&mut connection.server, &mut self.shared);
        let acknowledged = unacknowledged > 0 && connection.server.unacknowledged() == 0;
        let frames = core::mem::take(&mut connection.server.frames);
        let mut cost = frames.len() as u64 * self.config.costs.nic_tcp_packet;
        for &frame in &frames {
            self.nic_effects.push(Effect::ToWire(id, frame, None));
        }
        // One message says that all is acknowledged, and what arrived (CH §2: ACKs are aggregated).
        if acknowledged || self.wake_program(id) {
            if let Some(connection) = &mut self.connections[id as usize] {
                connection.scheduled = false;
            }
            self.nic_effects.push(Effect::ToHost(Task::Message(id), None));
            cost += self.config.costs.nic_message;
        }
        self.set_timer(id, 1);
        self.bury(id);
        cost
    }

    // The host.

    fn start_host(&mut self) {
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
    fn do_host(&mut self, task: Task) -> (u64, u64) {
        let now = self.instant();
        match task {
            Task::Packet(id, segment) => {
                if self.is_on_nic(id) {
                    // It crossed the handoff on its way up.
                    self.host_effects.push(Effect::ToNic(Work::Tcp(id, segment)));
                    return (self.config.costs.host_bypass, 0);
                }
                self.buffers[0] += 1;
                let header = RECEIVED_AT + (self.buffers[0] - 1) % BUFFERS * 2048;
                let received = self.caches.reference(header, HEADER_BYTES) + self.stack_packet(id);
                (received + self.host_peer(id, |server, shared| server.receive(now, shared, &segment)), 0)
            }
            Task::Timer(id) if self.is_on_nic(id) => {
                self.host_effects.push(Effect::ToNic(Work::Timer(id)));
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
    fn stack_packet(&mut self, id: Id) -> u64 {
        let slot = self.connections[id as usize].as_ref().map_or(0, |c| c.slot);
        self.config.costs.host_packet + self.caches.reference(STATE_AT + slot * STATE_BYTES, STATE_BYTES)
    }

    /// Calls the server's end on the host and sends its packets; returns the cycles of these.
    fn host_peer(&mut self, id: Id, call: impl FnOnce(&mut Peer, &mut Shared)) -> u64 {
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
            self.host_effects.push(Effect::ToNic(Work::HostSent(id, frame)));
        }
        if self.wake_program(id) {
            self.program.push_back(Task::Program(id));
        }
        self.set_timer(id, 1);
        self.bury(id);
        cycles
    }

    /// Accepts, serves a request, or closes.
    fn do_program(&mut self, id: Id) -> (u64, u64) {
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
        let asks = connection.server.received >= (connection.served as u64 + 1) * u64::from(REQUEST_BYTES);
        if asks {
            let file = connection.session.files[connection.served];
            connection.served += 1;
            // The head is written, the file is sent (CH §4.2).
            connection.sends += 2;
            stack += self.offer(id);
            let bytes = self.workload.response_bytes(file);
            program += costs.host_request + self.caches.reference(FILES_AT + u64::from(file) * 512, 512);
            stack += self.command(id, Work::Write(id, bytes), |server, shared| server.post(now, shared, bytes));
        } else if connection.server.peer_closed && !connection.closed {
            connection.closed = true;
            stack += self.command(id, Work::Close(id), |server, shared| server.close(now, shared));
        }
        if self.wake_program(id) {
            self.program.push_back(Task::Program(id));
        }
        (stack, program)
    }

    /// An operation of the program's socket: through the bypass layer, or on the host.
    fn command(&mut self, id: Id, work: Work, call: impl FnOnce(&mut Peer, &mut Shared)) -> u64 {
        let away = self.connections[id as usize].as_ref().is_some_and(|c| c.place != Place::Host);
        if away {
            self.host_effects.push(Effect::ToNic(work));
            return self.config.costs.host_bypass;
        }
        self.host_peer(id, call)
    }

    /// Asks the policy whether the connection is to be handed off (CH §3.3).
    fn offer(&mut self, id: Id) -> u64 {
        let Some(connection) = &mut self.connections[id as usize] else { return 0 };
        if self.config.places == 0 || connection.offered || connection.place != Place::Host {
            return 0;
        }
        let admitted = if self.load.admits(self.on_nic) { self.load.soft_limit() } else { 0 };
        let room = Room { connections: u64::from(self.on_nic), at_most: u64::from(admitted) };
        let known = Known {
            local_port: 80,
            remote_port: 0,
            sends: connection.sends,
            bytes: connection.server.received,
            history: connection.history,
        };
        match self.selection.decide(&known, room, connection.session.packets) {
            Decision::Move => {
                connection.place = Place::Moving;
                connection.offered = true;
                self.on_nic += 1;
                self.host_effects.push(Effect::ToNic(Work::HandOff(id)));
                self.config.costs.host_handoff
            }
            Decision::NotYet(baton_policy::rules::Wait::Room) | Decision::Never(_) => {
                connection.offered = true;
                0
            }
            Decision::NotYet(_) => 0,
        }
    }
}
