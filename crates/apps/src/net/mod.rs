//! What a service or a load generator sees of a TCP/IP stack.
//!
//! A [`Handler`] is one connection's application: a state machine that is
//! called when its stream may have become readable or writable and works until
//! the stream would block. A [`Net`] owns streams and calls handlers. There is
//! one over kernel sockets ([`kernel`]) and one over the engine ([`engine`]), so that the
//! same application code runs on both and a comparison compares the stacks.
//!
//! ```text
//!   Net::turn --> Handler::on_ready(StreamIo) --> read, skip, write, finish
//!                        |
//!                        +--> Flow: wait for the stream, call again, or done
//! ```

pub mod engine;
pub mod kernel;

use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// One connection's byte stream. Nothing here waits: what cannot be done at
/// once fails with [`io::ErrorKind::WouldBlock`].
pub trait StreamIo {
    /// Moves received bytes to `buf`; 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if nothing waits, else what ended the connection.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Receives up to `limit` bytes into memory of the program and forgets
    /// them; 0 once the peer has finished.
    ///
    /// # Errors
    /// As for [`StreamIo::read`].
    fn skip(&mut self, limit: usize) -> io::Result<usize>;

    /// Queues bytes for sending and returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` if none could be taken, else what ended the connection.
    fn write(&mut self, data: &[u8]) -> io::Result<usize>;

    /// Ends the sending direction after all that was written.
    ///
    /// # Errors
    /// What ended the connection.
    fn finish(&mut self) -> io::Result<()>;
}

/// What a handler wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The stream would block: call when it is ready.
    Wait,
    /// There is more to do, but others are to have their turn first.
    Again,
    /// The connection is finished with and can be closed.
    Done,
}

/// The application's side of one connection.
pub trait Handler {
    /// Works on the stream until it would block, or for a fair share.
    ///
    /// # Errors
    /// Anything but `WouldBlock` ends the connection.
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow>;

    /// The connection is over: `error` is `None` after [`Flow::Done`].
    fn on_end(&mut self, _error: Option<&io::Error>) {}

    /// How long the connection may stay without any event before it is closed.
    fn idle_limit(&self) -> Option<Duration> {
        None
    }
}

/// Makes the handler for a connection just accepted.
pub type Accept = Box<dyn FnMut(SocketAddr) -> Box<dyn Handler>>;

/// A stack with connections on it, driven by whoever owns it.
pub trait Net {
    /// Listens on `addr` and returns the address with its port filled in.
    ///
    /// # Errors
    /// The operating system's answer, such as `AddrInUse`.
    fn listen(&mut self, addr: SocketAddr, accept: Accept) -> io::Result<SocketAddr>;

    /// Starts a connection; a failure to connect reaches [`Handler::on_end`].
    ///
    /// # Errors
    /// If it could not even be started.
    fn connect(&mut self, addr: SocketAddr, handler: Box<dyn Handler>) -> io::Result<()>;

    /// Does what there is to do, after waiting for at most `wait` for it.
    ///
    /// # Errors
    /// When the stack itself is gone.
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

/// What an engine adds to [`Stats`].
#[derive(Clone, Debug, Default, Serialize, serde::Deserialize)]
pub struct EngineStats {
    /// Time that the TCP Control Engine worked, in nanoseconds.
    pub tce_busy_ns: u64,
    /// Time that the engine was driven in all, idle included, in nanoseconds.
    pub elapsed_ns: u64,
    /// Frames received and sent.
    pub frames_in: u64,
    /// Frames handed to the port.
    pub frames_out: u64,
    /// Named counters of the engine, zero ones left out.
    pub counters: std::collections::BTreeMap<String, u64>,
}
