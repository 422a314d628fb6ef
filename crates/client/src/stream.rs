//! A byte stream whose connection may move.

use super::adoption::Arrived;
use super::batch;
use super::connection::Connection;
use super::location::Location;
use super::near::PairEnd;
use super::shared::{Inner, Shared, would_block};
use baton_consumer::fork::Copied;
use baton_consumer::held::Counted;
use baton_consumer::wake::{Doorbell, block_on};
use baton_policy::Reason;
use baton_policy::rules::Rule;
use rustix::net::{getpeername, getsockname};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The location of a stream's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the kernel.
    Kernel,
    /// In an engine.
    Engine,
    /// Its other end is in a program of this machine, and its bytes go through memory that both share.
    Pair,
    /// Moving between the two.
    Moving,
    /// It has ended.
    Ended,
}

/// A stream over a connection that was handed over. Reads and writes block unless
/// [`Stream::set_nonblocking`] is used. It also implements `AsyncRead` and `AsyncWrite`. Dropping
/// it closes the connection: normally, or by a reset if received bytes were never read.
pub struct Stream {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    nonblocking: AtomicBool,
    /// Timeouts of reads and writes.
    pub(super) timeouts: Mutex<[Option<Duration>; 2]>,
    notifier: OnceLock<Box<Notifier>>,
    given_back: Arc<AtomicBool>,
    copied: Copied,
    /// The end of the pair that the connection is in, once a call has been there.
    near: Box<Mutex<Option<Arc<PairEnd>>>>,
}

/// The eventfd of a stream, which is notified when a thread or task would be woken.
struct Notifier {
    eventfd: Arc<Doorbell>,
    waker: Waker,
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, arrived: Arrived) -> Stream {
        let Arrived { id, given_back, copied } = arrived;
        let nonblocking = AtomicBool::new(false);
        Stream {
            shared,
            id,
            nonblocking,
            timeouts: Mutex::default(),
            notifier: OnceLock::new(),
            given_back,
            copied,
            near: Box::default(),
        }
    }

    /// Number of the connection in the service.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The rule by which the service moved the connection, if that may bring it home again
    /// ([`Rule::keeps`]).
    pub fn rule(&self) -> Option<Rule> {
        self.shared.with(|inner| inner.connection(self.id)?.rule).ok()?
    }

    /// Returns where the connection is now.
    pub fn place(&self) -> Place {
        let place = self.shared.with(|inner| match inner.connection(self.id).map(Connection::location) {
            Some(Location::Kernel(_)) => Place::Kernel,
            Some(Location::Engine(_)) => Place::Engine,
            Some(Location::Pair(_)) => Place::Pair,
            Some(Location::Away(_) | Location::Coming(_)) => Place::Moving,
            Some(Location::Ended(_)) | None => Place::Ended,
        });
        place.unwrap_or(Place::Ended)
    }

    /// True if the connection is in a pair, or was in one before: its bytes go, or went, through memory that it
    /// shares with its other end.
    pub fn has_been_paired(&self) -> bool {
        self.shared.with(|inner| inner.connection(self.id).is_some_and(|connection| connection.paired)).unwrap_or(false)
    }

    /// True if it waits in the kernel for a program of this machine to hand its other end over.
    pub fn waits_for_its_other_end(&self) -> bool {
        let waits = |connection: &Connection| connection.waits && !connection.paired && connection.is_in_kernel();
        self.shared.with(|inner| inner.connection(self.id).is_some_and(waits)).unwrap_or(false)
    }

    /// True if the whole connection is in the kernel and the service does without it: it received something that
    /// only the kernel can deliver, urgent data, or the engine has too much to do.
    /// [`Stream::take_back`] returns the socket. Until then reads and writes continue as on any connection
    /// in the kernel.
    pub fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::Acquire)
    }

    /// Why the service has given it back. A service before version 3 of the protocol does not say.
    pub fn why_given_back(&self) -> Option<Reason> {
        self.shared.with(|inner| inner.connection(self.id)?.why_back).ok()?
    }

    /// Returns how many bytes were written and read while the connection was in the kernel, since
    /// the last call.
    pub fn take_bytes_at_home(&self) -> (u64, u64) {
        self.shared.with(|inner| inner.take_bytes_at_home(self.id)).unwrap_or_default()
    }

    /// Sets whether reads and writes return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Returns an eventfd for a poll set. It becomes readable once a read or write that returned
    /// `WouldBlock` is worth another try, wherever the connection is. So try first, then wait; when
    /// it is readable, read its eight bytes, then try both directions. It is closed with the
    /// stream.
    ///
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn eventfd(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(notifier) = self.notifier.get() {
            return Ok(notifier.eventfd.as_fd());
        }
        let eventfd = Arc::new(Doorbell::new()?);
        // Earlier `WouldBlock`s were not registered, so the first wait must return at once.
        eventfd.ring();
        let waker = Waker::from(eventfd.clone());
        Ok(self.notifier.get_or_init(|| Box::new(Notifier { eventfd, waker })).eventfd.as_fd())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let name = self.shared.with(|inner| inner.connection(self.id).map(|connection| getsockname(&connection.fd)))?;
        Ok(name.ok_or(ErrorKind::NotConnected)??.try_into()?)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// Those of `getpeername(2)`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let name = self.shared.with(|inner| inner.connection(self.id).map(|connection| getpeername(&connection.fd)))?;
        let name = name.ok_or(ErrorKind::NotConnected)??.ok_or(ErrorKind::NotConnected)?;
        Ok(name.try_into()?)
    }

    fn wait<R>(&self, write: bool, mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<R>>) -> io::Result<R> {
        self.shared.check()?;
        if self.nonblocking.load(Ordering::Relaxed) {
            let mut cx = Context::from_waker(self.notifier.get().map_or(Waker::noop(), |notifier| &notifier.waker));
            return match poll(&mut cx) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let timeout = self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(write)];
        block_on(timeout, poll)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(count) = self.near().and_then(|near| near.read(buf)) {
            return Poll::Ready(Ok(count));
        }
        if let Some(done) = self.try_first(false, cx, |inner| inner.read(self.id, buf))? {
            return done;
        }
        match self.shared.receive_into(self.id, buf)? {
            0 => self.try_last(false, cx, |inner| inner.read(self.id, buf)),
            placed => Poll::Ready(Ok(placed)),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(count) = self.near().and_then(|near| near.write(&[IoSlice::new(data)], 0)) {
            return Poll::Ready(Ok(count));
        }
        if let Some(done) = self.try_first(true, cx, |inner| inner.write(self.id, data))? {
            return done;
        }
        self.shared.look_in_batch();
        self.try_last(true, cx, |inner| inner.write(self.id, data))
    }

    /// Tries to read or write. `None` if there are no bytes or no room, and the devices have not been polled just now:
    /// then they are to be, since the call is worth another try.
    fn try_first<R>(
        &self,
        write: bool,
        cx: &Context<'_>,
        run: impl FnOnce(&mut Inner) -> io::Result<R>,
    ) -> io::Result<Option<Poll<io::Result<R>>>> {
        self.shared.with(|inner| {
            let done = run(inner);
            self.remember(inner.near(self.id));
            let again = would_block(&done) && inner.engines.is_due();
            (!again).then(|| inner.pend(self.id, write, cx, done))
        })
    }

    /// Tries to read or write once more.
    fn try_last<R>(
        &self,
        write: bool,
        cx: &Context<'_>,
        run: impl FnOnce(&mut Inner) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.shared.with(|inner| {
            let done = run(inner);
            inner.pend(self.id, write, cx, done)
        })?
    }

    /// The end of the pair that the connection was in at the last call that went the long way. A forked child
    /// has none: its calls fail.
    pub(super) fn near(&self) -> Option<Arc<PairEnd>> {
        self.shared.check().ok()?;
        Counted::lock(&self.near).clone()
    }

    pub(super) fn remember(&self, near: Option<Arc<PairEnd>>) {
        *Counted::lock(&self.near) = near;
    }

    /// Shuts down the sending direction after all written bytes.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self) -> io::Result<()> {
        batch::end();
        self.shared.with(|inner| inner.shutdown(self.id))?
    }

    /// Restores the whole connection to the kernel. The same descriptor is a plain socket again.
    ///
    /// # Errors
    /// The reason, with the stream, which stays usable. If both ends of the connection are on this machine, the other
    /// end's program has to stand still for a moment; if it no longer has its end with the service, read first what
    /// has arrived.
    pub fn restore(self) -> Result<OwnedFd, (Stream, io::Error)> {
        self.take_back().map_err(|error| (self, error))
    }

    /// Like [`Stream::restore`], for callers that cannot give the stream away. The stream has ended
    /// once this succeeds.
    ///
    /// # Errors
    /// The reason; the stream stays usable.
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
        // This does nothing in a forked child.
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
