//! A byte stream whose connection may move.

use super::adopting::Arrived;
use super::batch;
use super::line::Whereabouts;
use super::shared::Shared;
use baton_consumer::fork::Copied;
use baton_consumer::wake::{Doorbell, block_on};
use rustix::net::{getpeername, getsockname};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the kernel.
    Kernel,
    /// In an engine.
    Engine,
    /// On its way.
    Moving,
    /// Nowhere: it has ended.
    Ended,
}

/// A stream over a connection that was handed over. Reads and writes block unless
/// [`Stream::set_nonblocking`]; it is `AsyncRead` and `AsyncWrite` too. Dropped, the
/// connection is closed: in form, or by a reset if received bytes were never read.
pub struct Stream {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    nonblocking: AtomicBool,
    /// Longest waits of a read and of a write.
    pub(super) timeouts: Mutex<[Option<Duration>; 2]>,
    bell: OnceLock<Box<Bell>>,
    given_back: Arc<AtomicBool>,
    copied: Copied,
}

/// What is rung where a thread or task would be woken.
struct Bell {
    eventfd: Arc<Doorbell>,
    waker: Waker,
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, arrived: Arrived) -> Stream {
        let Arrived { id, given_back, copied } = arrived;
        let nonblocking = AtomicBool::new(false);
        Stream { shared, id, nonblocking, timeouts: Mutex::default(), bell: OnceLock::new(), given_back, copied }
    }

    /// The connection's number in the service.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where it is now.
    pub fn place(&self) -> Place {
        let place = self.shared.with(|inner| match inner.line(self.id).map(|line| &line.at) {
            Some(Whereabouts::Kernel) => Place::Kernel,
            Some(Whereabouts::Engine { .. }) => Place::Engine,
            Some(Whereabouts::Away | Whereabouts::Coming { .. }) => Place::Moving,
            Some(Whereabouts::Ended(_)) | None => Place::Ended,
        });
        place.unwrap_or(Place::Ended)
    }

    /// The service has given the whole connection back, because something came for it that only the
    /// kernel can hand to the program: urgent data. [`Stream::take_back`] gives the socket that has
    /// it; reads and writes go on meanwhile, as those of any connection in the kernel.
    pub fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::Acquire)
    }

    /// Bytes that were written and read while it was in the kernel, since this was asked last.
    pub fn take_bytes_at_home(&self) -> (u64, u64) {
        self.shared.with(|inner| inner.take_bytes_at_home(self.id)).unwrap_or_default()
    }

    /// Whether reads and writes return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// An eventfd for a poll set: readable once a read or write that returned `WouldBlock` is
    /// worth another try, wherever the connection is. So who waits tries first; who sees it
    /// readable takes its eight bytes, then tries both. It is closed with the stream.
    ///
    /// # Errors
    /// As `eventfd(2)`'s.
    pub fn eventfd(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell.eventfd.as_fd());
        }
        let eventfd = Arc::new(Doorbell::new()?);
        // Nobody is told of what was tried before.
        eventfd.ring();
        let waker = Waker::from(eventfd.clone());
        Ok(self.bell.get_or_init(|| Box::new(Bell { eventfd, waker })).eventfd.as_fd())
    }

    /// Our address.
    ///
    /// # Errors
    /// As `getsockname(2)`'s.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let name = self.shared.with(|inner| inner.line(self.id).map(|line| getsockname(&line.fd)))?;
        Ok(name.ok_or(ErrorKind::NotConnected)??.try_into()?)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// As `getpeername(2)`'s.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let name = self.shared.with(|inner| inner.line(self.id).map(|line| getpeername(&line.fd)))?;
        let name = name.ok_or(ErrorKind::NotConnected)??.ok_or(ErrorKind::NotConnected)?;
        Ok(name.try_into()?)
    }

    fn wait<R>(&self, write: bool, mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<R>>) -> io::Result<R> {
        self.shared.check()?;
        if self.nonblocking.load(Ordering::Relaxed) {
            let mut cx = Context::from_waker(self.bell.get().map_or(Waker::noop(), |bell| &bell.waker));
            return match poll(&mut cx) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let timeout = self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(write)];
        block_on(timeout, poll)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.shared.with(|inner| inner.poll_io(&self.shared, self.id, false, cx, |inner| inner.read(self.id, buf)))?
    }

    fn poll_write(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.with(|inner| inner.poll_io(&self.shared, self.id, true, cx, |inner| inner.write(self.id, data)))?
    }

    /// Ends the sending direction after all that was written.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self) -> io::Result<()> {
        batch::end();
        self.shared.with(|inner| inner.shutdown(self.id))?
    }

    /// Has the whole connection given back to the kernel: the same descriptor is a plain
    /// socket again.
    ///
    /// # Errors
    /// Why not, with the stream, which goes on.
    pub fn restore(self) -> Result<OwnedFd, (Stream, io::Error)> {
        self.take_back().map_err(|error| (self, error))
    }

    /// As [`Stream::restore`], for who cannot give the stream away: it has ended once this
    /// succeeds.
    ///
    /// # Errors
    /// Why not; the stream goes on.
    pub fn take_back(&self) -> io::Result<OwnedFd> {
        self.shared.with(|inner| inner.begin_restore(self.id))??;
        let fd = block_on(None, |cx| self.shared.with(|inner| inner.poll_restored(self.id, cx))?)?;
        self.copied.forget();
        Ok(fd)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        batch::end();
        // Not by a child.
        let _ = self.shared.change(|inner| inner.close(self.id));
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.wait(false, |cx| self.poll_read(cx, buf))
    }
}

impl Write for &Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.wait(true, |cx| self.poll_write(cx, data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl futures_io::AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Stream::poll_read(&self, cx, buf)
    }
}

impl futures_io::AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Stream::poll_write(&self, cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown())
    }
}
