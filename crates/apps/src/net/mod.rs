//! The interface of a TCP/IP stack to services and load generators.
//!
//! A [`Handler`] is the application of one connection: a state machine that is called when its
//! stream may have become readable or writable, and works until the stream would block. A [`Net`]
//! owns streams and calls handlers. There is one over kernel sockets ([`kernel`]) and one over the
//! engine ([`engine`]). Since the same application code runs on both, a comparison compares only
//! the stacks.
//!
//! ```text
//!   Net::turn --> Handler::on_ready(StreamIo) --> read, skip, write, finish
//!                        |
//!                        +--> Flow: wait for the stream, call again, or done
//! ```

pub mod engine;
pub mod kernel;
mod kernel_socket;

use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The byte stream of one connection. No call waits: one that cannot proceed fails with
/// [`io::ErrorKind::WouldBlock`].
pub trait StreamIo {
    /// Reads received bytes into `buf`. Returns 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes are available; otherwise the error that ended the connection.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Copies up to `limit` received bytes into the program's memory and discards them. Returns 0
    /// once the peer has finished.
    ///
    /// # Errors
    /// The errors of [`StreamIo::read`].
    fn skip(&mut self, limit: usize) -> io::Result<usize>;

    /// Queues bytes for sending, and returns how many were queued.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; otherwise the error that ended the connection.
    fn write(&mut self, data: &[u8]) -> io::Result<usize>;

    /// Closes the sending direction after everything written so far.
    ///
    /// # Errors
    /// The error that ended the connection.
    fn finish(&mut self) -> io::Result<()>;
}

/// The next step that a handler asks of its [`Net`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The stream would block: call when it is ready.
    Wait,
    /// There is more to do, but other connections should run first.
    Again,
    /// The handler has finished, and the connection can be closed.
    Done,
}

/// The application's side of one connection.
pub trait Handler {
    /// Works on the stream until it would block, or until it has used its share of a turn.
    ///
    /// # Errors
    /// Any error other than `WouldBlock` ends the connection.
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow>;

    /// Called when the connection has ended. `error` is `None` after [`Flow::Done`].
    fn on_end(&mut self, _error: Option<&io::Error>) {}

    /// Time without any event after which the connection is closed.
    fn idle_limit(&self) -> Option<Duration> {
        None
    }
}

/// Makes the handler of a connection that was just accepted.
pub type Accept = Box<dyn FnMut(SocketAddr) -> Box<dyn Handler>>;

/// A stack with its connections, driven by its owner.
pub trait Net {
    /// Listens on `addr` and returns the address with its port filled in.
    ///
    /// # Errors
    /// The stack's error, such as `AddrInUse`.
    fn listen(&mut self, addr: SocketAddr, accept: Accept) -> io::Result<SocketAddr>;

    /// Starts a connection; a failure to connect reaches [`Handler::on_end`].
    ///
    /// # Errors
    /// If the connection cannot be started.
    fn connect(&mut self, addr: SocketAddr, handler: Box<dyn Handler>) -> io::Result<()>;

    /// Waits for at most `wait` for work, and does it.
    ///
    /// # Errors
    /// If the stack itself fails.
    fn turn(&mut self, wait: Duration) -> io::Result<()>;

    /// Connections that are open or opening.
    fn open(&self) -> usize;

    /// Counters since the start.
    fn stats(&mut self) -> Stats;
}

/// Counters of a [`Net`], cumulative.
#[derive(Clone, Debug, Default, Serialize, serde::Deserialize)]
pub struct Stats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because too many were open.
    pub refused: u64,
    /// Bytes received by handlers.
    pub bytes_in: u64,
    /// Bytes queued by handlers.
    pub bytes_out: u64,
    /// The engine's own counters; `None` on kernel sockets.
    pub engine: Option<EngineStats>,
}

/// Counters of an engine.
#[derive(Clone, Debug, Default, Serialize, serde::Deserialize)]
pub struct EngineStats {
    /// Time that the TCP Control Engine worked, in nanoseconds.
    pub tce_busy_ns: u64,
    /// Total time that the engine was driven, including idle time, in nanoseconds.
    pub elapsed_ns: u64,
    /// Frames received and sent.
    pub frames_in: u64,
    /// Frames handed to the port.
    pub frames_out: u64,
    /// Named counters of the engine, without those that are zero.
    pub counters: std::collections::BTreeMap<String, u64>,
}
