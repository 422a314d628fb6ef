//! A stack on its own threads, for programs with threads or tasks.
//!
//! ```text
//!  program's threads                         driver thread(s)
//!  TcpStream, TcpListener                    engine + port
//!       | lock                                  | poll, no lock
//!       v                                       v
//!    Consumer ---- doorbells, requests ----> region
//!       ^                                       |
//!       +---- wakers <--- lock <-- completions -+
//! ```
//!
//! Bytes pass through the region and never through the driver. The driver sleeps on its port and an
//! eventfd; a thread that rings a doorbell wakes it if it sleeps. A blocked thread is treated as a
//! task whose waker unparks it, so there is only one way to wait.

use crate::driver;
use crate::host::{Host, HostConfig};
use crate::net::{TcpListener, TcpStream};
use crate::shared::Shared;
pub use crate::shared::Stats;
use baton_consumer::consumer::Attempt;
use baton_consumer::wake::block_on;
use baton_engine::frame_io::FrameIo;
use baton_port::wait::Waitable;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

/// The number of threads that drive a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Threads {
    /// One thread runs Streamer and TCE in turn.
    #[default]
    One,
    /// Streamer and TCE have a thread each.
    Two,
}

/// A TCP/IP host on a port, with threads that drive it.
///
/// Dropping it ends the threads. The next operation on a connection that is still open fails, and
/// the connection is reset.
pub struct Stack {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Stack {
    /// Starts a stack on `port`.
    ///
    /// # Errors
    /// Those of [`Host::new`] and of starting threads.
    pub fn spawn<P>(config: &HostConfig, port: P, threads: Threads) -> io::Result<Stack>
    where
        P: FrameIo + Waitable + Send + 'static,
    {
        let (engine, port, consumer) = Host::new(config, port)?.into_parts();
        let shared = Arc::new(Shared::new(consumer)?);
        let threads = match threads {
            Threads::One => driver::spawn_one(shared.clone(), engine, port)?,
            Threads::Two => driver::spawn_two(shared.clone(), engine, port)?,
        };
        Ok(Stack { shared, threads })
    }

    /// Listens at `addr`.
    ///
    /// # Errors
    /// `AddrInUse`; `WouldBlock` if too many requests are pending.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<TcpListener> {
        let listener = self.shared.with(|inner| inner.listen(addr))?;
        block_on(None, |cx| self.shared.with(|inner| inner.poll_listening(listener, cx)))?;
        Ok(TcpListener::new(self.shared.clone(), listener, addr))
    }

    /// Connects to `remote`.
    ///
    /// # Errors
    /// The network's answer: `ConnectionRefused`, `TimedOut`, `HostUnreachable`.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<TcpStream> {
        let attempt = self.begin_connect(remote)?;
        let conn = block_on(None, |cx| self.shared.with(|inner| inner.poll_opening(attempt, cx)))?;
        let stream = TcpStream::new(self.shared.clone(), conn);
        block_on(None, |cx| self.shared.with(|inner| inner.poll_established(conn, cx)))?;
        Ok(stream)
    }

    /// Connects to `remote` without blocking the thread.
    ///
    /// # Errors
    /// Those of [`Stack::connect`].
    pub async fn connect_async(&self, remote: SocketAddr) -> io::Result<TcpStream> {
        let attempt = self.begin_connect(remote)?;
        let shared = &self.shared;
        let conn = std::future::poll_fn(|cx| shared.with(|inner| inner.poll_opening(attempt, cx))).await?;
        let stream = TcpStream::new(shared.clone(), conn);
        std::future::poll_fn(|cx| shared.with(|inner| inner.poll_established(conn, cx))).await?;
        Ok(stream)
    }

    fn begin_connect(&self, remote: SocketAddr) -> io::Result<Attempt> {
        self.shared.with(|inner| inner.connect(remote))
    }

    /// Returns the stack's statistics as of its last pause.
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.doorbell.ring();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The driver's own panic handler has reported a panic already.
            let _ = thread.join();
        }
    }
}
