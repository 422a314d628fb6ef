//! One connection of a program: where it is, and what has to be read or written first.

use super::cork::Cork;
use super::ready::Watchers;
use super::settings::Setting;
use baton_consumer::adoption::{LeftBehind, Remains};
use baton_consumer::consumer::{Conn, Consumer};
use baton_consumer::waiters::Waiters;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Context;

/// Where a connection is, as its program sees it.
#[derive(Debug)]
pub(super) enum Whereabouts {
    /// The kernel runs it: its descriptor is a socket.
    Kernel,
    /// Nobody here uses the descriptor, nor the region.
    Away,
    /// What it brings along is posted, and waits for the engine. Its unread bytes, lest the
    /// engine die before it has it.
    Coming { region: u32, unread: Vec<u8> },
    /// The engine runs it.
    Engine { region: u32, conn: Conn },
    /// It is no more.
    Ended(Option<io::Error>),
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Line {
    pub fd: OwnedFd,
    pub at: Whereabouts,
    /// To be read before what the kernel has.
    pub unread: VecDeque<u8>,
    /// Bytes that the kernel is going to bring once more: they were read, or are in `unread`.
    pub skip: u64,
    /// To be written before anything else.
    pub unsent: VecDeque<u8>,
    /// What it left in a region that is not its own any more, until it is known how much of it
    /// the kernel has.
    pub remains: Option<Remains>,
    /// The program ended its direction; the kernel is told once all is written.
    pub shut: bool,
    /// The program waits for it to come back whole.
    pub restoring: bool,
    /// Why it did not.
    pub refusal: Option<String>,
    /// The broker brought it back whole, and nobody had asked for that: see
    /// [`Stream::is_given_back`](super::Stream::is_given_back).
    pub given_back: Arc<AtomicBool>,
    /// The program let go of it.
    pub closed: bool,
    /// Of the adoption that somebody waits for.
    pub seq: u64,
    pub readers: Waiters,
    pub writers: Waiters,
    /// They wait for what the engine knows.
    pub askers: Waiters,
    /// The engine was asked; its answer.
    pub asked: bool,
    pub info: Option<Vec<u8>>,
    /// What the program set, the last of each kind.
    pub settings: Vec<Setting>,
    /// What the socket had when it was handed over, of what a husk does not have.
    pub before: Vec<Setting>,
    /// The engine has not been told all of it.
    pub untold: bool,
    /// They are told of every change.
    pub watchers: Watchers,
    /// Bytes written and read while it was in the kernel.
    pub at_home: (u64, u64),
    /// Bytes that wait for others.
    pub cork: Cork,
    armed: EventFlags,
    registered: bool,
}

impl Line {
    pub fn new(fd: OwnedFd, at: Whereabouts, seq: u64, before: Vec<Setting>) -> Line {
        Line {
            fd,
            at,
            unread: VecDeque::new(),
            skip: 0,
            unsent: VecDeque::new(),
            remains: None,
            shut: false,
            restoring: false,
            refusal: None,
            given_back: Arc::default(),
            closed: false,
            seq,
            readers: Waiters::default(),
            writers: Waiters::default(),
            askers: Waiters::default(),
            asked: false,
            info: None,
            settings: Vec::new(),
            before,
            untold: false,
            watchers: Watchers::default(),
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

    pub fn wait(&mut self, write: bool, cx: &Context<'_>) {
        if write { self.writers.add(cx) } else { self.readers.add(cx) }
    }

    /// What was left in a region, to be read and written before the rest.
    pub fn take_left(&mut self, left: LeftBehind) {
        self.unread.extend(left.unread);
        // What waits here still is younger than what was written there.
        let younger = std::mem::replace(&mut self.unsent, left.unsent.into());
        self.unsent.extend(younger);
        self.shut |= left.shut;
    }

    pub fn is_in_kernel(&self) -> bool {
        matches!(self.at, Whereabouts::Kernel)
    }

    /// Takes away what is here already.
    ///
    /// # Errors
    /// `WouldBlock` until it has come.
    pub fn skip_known(&mut self, id: u64, ready: BorrowedFd<'_>) -> io::Result<()> {
        let mut nowhere = [0; 4096];
        while self.skip > 0 {
            let most = nowhere.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            match recv(&self.fd, &mut nowhere[..most], RecvFlags::DONTWAIT) {
                // It ended before.
                Ok((0, _)) => self.skip = 0,
                Ok((count, _)) => self.skip -= count as u64,
                Err(error) => return Err(self.later(id, ready, EventFlags::IN | EventFlags::RDHUP, error.into())),
            }
        }
        Ok(())
    }

    /// Reads the socket.
    pub fn read_kernel(&mut self, id: u64, ready: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        self.skip_known(id, ready)?;
        match recv(&self.fd, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Ok(count),
            Err(error) => Err(self.later(id, ready, EventFlags::IN | EventFlags::RDHUP, error.into())),
        }
    }

    /// Writes what is left first, then this.
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

    /// Writes what is left, and ends the direction if that is due.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes no more yet; what the socket says.
    pub fn flush(&mut self, id: u64, ready: BorrowedFd<'_>) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match send(&self.fd, first, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) => return Err(self.later(id, ready, EventFlags::OUT, error.into())),
            }
        }
        // Nothing is left, nor its memory.
        self.unsent = VecDeque::new();
        if self.shut && self.is_in_kernel() {
            // A connection that ended meanwhile has nothing to close.
            let _ = shutdown(&self.fd, Shutdown::Write);
        }
        Ok(())
    }

    /// Writes what is left to the engine, and ends the direction if that is due. The rest
    /// waits for room.
    pub fn flush_to(&mut self, consumer: &mut Consumer, conn: Conn) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            let count = consumer.write(conn, first)?;
            self.unsent.drain(..count);
        }
        self.unsent = VecDeque::new();
        if self.shut { consumer.shutdown(conn) } else { Ok(()) }
    }

    /// The bytes that are to be read before what the kernel has.
    pub fn peek_unread(&self, buf: &mut [u8]) -> usize {
        let (front, back) = self.unread.as_slices();
        let first = front.len().min(buf.len());
        buf[..first].copy_from_slice(&front[..first]);
        let second = back.len().min(buf.len() - first);
        buf[first..first + second].copy_from_slice(&back[..second]);
        first + second
    }

    /// Reads the socket, and leaves what was read.
    pub fn peek_kernel(&mut self, id: u64, ready: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        self.skip_known(id, ready)?;
        match recv(&self.fd, &mut *buf, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((count, _)) => Ok(count),
            Err(error) => Err(self.later(id, ready, EventFlags::IN | EventFlags::RDHUP, error.into())),
        }
    }

    /// Where the socket said that it would block, asks to be told when it does not.
    fn later(&mut self, id: u64, ready: BorrowedFd<'_>, events: EventFlags, error: io::Error) -> io::Error {
        if error.kind() != ErrorKind::WouldBlock {
            return error;
        }
        self.armed |= events;
        self.arm(id, ready).err().unwrap_or(error)
    }

    /// Has every change of the socket told, for those who watch it.
    pub fn watch_socket(&mut self, id: u64, ready: BorrowedFd<'_>) {
        let by_edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if !self.armed.contains(by_edges) {
            self.armed = by_edges;
            // A socket that cannot be watched is read when somebody looks.
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

    /// The socket is ready for something.
    pub fn on_ready(&mut self) {
        if !self.armed.contains(EventFlags::ET) {
            self.armed = EventFlags::empty();
        }
    }

    /// The descriptor, watched no longer. Whoever waits finds that there is nothing to wait for.
    pub fn into_fd(mut self, ready: BorrowedFd<'_>) -> OwnedFd {
        if self.registered {
            let _ = epoll::delete(ready, &self.fd);
        }
        self.wake();
        self.fd
    }
}
