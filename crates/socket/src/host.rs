//! Engine, port and streams on one thread that the caller drives: no switch between threads, no
//! lock, and no system calls except the port's own.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! # use baton_port::memory::{MemoryOptions, MemoryPort};
//! # use baton_consumer::consumer::SocketEvent;
//! # use baton_socket::host::{Host, HostConfig};
//! # use baton_tcp::time::Instant;
//! # let (port, _other) = MemoryPort::pair(MemoryOptions::default());
//! let mut host = Host::new(&HostConfig::new("10.0.0.1/24".parse().unwrap()), port)?;
//! let started = std::time::Instant::now();
//! host.listen("0.0.0.0:7".parse().unwrap(), 128)?;
//! loop {
//!     let now = Instant(started.elapsed().as_nanos() as u64);
//!     host.poll(now).map_err(std::io::Error::other)?;
//!     while let Some(event) = host.next_event() {
//!         if let SocketEvent::Ready { conn, .. } = event {
//!             let mut buf = [0; 4096];
//!             while let Ok(count @ 1..) = host.read(conn, &mut buf) {
//!                 host.write(conn, &buf[..count])?;
//!             }
//!         }
//!     }
//! }
//! # }
//! ```

use crate::sys::large_pages;
use baton_consumer::clock;
use baton_consumer::consumer::{Conn, Consumer, ConsumerConfig};
use baton_consumer::memory::Memory;
use baton_consumer::secret::random_secret;
use baton_engine::endpoint::{Cidr, InterfaceConfig};
use baton_engine::engine::{Activity, Engine, EngineConfig};
use baton_engine::frame_io::{FrameIo, PortError};
use baton_engine::region::EngineRegion;
use baton_engine::streamer::{ConsumerId, WatchError};
use baton_latency::{Recorded, WatchMemory};
use baton_tcp::time::Instant;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The consumer that every host attaches.
pub(crate) const OURS: ConsumerId = ConsumerId(0);

/// Configuration of a host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostConfig {
    /// Configuration of the engine.
    pub engine: EngineConfig,
    /// Sizes of the consumer.
    pub consumer: ConsumerConfig,
    /// Kind of memory for the consumer's region.
    pub memory: Memory,
    /// Memory for the spans of connections, each of which takes a slot when it opens. With `None` the engine
    /// stamps nothing until [`Host::watch`] gives it memory.
    pub watch: Option<Arc<WatchMemory>>,
}

impl HostConfig {
    /// Returns defaults for one address on Ethernet. The secret comes from the process's random
    /// source.
    pub fn new(address: Cidr) -> HostConfig {
        let [a, b, c, d, e, ..] = random_secret();
        // A locally administered unicast address.
        let mut interface = InterfaceConfig::ethernet([2, a, b, c, d, e], vec![address]);
        interface.mtu = u16::MAX;
        HostConfig {
            engine: EngineConfig::new(interface, random_secret()),
            consumer: ConsumerConfig::default(),
            memory: Memory::default(),
            watch: None,
        }
    }
}

/// Engine, port and streams on the caller's thread. Dereferences to [`Consumer`], which has the
/// operations on streams.
pub struct Host<P> {
    engine: Engine,
    port: P,
    consumer: Consumer,
    memory: Option<OwnedFd>,
    ticks: fn() -> u64,
}

impl<P: FrameIo> Host<P> {
    /// Makes a host on `port`.
    ///
    /// # Errors
    /// `InvalidInput` if the sizes make no valid region.
    pub fn new(config: &HostConfig, port: P) -> io::Result<Host<P>> {
        let (region, memory) = config.memory.region(config.consumer.layout())?;
        let mut engine = Engine::new(&config.engine, port.capabilities());
        engine.tables().into_iter().chain([region.words_span()]).for_each(large_pages::advise);
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        let consumer = Consumer::new(&config.consumer, region);
        let mut host = Host { engine, port, consumer, memory, ticks: || 0 };
        if let Some(memory) = &config.watch {
            host.watch(memory.clone());
            // There is memory, and no connection yet.
            let _ = host.watch_all();
        }
        Ok(host)
    }

    /// Sets the clock that measures the TCE's busy and idle time.
    pub fn set_ticks(&mut self, ticks: fn() -> u64) {
        self.ticks = ticks;
    }

    /// Makes this host's connections ones that can be watched; their spans go to `memory`. Then
    /// [`Host::watch_connection`] or [`Host::watch_all`] says which are.
    pub fn watch(&mut self, memory: Arc<WatchMemory>) {
        self.engine.watch(OURS, memory.clone(), clock::monotonic);
        self.consumer.watch(memory, clock::monotonic);
    }

    /// Ends [`Host::watch`].
    pub fn unwatch(&mut self) {
        self.engine.unwatch(OURS);
        self.consumer.unwatch();
    }

    /// Watches a connection from now on, with spans of its own.
    ///
    /// # Errors
    /// [`WatchError`] says why it is not watched.
    pub fn watch_connection(&mut self, conn: Conn) -> Result<(), WatchError> {
        self.engine.streamer().watch_connection(OURS, conn.0)
    }

    /// Watches all connections together, those that open later too. Each takes a slot, and those that find none
    /// are not watched.
    ///
    /// # Errors
    /// Those of [`baton_engine::streamer::Streamer::watch_all`].
    pub fn watch_all(&mut self) -> Result<(), WatchError> {
        self.engine.streamer().watch_all(OURS)
    }

    /// As [`Host::watch_all`], but records one message in `one_in` only, on average, which stands for as many.
    ///
    /// # Errors
    /// Those of [`baton_engine::streamer::Streamer::watch_some`].
    pub fn watch_some(&mut self, one_in: u32) -> Result<(), WatchError> {
        self.engine.streamer().watch_some(OURS, one_in)
    }

    /// Watches all connections, those that open later too, each with spans of its own and its slowest messages; of one
    /// message in `one_in`, on average, which stands for as many.
    ///
    /// # Errors
    /// Those of [`baton_engine::streamer::Streamer::watch_those`].
    pub fn watch_each(&mut self, one_in: u32) -> Result<(), WatchError> {
        let recorded = if one_in > 1 { Recorded::Sampled } else { Recorded::Wholly };
        self.engine.streamer().watch_those(OURS, move |_| Some(recorded), one_in)
    }

    /// Runs one turn of the engine. [`Consumer::next_event`] then returns the events.
    ///
    /// # Errors
    /// [`PortError`] if the device is gone.
    pub fn poll(&mut self, now: Instant) -> Result<Activity, PortError> {
        let activity = self.engine.poll(now, &mut self.port, self.ticks)?;
        self.consumer.poll(now);
        Ok(activity)
    }

    /// Returns the next time at which [`Host::poll`] has something to do if nothing arrives before.
    /// It is in the past if there is something to do now.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        if self.consumer.has_events() || self.engine.streamer().has_doorbells() {
            return Some(Instant(0));
        }
        self.engine.next_deadline().into_iter().chain(self.consumer.next_look()).min()
    }

    /// Number of bytes that were written to a connection and never sent.
    pub fn unsent(&self, conn: Conn) -> usize {
        let sent = self.engine.sent_total(OURS, conn.0).unwrap_or(0);
        let stream = self.consumer.stream(conn).filter(|stream| !stream.is_closed());
        stream.map_or(0, |stream| stream.written_total().saturating_sub(sent) as usize)
    }

    /// The engine, for example for its counters.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The port that the engine receives from and sends to.
    pub fn port(&mut self) -> &mut P {
        &mut self.port
    }

    /// The file of the consumer's region, if it has one.
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(AsFd::as_fd)
    }

    /// Takes the host apart, for callers that drive the parts in another way.
    pub fn into_parts(self) -> (Engine, P, Consumer) {
        (self.engine, self.port, self.consumer)
    }
}

impl<P> Deref for Host<P> {
    type Target = Consumer;
    fn deref(&self) -> &Consumer {
        &self.consumer
    }
}

impl<P> DerefMut for Host<P> {
    fn deref_mut(&mut self) -> &mut Consumer {
        &mut self.consumer
    }
}
