//! An engine under a broker's remote control: carries out the broker's orders, and adopts, suspends
//! and releases connections.
//!
//! The broker gives it a device, a ledger and the consumers' memory. It needs no privilege. Its
//! holder drives it: a process of the service (`baton-service`), or a program through its calls
//! (`baton_client`). Its clock is `CLOCK_MONOTONIC`, shifted by an offset that the broker knows, so
//! the broker can read the ledger's timestamps after the engine has died.

mod delay;
mod load;
mod observe;
mod orders;

use super::begin::Begin;
use super::channel::Channel;
use super::order::{Order, Report};
use baton_consumer::consumer::Conn;
use baton_consumer::memory::SharedLedger;
use baton_consumer::secret::random_secret;
use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Activity, Engine, EngineConfig};
use baton_engine::event::ConnId;
use baton_engine::frame_io::{FrameIo, PortError};
use baton_engine::streamer::{ConsumerId, Moved, PostedReceive, SuspendError};
use baton_journal::{Kind, Level, tell};
use baton_port::SteeredPort;
use baton_port::wait::{WaitSet, Waitable};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Interval at which closing connections and pending moves are checked.
const WATCH: Duration = Duration::from_millis(50);
const MOVING: Duration = Duration::from_millis(1);

/// Most engine turns after frames were taken. Remaining work is left for the next call.
const TURNS: u32 = 64;

/// Consecutive turns that share one reading of the clock.
const TURNS_A_LOOK: u32 = 8;

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Attached {
    id: ConsumerId,
    doorbell: OwnedFd,
    completions: OwnedFd,
    /// Its connections, or some of them, are watched.
    observed: bool,
}

struct Connection {
    tuple: Tuple,
    conn: Option<ConnId>,
    /// Deadline for segments in flight to arrive.
    drain: Option<Instant>,
}

/// A remotely controlled engine; see the module documentation.
pub struct Runner {
    engine: Engine,
    port: SteeredPort,
    control: Channel,
    base: u64,
    rx_budget: usize,
    consumers: BTreeMap<u32, Attached>,
    connections: BTreeMap<u64, Connection>,
    names: BTreeMap<u32, u64>,
    /// Connections that are being suspended.
    leaving: Vec<u64>,
    /// Connections that their programs have closed.
    watched: VecDeque<u64>,
    forgotten: Vec<u32>,
    /// Orders to retry, because the engine's ring was full.
    again: VecDeque<Order>,
    /// The most connections that there is memory for.
    most: u32,
    /// `None` until the broker asks for it.
    load: Option<load::Load>,
    /// The broker has gone.
    orphan: bool,
}

impl Runner {
    /// Makes an engine on `port` that publishes to `ledger` and takes orders from `control`.
    pub fn new(control: Channel, begin: &Begin, ledger: &SharedLedger, port: SteeredPort) -> Runner {
        let interface = InterfaceConfig::guest(begin.mac, begin.mtu);
        let mut config = EngineConfig::tuned(interface, random_secret(), &begin.tuning);
        // Every connection here came from the kernel and can return there for urgent data.
        config.tcp.refuse_urgent = true;
        let mut engine = Engine::new(&config, port.capabilities());
        engine.streamer().publish_to(ledger.ledger().clone());
        Runner {
            engine,
            port,
            control,
            base: begin.base,
            rx_budget: config.rx_budget,
            consumers: BTreeMap::new(),
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            leaving: Vec::new(),
            watched: VecDeque::new(),
            forgotten: Vec::new(),
            again: VecDeque::new(),
            most: begin.tuning.connections,
            load: None,
            orphan: false,
        }
    }

    /// The channel to the broker.
    pub fn control(&self) -> &Channel {
        &self.control
    }

    /// The device that the engine receives from and sends to.
    pub fn port(&self) -> &SteeredPort {
        &self.port
    }

    /// True if the broker has gone.
    pub fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// True if it has no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    fn now(&self) -> Instant {
        Instant(monotonic().saturating_sub(self.base))
    }

    /// Sends a report to the broker, with descriptors for [`Report::Started`].
    pub fn say(&mut self, report: Report, fds: Vec<OwnedFd>) {
        tell(Level::Trace, Kind::MESSAGE, |event| event.text(format!("says {report:?}")));
        // If the broker has gone, the next receive will notice.
        let _ = self.control.send(report.to_bytes(), fds);
    }

    /// Runs one turn: takes a burst of frames, processes them, and does what the broker waits for.
    ///
    /// # Errors
    /// [`PortError`] if the device is gone.
    pub fn turn(&mut self) -> Result<Activity, PortError> {
        let now = self.now();
        let activity = self.engine.poll(now, &mut self.port, || 0)?;
        self.weigh(now, activity.frames);
        self.tell_broker();
        self.go_on_leaving();
        self.check_some();
        self.wake_consumers();
        let _ = self.control.flush();
        Ok(activity)
    }

    /// A buffer for the bytes of a connection from stream position `position` on, for [`Runner::drive`]; `None` if this
    /// engine does not serve the consumer.
    pub fn posted<'a>(&self, key: u32, conn: Conn, position: u64, buf: &'a mut [u8]) -> Option<PostedReceive<'a>> {
        let consumer = self.consumers.get(&key)?.id;
        Some(PostedReceive { consumer, qp: conn.0, position, buf, placed: 0 })
    }

    /// Does all pending work, for a driver that calls only now and then: with `receive`, takes all
    /// frames that the port has, and processes them. It starts at `clock`, in nanoseconds of
    /// `CLOCK_MONOTONIC`. The payload of one connection goes into the buffer `posted`, if there is one.
    ///
    /// # Errors
    /// Those of [`Runner::turn`].
    pub fn drive(
        &mut self,
        clock: u64,
        receive: bool,
        mut posted: Option<&mut PostedReceive<'_>>,
    ) -> Result<(), PortError> {
        let mut receive = receive;
        let mut now = Instant(clock.saturating_sub(self.base));
        for turn in 1..=TURNS {
            if turn % TURNS_A_LOOK == 0 {
                now = self.now();
            }
            let steps = if receive {
                let activity = match &mut posted {
                    Some(posted) => self.engine.poll_into(now, &mut self.port, || 0, posted)?,
                    None => self.engine.poll(now, &mut self.port, || 0)?,
                };
                // A smaller burst than the budget means that the port has no more frames, or holds
                // them for later.
                receive = activity.frames >= self.rx_budget;
                activity.frames + activity.steps
            } else {
                self.engine.poll_send(now, &mut self.port, || 0)?
            };
            if steps == 0 {
                break;
            }
        }
        self.tell_broker();
        Ok(())
    }

    /// True if this engine serves the consumer.
    pub fn has_consumer(&self, key: u32) -> bool {
        self.consumers.contains_key(&key)
    }

    /// True if a consumer has rung its doorbell.
    pub fn has_doorbells(&mut self) -> bool {
        self.engine.streamer().has_doorbells()
    }

    /// Continues work that takes longer than a turn: suspending and closing connections.
    pub fn tend(&mut self) {
        for order in std::mem::take(&mut self.again) {
            self.carry_out(order, Vec::new());
        }
        self.go_on_leaving();
        self.check_some();
        let _ = self.control.flush();
    }

    fn tell_broker(&mut self) {
        self.ask();
        self.hear_moves();
    }

    fn ask(&mut self) {
        while let Some(neighbour) = self.engine.streamer().poll_question() {
            self.say(Report::Question { neighbour }, Vec::new());
        }
    }

    fn hear_moves(&mut self) {
        while let Some(moved) = self.engine.streamer().poll_moved() {
            match moved {
                Moved::Adopted { conn, token: id, .. } => {
                    self.names.insert(conn.0, id);
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.conn = Some(conn);
                    }
                    self.say(Report::Adopted { id, conn: conn.0 }, Vec::new());
                }
                Moved::AdoptRefused { token: id, why, .. } => {
                    self.connections.remove(&id);
                    self.say(Report::NotAdopted { id, text: why.to_string() }, Vec::new());
                }
                Moved::Suspended(suspended) => {
                    if let Some(&id) = self.names.get(&suspended.conn.0) {
                        let seeds = &suspended.snapshot.seeds;
                        let [srtt_us, rttvar_us, min_rtt_us] = [seeds.srtt, seeds.rttvar, seeds.min_rtt]
                            .map(|time| u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
                        self.say(Report::Suspended { id, srtt_us, rttvar_us, min_rtt_us }, Vec::new());
                    }
                }
                Moved::Stays { conn } => {
                    if let Some(&id) = self.names.get(&conn.0) {
                        if let Some((conn, tuple)) = self.called(id) {
                            self.engine.streamer().quiesce(conn, &tuple, false);
                        }
                        self.say(Report::Stays { id }, Vec::new());
                    }
                }
                Moved::Urgent { conn } => {
                    if let Some(&id) = self.names.get(&conn.0) {
                        self.say(Report::Urgent { id }, Vec::new());
                    }
                }
                Moved::Ended { conn } => {
                    if let Some(&id) = self.names.get(&conn.0) {
                        self.forget(id);
                        self.say(Report::Ended { id }, Vec::new());
                    }
                }
                Moved::Reopened { conn, syn } => {
                    if let Some(&id) = self.names.get(&conn.0) {
                        self.forget(id);
                        self.say(Report::Reopened { id, syn: syn.into() }, Vec::new());
                    }
                }
            }
        }
    }

    /// Suspends the connections that have nothing in flight or whose deadline has passed.
    fn go_on_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = self.now();
        let (mut stay, mut ended) = (Vec::new(), Vec::new());
        for id in std::mem::take(&mut self.leaving) {
            let Some(&Connection { drain: Some(until), .. }) = self.connections.get(&id) else { continue };
            let Some((conn, tuple)) = self.called(id) else {
                ended.push(id);
                continue;
            };
            if now < until && !self.engine.streamer().is_settled(conn, &tuple) {
                stay.push(id);
                continue;
            }
            let mut suspended = self.engine.streamer().suspend(conn, &tuple);
            if suspended == Err(SuspendError::Filling) && now >= until {
                // The program may have gone, or will never take in the connection's queued bytes.
                suspended = self.engine.streamer().suspend_unfilled(conn, &tuple);
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
            self.say(Report::Ended { id }, Vec::new());
        }
    }

    /// Checks a few closing connections, and consumers that have gone.
    fn check_some(&mut self) {
        for _ in 0..self.watched.len().min(16) {
            let Some(id) = self.watched.pop_front() else { break };
            let knows = self.connections.get(&id).map(|connection| connection.tuple);
            if knows.is_some_and(|tuple| self.engine.streamer().knows(&tuple)) {
                self.watched.push_back(id);
            } else {
                self.forget(id);
                self.say(Report::Ended { id }, Vec::new());
            }
        }
        let Runner { forgotten, consumers, engine, .. } = self;
        let before = forgotten.len();
        forgotten.retain(|key| {
            let Some(consumer) = consumers.get(key) else { return false };
            let detached = engine.streamer().detach_consumer(consumer.id);
            if detached {
                if consumer.observed {
                    engine.unwatch(consumer.id);
                }
                consumers.remove(key);
            }
            !detached
        });
        if self.forgotten.len() < before {
            self.read_notes_no_more();
        }
    }

    fn wake_consumers(&mut self) {
        let Runner { consumers, engine, .. } = self;
        for consumer in consumers.values() {
            let region = engine.streamer().consumer_region(consumer.id);
            if region.is_some_and(|region| region.must_wake_consumer()) {
                let _ = rustix::io::write(&consumer.completions, &1u64.to_ne_bytes());
            }
        }
    }

    /// Sleeps until a frame, a doorbell, an order or a timer. Returns true if the broker may have
    /// sent an order.
    ///
    /// # Errors
    /// Those of `ppoll(2)`.
    pub fn sleep(&mut self) -> io::Result<bool> {
        let Runner { consumers, engine, .. } = self;
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
            let timeout = self.timeout();
            if let Some(load) = &mut self.load {
                load.sleeps();
            }
            set.wait(timeout)?;
            heard = set.is_ready(self.control.as_raw_fd()) || !self.again.is_empty();
            for consumer in self.consumers.values().filter(|c| set.is_ready(c.doorbell.as_raw_fd())) {
                let _ = rustix::io::read(&consumer.doorbell, &mut [0; 8]);
            }
        }
        self.port.finish_wait();
        let Runner { consumers, engine, .. } = self;
        for consumer in consumers.values() {
            if let Some(region) = engine.streamer().consumer_region(consumer.id) {
                region.awake();
            }
        }
        Ok(heard)
    }

    /// Time until there is something to do even if nothing arrives.
    pub fn timeout(&mut self) -> Option<Duration> {
        let now = self.now();
        let deadline = self.engine.next_deadline().map(|at| Duration::from_nanos(at.since(now).0));
        let moving = !self.leaving.is_empty() || !self.again.is_empty() || self.control.is_waiting();
        let watching = !self.watched.is_empty() || !self.forgotten.is_empty();
        let own = if moving { Some(MOVING) } else { watching.then_some(WATCH) };
        deadline.into_iter().chain(own).min()
    }
}
