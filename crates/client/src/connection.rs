//! One connection of a program: the steps from one location to the next, and the bytes to be read or
//! written before any others.

use super::held_back::Cork;
use super::location::{Away, Coming, InEngine, InKernel, InPair, Inquiry, Location};
use super::setting::Setting;
use super::watchers::Watchers;
use baton_consumer::adoption::{LeftBehind, Remains};
use baton_consumer::consumer::{Conn, Consumer};
use baton_consumer::waiters::Waiters;
use baton_policy::Reason;
use baton_policy::rules::Rule;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

/// One connection, as this process knows it.
#[derive(Debug)]
pub(super) struct Connection {
    pub fd: OwnedFd,
    at: Location,
    /// The rule by which the service moved it here, if that may bring it home again.
    pub rule: Option<Rule>,
    /// Bytes to read before those that the kernel has.
    pub unread: VecDeque<u8>,
    /// Bytes to write before any others.
    pub unsent: VecDeque<u8>,
    /// The program has shut down its sending direction. The kernel is told once all bytes are
    /// written.
    pub shut: bool,
    /// The program is waiting for the whole connection to return to the kernel.
    pub restoring: bool,
    /// Why the connection did not return.
    pub refusal: Option<String>,
    /// Set when the broker restored the whole connection to the kernel without being asked; see
    /// [`Stream::is_given_back`](super::Stream::is_given_back).
    pub given_back: Arc<AtomicBool>,
    /// Why the service gives it back, once it said so.
    pub why_back: Option<Reason>,
    /// The program has closed its stream.
    pub closed: bool,
    /// Number of the adoption that brought this connection.
    pub seq: u64,
    pub readers: Waiters,
    pub writers: Waiters,
    /// Tasks that wait for `TCP_INFO` from the engine.
    pub askers: Waiters,
    /// Settings made by the program: the last one of each kind.
    pub settings: Vec<Setting>,
    /// Settings that the socket had when it was handed over and that its husk lacks.
    pub before: Vec<Setting>,
    /// The engine has not received all settings yet.
    pub settings_pending: bool,
    /// Wakers that are called at every change.
    pub watchers: Watchers,
    /// The broker knows no other end of it: it waits for one, if it is not `paired`.
    pub waits: bool,
    /// It is, or was, in a pair.
    pub paired: bool,
    /// Bytes written and bytes read while the connection was in the kernel.
    pub at_home: (u64, u64),
    /// Written bytes that are held back for more.
    pub cork: Cork,
    armed: EventFlags,
    registered: bool,
}

impl Connection {
    /// A connection that the broker is bringing.
    pub fn new(fd: OwnedFd, seq: u64, before: Vec<Setting>) -> Connection {
        Connection {
            fd,
            at: Location::Away(Away::default()),
            rule: None,
            unread: VecDeque::new(),
            unsent: VecDeque::new(),
            shut: false,
            restoring: false,
            refusal: None,
            given_back: Arc::default(),
            why_back: None,
            closed: false,
            seq,
            readers: Waiters::default(),
            writers: Waiters::default(),
            askers: Waiters::default(),
            settings: Vec::new(),
            before,
            settings_pending: false,
            watchers: Watchers::default(),
            waits: false,
            paired: false,
            at_home: (0, 0),
            cork: Cork::default(),
            armed: EventFlags::empty(),
            registered: false,
        }
    }

    pub fn wake(&mut self) {
        [&mut self.readers, &mut self.writers, &mut self.askers].into_iter().for_each(Waiters::wake);
        self.watchers.wake();
    }

    /// True if no task and no watcher waits for its bytes.
    pub fn is_unwatched(&self) -> bool {
        self.watchers.is_empty() && self.readers.is_empty()
    }

    /// Wakes the task at the next change, unless it only tries.
    pub fn wait(&mut self, write: bool, cx: &Context<'_>) {
        if cx.waker().will_wake(Waker::noop()) {
            return;
        }
        if write { self.writers.add(cx) } else { self.readers.add(cx) }
    }

    /// Queues bytes that were left in a region, to be read and written before the rest.
    pub fn take_left(&mut self, left: LeftBehind) {
        self.unread.extend(left.unread);
        // Bytes still waiting here were written after those in the region.
        let younger = std::mem::replace(&mut self.unsent, left.unsent.into());
        self.unsent.extend(younger);
        self.shut |= left.shut;
    }

    pub fn location(&self) -> &Location {
        &self.at
    }

    pub fn is_in_kernel(&self) -> bool {
        matches!(self.at, Location::Kernel(_))
    }

    /// The region and the queue pair, while the engine runs the connection.
    pub fn in_engine(&self) -> Option<(u32, Conn)> {
        if let Location::Engine(InEngine { region, conn, .. }) = self.at { Some((region, conn)) } else { None }
    }

    /// Records whether the broker has a copy of the bytes to be read and sent.
    pub fn stand(&mut self, stands: bool) {
        if let Location::Engine(engine) = &mut self.at {
            engine.stands = stands;
        }
    }

    /// True if the bytes to be read and sent are on their way to the kernel.
    pub fn stands(&self) -> bool {
        matches!(self.at, Location::Engine(InEngine { stands: true, .. }))
    }

    /// The region, while the connection waits for the engine.
    pub fn coming_to(&self) -> Option<u32> {
        if let Location::Coming(Coming { region, .. }) = self.at { Some(region) } else { None }
    }

    /// The question for `TCP_INFO`, while the engine runs the connection.
    pub fn inquiry(&mut self) -> Option<&mut Inquiry> {
        if let Location::Engine(engine) = &mut self.at { Some(&mut engine.info) } else { None }
    }

    /// Drops a pending question and its answer: the next caller asks the engine again.
    pub fn forget_inquiry(&mut self) {
        self.inquiry().into_iter().for_each(|inquiry| *inquiry = Inquiry::Idle);
    }

    /// Takes the error that the connection ended with; later calls only see that it has ended.
    pub fn take_error(&mut self) -> Option<io::Error> {
        if let Location::Ended(error) = &mut self.at { error.take() } else { None }
    }

    /// The broker takes the connection out of the kernel.
    pub fn leave_kernel(&mut self) {
        self.given_back.store(false, Ordering::Release);
        self.at = Location::Away(Away::default());
    }

    /// Its queued bytes are posted in a region.
    pub fn come(&mut self, region: u32, unread: Vec<u8>) {
        self.at = Location::Coming(Coming { region, unread });
    }

    /// It was not taken in: these bytes came along, or why they could not be had.
    pub fn decline(&mut self, unread: io::Result<Vec<u8>>) {
        if let Location::Away(away) = &mut self.at {
            away.declined = Some(unread);
        }
    }

    /// The engine has adopted it.
    pub fn enter_engine(&mut self, region: u32, conn: Conn) {
        self.at = Location::Engine(InEngine { region, conn, stands: false, info: Inquiry::Idle });
    }

    /// Its bytes go through a link.
    pub fn enter_pair(&mut self, pair: InPair) {
        self.at = Location::Pair(Box::new(pair));
        self.paired = true;
    }

    /// Its end of a pair, while its bytes go through a link.
    pub fn pair(&mut self) -> Option<&mut InPair> {
        if let Location::Pair(pair) = &mut self.at { Some(pair) } else { None }
    }

    /// The engine has released its queue pair, where these bytes were left. The broker has yet to
    /// say where the connection is.
    pub fn part(&mut self, remains: Remains) {
        self.at = Location::Away(Away { remains: Some(remains), ..Away::default() });
    }

    /// The kernel has it. Returns the location that it left; `None` if the kernel had it already or
    /// if it has ended, which nothing changes.
    pub fn enter_kernel(&mut self) -> Option<Location> {
        let leaves = !matches!(self.at, Location::Kernel(_) | Location::Ended(_));
        leaves.then(|| std::mem::replace(&mut self.at, Location::Kernel(InKernel::default())))
    }

    /// The kernel will deliver this many bytes a second time. Only a connection in the kernel can
    /// have such bytes.
    pub fn skip_next(&mut self, bytes: u64) {
        if let Location::Kernel(kernel) = &mut self.at {
            kernel.skip = bytes;
        }
    }

    /// It has ended. Returns the location that it left.
    pub fn end(&mut self, error: Option<io::Error>) -> Location {
        std::mem::replace(&mut self.at, Location::Ended(error))
    }

    /// Reads and discards bytes that the program has had already. Outside the kernel there are none.
    ///
    /// # Errors
    /// `WouldBlock` until all of them have arrived.
    pub fn skip_known(&mut self, id: u64, ready: BorrowedFd<'_>) -> io::Result<()> {
        let Location::Kernel(kernel) = &mut self.at else { return Ok(()) };
        let mut nowhere = [0; 4096];
        while kernel.skip > 0 {
            let most = nowhere.len().min(usize::try_from(kernel.skip).unwrap_or(usize::MAX));
            match recv(&self.fd, &mut nowhere[..most], RecvFlags::DONTWAIT) {
                // The peer's end came before the bytes did.
                Ok((0, _)) => kernel.skip = 0,
                Ok((count, _)) => kernel.skip -= count as u64,
                Err(error) => return Err(self.later(id, ready, EventFlags::IN | EventFlags::RDHUP, error.into())),
            }
        }
        Ok(())
    }

    /// Reads from the socket.
    pub fn read_kernel(&mut self, id: u64, ready: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        self.skip_known(id, ready)?;
        match recv(&self.fd, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Ok(count),
            Err(error) => Err(self.later(id, ready, EventFlags::IN | EventFlags::RDHUP, error.into())),
        }
    }

    /// Writes the bytes in `unsent` first, then `data`.
    pub fn write_kernel(&mut self, id: u64, ready: BorrowedFd<'_>, data: &[u8], more: bool) -> io::Result<usize> {
        self.flush(id, ready)?;
        if self.shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let more = if more { SendFlags::MORE } else { SendFlags::empty() };
        match send(&self.fd, data, more | SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(error) => Err(self.later(id, ready, EventFlags::OUT, error.into())),
        }
    }

    /// Writes the bytes in `unsent` to the socket, then shuts down the sending direction if the
    /// program has done so.
    ///
    /// # Errors
    /// `WouldBlock` if the socket cannot take more yet, otherwise the socket's error.
    pub fn flush(&mut self, id: u64, ready: BorrowedFd<'_>) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match send(&self.fd, first, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) => return Err(self.later(id, ready, EventFlags::OUT, error.into())),
            }
        }
        // Releases the queue's memory too.
        self.unsent = VecDeque::new();
        if self.shut && self.is_in_kernel() {
            // This fails only for a connection that has ended, which needs no shutdown.
            let _ = shutdown(&self.fd, Shutdown::Write);
        }
        Ok(())
    }

    /// Writes the bytes in `unsent` to the engine, then shuts down the sending direction if the
    /// program has done so. Bytes that do not fit stay queued.
    pub fn flush_to(&mut self, consumer: &mut Consumer, conn: Conn) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            let count = consumer.write(conn, first)?;
            self.unsent.drain(..count);
        }
        self.unsent = VecDeque::new();
        if self.shut { consumer.shutdown(conn) } else { Ok(()) }
    }

    /// Copies bytes from `unread` without consuming them.
    pub fn peek_unread(&self, buf: &mut [u8]) -> usize {
        let (front, back) = self.unread.as_slices();
        let first = front.len().min(buf.len());
        buf[..first].copy_from_slice(&front[..first]);
        let second = back.len().min(buf.len() - first);
        buf[first..first + second].copy_from_slice(&back[..second]);
        first + second
    }

    /// Copies bytes from the socket without consuming them.
    pub fn peek_kernel(&mut self, id: u64, ready: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        self.skip_known(id, ready)?;
        match recv(&self.fd, &mut *buf, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((count, _)) => Ok(count),
            Err(error) => Err(self.later(id, ready, EventFlags::IN | EventFlags::RDHUP, error.into())),
        }
    }

    /// If the socket would have blocked, asks epoll to report when it no longer would.
    fn later(&mut self, id: u64, ready: BorrowedFd<'_>, events: EventFlags, error: io::Error) -> io::Error {
        if error.kind() != ErrorKind::WouldBlock {
            return error;
        }
        self.armed |= events;
        // Urgent data that cannot be acted on now would be reported again at once.
        if self.is_whole_in_kernel() && !self.given_back.load(Ordering::Relaxed) {
            self.armed |= EventFlags::PRI;
        }
        self.arm(id, ready).err().unwrap_or(error)
    }

    /// True if the kernel has the whole stream, and every byte of it.
    fn is_whole_in_kernel(&self) -> bool {
        matches!(self.at, Location::Kernel(InKernel { skip: 0 })) && self.unread.is_empty() && self.unsent.is_empty()
    }

    /// Urgent data has arrived, which only the kernel delivers: gives the connection back, once nothing of it is
    /// held here.
    pub fn on_urgent(&mut self) {
        if self.is_whole_in_kernel() && !self.given_back.load(Ordering::Relaxed) {
            self.why_back = Some(Reason::UrgentData);
            self.given_back.store(true, Ordering::Release);
        }
    }

    /// Reports every change of the socket's readiness, for those who watch the stream.
    pub fn watch_socket(&mut self, id: u64, ready: BorrowedFd<'_>) {
        let by_edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET;
        if !self.armed.contains(by_edges) {
            self.armed = by_edges;
            // If the socket cannot be watched, its state is polled at the next look.
            let _ = self.arm(id, ready);
        }
    }

    fn arm(&mut self, id: u64, ready: BorrowedFd<'_>) -> io::Result<()> {
        let once = if self.armed.contains(EventFlags::ET) { EventFlags::empty() } else { EventFlags::ONESHOT };
        let (flags, data) = (self.armed | once, EventData::new_u64(id));
        if self.registered {
            epoll::modify(ready, &self.fd, data, flags)?;
        } else {
            epoll::add(ready, &self.fd, data, flags)?;
        }
        self.registered = true;
        Ok(())
    }

    /// Epoll has reported the socket; a one-shot watch is over.
    pub fn on_ready(&mut self) {
        if !self.armed.contains(EventFlags::ET) {
            self.armed = EventFlags::empty();
        }
    }

    /// Takes the descriptor out and stops watching it. Waiting tasks are woken to find that the
    /// connection has gone.
    pub fn into_fd(mut self, ready: BorrowedFd<'_>) -> OwnedFd {
        if self.registered {
            let _ = epoll::delete(ready, &self.fd);
        }
        self.wake();
        self.fd
    }
}
