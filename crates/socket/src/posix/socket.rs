//! One socket: its state, its current events, and changes of them.

use super::socket_options::Options;
use super::wire::Wire;
use super::{Answer, Errno, Fd};
use crate::host::Host;
use baton_consumer::consumer::{Attempt, Conn, Listener};
use baton_consumer::stream::Stream;
use std::collections::VecDeque;
use std::net::SocketAddr;

// Bits of `poll` and `epoll`, which have the same values.
pub(super) const IN: u32 = (libc::POLLIN | libc::POLLRDNORM) as u32;
pub(super) const OUT: u32 = (libc::POLLOUT | libc::POLLWRNORM) as u32;
pub(super) const RDHUP: u32 = libc::POLLRDHUP as u32;
pub(super) const ERR: u32 = libc::POLLERR as u32;
pub(super) const HUP: u32 = libc::POLLHUP as u32;
/// Events that are reported even if they were not requested.
pub(super) const ALWAYS: u32 = ERR | HUP;
pub(super) const ALL: u32 = IN | OUT | RDHUP | ALWAYS;

/// The state of a socket.
///
/// ```text
///   Fresh --listen--> Listening
///     | ^ ------------- shutdown(SHUT_RD)
///     | +-- connect failed --+
///     +--connect--> Opening --> Open (connecting, then connected)
/// ```
pub(super) enum State {
    Fresh,
    Listening(Listening),
    /// The engine was asked to connect and has not answered.
    Opening(Attempt),
    /// There is a connection, established or being established.
    Open(Conn),
}

/// The state of a listening socket.
pub(super) struct Listening {
    pub listener: Listener,
    /// The engine's answer to the request to listen.
    pub answer: Option<Answer<()>>,
    pub queue: VecDeque<Conn>,
    pub backlog: usize,
}

/// The state of a connection when it was last checked. A change since then is an edge.
#[derive(Default)]
struct Seen {
    received: u64,
    established: bool,
    finished: bool,
    closed: bool,
}

/// A socket of the POSIX layer: a listener, an attempt or a connection.
pub(super) struct Socket {
    /// True for `AF_INET6`, false for `AF_INET`.
    pub v6: bool,
    pub nonblocking: bool,
    pub state: State,
    /// The name set by `bind`.
    pub bound: Option<SocketAddr>,
    /// The address given to `connect`.
    pub peer: Option<SocketAddr>,
    pub options: Options,
    /// Error to report once.
    pub error: Option<Errno>,
    /// An error from the network that does not end the connection. `SO_ERROR` reports it if there
    /// is no worse one; all other calls ignore it (Linux: `sk_err_soft`).
    pub soft_error: Option<Errno>,
    pub shut_read: bool,
    pub shut_write: bool,
    /// The success of a connect has not been reported yet.
    pub connect_unreported: bool,
    /// A writer found too little space.
    pub starved: bool,
    /// Number of written bytes that are held back.
    pub held: usize,
    /// Epoll instances that watch this socket.
    pub watchers: Vec<Fd>,
    seen: Seen,
}

impl Socket {
    pub fn new(v6: bool, nonblocking: bool) -> Socket {
        Socket {
            v6,
            nonblocking,
            state: State::Fresh,
            bound: None,
            peer: None,
            options: Options::default(),
            error: None,
            soft_error: None,
            shut_read: false,
            shut_write: false,
            connect_unreported: false,
            starved: false,
            held: 0,
            watchers: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// True if a connection counts as writable. A third of the used part of the buffer must be
    /// free, as in Linux, so that writers do not wake for every segment; and the bytes never sent
    /// must be less than half of `TCP_NOTSENT_LOWAT` (Linux: `tcp_stream_memory_free`).
    pub fn is_roomy(&self, host: &Host<Wire>, conn: Conn, buffer_bytes: u32) -> bool {
        host.writable(conn) >= self.options.send_share.bytes(buffer_bytes) as usize / 3
            && (self.options.notsent_low == u32::MAX || 2 * host.unsent(conn) < self.options.notsent_low as usize)
    }

    /// Returns the connection, established or not.
    pub fn conn(&self) -> Option<Conn> {
        match self.state {
            State::Open(conn) => Some(conn),
            _ => None,
        }
    }

    /// Processes changes of the connection and returns the new event bits.
    pub fn look(&mut self, stream: &Stream, error: Option<Errno>, roomy: bool) -> u32 {
        let mut edges = 0;
        if stream.is_established() && !self.seen.established {
            self.seen.established = true;
            edges |= OUT;
        }
        if stream.received_total() > self.seen.received {
            self.seen.received = stream.received_total();
            edges |= IN;
        }
        if stream.peer_finished() && !self.seen.finished {
            self.seen.finished = true;
            edges |= IN | RDHUP | HUP;
        }
        if stream.is_closed() && !self.seen.closed {
            self.seen.closed = true;
            self.error = error;
            edges |= ALL;
        }
        if roomy && self.starved {
            self.starved = false;
            edges |= OUT;
        }
        edges
    }

    /// Returns the current events (Linux: `tcp_poll`).
    pub fn mask(&self, host: &Host<Wire>, buffer_bytes: u32) -> u32 {
        let error = if self.error.is_some() { ERR } else { 0 };
        error
            | match &self.state {
                State::Fresh => OUT | HUP,
                State::Listening(listening) if listening.queue.is_empty() => 0,
                State::Listening(_) => IN,
                State::Opening(_) => 0,
                State::Open(conn) => host
                    .stream(*conn)
                    .map_or(ALL & !ERR, |stream| self.stream_mask(stream, self.is_roomy(host, *conn, buffer_bytes))),
            }
    }

    fn stream_mask(&self, stream: &Stream, roomy: bool) -> u32 {
        if stream.is_closed() {
            return ALL & !ERR;
        }
        if !stream.is_established() {
            return 0;
        }
        let no_more_in = self.shut_read || stream.peer_finished();
        let mut mask = 0;
        if stream.readable() > 0 || no_more_in {
            mask |= IN;
        }
        if no_more_in {
            mask |= RDHUP;
        }
        if self.shut_write || roomy {
            mask |= OUT;
        }
        if no_more_in && self.shut_write {
            mask |= HUP;
        }
        mask
    }
}
