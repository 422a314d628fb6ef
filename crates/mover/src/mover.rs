//! Everything in one process, on one thread: interfaces, each steered and with an engine of its
//! own, and the connections that are away.

use crate::error::{MoveError, Stayed};
use crate::interface::{Interface, now};
use crate::log;
use crate::trip::Trip;
use baton_consumer::consumer::{Conn, Consumer, ConsumerConfig, SocketEvent};
use baton_consumer::memory::Memory;
use baton_consumer::secret::random_secret;
use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::frame_io::FrameIo;
use baton_engine::region::EngineRegion;
use baton_kernel::conntrack::Ending;
use baton_kernel::handoff::{Aborted, Handoff, Outcome, Phase, Step};
use baton_kernel::hops::{Change, Link};
use baton_kernel::kernel_side::{KernelError, KernelSide, Plan};
use baton_kernel::steer::{self, Kind};
use baton_kernel::{BypassingFrames, Captured, Failed};
use baton_port::SteeredPort;
use baton_tcp::config::Config;
use baton_wire::addr::Tuple;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often connections are checked for segments that bypass their engine.
const LOOK: Duration = Duration::from_millis(200);

/// The configuration of a mover.
#[derive(Clone, Debug)]
pub struct MoverConfig {
    /// How interfaces are steered.
    pub steer: steer::Options,
    /// TCP settings.
    pub tcp: Config,
    /// The most connections on each interface.
    pub connections: u32,
    /// The sizes of each engine's consumer.
    pub consumer: ConsumerConfig,
    /// The longest time that a restore waits until everything in flight is acknowledged, and that a
    /// handoff or restore waits until nothing received lies beyond a gap. The kernel retransmits
    /// what is lost after that only after 1 s, and the peer does so slowly.
    pub drain: Duration,
}

impl Default for MoverConfig {
    fn default() -> MoverConfig {
        MoverConfig {
            steer: steer::Options::default(),
            tcp: Config::default(),
            connections: 2048,
            consumer: ConsumerConfig::default(),
            drain: Duration::from_millis(500),
        }
    }
}

/// A connection that is in the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection(pub u64);

/// A change of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MoverEvent {
    /// A connection has changed and may allow more than before.
    Ready(Connection),
    /// Only the kernel can serve this connection now, so it is to be restored: it would be refused
    /// now, or the route of either direction uses another interface, or its interface is gone or
    /// carries less than before, or the firewall's rules have changed. If the kernel refuses the
    /// restore, it may be tried again.
    Homeless(Connection),
}

/// A connection that is away.
struct Away {
    fd: OwnedFd,
    interface: usize,
    conn: (baton_engine::event::ConnId, Conn),
    plan: Plan,
    head: Captured,
    handoff: Handoff,
    bypassing: BypassingFrames,
    /// The program has closed it.
    closed: bool,
}

/// Moves connections between the kernel and engines in this process. `P` is the steered port, or a
/// wrapper of it.
pub struct Mover<P = SteeredPort> {
    config: MoverConfig,
    kernel: KernelSide,
    interfaces: Vec<Interface<P>>,
    away: BTreeMap<Connection, Away>,
    /// The names of connections in the engine, by interface and queue pair.
    names: BTreeMap<(usize, Conn), Connection>,
    tuples: BTreeMap<Tuple, Connection>,
    /// Connections that the program has closed, to be removed once they have ended.
    closing: VecDeque<Connection>,
    events: VecDeque<MoverEvent>,
    started: Instant,
    /// When connections were last checked.
    looked: Instant,
    next: u64,
}

impl<P: FrameIo> Mover<P> {
    /// A mover for the network namespace of the calling thread, without interfaces yet.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn new(config: MoverConfig) -> Result<Mover<P>, KernelError> {
        let mut kernel = KernelSide::open()?;
        kernel.load_programs();
        Ok(Mover {
            config,
            kernel,
            interfaces: Vec::new(),
            away: BTreeMap::new(),
            names: BTreeMap::new(),
            tuples: BTreeMap::new(),
            closing: VecDeque::new(),
            events: VecDeque::new(),
            started: Instant::now(),
            looked: Instant::now(),
            next: 0,
        })
    }

    /// Steers an interface from now on. Its engine uses the port as `wrap` returns it. Call this in
    /// the interface's network namespace. The interface takes the place of one that is gone and has
    /// no connections left.
    ///
    /// # Errors
    /// [`KernelError`] with the remedy.
    pub fn add_interface(
        &mut self,
        name: &str,
        kind: Kind,
        wrap: impl FnOnce(SteeredPort) -> P,
    ) -> Result<(), KernelError> {
        let index = self.kernel.add_interface(name, kind, self.config.steer)?;
        let port = wrap(self.kernel.open_port(index)?);
        let Link { mac, mtu, .. } = self.kernel.link(index)?;
        let interface = InterfaceConfig::guest(mac, mtu.min(u16::MAX.into()) as u16);
        let mut engine = EngineConfig::new(interface, random_secret());
        engine.tcp = self.config.tcp.clone();
        engine.max_connections = self.config.connections.next_power_of_two();
        let mut engine = Engine::new(&engine, port.capabilities());
        let region = Memory::Heap.region(self.config.consumer.layout());
        let (region, _) = region.map_err(|error| Failed { during: "making the consumer's memory", source: error })?;
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        let consumer = Consumer::new(&self.config.consumer, region);
        let interface = Interface { index, mtu, engine, port, consumer, gone: false };
        match self.deserted() {
            Some(at) => {
                let left = std::mem::replace(&mut self.interfaces[at], interface);
                self.kernel.remove_interface(left.index);
            }
            None => self.interfaces.push(interface),
        }
        Ok(())
    }

    /// An interface that is gone and has no connections left.
    fn deserted(&self) -> Option<usize> {
        let inhabited = |at| self.away.values().any(|away| away.interface == at);
        (0..self.interfaces.len()).find(|at| self.interfaces[*at].gone && !inhabited(*at))
    }

    /// The kernel's side: counters, refusals, what a predecessor left.
    pub fn kernel(&mut self) -> &mut KernelSide {
        &mut self.kernel
    }

    /// The port of an interface. The index counts the interfaces in the order in which they were
    /// added.
    pub fn port(&mut self, interface: usize) -> Option<&mut P> {
        self.interfaces.get_mut(interface).map(|interface| &mut interface.port)
    }

    /// The engine of an interface, with the same index.
    pub fn engine(&mut self, interface: usize) -> Option<&mut Engine> {
        self.interfaces.get_mut(interface).map(|interface| &mut interface.engine)
    }

    /// Hands a connected socket over. Call this in the socket's network namespace.
    ///
    /// # Errors
    /// [`Stayed`] with the socket.
    pub fn handoff(&mut self, fd: OwnedFd) -> Result<Connection, Box<Stayed>> {
        let planned = self.kernel.plan(&fd);
        let planned = planned.and_then(|plan| {
            let interface = self.interfaces.iter().position(|interface| interface.index == plan.way.interface);
            Ok((plan, interface.ok_or(KernelError::Refused(baton_policy::Refusal::NotSteerable))?))
        });
        let (plan, at) = match planned {
            Ok(planned) => planned,
            Err(cause) => {
                let error = Aborted { step: Step::Steer, cause: cause.into(), outcome: Outcome::InKernel };
                log::aborted(baton_journal::tuple_of(&fd), &error);
                return Err(Box::new(Stayed { fd, error }));
            }
        };
        let mut handoff = Handoff::new();
        let mut trip = Trip {
            kernel: &mut self.kernel,
            interface: &mut self.interfaces[at],
            started: self.started,
            drain: self.config.drain,
            fd: fd.as_fd(),
            plan,
            conn: None,
            standing: None,
            head: None,
            shut: false,
        };
        if let Err(error) = handoff.hand_off(&mut trip) {
            log::aborted(Some(plan.tuple()), &error);
            return Err(Box::new(Stayed { fd, error }));
        }
        let (conn, head) = (trip.conn, trip.head);
        let conn = conn.expect("a connection that was handed off is in the engine");
        let head = head.expect("a connection that was handed off was captured");
        self.next += 1;
        let name = Connection(self.next);
        self.names.insert((at, conn.1), name);
        self.tuples.insert(plan.tuple(), name);
        self.away.insert(
            name,
            Away { fd, interface: at, conn, plan, head, handoff, bypassing: BypassingFrames::default(), closed: false },
        );
        self.gather_events();
        log::moved(plan.tuple());
        Ok(name)
    }

    /// Gives a connection back to the kernel, and its socket to the caller. Call this in the
    /// socket's network namespace.
    ///
    /// # Errors
    /// The reason, and where the connection is: in the engine, unless it is lost.
    ///
    /// # Panics
    /// If there is no such connection ([`Mover::has`]).
    pub fn restore(&mut self, name: Connection) -> Result<OwnedFd, Box<Aborted<MoveError>>> {
        let away = self.away.get_mut(&name).expect("the connection belongs to this mover");
        let mut trip = Trip {
            kernel: &mut self.kernel,
            interface: &mut self.interfaces[away.interface],
            started: self.started,
            drain: self.config.drain,
            fd: away.fd.as_fd(),
            plan: away.plan,
            conn: Some(away.conn),
            standing: None,
            head: Some(away.head.clone()),
            shut: false,
        };
        let restored = away.handoff.restore(&mut trip);
        if restored.is_ok() {
            trip.finish();
        }
        let before = away.conn.1;
        let now_at = trip.conn;
        let interface = away.interface;
        match (&restored, now_at) {
            (Ok(()), _) | (Err(_), None) => {
                self.names.remove(&(interface, before));
            }
            (Err(_), Some(conn)) => {
                away.conn = conn;
                self.names.remove(&(interface, before));
                self.names.insert((interface, conn.1), name);
            }
        }
        self.gather_events();
        if let Err(error) = restored {
            log::aborted(self.away.get(&name).map(|away| away.plan.tuple()), &error);
            return Err(Box::new(error));
        }
        let away = self.away.remove(&name).expect("it was found above");
        log::home(away.plan.tuple());
        self.tuples.remove(&away.plan.tuple());
        Ok(away.fd)
    }

    /// Returns true if this mover has such a connection.
    pub fn has(&self, name: Connection) -> bool {
        self.away.get(&name).is_some_and(|away| !away.closed)
    }

    /// The phase of a connection; `None` if this mover does not have it.
    pub fn phase(&self, name: Connection) -> Option<Phase> {
        self.away.get(&name).map(|away| away.handoff.phase())
    }

    /// The consumer of a connection, and the connection's name there, to read, write and shut down.
    /// To close the connection, call [`Mover::close`].
    pub fn stream(&mut self, name: Connection) -> Option<(&mut Consumer, Conn)> {
        let away = self.away.get(&name).filter(|away| !away.closed)?;
        Some((&mut self.interfaces[away.interface].consumer, away.conn.1))
    }

    /// Reads what a connection has received. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing to read; what ended the connection.
    pub fn read(&mut self, name: Connection, buf: &mut [u8]) -> io::Result<usize> {
        let (consumer, conn) = self.stream(name).ok_or(io::ErrorKind::NotConnected)?;
        consumer.read(conn, buf)
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; what ended the connection.
    pub fn write(&mut self, name: Connection, data: &[u8]) -> io::Result<usize> {
        let (consumer, conn) = self.stream(name).ok_or(io::ErrorKind::NotConnected)?;
        consumer.write(conn, data)
    }

    /// Closes the connection for the program. The engine ends it in an orderly way. The husk is
    /// removed after that.
    pub fn close(&mut self, name: Connection) {
        if let Some(away) = self.away.get_mut(&name)
            && !away.closed
        {
            away.closed = true;
            self.interfaces[away.interface].consumer.close(away.conn.1);
            self.closing.push_back(name);
        }
    }

    /// Runs one turn of everything. Returns true if there was anything to do.
    ///
    /// # Errors
    /// [`MoveError::Port`] if a port failed, [`MoveError::Kernel`] if netlink failed.
    pub fn poll(&mut self) -> Result<bool, MoveError> {
        let time = now(self.started);
        let mut busy = false;
        for interface in &mut self.interfaces {
            busy |= interface.poll(&mut self.kernel, time)?;
            // These belong to moves for which nobody waits any more.
            while interface.engine.streamer().poll_moved().is_some() {}
        }
        self.follow_changes(time)?;
        self.look_for_bypassing();
        self.gather_events();
        self.clear_away()?;
        Ok(busy)
    }

    /// The next event, the oldest first.
    pub fn next_event(&mut self) -> Option<MoverEvent> {
        self.events.pop_front()
    }

    fn follow_changes(&mut self, time: baton_tcp::time::Instant) -> Result<(), MoveError> {
        let mut changes = Vec::new();
        self.kernel.poll(|change| changes.push(change)).map_err(KernelError::from)?;
        for change in changes {
            match change {
                Change::Neighbour { interface: index, neighbour, mac } => {
                    for interface in self.interfaces.iter_mut().filter(|interface| interface.index == index) {
                        match mac {
                            Some(mac) => interface.engine.streamer().learn_neighbour(time, neighbour, mac),
                            None => interface.engine.streamer().doubt_neighbour(time, neighbour),
                        }
                    }
                }
                Change::Link(link) => {
                    for interface in self.interfaces.iter_mut().filter(|interface| interface.index == link.index) {
                        interface.engine.streamer().set_mac(link.mac);
                        interface.engine.tce().set_mtu(link.mtu.min(interface.mtu).min(u16::MAX.into()) as u16);
                    }
                    self.send_home(|interface| interface.index == link.index && link.mtu < interface.mtu);
                }
                Change::LinkGone(index) => {
                    for interface in self.interfaces.iter_mut().filter(|interface| interface.index == index) {
                        interface.gone = true;
                    }
                    self.send_home(|interface| interface.index == index);
                }
                Change::Way { tuple, way } => self.change_way(time, tuple, way),
                Change::Rules => self.send_home(|_| true),
                Change::Refused { tuple, .. } => {
                    self.events.extend(self.tuples.get(&tuple).map(|name| MoverEvent::Homeless(*name)));
                }
            }
        }
        Ok(())
    }

    /// Reports that the connections of some interfaces have to go home.
    fn send_home(&mut self, whose: impl Fn(&Interface<P>) -> bool) {
        let homeless = self.away.iter().filter(|(_, away)| whose(&self.interfaces[away.interface]));
        self.events.extend(homeless.map(|(name, _)| MoverEvent::Homeless(*name)));
    }

    /// Reports connections whose peers' segments bypass the engine.
    fn look_for_bypassing(&mut self) {
        let now = Instant::now();
        if now - self.looked < LOOK {
            return;
        }
        self.looked = now;
        for (_, tuple) in self.kernel.keep_tracked(now) {
            self.events.extend(self.find(&tuple).map(MoverEvent::Homeless));
        }
        for (name, away) in &mut self.away {
            // If the socket cannot be queried, nothing is known.
            if away.bypassing.look(&away.fd, now).unwrap_or(false) {
                self.events.push_back(MoverEvent::Homeless(*name));
            }
        }
    }

    fn find(&self, tuple: &Tuple) -> Option<Connection> {
        self.tuples.get(tuple).copied()
    }

    fn change_way(&mut self, time: baton_tcp::time::Instant, tuple: Tuple, way: baton_kernel::hops::Way) {
        let Some(name) = self.find(&tuple) else { return };
        let away = self.away.get_mut(&name).expect("it was found above");
        let interface = &mut self.interfaces[away.interface];
        let streamer = interface.engine.streamer();
        let here = way.interface == interface.index;
        if !here || !streamer.reroute(time, away.conn.0, &tuple, way.via) {
            return self.events.push_back(MoverEvent::Homeless(name));
        }
        away.plan.way = way;
    }

    fn gather_events(&mut self) {
        for (at, interface) in self.interfaces.iter_mut().enumerate() {
            while let Some(event) = interface.consumer.next_event() {
                // The caller of an adoption already knows of it.
                if let SocketEvent::Ready { conn } = event
                    && let Some(name) = self.names.get(&(at, conn))
                {
                    self.events.push_back(MoverEvent::Ready(*name));
                }
            }
        }
    }

    /// Removes the oldest closed connection, if it has ended. Its addresses and ports then belong
    /// to the kernel again.
    fn clear_away(&mut self) -> Result<(), MoveError> {
        let Some(&name) = self.closing.front() else { return Ok(()) };
        let away = &self.away[&name];
        let tuple = away.plan.tuple();
        if self.interfaces[away.interface].engine.streamer().knows(&tuple) {
            self.closing.rotate_left(1);
            return Ok(());
        }
        self.closing.pop_front();
        self.kernel.unsteer_ended(&away.plan, Ending::Closed)?;
        self.tuples.remove(&tuple);
        self.names.remove(&(away.interface, away.conn.1));
        // Closing a husk sends nothing.
        self.away.remove(&name);
        Ok(())
    }
}
