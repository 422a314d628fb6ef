//! `TcpListener` and `TcpStream` of a [`crate::stack::Stack`]: blocking like those of the standard
//! library, and with `futures`' `AsyncRead` and `AsyncWrite`.

use crate::shared::{Shared, Side};
use baton_consumer::consumer::{Conn, Listener};
use baton_consumer::wake::block_on;
use baton_engine::region::Identity;
use baton_tcp::options::SocketOption;
use futures_io::{AsyncRead, AsyncWrite};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A listener. Dropping it stops listening and resets connections that were not accepted.
pub struct TcpListener {
    shared: Arc<Shared>,
    listener: Listener,
    addr: SocketAddr,
}

impl TcpListener {
    pub(crate) fn new(shared: Arc<Shared>, listener: Listener, addr: SocketAddr) -> TcpListener {
        TcpListener { shared, listener, addr }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// `NotConnected` if the stack has ended.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let conn = block_on(None, |cx| self.shared.with(|inner| inner.poll_accept(self.listener, cx)))?;
        self.finish(conn)
    }

    /// Waits for the next connection without blocking the thread.
    ///
    /// # Errors
    /// `NotConnected` if the stack has ended.
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let conn = std::future::poll_fn(|cx| self.shared.with(|inner| inner.poll_accept(self.listener, cx))).await?;
        self.finish(conn)
    }

    fn finish(&self, conn: Conn) -> io::Result<(TcpStream, SocketAddr)> {
        let stream = TcpStream::new(self.shared.clone(), conn);
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    /// Iterates over incoming connections, and waits for each.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> + '_ {
        std::iter::from_fn(|| Some(self.accept().map(|(stream, _)| stream)))
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.shared.with(|inner| inner.unlisten(self.listener));
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// State that the clones of a stream share.
struct Handle {
    shared: Arc<Shared>,
    conn: Conn,
    nonblocking: AtomicBool,
    /// Read timeout in nanoseconds; 0 for none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|inner| inner.consumer.close(self.conn));
    }
}

/// A connection. Dropping its last clone closes it normally, or resets it if received bytes were
/// never read (RFC 9293 §3.6.1).
#[derive(Clone)]
pub struct TcpStream(Arc<Handle>);

impl TcpStream {
    pub(crate) fn new(shared: Arc<Shared>, conn: Conn) -> TcpStream {
        TcpStream(Arc::new(Handle {
            shared,
            conn,
            nonblocking: AtomicBool::new(false),
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
        }))
    }

    fn identity(&self) -> io::Result<Identity> {
        self.0.shared.with(|inner| inner.consumer.identity(self.0.conn)).ok_or(ErrorKind::NotConnected.into())
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// `NotConnected` once the connection has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.identity().map(|id| SocketAddr::new(id.remote.ip(), id.remote_port))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// `NotConnected` once the connection has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.identity().map(|id| SocketAddr::new(id.local.ip(), id.local_port))
    }

    /// Shuts down the sending direction, the receiving one, or both. Shutting down the receiving
    /// direction affects only this program; the peer is not told.
    ///
    /// # Errors
    /// `NotConnected` once the connection has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match how {
            Shutdown::Read => Ok(()),
            Shutdown::Write | Shutdown::Both => self.0.shared.with(|inner| inner.consumer.shutdown(self.0.conn)),
        }
    }

    /// Sets an option of the connection.
    ///
    /// # Errors
    /// `NotConnected` once the connection has ended; `WouldBlock` if too many requests are pending.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.0.shared.with(|inner| inner.consumer.set_option(self.0.conn, option))
    }

    /// Turns Nagle's algorithm off (`true`, the default here) or on.
    ///
    /// # Errors
    /// Those of [`TcpStream::set_option`].
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.set_option(SocketOption::NoDelay(on))
    }

    /// Sets whether reads and writes return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, on: bool) {
        self.0.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Sets how long a read waits before it fails with `WouldBlock`; `None` means no limit.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.0.read_timeout.store(nanos(timeout), Ordering::Relaxed);
    }

    /// Sets how long a write waits before it fails with `WouldBlock`; `None` means no limit.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.0.write_timeout.store(nanos(timeout), Ordering::Relaxed);
    }

    /// Returns the connection's error, if it has one.
    pub fn error(&self) -> Option<io::Error> {
        self.0.shared.with(|inner| inner.consumer.error(self.0.conn))
    }

    fn poll_read_into(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let conn = self.0.conn;
        self.0.shared.with(|inner| inner.poll_io(conn, Side::Read, cx, |consumer| consumer.read(conn, buf)))
    }

    fn poll_write_from(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let conn = self.0.conn;
        self.0.shared.with(|inner| inner.poll_io(conn, Side::Write, cx, |consumer| consumer.write(conn, data)))
    }

    fn block<R>(
        &self,
        timeout: &AtomicU64,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> io::Result<R> {
        if self.0.nonblocking.load(Ordering::Relaxed) {
            return match poll(&mut Context::from_waker(std::task::Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let timeout = timeout.load(Ordering::Relaxed);
        block_on((timeout != 0).then(|| Duration::from_nanos(timeout)), poll)
    }
}

fn nanos(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |timeout| timeout.as_nanos().clamp(1, u128::from(u64::MAX)) as u64)
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.block(&self.0.read_timeout, |cx| self.poll_read_into(cx, buf))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.block(&self.0.write_timeout, |cx| self.poll_write_from(cx, data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_into(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_from(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream").field("conn", &self.0.conn).finish_non_exhaustive()
    }
}
