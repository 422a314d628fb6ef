//! POSIX sockets over a host that the caller drives: descriptors, epoll, and the results that
//! programs expect. The C ABI is a thin layer on top.
//!
//! ```text
//!  input -> wire -> engine -> completions -> Posix::on_event -> sockets, epoll
//!  output <- wire <- engine <- doorbells <- send, recv, connect, ...
//! ```
//!
//! No call here waits. [`Posix::patience`] tells how long a blocking socket would wait; a caller
//! that can let time pass retries the call. The time is the one last given to [`Posix::drive`].
//! Frames arrive and leave only by [`Posix::input`] and [`Posix::output`], through queues of known
//! length.
//!
//! Numbers (options, flags, errors) are Linux's, and so are the results where POSIX leaves a
//! choice. Differences: `SIGPIPE` is never raised (the caller gets `EPIPE`), and a connection that
//! finds the accept queue full is reset. The buffers have the size that the engine was made with:
//! `SO_SNDBUF` and `SO_RCVBUF` set how much of it is used, and return the effective value, which is
//! not doubled.

mod calls;
mod epoll;
mod epoll_calls;
mod more;
mod options;
mod socket;
mod socket_options;
mod table;
mod transfer;
mod wire;

pub use calls::Side;

use crate::host::{Host, HostConfig};
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_engine::endpoint::{Cidr, link_local};
use baton_port::memory::MemoryPort;
use baton_tcp::config::Congestion;
use baton_tcp::time::Instant;
use libc::c_int;
use socket::{Socket, State};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, ErrorKind};
use table::{Entry, Table};
use wire::Wire;

/// A descriptor of one engine. The kernel does not know it.
pub type Fd = i32;

/// Most turns of the engine in one [`Posix::drive`].
const TURNS: usize = 32;

/// Turns within which the engine answers a request; it needs two.
const ANSWER_TURNS: usize = 8;

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.0, io::Error::from_raw_os_error(self.0))
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(match error.kind() {
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::BrokenPipe => libc::EPIPE,
            ErrorKind::NotConnected => libc::ENOTCONN,
            ErrorKind::OutOfMemory => libc::ENOBUFS,
            ErrorKind::ConnectionAborted => libc::ECONNABORTED,
            ErrorKind::PermissionDenied => libc::EACCES,
            _ => libc::EIO,
        }))
    }
}

/// The result of a call.
pub type Answer<T> = Result<T, Errno>;

/// Returns an errno as `Err`.
fn refuse<T>(errno: c_int) -> Answer<T> {
    Err(Errno(errno))
}

/// Configuration of the sockets.
#[derive(Clone, Debug)]
pub struct PosixConfig {
    /// Engine and consumer. The engine's interface determines the MTU and whether frames have an
    /// Ethernet header.
    pub host: HostConfig,
    /// Most frames that wait in each direction.
    pub queue_frames: usize,
    /// Most descriptors, including epoll instances.
    pub descriptors: u32,
    /// The initial time.
    pub now: Instant,
}

/// Sockets on an engine that the caller drives.
pub struct Posix {
    host: Host<Wire>,
    /// The caller's end of the wire.
    outer: MemoryPort,
    frame_bytes: usize,
    now: Instant,
    table: Table,
    /// Socket of each connection, by queue pair.
    by_conn: Vec<Option<Fd>>,
    by_listener: HashMap<u64, Fd>,
    by_attempt: HashMap<u64, Fd>,
    addresses: Vec<Cidr>,
    congestion: Congestion,
    buffer_bytes: u32,
    /// The host's default time to live.
    ttl: u8,
    last_port: u16,
    last_serial: u64,
    /// Sockets with bytes that are held back, and until when.
    held: BTreeMap<Fd, Instant>,
}

impl Posix {
    /// Makes sockets with this configuration.
    ///
    /// # Errors
    /// `InvalidInput` if the sizes make no valid region.
    pub fn new(config: &PosixConfig) -> io::Result<Posix> {
        let interface = &config.host.engine.interface;
        let (wire, outer, frame_bytes) = wire::pair(interface.ethernet, interface.mtu, config.queue_frames);
        let mut addresses = interface.addresses.clone();
        if interface.ethernet {
            addresses.push(Cidr { addr: link_local(interface.mac), prefix: 64 });
        }
        let seed = config.host.engine.secret;
        Ok(Posix {
            host: Host::new(&config.host, wire)?,
            outer,
            frame_bytes,
            now: config.now,
            table: Table::new(config.descriptors),
            by_conn: Vec::new(),
            by_listener: HashMap::new(),
            by_attempt: HashMap::new(),
            addresses,
            congestion: config.host.engine.tcp.congestion,
            buffer_bytes: config.host.consumer.stream_buffer,
            ttl: config.host.engine.ttl,
            last_port: u16::from_le_bytes([seed[30], seed[31]]),
            last_serial: 0,
            held: BTreeMap::new(),
        })
    }

    /// The time that was last given to [`Posix::drive`].
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Size of the largest frame in either direction, in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Takes in a frame, which the next [`Posix::drive`] processes.
    ///
    /// # Errors
    /// `EMSGSIZE` if it is too long, `ENOBUFS` if too many frames wait.
    pub fn input(&mut self, frame: &[u8]) -> Answer<()> {
        if frame.len() > self.frame_bytes {
            return refuse(libc::EMSGSIZE);
        }
        if wire::put(&mut self.outer, frame) { Ok(()) } else { refuse(libc::ENOBUFS) }
    }

    /// Copies the next frame to be sent to `buf` and returns its length; `None` if there is none.
    ///
    /// # Errors
    /// `EINVAL` if `buf` is shorter than [`Posix::frame_bytes`].
    pub fn output(&mut self, buf: &mut [u8]) -> Answer<Option<usize>> {
        if buf.len() < self.frame_bytes {
            return refuse(libc::EINVAL);
        }
        Ok(wire::take(&mut self.outer, buf))
    }

    /// Lets the engine work at time `now` on frames, timers and requests of earlier calls. A time
    /// before the last one counts as the last one.
    ///
    /// # Errors
    /// `EIO` if the engine's port failed, which this kind of port never does.
    pub fn drive(&mut self, now: Instant) -> Answer<()> {
        self.now = self.now.max(now);
        self.let_go_old();
        for _ in 0..TURNS {
            if !self.turn()? {
                break;
            }
        }
        Ok(())
    }

    /// Returns when [`Posix::drive`] has something to do if no frame arrives and no call is made
    /// before. It is in the past if there is something to do now.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        self.host.next_deadline().into_iter().chain(self.next_let_go()).min()
    }

    /// Runs one turn of the engine. Returns false if there was nothing to do.
    fn turn(&mut self) -> Answer<bool> {
        let activity = self.host.poll(self.now).map_err(|_| Errno(libc::EIO))?;
        while let Some(event) = self.host.next_event() {
            self.on_event(event);
        }
        Ok(!activity.is_idle())
    }

    /// Runs `ask`, and repeats it after a turn if too many requests were pending.
    fn asking<T>(&mut self, mut ask: impl FnMut(&mut Host<Wire>) -> io::Result<T>) -> Answer<T> {
        for _ in 0..ANSWER_TURNS {
            match ask(&mut self.host) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn()?,
                done => return done.map_err(Errno::from),
            };
        }
        refuse(libc::ENOBUFS)
    }

    fn on_event(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Accepted { listener, conn } => self.on_accepted(listener.0, conn),
            SocketEvent::Listening { listener } => {
                if let Some(listening) = self.listening_of(listener.0) {
                    listening.answer = Some(Ok(()));
                }
            }
            SocketEvent::Opening { attempt, conn } => match self.by_attempt.remove(&attempt.0) {
                Some(fd) => {
                    self.set_owner(conn, Some(fd));
                    if let Ok(socket) = self.table.socket_mut(fd) {
                        socket.state = State::Open(conn);
                    }
                    self.apply_options(fd);
                }
                // The socket was closed meanwhile.
                None => self.host.abort(conn),
            },
            SocketEvent::Failed { token, error } => self.on_failed(token, error.into()),
            SocketEvent::Ready { conn } => self.on_ready(conn),
            // None of these calls requests an adoption.
            SocketEvent::Adopted { conn, .. } => self.host.abort(conn),
            // These connections never move.
            SocketEvent::Parted { .. } => {}
            other => debug_assert!(false, "the calls have to handle {other:?}"),
        }
    }

    fn listening_of(&mut self, listener: u64) -> Option<&mut socket::Listening> {
        let fd = *self.by_listener.get(&listener)?;
        match &mut self.table.socket_mut(fd).ok()?.state {
            State::Listening(listening) => Some(listening),
            _ => None,
        }
    }

    fn on_accepted(&mut self, listener: u64, conn: Conn) {
        let fd = self.by_listener.get(&listener).copied();
        let from_v4 = self.host.identity(conn).is_some_and(|identity| identity.remote.is_v4());
        let taken = match fd.and_then(|fd| self.table.socket_mut(fd).ok()) {
            Some(Socket { state: State::Listening(listening), options, v6, .. })
                if listening.queue.len() <= listening.backlog && !(*v6 && options.v6only && from_v4) =>
            {
                listening.queue.push_back(conn);
                true
            }
            _ => false,
        };
        match fd {
            Some(fd) if taken => self.notify(fd, socket::IN),
            _ => self.host.abort(conn),
        }
    }

    fn on_failed(&mut self, token: u64, error: Errno) {
        if let Some(listening) = self.listening_of(token) {
            listening.answer = Some(Err(error));
        } else if let Some(fd) = self.by_attempt.remove(&token) {
            self.end_attempt(fd, error);
        }
    }

    /// Handles a failed connect: the socket becomes unconnected again, with an error to report.
    fn end_attempt(&mut self, fd: Fd, error: Errno) {
        if let Ok(socket) = self.table.socket_mut(fd) {
            socket.state = State::Fresh;
            socket.error = Some(error);
            socket.peer = None;
            self.notify(fd, socket::ALL);
        }
    }

    fn on_ready(&mut self, conn: Conn) {
        let Some(fd) = self.by_conn.get(conn.0 as usize).copied().flatten() else { return };
        let soft = self.host.take_soft_error(conn).map(Errno::from);
        let Some(stream) = self.host.stream(conn) else { return };
        let error = stream.is_closed().then(|| self.host.error(conn)).flatten().map(Errno::from);
        let Ok(socket) = self.table.socket_mut(fd) else { return };
        if stream.is_closed() && !stream.is_established() {
            self.host.close(conn);
            self.set_owner(conn, None);
            self.end_attempt(fd, error.unwrap_or(Errno(libc::ECONNABORTED)));
            return;
        }
        socket.soft_error = soft.or(socket.soft_error);
        let roomy = socket.is_roomy(&self.host, conn, self.buffer_bytes);
        let edges = socket.look(stream, error, roomy);
        self.notify(fd, edges);
    }

    fn set_owner(&mut self, conn: Conn, fd: Option<Fd>) {
        let index = conn.0 as usize;
        if self.by_conn.len() <= index {
            self.by_conn.resize(index + 1, None);
        }
        self.by_conn[index] = fd;
    }

    /// Returns the events of a descriptor now, as bits of `poll`.
    fn mask(&self, fd: Fd) -> u32 {
        match self.table.get(fd) {
            Ok(Entry::Socket(socket)) => socket.mask(&self.host, self.buffer_bytes),
            Ok(Entry::Epoll(epoll)) => {
                if epoll.candidates().any(|(fd, wanted)| self.mask(fd) & wanted != 0) {
                    socket::IN
                } else {
                    0
                }
            }
            Err(_) => libc::POLLNVAL as u32,
        }
    }

    /// Returns the events of a descriptor now, as `poll` reports them: the bits of `wanted`, and
    /// those that are always reported.
    pub fn poll_mask(&self, fd: Fd, wanted: u32) -> u32 {
        self.mask(fd) & (wanted | socket::ALWAYS | libc::POLLNVAL as u32)
    }
}
