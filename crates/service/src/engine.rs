//! The engine's process: an engine, driven; orders of the broker, carried out.
//!
//! It has a device, a ledger and the consumers' memory, which the broker sends, and no
//! privilege. It sleeps on the device, the doorbells and the broker. Its clock is
//! `CLOCK_MONOTONIC` from a moment on that the broker knows, so that the broker can read the
//! ledger's timestamps when it is gone.

use crate::order::{Order, Report};
use crate::privileges;
use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::event::ConnId;
use baton_engine::frame_io::PortError;
use baton_engine::options::{self, IpFields};
use baton_engine::region::EngineRegion;
use baton_engine::streamer::{Adopt, AdoptError, ConsumerId, MAX_OPTIONS, Moved, SuspendError};
use baton_engine::tce::tcp_info_bytes;
use baton_port::wait::{WaitSet, Waitable};
use baton_port::xdp::CopyMode;
use baton_port::{FrameIo, SteeredPort, Tap, XdpOptions, XdpPort};
use baton_socket::host::random_secret;
use baton_socket::memory::{SharedLedger, SharedMemory};
use baton_socket::service::channel::{Channel, Parcel};
use baton_tcp::snapshot::{Snapshot, Words};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// Turns between two looks at the broker while there is no pause.
const HEAR_EVERY: u32 = 16;

/// How often connections that end are looked at, and moves that wait.
const WATCH: Duration = Duration::from_millis(50);
const MOVING: Duration = Duration::from_millis(1);

/// Why an engine's process ended.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, #[source] io::Error),
    /// The device failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The broker said what makes no sense.
    #[error("the broker did not say how to start")]
    Start,
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Attached {
    id: ConsumerId,
    doorbell: OwnedFd,
    completions: OwnedFd,
}

struct Line {
    tuple: Tuple,
    conn: Option<ConnId>,
    /// Until when what is in flight may land.
    drain: Option<Instant>,
}

struct Process {
    engine: Engine,
    port: SteeredPort,
    control: Channel,
    base: u64,
    consumers: BTreeMap<u32, Attached>,
    lines: BTreeMap<u64, Line>,
    names: BTreeMap<u32, u64>,
    /// On their way out.
    leaving: Vec<u64>,
    /// Let go of by their programs.
    watched: VecDeque<u64>,
    forgotten: Vec<u32>,
    /// Orders that the engine was too busy for.
    again: VecDeque<Order>,
    /// The broker has gone.
    orphan: bool,
}

/// Runs an engine for the broker at the other end of `control`, until that ends it.
///
/// # Errors
/// [`EngineError`].
pub fn run(control: OwnedFd) -> Result<(), EngineError> {
    let control = Channel::new(control);
    let Some(Parcel { bytes, fds }) = wait_for_first(&control)? else { return Ok(()) };
    let mut fds = fds.into_iter();
    let (Some(Order::Start { device, xdp, mtu, mac, connections, base, congestion, user }), Some(ledger)) =
        (Order::from_bytes(&bytes), fds.next())
    else {
        return Err(EngineError::Start);
    };
    let (port, sockets) = open_port(&device, xdp, mtu, fds.next())?;
    privileges::drop_all(user).map_err(|e| EngineError::System("giving privileges up", e.into()))?;
    let ledger = SharedLedger::open(ledger).map_err(|e| EngineError::System("the ledger", e))?;
    let interface = InterfaceConfig::guest(mac, mtu);
    let mut config = EngineConfig::new(interface, random_secret());
    config.tcp.congestion = congestion;
    config.max_connections = connections.next_power_of_two();
    let mut engine = Engine::new(&config, port.capabilities());
    engine.streamer().publish_to(ledger.ledger().clone());
    let mut process = Process {
        engine,
        port,
        control,
        base,
        consumers: BTreeMap::new(),
        lines: BTreeMap::new(),
        names: BTreeMap::new(),
        leaving: Vec::new(),
        watched: VecDeque::new(),
        forgotten: Vec::new(),
        again: VecDeque::new(),
        orphan: false,
    };
    let _ = process.control.send(Report::Started {}.to_bytes(), sockets);
    process.drive()
}

/// The port, and the sockets that the broker is to send frames to. Opening sockets is what
/// privileges are needed for.
fn open_port(
    device: &str,
    xdp: Option<bool>,
    mtu: u16,
    tap: Option<OwnedFd>,
) -> Result<(SteeredPort, Vec<OwnedFd>), EngineError> {
    let failed = |error| EngineError::System("the device", io::Error::other(error));
    let Some(driver) = xdp else {
        let tap = Tap::attached(tap.ok_or(EngineError::Start)?, device).map_err(failed)?;
        return Ok((SteeredPort::lent(tap, mtu), Vec::new()));
    };
    let options = XdpOptions { generic: !driver, copy: CopyMode::Auto, queues: None };
    let port = XdpPort::open_sockets(device, options).map_err(failed)?;
    let sockets = port.sockets().map(|socket| socket.as_fd().try_clone_to_owned()).collect::<io::Result<_>>();
    Ok((SteeredPort::xdp(port), sockets.map_err(|e| EngineError::System("duplicating", e))?))
}

fn wait_for_first(control: &Channel) -> Result<Option<Parcel>, EngineError> {
    loop {
        match control.receive() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut set = WaitSet::new();
                set.add(control);
                set.wait(None).map_err(|e| EngineError::System("waiting for the broker", e))?;
            }
            received => return received.map_err(|e| EngineError::System("hearing the broker", e)),
        }
    }
}

impl Process {
    fn now(&self) -> Instant {
        Instant(monotonic().saturating_sub(self.base))
    }

    fn say(&mut self, report: Report) {
        // Nobody to hear it is found out by hearing.
        let _ = self.control.send(report.to_bytes(), Vec::new());
    }

    fn drive(&mut self) -> Result<(), EngineError> {
        let mut turns = 0u32;
        let mut heard = true;
        loop {
            turns = turns.wrapping_add(1);
            if heard || turns.is_multiple_of(HEAR_EVERY) {
                self.hear();
            }
            if self.orphan && self.lines.is_empty() {
                return Ok(());
            }
            let now = self.now();
            let activity = self.engine.poll(now, &mut self.port, || 0)?;
            self.ask();
            self.hear_moves();
            self.go_on_leaving();
            self.watch();
            self.wake_consumers();
            let _ = self.control.flush();
            heard = activity.is_idle() && self.sleep()?;
        }
    }

    fn hear(&mut self) {
        for order in std::mem::take(&mut self.again) {
            self.carry_out(order, Vec::new());
        }
        while !self.orphan {
            match self.control.receive() {
                Ok(Some(parcel)) => {
                    if let Some(order) = Order::from_bytes(&parcel.bytes) {
                        self.carry_out(order, parcel.fds);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => self.orphan = true,
            }
        }
    }

    fn carry_out(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let now = self.now();
        match order {
            Order::Start { .. } => {}
            Order::Consumer { key } => self.attach(key, fds),
            Order::Forget { key } => self.forgotten.push(key),
            Order::Hold { id, tuple } => {
                self.engine.streamer().hold(tuple);
                self.say(Report::Held { id });
            }
            Order::Unhold { tuple } => self.engine.streamer().unhold(&tuple),
            Order::Adopt { .. } => self.adopt(now, order),
            Order::Suspend { id, drain_ms } => self.suspend(now, id, drain_ms),
            Order::Resume { id } => {
                let conn = self.lines.get(&id).and_then(|line| line.conn);
                if conn.is_some_and(|conn| self.engine.streamer().resume(conn) == Err(SuspendError::Busy)) {
                    self.again.push_back(order);
                }
            }
            Order::LetGo { id } => self.let_go(now, id),
            Order::Watch { id } => self.watched.push_back(id),
            Order::Neighbour { neighbour, mac } => self.engine.streamer().learn_neighbour(now, neighbour, mac),
            Order::Reroute { id, via } => {
                let conn = self.lines.get(&id).and_then(|line| line.conn);
                if !conn.is_some_and(|conn| self.engine.streamer().reroute(now, conn, via)) {
                    self.say(Report::Homeless { id });
                }
            }
            Order::Info { id } => {
                let conn = self.lines.get(&id).and_then(|line| line.conn);
                let info = conn.and_then(|conn| self.engine.tce().info(now, conn));
                let bytes = info.map_or(Vec::new(), |info| tcp_info_bytes(&info).to_vec());
                self.say(Report::Info { id, bytes });
            }
            Order::Ask {} => self.say(Report::Here {}),
            Order::Mac { mac } => self.engine.streamer().set_mac(mac),
        }
    }

    fn attach(&mut self, key: u32, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let (Some(file), Some(doorbell), Some(completions)) = (fds.next(), fds.next(), fds.next()) else { return };
        let Ok(memory) = SharedMemory::open(file) else { return };
        let id = self.engine.streamer().attach_consumer(EngineRegion::new(memory.region().clone()));
        self.consumers.insert(key, Attached { id, doorbell, completions });
    }

    fn adopt(&mut self, now: Instant, order: Order) {
        let Order::Adopt { id, key, tuple, ref snapshot, ip, via, mac, ref options } = order else { return };
        let mut words = Words::default();
        if snapshot.len() == words.len() {
            words.copy_from_slice(snapshot);
        }
        let consumer = self.consumers.get(&key).map(|consumer| consumer.id);
        let (Some(snapshot), Some(consumer)) = (Snapshot::from_words(&words), consumer) else {
            return self.say(Report::NotAdopted { id, text: "the engine does not know its program".into() });
        };
        let options: Vec<_> =
            options.iter().filter_map(|(number, value)| options::decode(*number, *value)).take(MAX_OPTIONS).collect();
        let adopt = Adopt {
            consumer,
            token: id,
            tuple,
            snapshot: &snapshot,
            ip: IpFields::from_bits(ip),
            via: Some(via),
            options: &options,
        };
        match self.engine.streamer().adopt(now, &adopt) {
            Ok(_) => {
                if let Some(mac) = mac {
                    self.engine.streamer().learn_neighbour(now, via, mac);
                }
                self.lines.insert(id, Line { tuple, conn: None, drain: None });
            }
            Err(AdoptError::Busy) => self.again.push_back(order),
            Err(error) => self.say(Report::NotAdopted { id, text: error.to_string() }),
        }
    }

    fn suspend(&mut self, now: Instant, id: u64, drain_ms: u32) {
        let Some(line) = self.lines.get_mut(&id) else { return self.say(Report::Ended { id }) };
        let Some(conn) = line.conn else { return self.again.push_back(Order::Suspend { id, drain_ms }) };
        line.drain = Some(now + baton_tcp::time::Duration::from_millis(drain_ms.into()));
        if drain_ms > 0 {
            self.engine.streamer().quiesce(conn, true);
        }
        self.leaving.push(id);
    }

    fn let_go(&mut self, now: Instant, id: u64) {
        let Some(Line { tuple, conn: Some(conn), .. }) = self.lines.get(&id) else { return };
        let (tuple, conn) = (*tuple, *conn);
        match self.engine.streamer().let_go(now, conn) {
            Err(SuspendError::Busy) => self.again.push_back(Order::LetGo { id }),
            // Else it ended while it stood still: reset by the program, say.
            _ => {
                self.engine.streamer().unhold(&tuple);
                self.forget(id);
            }
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(Line { conn: Some(conn), .. }) = self.lines.remove(&id)
            && self.names.get(&conn.0) == Some(&id)
        {
            self.names.remove(&conn.0);
        }
    }

    fn ask(&mut self) {
        while let Some(neighbour) = self.engine.streamer().poll_question() {
            self.say(Report::Question { neighbour });
        }
    }

    fn hear_moves(&mut self) {
        while let Some(moved) = self.engine.streamer().poll_moved() {
            match moved {
                Moved::Adopted { conn, token: id, .. } => {
                    self.names.insert(conn.0, id);
                    if let Some(line) = self.lines.get_mut(&id) {
                        line.conn = Some(conn);
                    }
                    self.say(Report::Adopted { id, conn: conn.0 });
                }
                Moved::AdoptRefused { token: id, why, .. } => {
                    self.lines.remove(&id);
                    self.say(Report::NotAdopted { id, text: why.to_string() });
                }
                Moved::Suspended(suspended) => {
                    if let Some(&id) = self.names.get(&suspended.conn.0) {
                        self.say(Report::Suspended { id });
                    }
                }
                Moved::Stays { conn } => {
                    if let Some(&id) = self.names.get(&conn.0) {
                        self.engine.streamer().quiesce(conn, false);
                        self.say(Report::Stays { id });
                    }
                }
                Moved::Ended { conn } => {
                    if let Some(&id) = self.names.get(&conn.0) {
                        self.forget(id);
                        self.say(Report::Ended { id });
                    }
                }
            }
        }
    }

    /// Suspends those of which nothing is on its way any more, or whose time is up.
    fn go_on_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = self.now();
        let (mut stay, mut ended) = (Vec::new(), Vec::new());
        for id in std::mem::take(&mut self.leaving) {
            let Some(Line { conn: Some(conn), drain: Some(until), .. }) = self.lines.get(&id) else { continue };
            if now < *until && !self.engine.streamer().is_settled(*conn) {
                stay.push(id);
                continue;
            }
            let mut suspended = self.engine.streamer().suspend(*conn);
            if suspended == Err(SuspendError::Filling) && now >= *until {
                // Its program has gone, it may be, or never will take in what is its own.
                suspended = self.engine.streamer().suspend_unfilled(*conn);
            }
            match suspended {
                Ok(()) => {}
                Err(SuspendError::Busy | SuspendError::Filling) => stay.push(id),
                Err(SuspendError::NotOpen) => ended.push(id),
            }
        }
        self.leaving = stay;
        for id in ended {
            self.forget(id);
            self.say(Report::Ended { id });
        }
    }

    /// A few of those that end, and of consumers that have gone.
    fn watch(&mut self) {
        for _ in 0..self.watched.len().min(16) {
            let Some(id) = self.watched.pop_front() else { break };
            let knows = self.lines.get(&id).map(|line| line.tuple);
            if knows.is_some_and(|tuple| self.engine.streamer().knows(&tuple)) {
                self.watched.push_back(id);
            } else {
                self.forget(id);
                self.say(Report::Ended { id });
            }
        }
        let Process { forgotten, consumers, engine, .. } = self;
        forgotten.retain(|key| {
            let Some(consumer) = consumers.get(key) else { return false };
            let detached = engine.streamer().detach_consumer(consumer.id);
            if detached {
                consumers.remove(key);
            }
            !detached
        });
    }

    fn wake_consumers(&mut self) {
        let Process { consumers, engine, .. } = self;
        for consumer in consumers.values() {
            let region = engine.streamer().consumer_region(consumer.id);
            if region.is_some_and(|region| region.must_wake_consumer()) {
                let _ = rustix::io::write(&consumer.completions, &1u64.to_ne_bytes());
            }
        }
    }

    /// Sleeps until a frame, a doorbell, an order or the time comes; true if the broker may
    /// have said something.
    fn sleep(&mut self) -> Result<bool, EngineError> {
        let Process { consumers, engine, .. } = self;
        let may = consumers
            .values()
            .all(|consumer| engine.streamer().consumer_region(consumer.id).is_none_or(|region| region.prepare_sleep()));
        let mut heard = false;
        if may && self.port.prepare_wait() {
            let mut set = WaitSet::new();
            self.port.poll_fds(&mut set);
            if !self.orphan {
                set.add(&self.control);
            }
            self.consumers.values().for_each(|consumer| set.add(&consumer.doorbell));
            set.wait(self.timeout()).map_err(|e| EngineError::System("waiting", e))?;
            heard = set.is_ready(self.control.as_raw_fd()) || !self.again.is_empty();
            for consumer in self.consumers.values().filter(|c| set.is_ready(c.doorbell.as_raw_fd())) {
                let _ = rustix::io::read(&consumer.doorbell, &mut [0; 8]);
            }
        }
        self.port.finish_wait();
        let Process { consumers, engine, .. } = self;
        for consumer in consumers.values() {
            if let Some(region) = engine.streamer().consumer_region(consumer.id) {
                region.awake();
            }
        }
        Ok(heard)
    }

    fn timeout(&mut self) -> Option<Duration> {
        let now = self.now();
        let deadline = self.engine.next_deadline().map(|at| Duration::from_nanos(at.since(now).0));
        let moving = !self.leaving.is_empty() || !self.again.is_empty() || self.control.is_waiting();
        let watching = !self.watched.is_empty() || !self.forgotten.is_empty();
        let own = if moving { Some(MOVING) } else { watching.then_some(WATCH) };
        deadline.into_iter().chain(own).min()
    }
}
