//! The testbed in virtual time: clients, wire, NIC, host, and what happens when.
//!
//! ```text
//!   clients ══ 10 Gb/s ══ NIC processor (nic) ── rings ── host processor (caches, program)
//! ```
//!
//! Each processor does one thing at a time. The thing happens at its start; what it sends becomes
//! visible after its cost. Clients cost nothing, as in the paper (§4.1).

mod agenda;
mod clients;
mod on_host;
mod on_nic;

use crate::cache::Caches;
use crate::costs::Costs;
use crate::measure::Measured;
use crate::nic::{Id, Queues, Work};
use crate::select::Selection;
use crate::stack::{Peer, Shared};
use crate::workload::{Kind, REQUEST_BYTES, Session, Workload};
use agenda::Agenda;
use baton_policy::load::{LoadControl, Watermarks};
use baton_tcp::segment::Segment;
use baton_tcp::time::{Duration, Instant};
use core::num::NonZeroU32;
use std::collections::VecDeque;

/// Propagation on the wire, in ns. Estimated: the two machines are directly connected (CH §4.1).
const WIRE_NS: u64 = 500;
/// Headers, frame check sequence, preamble and gap of a packet, in bytes.
const FRAMING_BYTES: u64 = 90;
/// `Hiwat` of CH §5.1; `Lowat` is not in the paper: a quarter.
const WATERMARKS: Option<Watermarks> = Watermarks::new(256, 1024);
/// Connection state on the host, in bytes (CH §2: "around 1KB per connection"), and headers.
const STATE_BYTES: u64 = 1024;
const HEADER_BYTES: u64 = 128;
/// A socket's send buffer, in bytes. Estimated: the default of FreeBSD since 4.5.
const SEND_BUFFER: u32 = 32 * 1024;
/// Packet buffers of the driver, each way.
const BUFFERS: u64 = 1024;
/// Where connection state, received headers, sent headers, the program's files and copied content lie.
const STATE_AT: u64 = 1 << 32;
const RECEIVED_AT: u64 = 2 << 32;
const SENT_AT: u64 = 3 << 32;
const FILES_AT: u64 = 4 << 32;
const COPIES_AT: u64 = 5 << 32;

/// A configuration of CH table 3.
#[derive(Clone, Debug)]
pub struct Config {
    /// The workload of the clients.
    pub workload: Kind,
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
            workload: Kind::WorldCup,
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
    /// Handed off, and not yet on the NIC.
    Moving,
    Nic,
    /// Taken back, and still on the NIC.
    Leaving,
    /// No longer on the NIC, and not yet on the host.
    Returning,
}

impl Place {
    fn is_nic(self) -> bool {
        matches!(self, Place::Nic | Place::Leaving)
    }
}

/// Something for the host's processor to do.
#[derive(Clone, Copy, Debug)]
enum Task {
    Packet(Id, Segment),
    /// The NIC says that a connection has something new.
    Message(Id),
    /// The NIC gave a connection back.
    Restored(Id),
    Timer(Id),
    Program(Id),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    AtNic(Id, Segment),
    AtClient(Id, Segment),
    FromHost(Work),
    NicDone,
    HostDone,
    ClientTimer(Id),
    ClientAsks(Id),
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
    offered: bool,
    was_on_nic: bool,
    /// Operations of its program that wait until it is back on the host.
    held: Vec<Work>,
    sends: u64,
    /// Requests sent, answered by the program, and responses received whole.
    asked: usize,
    served: usize,
    /// Bytes of the current response that do not fit into the send buffer yet.
    unwritten: u32,
    asked_at: u64,
    begun_at: u64,
    /// Stream position at which the current response ends.
    response_end: u64,
    scheduled: bool,
    accepted: bool,
    closed: bool,
    ended: bool,
    /// The connection that follows this one has begun.
    followed: bool,
    timers: [u64; 2],
}

impl Connection {
    /// A request waits for the program, and the response before it is written.
    fn asks(&self) -> bool {
        let asked = (self.served as u64 + 1) * u64::from(REQUEST_BYTES);
        self.unwritten == 0 && self.server.received >= asked
    }
}

/// Effects that the NIC shows when it is done.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Wire(Id, Segment, Option<u64>),
    Host(Task, Option<u64>),
}

/// Everything of one run.
struct World<'a> {
    config: Config,
    selection: &'a mut dyn Selection,
    workload: &'a mut dyn Workload,
    load: LoadControl,
    now: u64,
    agenda: Agenda<Event>,
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
    spent: on_host::Spent,
    /// Packet buffers that the host used for received and sent packets, and bytes copied.
    buffers: [u64; 3],
    /// Packet buffers that the NIC filled.
    filled: u64,
    packets: u64,
    measured: Measured,
    started_ns: u64,
}

/// Runs a configuration with its generator.
pub fn run(config: &Config, selection: &mut dyn Selection) -> Measured {
    run_with(config, config.workload.generator(config.seed).as_mut(), selection)
}

/// Runs a configuration with these sessions, such as a trace's.
pub fn run_with(config: &Config, workload: &mut dyn Workload, selection: &mut dyn Selection) -> Measured {
    let mut world = World::new(config.clone(), workload, selection);
    world.run();
    world.measured
}

impl<'a> World<'a> {
    fn new(config: Config, workload: &'a mut dyn Workload, selection: &'a mut dyn Selection) -> World<'a> {
        let hard_limit = NonZeroU32::new(config.places).unwrap_or(NonZeroU32::MIN);
        let watermarks = WATERMARKS.expect("low is below high");
        let received = if config.host_first { config.costs.nic_queue } else { config.costs.nic_ring };
        World {
            workload,
            load: LoadControl::new(hard_limit, watermarks),
            nic: Queues::new(config.host_first, received, config.costs.nic_ring),
            selection,
            now: 100_000_000_000,
            agenda: Agenda::default(),
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
            spent: on_host::Spent::default(),
            buffers: [0; 3],
            filled: 0,
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
            let Some((at, event)) = self.agenda.pop() else { break };
            self.now = at;
            if !warm && self.packets >= self.config.warm_up {
                warm = true;
                let course = core::mem::take(&mut self.measured.course);
                let measured_from = course.len();
                self.measured = Measured { course, measured_from, ..Measured::default() };
                (self.nic.dropped, self.nic.refused) = (0, 0);
                self.started_ns = self.now;
            }
            if self.now >= course_at {
                course_at = self.now + 10_000_000;
                self.measured.course.push((self.now - start, self.load.soft_limit(), self.on_nic));
            }
            self.happen(event);
        }
        self.measured.span_ns = self.now - self.started_ns;
        self.measured.dropped = self.nic.dropped;
        self.measured.refused = self.nic.refused;
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.agenda.plan(self.now, at, event);
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
            Event::FromHost(work) => {
                self.nic.push(work, self.now);
                self.start_nic();
            }
            Event::ClientTimer(id) => self.client_timer(id),
            Event::ClientAsks(id) => self.after_client(id),
            Event::ServerTimer(id) => self.server_timer(id),
            Event::NicDone => {
                self.nic_busy = false;
                self.show();
                self.start_nic();
            }
            Event::HostDone => {
                self.host_busy = false;
                self.start_host();
            }
        }
    }

    fn show(&mut self) {
        let mut effects = core::mem::take(&mut self.nic_effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Wire(id, segment, since) => {
                    if let Some(since) = since {
                        self.measured.send_delays.push(self.now - since);
                    }
                    self.carry(id, segment, 0);
                }
                Effect::Host(task, since) => {
                    if let Some(since) = since {
                        self.measured.receive_delays.push(self.now - since);
                        self.caches.invalidate(RECEIVED_AT + self.filled % BUFFERS * 2048, HEADER_BYTES);
                        self.filled += 1;
                    }
                    self.network.push_back(task);
                    self.start_host();
                }
            }
        }
        self.nic_effects = effects;
    }

    /// Puts a packet on the wire: direction 0 to the clients, 1 to the server.
    fn carry(&mut self, id: Id, segment: Segment, direction: usize) {
        self.packets += 1;
        self.measured.packets += 1;
        if self.connections[id as usize].as_ref().is_some_and(|c| c.place.is_nic()) {
            self.measured.nic_packets += 1;
        }
        // 10 Gb/s: 0.8 ns a byte.
        let span = (u64::from(segment.lengths.len) + FRAMING_BYTES) * 4 / 5;
        let free = self.wire_free[direction].max(self.now) + span;
        self.wire_free[direction] = free;
        let event = if direction == 0 { Event::AtClient(id, segment) } else { Event::AtNic(id, segment) };
        self.plan(free + WIRE_NS, event);
    }

    fn server_timer(&mut self, id: Id) {
        let now = self.instant();
        let Some(connection) = &mut self.connections[id as usize] else { return };
        connection.timers[1] = u64::MAX;
        if connection.server.deadline().is_none_or(|at| at > now) {
            return self.set_timer(id, 1);
        }
        if connection.place.is_nic() {
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
        let asks = connection.asks();
        let writes = connection.unwritten > 0 && connection.server.unacknowledged() <= SEND_BUFFER / 2;
        let closes = connection.server.peer_closed && !connection.closed;
        let accepts = connection.server.established && !connection.accepted;
        let wakes = (asks || writes || closes || accepts) && !connection.scheduled;
        connection.scheduled |= wakes;
        wakes
    }
}
