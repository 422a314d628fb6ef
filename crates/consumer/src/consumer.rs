//! A consumer: its region, its streams, and their events.
//!
//! It knows neither engine nor threads: someone polls the engine, then [`Consumer::poll`] takes in
//! what the engine completed. In a host, that is the same thread. In a stack, the consumer is
//! behind a lock and the engine is not.

mod config;
mod idle;
mod posted;
mod watch;
mod write;

pub use config::ConsumerConfig;
pub use idle::{FAST_LAPS, IDLE_LOOK};

use crate::buffers::{BufferPool, Share};
use crate::expected::Adoptions;
use crate::moved::{Adoption, Remains};
use crate::stream::Stream;
use baton_engine::options::{self, IpFields};
use baton_engine::region::{Completion, ConsumerRegion, Events, Identity, Region, Request};
use baton_tcp::options::SocketOption;
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A connection of a [`Consumer`]: the index of its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Conn(pub u32);

/// A listener of a [`Consumer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Listener(pub u64);

/// A connection attempt of a [`Consumer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u64);

/// An event of a consumer.
#[derive(Debug)]
#[non_exhaustive]
pub enum SocketEvent {
    /// A listener completed a connection.
    Accepted {
        /// The listener that it arrived at.
        listener: Listener,
        /// The connection's queue pair.
        conn: Conn,
    },
    /// A connection attempt got its connection, which is not open yet. A `Ready` follows when it is
    /// open or has failed.
    Opening {
        /// The attempt that succeeded.
        attempt: Attempt,
        /// The connection's queue pair.
        conn: Conn,
    },
    /// A listener or attempt failed immediately.
    Failed {
        /// Number of the [`Listener`] or [`Attempt`].
        token: u64,
        /// The error, as `connect(2)` or `listen(2)` would report it.
        error: io::Error,
    },
    /// A listener is ready.
    Listening {
        /// The listener, which accepts connections now.
        listener: Listener,
    },
    /// A connection arrived from another stack, with its queues.
    Adopted {
        /// Number of the adoption, as given to [`Consumer::expect`](crate::consumer::Consumer::expect).
        adoption: Adoption,
        /// The connection's queue pair.
        conn: Conn,
    },
    /// The engine gave back the queue pair of a moved connection that the program had closed,
    /// before [`Consumer::leave`] was called for it.
    Parted {
        /// The queue pair. It may belong to another connection by now.
        conn: Conn,
        /// The bytes left there.
        remains: Remains,
    },
    /// The state of a connection changed: ask what it allows now.
    Ready {
        /// The connection's queue pair.
        conn: Conn,
    },
}

/// One consumer of an engine.
pub struct Consumer {
    pub(crate) region: ConsumerRegion,
    pub(crate) pool: BufferPool,
    pub(crate) streams: Vec<Option<Stream>>,
    pub(crate) adoptions: Adoptions,
    /// Queue pair of each listener, by token.
    listeners: Vec<(u64, u32)>,
    next_token: u64,
    pub(crate) events: VecDeque<SocketEvent>,
    /// Requests that must be made, but found the ring full or wait for a stream's bytes to be
    /// posted.
    later: VecDeque<Request>,
    /// Queue pairs of streams that have buffers.
    holders: VecDeque<u32>,
    /// Laps posted since this round began, for streams that posted any.
    laps: BTreeMap<u32, u32>,
    /// When to start the next round of looking for idle streams.
    look_at: Instant,
    /// Number of streams still to check in this round.
    round_left: usize,
    /// Number of streams whose buffers were asked back from the engine.
    retiring: usize,
    /// Points of calls; `None` while no connection can be watched.
    watcher: Option<Box<watch::Watcher>>,
}

impl Consumer {
    /// Makes a consumer over `region`, which must have the layout that `config` requires.
    pub fn new(config: &ConsumerConfig, region: Arc<Region>) -> Consumer {
        assert_eq!(region.layout(), config.layout(), "the region does not have the layout of this configuration");
        Consumer {
            region: ConsumerRegion::new(region),
            pool: BufferPool::new(config.pool_sizes()),
            streams: Vec::new(),
            adoptions: Adoptions::default(),
            listeners: Vec::new(),
            next_token: 1,
            events: VecDeque::new(),
            later: VecDeque::new(),
            holders: VecDeque::new(),
            laps: BTreeMap::new(),
            look_at: Instant(0),
            round_left: 0,
            retiring: 0,
            watcher: None,
        }
    }

    /// Takes in what the engine completed by `now`, as events for [`Consumer::next_event`]. Also
    /// takes buffers back from idle streams.
    pub fn poll(&mut self, now: Instant) {
        while let Some(completion) = self.region.poll_completion() {
            self.on_completion(completion);
        }
        self.flush_later();
        self.look_for_idle(now);
    }

    /// The consumer's side of its region, for the sleep and wake flags.
    pub fn region(&self) -> &ConsumerRegion {
        &self.region
    }

    /// True if there are events to take.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Option<SocketEvent> {
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
                        self.events.push_back(SocketEvent::Accepted { listener: Listener(token), conn: Conn(qp) });
                    }
                    // The listener was closed.
                    None => self.abort(Conn(qp)),
                }
            }
            Completion::Opened { qp, token } if self.listeners.iter().any(|(listener, _)| *listener == token) => {
                for (listener, at) in &mut self.listeners {
                    if *listener == token {
                        *at = qp;
                    }
                }
                self.events.push_back(SocketEvent::Listening { listener: Listener(token) });
            }
            Completion::Opened { qp, token } => {
                self.new_stream(qp);
                self.events.push_back(SocketEvent::Opening { attempt: Attempt(token), conn: Conn(qp) });
            }
            Completion::Adopted { qp, token } => self.on_adopted(qp, token),
            Completion::Failed { token, .. } if idle::is_answer(token) => self.on_retired(token as u32, false),
            Completion::Done { token, .. } if idle::is_answer(token) => self.on_retired(token as u32, true),
            Completion::Failed { token, errno } => {
                self.listeners.retain(|(listener, _)| *listener != token);
                let error = io::Error::from_raw_os_error(errno as i32);
                self.events.push_back(SocketEvent::Failed { token, error });
            }
            Completion::Done { .. } => {}
        }
    }

    pub(crate) fn on_ready(&mut self, qp: u32, events: Events) {
        let Some(Some(stream)) = self.streams.get_mut(qp as usize) else { return };
        let look = stream.on_events(&self.region, qp, events, &mut self.pool);
        if stream.newly_holds_buffers() {
            self.holders.push_back(qp);
        }
        if events.contains(Events::RELEASED) {
            self.on_released(qp);
        } else if look && !stream.is_released() {
            self.events.push_back(SocketEvent::Ready { conn: Conn(qp) });
        }
    }

    pub(crate) fn new_stream(&mut self, qp: u32) -> &mut Stream {
        let index = qp as usize;
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, || None);
        }
        let place = &mut self.streams[index];
        let next = place.as_ref().map_or_else(Stream::default, Stream::next);
        place.insert(next)
    }

    /// Listens at `addr`. `Listening` or `Failed` follows.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are pending.
    pub fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        self.listen_with(addr, backlog, options::NODELAY)
    }

    /// Like [`Consumer::listen`], with option bits of [`baton_engine::options`] for the accepted
    /// connections.
    ///
    /// # Errors
    /// Those of [`Consumer::listen`].
    pub fn listen_with(&mut self, addr: SocketAddr, backlog: u32, options: u64) -> io::Result<Listener> {
        let token = self.token();
        let local = if addr.ip().is_unspecified() && addr.is_ipv6() { Addr::UNSPECIFIED } else { addr.ip().into() };
        self.request(&Request::Listen { token, local, local_port: addr.port(), backlog, options })?;
        self.listeners.push((token, u32::MAX));
        Ok(Listener(token))
    }

    /// Stops listening.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are pending.
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

    /// Starts connecting to `remote`. `Opening` or `Failed` follows.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are pending.
    pub fn connect(&mut self, remote: SocketAddr, local: Option<SocketAddr>) -> io::Result<Attempt> {
        self.connect_with(remote, local, options::NODELAY)
    }

    /// Like [`Consumer::connect`], with option bits of [`baton_engine::options`].
    ///
    /// # Errors
    /// Those of [`Consumer::connect`].
    pub fn connect_with(&mut self, remote: SocketAddr, local: Option<SocketAddr>, options: u64) -> io::Result<Attempt> {
        let token = self.token();
        let (local, local_port) = local.map_or((Addr::UNSPECIFIED, 0), |local| {
            let any = matches!(local.ip(), IpAddr::V4(ip) if ip.is_unspecified());
            (if any { Addr::UNSPECIFIED } else { local.ip().into() }, local.port())
        });
        let remote_port = remote.port();
        let remote = remote.ip().into();
        self.request(&Request::Connect { token, local, local_port, remote, remote_port, options })?;
        Ok(Attempt(token))
    }

    pub(crate) fn token(&mut self) -> u64 {
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
            Some(Some(stream)) if !stream.is_released() => {
                let before = stream.laps();
                let done = run(stream, &self.region, &mut self.pool);
                if stream.newly_holds_buffers() {
                    self.holders.push_back(conn.0);
                }
                let posted = stream.laps().wrapping_sub(before);
                if posted > 0 && self.pool.has_large() {
                    let laps = self.laps.entry(conn.0).or_default();
                    *laps += posted;
                    if *laps > FAST_LAPS {
                        stream.grow();
                    }
                }
                done
            }
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Moves received bytes to `buf`. Returns 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes are available; otherwise the error that ended the connection.
    #[inline]
    pub fn read(&mut self, conn: Conn, buf: &mut [u8]) -> io::Result<usize> {
        let entered = self.read_entered(conn);
        let done = self.with(conn, |stream, region, pool| stream.read(region, conn.0, buf, pool));
        if entered > 0
            && let Ok(count) = done
        {
            self.note_read(conn, entered, count);
        }
        done
    }

    /// Copies received bytes to `buf` without consuming them.
    ///
    /// # Errors
    /// Those of [`Consumer::read`].
    pub fn peek(&mut self, conn: Conn, buf: &mut [u8]) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.peek(region, conn.0, buf, pool))
    }

    /// Discards up to `limit` received bytes without copying them. Returns 0 once the peer has
    /// finished.
    ///
    /// # Errors
    /// Those of [`Consumer::read`].
    #[inline]
    pub fn skip(&mut self, conn: Conn, limit: usize) -> io::Result<usize> {
        let entered = self.read_entered(conn);
        let done = self.with(conn, |stream, region, pool| stream.skip(region, conn.0, limit, pool));
        if entered > 0
            && let Ok(count) = done
        {
            self.note_read(conn, entered, count);
        }
        done
    }

    /// Size of a small stream buffer in bytes.
    pub fn small_buffer(&self) -> u32 {
        self.pool.small_size()
    }

    /// Sets how much of its send and receive buffers a connection uses from now on. Initially it
    /// uses all of both. A window that the peer was promised before is not taken back.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn set_shares(&mut self, conn: Conn, send: Share, receive: Share) -> io::Result<()> {
        self.with(conn, |stream, region, pool| {
            stream.set_shares(region, conn.0, send, receive, pool);
            Ok(())
        })
    }

    /// Shuts down the sending direction after all written bytes.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&mut self, conn: Conn) -> io::Result<()> {
        self.push(conn);
        if self.with(conn, |stream, _, _| Ok(stream.shut()))? {
            self.later.push_back(Request::Shutdown { qp: conn.0 });
            self.flush_later();
        }
        Ok(())
    }

    /// Closes a connection: normally, or by a reset if received bytes were never read (RFC 9293
    /// §3.6.1).
    pub fn close(&mut self, conn: Conn) {
        let unread = self.stream(conn).is_some_and(|stream| stream.readable() > 0);
        self.let_go(conn, if unread { Request::Abort { qp: conn.0 } } else { Request::Close { qp: conn.0 } });
    }

    /// Resets a connection and releases it.
    pub fn abort(&mut self, conn: Conn) {
        self.let_go(conn, Request::Abort { qp: conn.0 });
    }

    fn let_go(&mut self, conn: Conn, request: Request) {
        self.push(conn);
        let Some(Some(stream)) = self.streams.get_mut(conn.0 as usize) else { return };
        if !stream.is_released() {
            stream.note_released();
            self.later.push_back(request);
            self.flush_later();
        }
    }

    /// Retries requests that were held back.
    fn flush_later(&mut self) {
        while let Some(request) = self.later.front() {
            let stream = match *request {
                Request::Shutdown { qp } | Request::Close { qp } => self.streams.get(qp as usize),
                _ => None,
            };
            let unposted = stream.and_then(Option::as_ref).is_some_and(Stream::is_retiring);
            if unposted || self.region.request(request).is_err() {
                return;
            }
            self.later.pop_front();
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are pending.
    pub fn set_option(&mut self, conn: Conn, option: SocketOption) -> io::Result<()> {
        let token = self.token();
        let (option, value) = options::encode(option);
        self.request(&Request::SetOption { token, qp: conn.0, option, value })
    }

    /// Sets the IP header fields of a connection's segments.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are pending.
    pub fn set_ip_fields(&mut self, conn: Conn, ip: IpFields) -> io::Result<()> {
        let token = self.token();
        self.request(&Request::SetOption { token, qp: conn.0, option: options::IP_FIELDS, value: ip.bits() })
    }

    /// Returns the stream of a connection.
    #[inline]
    pub fn stream(&self, conn: Conn) -> Option<&Stream> {
        self.streams.get(conn.0 as usize)?.as_ref().filter(|stream| !stream.is_released())
    }

    /// Number of bytes that can be written now.
    #[inline]
    pub fn writable(&self, conn: Conn) -> usize {
        self.stream(conn).map_or(0, |stream| stream.writable(&self.pool))
    }

    /// Returns a connection's error, if it has one: the error that ended it, or the last soft
    /// error, which ends nothing (RFC 9293 §3.9.2.2).
    pub fn error(&self, conn: Conn) -> Option<io::Error> {
        self.stream(conn)?.error(&self.region, conn.0)
    }

    /// Returns the soft error that occurred since the last call, if it still lasts.
    pub fn take_soft_error(&mut self, conn: Conn) -> Option<io::Error> {
        let stream = self.streams.get_mut(conn.0 as usize)?.as_mut()?;
        stream.take_soft_error(&self.region, conn.0)
    }

    /// Returns both endpoints of a connection.
    pub fn identity(&self, conn: Conn) -> Option<Identity> {
        self.stream(conn).map(|_| self.region.qp(conn.0).identity())
    }
}
