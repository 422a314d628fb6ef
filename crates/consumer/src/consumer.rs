//! A consumer: its region, its streams, and what happened to them.
//!
//! It knows no engine and no thread: somebody polls the engine, then
//! [`Consumer::poll`] takes in what the engine completed. In a host that is the
//! same thread; in a stack the consumer stands behind a lock and the engine does not.

mod config;
mod idle;
mod write;

pub use config::ConsumerConfig;
pub use idle::{FAST_LAPS, IDLE_LOOK};

use crate::adoption::{Adoption, Adoptions, Remains};
use crate::buffers::{BufferPool, Share};
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

/// What happened.
#[derive(Debug)]
pub enum SocketEvent {
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
    /// A connection came from another stack, with all that it brought along.
    Adopted {
        /// The adoption.
        adoption: Adoption,
        /// The connection.
        conn: Conn,
    },
    /// The engine gave the queue pair back of a connection that moved, and that the program had
    /// let go of before it was asked what it left here ([`Consumer::leave`]).
    Parted {
        /// Which it was; the name may be another's by now.
        conn: Conn,
        /// What it left.
        remains: Remains,
    },
    /// Something about a connection changed: look at what it allows.
    Ready {
        /// Which.
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
    /// Requests that cannot be refused, and found the ring full or a stream's
    /// bytes not posted yet.
    later: VecDeque<Request>,
    /// Streams that have buffers.
    holders: VecDeque<u32>,
    /// Laps that they have posted in this round, where there are any.
    laps: BTreeMap<u32, u32>,
    /// When the holders are looked at again for idle ones.
    look_at: Instant,
    /// Holders to be looked at in this round.
    round_left: usize,
    /// Streams whose buffers the engine was asked for.
    retiring: usize,
}

impl Consumer {
    /// A consumer over `region`, which has the layout that `config` asks for.
    pub fn new(config: &ConsumerConfig, region: Arc<Region>) -> Consumer {
        assert_eq!(region.layout(), config.layout(), "the region was made for another configuration");
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
        }
    }

    /// Takes in what the engine completed by `now`; it is then in
    /// [`Consumer::next_event`]. Takes buffers back from streams that are idle.
    pub fn poll(&mut self, now: Instant) {
        while let Some(completion) = self.region.poll_completion() {
            self.on_completion(completion);
        }
        self.flush_later();
        self.look_for_idle(now);
    }

    /// The consumer's side of its region, for sleep and wake flags.
    pub fn region(&self) -> &ConsumerRegion {
        &self.region
    }

    /// True if an event waits to be taken.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The oldest event not taken yet.
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

    /// Listens at `addr`; `Listening` or `Failed` follows.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are under way.
    pub fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        self.listen_with(addr, backlog, options::NODELAY)
    }

    /// As [`Consumer::listen`], with the option bits of [`baton_engine::options`]
    /// for the connections that come of it.
    ///
    /// # Errors
    /// As for [`Consumer::listen`].
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
        self.connect_with(remote, local, options::NODELAY)
    }

    /// As [`Consumer::connect`], with option bits of [`baton_engine::options`].
    ///
    /// # Errors
    /// As for [`Consumer::connect`].
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

    /// Moves received bytes to `buf`; 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if nothing waits; else what ended the connection.
    #[inline]
    pub fn read(&mut self, conn: Conn, buf: &mut [u8]) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.read(region, conn.0, buf, pool))
    }

    /// Copies received bytes to `buf` and leaves them to be read again.
    ///
    /// # Errors
    /// As for [`Consumer::read`].
    pub fn peek(&mut self, conn: Conn, buf: &mut [u8]) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.peek(region, conn.0, buf, pool))
    }

    /// Forgets up to `limit` received bytes where they lie; 0 once the peer has
    /// finished.
    ///
    /// # Errors
    /// As for [`Consumer::read`].
    #[inline]
    pub fn skip(&mut self, conn: Conn, limit: usize) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.skip(region, conn.0, limit, pool))
    }

    /// Bytes of a small stream buffer.
    pub fn small_buffer(&self) -> u32 {
        self.pool.small_size()
    }

    /// Uses so much of a connection's send buffer and of its receive buffer from now
    /// on; at first it is all of both. The window that the peer was promised before
    /// is not taken back.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn set_shares(&mut self, conn: Conn, send: Share, receive: Share) -> io::Result<()> {
        self.with(conn, |stream, region, pool| {
            stream.set_shares(region, conn.0, (send, receive), pool);
            Ok(())
        })
    }

    /// Ends the sending direction after all that was written.
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
        self.push(conn);
        let Some(Some(stream)) = self.streams.get_mut(conn.0 as usize) else { return };
        if !stream.is_released() {
            stream.note_released();
            self.later.push_back(request);
            self.flush_later();
        }
    }

    /// Passes on what was held back.
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
    /// `WouldBlock` if too many requests are under way.
    pub fn set_option(&mut self, conn: Conn, option: SocketOption) -> io::Result<()> {
        let token = self.token();
        let (option, value) = options::encode(option);
        self.request(&Request::SetOption { token, qp: conn.0, option, value })
    }

    /// Sets what a connection's segments say in their IP headers.
    ///
    /// # Errors
    /// `WouldBlock` if too many requests are under way.
    pub fn set_ip_fields(&mut self, conn: Conn, ip: IpFields) -> io::Result<()> {
        let token = self.token();
        self.request(&Request::SetOption { token, qp: conn.0, option: options::IP_FIELDS, value: ip.bits() })
    }

    /// The stream of a connection.
    #[inline]
    pub fn stream(&self, conn: Conn) -> Option<&Stream> {
        self.streams.get(conn.0 as usize)?.as_ref().filter(|stream| !stream.is_released())
    }

    /// Bytes that can be written now.
    #[inline]
    pub fn writable(&self, conn: Conn) -> usize {
        self.stream(conn).map_or(0, |stream| stream.writable(&self.pool))
    }

    /// What went wrong with a connection, if anything did: what ended it, or the
    /// last soft error, which ends nothing (RFC 9293 §3.9.2.2).
    pub fn error(&self, conn: Conn) -> Option<io::Error> {
        self.stream(conn)?.error(&self.region, conn.0)
    }

    /// The soft error that a connection met since the last call, if it still lasts.
    pub fn take_soft_error(&mut self, conn: Conn) -> Option<io::Error> {
        let stream = self.streams.get_mut(conn.0 as usize)?.as_mut()?;
        stream.take_soft_error(&self.region, conn.0)
    }

    /// Both ends of a connection.
    pub fn identity(&self, conn: Conn) -> Option<Identity> {
        self.stream(conn).map(|_| self.region.qp(conn.0).identity())
    }
}
