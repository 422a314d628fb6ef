//! Engine, port and streams on one thread, driven by the caller: the direct
//! form. No hop between threads, no lock, no system call but the port's own.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! # use baton_port::memory::{MemoryOptions, MemoryPort};
//! # use baton_socket::host::{Host, HostConfig, HostEvent};
//! # use baton_tcp::time::Instant;
//! # let (port, _other) = MemoryPort::pair(MemoryOptions::default());
//! let mut host = Host::new(&HostConfig::new("10.0.0.1/24".parse().unwrap()), port)?;
//! let started = std::time::Instant::now();
//! host.listen("0.0.0.0:7".parse().unwrap(), 128)?;
//! loop {
//!     let now = Instant(started.elapsed().as_nanos() as u64);
//!     host.poll(now).map_err(std::io::Error::other)?;
//!     while let Some(event) = host.next_event() {
//!         if let HostEvent::Ready { conn, .. } = event {
//!             let mut buf = [0; 4096];
//!             while let Ok(count @ 1..) = host.read(conn, &mut buf) {
//!                 host.write(conn, &buf[..count])?;
//!             }
//!         }
//!     }
//! }
//! # }
//! ```

use crate::buffers::BufferPool;
use crate::stream::Stream;
use baton_engine::endpoint::{Cidr, InterfaceConfig};
use baton_engine::engine::{Activity, Engine, EngineConfig};
use baton_engine::frame_io::{FrameIo, PortError};
use baton_engine::options;
use baton_engine::region::{Completion, ConsumerRegion, EngineRegion, Events, Identity, Layout, Region, Request};
use baton_tcp::options::SocketOption;
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// What a host is built with.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The engine's part.
    pub engine: EngineConfig,
    /// Bytes of each stream buffer, a power of two; each direction of a
    /// connection that moves data has one.
    pub stream_buffer: u32,
    /// Stream buffers at most.
    pub stream_buffers: u32,
    /// Connections at most that the program holds at once.
    pub connections: u32,
}

impl HostConfig {
    /// Defaults for one address on Ethernet. The secret is of the process's own
    /// random source.
    pub fn new(address: Cidr) -> HostConfig {
        let random = std::hash::RandomState::new();
        let word = |n: u64| std::hash::BuildHasher::hash_one(&random, n).to_le_bytes();
        let mut secret = [0; 32];
        for (n, place) in secret.chunks_mut(8).enumerate() {
            place.copy_from_slice(&word(n as u64));
        }
        let [a, b, c, d, e, ..] = word(4);
        let interface = InterfaceConfig {
            // Locally administered, unicast.
            mac: [2, a, b, c, d, e],
            addresses: vec![address],
            gateway_v4: None,
            gateway_v6: None,
            mtu: u16::MAX,
            ethernet: true,
            vlan: None,
        };
        HostConfig {
            engine: EngineConfig::new(interface, secret),
            stream_buffer: 256 << 10,
            stream_buffers: 4096,
            connections: 16_384,
        }
    }
}

/// A connection of a [`Host`]: the index of its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Conn(pub u32);

/// A listener of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Listener(pub u64);

/// A connection attempt of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u64);

/// What happened.
#[derive(Debug)]
pub enum HostEvent {
    /// A listener completed a connection.
    Accepted {
        /// The listener.
        listener: Listener,
        /// The connection.
        conn: Conn,
    },
    /// A connection attempt got its connection, which is not open yet: a
    /// `Ready` tells when it is, or that it failed.
    Opening {
        /// The attempt.
        attempt: Attempt,
        /// The connection.
        conn: Conn,
    },
    /// A listener or attempt failed at once.
    Failed {
        /// Number of the [`Listener`] or [`Attempt`].
        token: u64,
        /// Why.
        error: io::Error,
    },
    /// A listener is ready.
    Listening {
        /// Which.
        listener: Listener,
    },
    /// Something about a connection changed: look at what it allows.
    Ready {
        /// Which.
        conn: Conn,
    },
}

/// Engine, port and streams on the caller's thread.
pub struct Host<P> {
    engine: Engine,
    port: P,
    region: ConsumerRegion,
    pool: BufferPool,
    streams: Vec<Option<Box<Stream>>>,
    /// Queue pair of each listener, by token.
    listeners: Vec<(u64, u32)>,
    next_token: u64,
    events: VecDeque<HostEvent>,
    /// Requests that found the ring full and cannot be refused.
    later: VecDeque<Request>,
    ticks: fn() -> u64,
}

impl<P: FrameIo> Host<P> {
    /// A host on `port`.
    ///
    /// # Errors
    /// `InvalidInput` for sizes that make no region.
    pub fn new(config: &HostConfig, port: P) -> io::Result<Host<P>> {
        let pool = BufferPool::new(config.stream_buffer, config.stream_buffers);
        let layout = Layout { qps: config.connections, queue_depth: 4, requests: 256, data_bytes: pool.bytes() };
        let region = Region::heap(layout).map_err(|e| io::Error::new(ErrorKind::InvalidInput, e))?;
        let mut engine = Engine::new(&config.engine, port.capabilities());
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        Ok(Host {
            engine,
            port,
            region: ConsumerRegion::new(region),
            pool,
            streams: Vec::new(),
            listeners: Vec::new(),
            next_token: 1,
            events: VecDeque::new(),
            later: VecDeque::new(),
            ticks: || 0,
        })
    }

    /// Sets the clock by which the TCE's busy and idle time is taken.
    pub fn set_ticks(&mut self, ticks: fn() -> u64) {
        self.ticks = ticks;
    }

    /// One turn of the engine; what happened is then in [`Host::next_event`].
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    pub fn poll(&mut self, now: Instant) -> Result<Activity, PortError> {
        let activity = self.engine.poll(now, &mut self.port, self.ticks)?;
        while let Some(completion) = self.region.poll_completion() {
            self.on_completion(completion);
        }
        self.flush_later();
        Ok(activity)
    }

    /// The oldest event not taken yet.
    pub fn next_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    fn on_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Ready { qp, events } => self.on_ready(qp, events),
            Completion::Accepted { qp, listener } => {
                let token = self.listeners.iter().find(|(_, at)| *at == listener).map(|(token, _)| *token);
                self.new_stream(qp).note_accepted();
                match token {
                    Some(token) => {
                        self.events.push_back(HostEvent::Accepted { listener: Listener(token), conn: Conn(qp) });
                    }
                    // Nobody listens any more.
                    None => self.abort(Conn(qp)),
                }
            }
            Completion::Opened { qp, token } if self.listeners.iter().any(|(listener, _)| *listener == token) => {
                for (listener, at) in &mut self.listeners {
                    if *listener == token {
                        *at = qp;
                    }
                }
                self.events.push_back(HostEvent::Listening { listener: Listener(token) });
            }
            Completion::Opened { qp, token } => {
                self.new_stream(qp);
                self.events.push_back(HostEvent::Opening { attempt: Attempt(token), conn: Conn(qp) });
            }
            Completion::Failed { token, errno } => {
                self.listeners.retain(|(listener, _)| *listener != token);
                let error = io::Error::from_raw_os_error(errno as i32);
                self.events.push_back(HostEvent::Failed { token, error });
            }
            Completion::Done { .. } => {}
        }
    }

    fn on_ready(&mut self, qp: u32, events: Events) {
        let Some(Some(stream)) = self.streams.get_mut(qp as usize) else { return };
        let look = stream.on_events(&self.region, qp, events, &mut self.pool);
        if events.contains(Events::RELEASED) {
            stream.drop_buffers(&mut self.pool);
            self.streams[qp as usize] = None;
        } else if look && !stream.is_released() {
            self.events.push_back(HostEvent::Ready { conn: Conn(qp) });
        }
    }

    fn new_stream(&mut self, qp: u32) -> &mut Stream {
        let index = qp as usize;
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, || None);
        }
        self.streams[index].insert(Box::default())
    }

    /// Listens at `addr`; `Listening` or `Failed` follows.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are under way.
    pub fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let token = self.token();
        let local = if addr.ip().is_unspecified() && addr.is_ipv6() { Addr::UNSPECIFIED } else { addr.ip().into() };
        self.request(&Request::Listen { token, local, local_port: addr.port(), backlog, options: options::NODELAY })?;
        self.listeners.push((token, u32::MAX));
        Ok(Listener(token))
    }

    /// Stops listening.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are under way.
    pub fn unlisten(&mut self, listener: Listener) -> io::Result<()> {
        if let Some(at) = self.listeners.iter().position(|(token, _)| *token == listener.0) {
            let (_, qp) = self.listeners[at];
            if qp != u32::MAX {
                self.request(&Request::Unlisten { qp })?;
            }
            self.listeners.swap_remove(at);
        }
        Ok(())
    }

    /// Begins to connect to `remote`; `Opening` or `Failed` follows.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are under way.
    pub fn connect(&mut self, remote: SocketAddr, local: Option<SocketAddr>) -> io::Result<Attempt> {
        let token = self.token();
        let (local, local_port) = local.map_or((Addr::UNSPECIFIED, 0), |local| {
            let any = matches!(local.ip(), IpAddr::V4(ip) if ip.is_unspecified());
            (if any { Addr::UNSPECIFIED } else { local.ip().into() }, local.port())
        });
        let remote_port = remote.port();
        let remote = remote.ip().into();
        let options = options::NODELAY;
        self.request(&Request::Connect { token, local, local_port, remote, remote_port, options })?;
        Ok(Attempt(token))
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn request(&mut self, request: &Request) -> io::Result<()> {
        self.region.request(request).map_err(|_| ErrorKind::WouldBlock.into())
    }

    fn with<R>(
        &mut self,
        conn: Conn,
        run: impl FnOnce(&mut Stream, &ConsumerRegion, &mut BufferPool) -> io::Result<R>,
    ) -> io::Result<R> {
        match self.streams.get_mut(conn.0 as usize) {
            Some(Some(stream)) if !stream.is_released() => run(stream, &self.region, &mut self.pool),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Moves received bytes to `buf`; 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if nothing waits; else what ended the connection.
    #[inline]
    pub fn read(&mut self, conn: Conn, buf: &mut [u8]) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.read(region, conn.0, buf, pool))
    }

    /// Forgets up to `limit` received bytes where they lie; 0 once the peer has
    /// finished.
    ///
    /// # Errors
    /// As for [`Host::read`].
    #[inline]
    pub fn skip(&mut self, conn: Conn, limit: usize) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.skip(region, conn.0, limit, pool))
    }

    /// Queues bytes for sending and returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` if none could be taken; else what ended the connection.
    #[inline]
    pub fn write(&mut self, conn: Conn, data: &[u8]) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.write(region, conn.0, data, pool))
    }

    /// Ends the sending direction after all that was written.
    ///
    /// # Errors
    /// `NotConnected`; `WouldBlock` if too many requests are under way.
    pub fn shutdown(&mut self, conn: Conn) -> io::Result<()> {
        if self.with(conn, |stream, _, _| Ok(stream.shut()))? {
            self.request(&Request::Shutdown { qp: conn.0 })?;
        }
        Ok(())
    }

    /// Lets go of a connection: in form, or by a reset if received bytes were
    /// never read (RFC 9293 §3.6.1).
    pub fn close(&mut self, conn: Conn) {
        let unread = self.stream(conn).is_some_and(|stream| stream.readable() > 0);
        self.let_go(conn, if unread { Request::Abort { qp: conn.0 } } else { Request::Close { qp: conn.0 } });
    }

    /// Resets a connection and lets go of it.
    pub fn abort(&mut self, conn: Conn) {
        self.let_go(conn, Request::Abort { qp: conn.0 });
    }

    fn let_go(&mut self, conn: Conn, request: Request) {
        let Some(Some(stream)) = self.streams.get_mut(conn.0 as usize) else { return };
        if !stream.is_released() {
            stream.note_released();
            self.later.push_back(request);
            self.flush_later();
        }
    }

    /// Passes on what a full request ring held back.
    fn flush_later(&mut self) {
        while let Some(request) = self.later.front() {
            if self.region.request(request).is_err() {
                return;
            }
            self.later.pop_front();
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are under way.
    pub fn set_option(&mut self, conn: Conn, option: SocketOption) -> io::Result<()> {
        let token = self.token();
        let (option, value) = options::encode(option);
        self.request(&Request::SetOption { token, qp: conn.0, option, value })
    }

    /// The stream of a connection.
    #[inline]
    pub fn stream(&self, conn: Conn) -> Option<&Stream> {
        self.streams.get(conn.0 as usize)?.as_deref().filter(|stream| !stream.is_released())
    }

    /// Bytes that can be written now.
    #[inline]
    pub fn writable(&self, conn: Conn) -> usize {
        self.stream(conn).map_or(0, |stream| stream.writable(&self.pool))
    }

    /// What went wrong with a connection, if anything did.
    pub fn error(&self, conn: Conn) -> Option<io::Error> {
        self.stream(conn)?.error(&self.region, conn.0)
    }

    /// Both ends of a connection.
    pub fn identity(&self, conn: Conn) -> Option<Identity> {
        self.stream(conn).map(|_| self.region.qp(conn.0).identity())
    }

    /// The next moment at which [`Host::poll`] has something to do, if nothing
    /// arrives before; of the past if there is something now.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        if !self.events.is_empty() || self.engine.streamer().has_doorbells() {
            return Some(Instant(0));
        }
        self.engine.next_deadline()
    }

    /// The engine, for its counters.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The port.
    pub fn port(&mut self) -> &mut P {
        &mut self.port
    }
}
