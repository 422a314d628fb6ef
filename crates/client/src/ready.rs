//! A [`Stream`]'s readiness, and wakers for its changes: for programs that wait for many streams at
//! once, or for other descriptors at the same time.
//!
//! A watch lasts until it is removed. It is woken whenever a read or write may succeed that could
//! not before, and sometimes without need, so the woken task asks [`Stream::readiness`]. This is
//! independent of the connection's location. In the kernel, the socket is watched edge-triggered by
//! the library's thread.

use super::connection::Connection;
use super::location::{InEngine, Location};
use super::near::Lookout;
use super::region::{self, Region};
use super::shared::Inner;
use super::stream::Stream;
use crate::sys::queue_lengths;
use baton_pair::{End, Ending, Fault};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::task::Waker;

/// Readiness of a stream: the bits of `poll(2)`, as the kernel would set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Readiness {
    /// A read would not wait: there are bytes, an end of file, or an error.
    pub readable: bool,
    /// A write would not wait.
    pub writable: bool,
    /// The peer has finished sending, or this side has shut down reading.
    pub peer_finished: bool,
    /// Both directions have ended.
    pub ended: bool,
    /// An error is pending.
    pub failed: bool,
    /// Urgent data is waiting, which the kernel delivers: the program receives it from its socket.
    pub urgent: bool,
    /// A number that changes whenever something may have arrived.
    pub arrivals: u64,
}

/// Readiness of a stream that no longer exists: a call does not wait, and reports the error.
const GONE: Readiness = Readiness {
    readable: true,
    writable: true,
    peer_finished: false,
    ended: false,
    failed: false,
    urgent: false,
    arrivals: 0,
};

impl Stream {
    /// Wakes `waker` from now on whenever the stream's readiness may have changed, any number of
    /// times. The returned number is for [`Stream::unwatch`].
    pub fn watch(&self, waker: Waker) -> u64 {
        // A forked child is never woken.
        self.shared.with(|inner| inner.watch(self.id, waker)).unwrap_or(0)
    }

    /// Removes a watch.
    pub fn unwatch(&self, number: u64) {
        let _ = self.shared.with(|inner| {
            if let Some(connection) = inner.connections.get_mut(&self.id) {
                connection.watchers.remove(number);
            }
        });
    }

    /// Lets this thread look for bytes by itself, if the connection is in a pair and nobody else waits for it: its
    /// memory is all that has to be looked at, and the other program tells of nothing until the next call that
    /// finds no bytes.
    pub fn look_out(&self) -> Option<Lookout> {
        let lookout = self.shared.with(|inner| {
            inner.connection(self.id).filter(|it| it.is_unwatched())?;
            // A thread that begins to wait from now on asks after that.
            inner.near(self.id).map(Lookout::begin)
        });
        lookout.ok().flatten()
    }

    /// Returns what the stream is ready for now.
    pub fn readiness(&self) -> Readiness {
        let state = self.shared.with(|inner| {
            inner.take_completions(&self.shared);
            inner.readiness(self.id)
        });
        // A read or write will report the reason.
        state.unwrap_or(GONE)
    }

    /// Like [`Stream::readiness`], without taking in completions first. For callers that have just
    /// called [`Service::look`](super::Service::look) and ask about many streams.
    pub fn readiness_heard(&self) -> Readiness {
        let state = self.shared.check().map(|()| self.shared.lock().readiness(self.id));
        state.unwrap_or(GONE)
    }

    /// Copies the bytes that a read would return, as many as are available at once, without
    /// consuming them.
    ///
    /// # Errors
    /// Those of a read; `WouldBlock` if there are none, even on a blocking stream.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.shared.with(|inner| {
            inner.take_completions(&self.shared);
            inner.peek(self.id, buf)
        })?
    }

    /// Returns the number of bytes that wait to be read and of written bytes that the peer has not
    /// acknowledged (`SIOCINQ`, `SIOCOUTQ`).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn queued(&self) -> io::Result<(usize, usize)> {
        self.shared.with(|inner| {
            inner.take_completions(&self.shared);
            inner.queued(self.id)
        })?
    }
}

impl Stream {
    /// True if this library holds received bytes that come before those that the kernel has.
    pub fn holds_unread(&self) -> bool {
        self.shared.with(|inner| inner.connection(self.id).is_some_and(|it| !it.unread.is_empty())).unwrap_or(false)
    }

    /// Returns the number of bytes that can be read, or 1 if only the end of file remains, like the
    /// kernel's hint (`tcp_inq_hint` in `include/net/tcp.h`). Returns 0 if the stream has ended in
    /// another way.
    pub fn left(&self) -> usize {
        let left = self.queued().map_or(0, |(unread, _)| unread);
        left.max(self.readiness().peer_finished.into())
    }
}

impl Inner {
    fn watch(&mut self, id: u64, waker: Waker) -> u64 {
        self.next_watch += 1;
        let number = self.next_watch;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.watchers.add(number, waker);
        }
        number
    }

    /// Takes in which sockets have become ready.
    pub(super) fn hear_sockets(&mut self) {
        let mut events = Vec::with_capacity(64);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let waited = epoll::wait(&self.ready, rustix::buffer::spare_capacity(&mut events), Some(&now));
        if waited.is_err() {
            // A signal interrupted it. The next round reports ready sockets again.
            return;
        }
        for event in events {
            let (id, flags) = (event.data.u64(), event.flags);
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.on_ready();
            // Epoll reports husks too; those are ignored.
            if connection.is_in_kernel() {
                if flags.contains(EventFlags::PRI) {
                    connection.on_urgent();
                }
                self.settle(id);
            }
        }
    }

    fn readiness(&mut self, id: u64) -> Readiness {
        let Inner { connections, regions, ready, .. } = self;
        let Some(connection) = connections.get_mut(&id) else { return GONE };
        if let Some(pair) = connection.pair() {
            let state = pair.end.with(in_pair).unwrap_or_default();
            return connection.overall(state);
        }
        if connection.stands() {
            return Readiness { arrivals: connection.watchers.news << 40, ..Readiness::default() };
        }
        if connection.is_in_kernel() && !connection.watchers.is_empty() {
            connection.watch_socket(id, ready.as_fd());
        }
        let state = match connection.location() {
            Location::Kernel(_) => {
                let state = in_kernel(connection);
                if state.urgent {
                    connection.on_urgent();
                }
                state
            }
            Location::Away(_) | Location::Coming(_) | Location::Pair(_) => Readiness::default(),
            Location::Engine(InEngine { region, conn, .. }) => {
                regions.get(region).map_or_else(Readiness::default, |region| in_engine(region, *conn, connection.shut))
            }
            Location::Ended(error) => Readiness {
                readable: true,
                writable: true,
                peer_finished: true,
                ended: true,
                failed: error.is_some(),
                urgent: false,
                arrivals: 0,
            },
        };
        connection.overall(state)
    }

    fn peek(&mut self, id: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Inner { connections, regions, ready, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if connection.stands() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let first = connection.peek_unread(buf);
        if first == buf.len() {
            return Ok(first);
        }
        let rest = &mut buf[first..];
        let more = match connection.location() {
            Location::Kernel(_) => connection.peek_kernel(id, ready.as_fd(), rest),
            Location::Away(_) | Location::Coming(_) => Err(ErrorKind::WouldBlock.into()),
            &Location::Engine(InEngine { region, conn, .. }) => {
                region::in_engine(regions, region, conn, |consumer| consumer.peek(conn, rest))
            }
            Location::Pair(_) => return self.peek_pair(id, first, buf),
            // The error itself is left for the next read.
            Location::Ended(Some(error)) => Err(error.kind().into()),
            Location::Ended(None) => Ok(0),
        };
        match more {
            Ok(count) => Ok(first + count),
            Err(_) if first > 0 => Ok(first),
            Err(error) if error.kind() == ErrorKind::WouldBlock && connection.is_shut_for_reading() => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Adds the bytes of a pair's end to the `first` that are in `buf` already.
    fn peek_pair(&mut self, id: u64, first: usize, buf: &mut [u8]) -> io::Result<usize> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let Some(pair) = connection.pair() else { return Ok(first) };
        let peeked = pair.end.with(|end| {
            let mut more = end.peek(&mut buf[first..])?;
            if more == 0 && end.ask_for_data(1)? {
                more = end.peek(&mut buf[first..])?;
            }
            Ok((more, end.peer_end()))
        });
        let aborted = |fault: Fault| io::Error::new(ErrorKind::ConnectionAborted, fault);
        let (more, peer) = peeked.unwrap_or(Ok((0, Ending::Open))).map_err(aborted)?;
        match peer {
            _ if first + more > 0 => Ok(first + more),
            Ending::Open if !connection.is_shut_for_reading() => Err(ErrorKind::WouldBlock.into()),
            Ending::Reset => Err(ErrorKind::ConnectionReset.into()),
            Ending::Open | Ending::Finished | Ending::Closed => Ok(0),
        }
    }

    fn queued(&mut self, id: u64) -> io::Result<(usize, usize)> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if let Some(pair) = connection.pair() {
            let queued = |end: &mut End| (end.readable().unwrap_or(0), end.unread_by_peer().unwrap_or(0));
            let (unread, unsent) = pair.end.with(queued).unwrap_or_default();
            return Ok((connection.unread.len() + unread, unsent));
        }
        let (unread, unsent) = match connection.location() {
            Location::Kernel(_) => {
                let (send, unread) = queue_lengths::of(connection.fd.as_fd())?;
                (unread as usize, send as usize)
            }
            Location::Engine(InEngine { region, conn, .. }) => self
                .regions
                .get(region)
                .and_then(|region| region.consumer.stream(*conn))
                .map_or((0, 0), |stream| (stream.readable(), stream.unacknowledged())),
            // Bytes on the way are in nobody's queue.
            Location::Away(_) | Location::Coming(_) | Location::Pair(_) | Location::Ended(_) => (0, 0),
        };
        Ok((connection.unread.len() + unread, connection.unsent.len() + unsent))
    }
}

impl Connection {
    /// The readiness at its location, with what this process holds of it.
    fn overall(&self, mut state: Readiness) -> Readiness {
        state.writable &= self.unsent.is_empty() || state.ended;
        state.writable |= self.shut;
        state.peer_finished |= self.is_shut_for_reading();
        state.readable |= !self.unread.is_empty() || state.peer_finished;
        state.ended |= self.shut && state.peer_finished;
        state.arrivals = state.arrivals.wrapping_add(self.watchers.news << 40);
        state
    }
}

/// As [`in_engine`]. The caller is told of the next change, too.
fn in_pair(end: &mut End) -> Readiness {
    let known = end.ask_for_data(1).and_then(|_| Ok((end.readable()?, end.room()?, end.unread_by_peer()?)));
    // A call reports what the peer did.
    let Ok((readable, mut free, used)) = known else { return GONE };
    let writable = |free: usize| free > 0 && free >= used / 2;
    if !writable(free) && end.ask_for_room((free + used) / 3).unwrap_or(true) {
        free = end.room().unwrap_or(free);
    }
    let peer = end.peer_end();
    Readiness {
        readable: readable > 0 || peer != Ending::Open,
        writable: writable(free) || peer == Ending::Reset,
        peer_finished: peer != Ending::Open,
        ended: peer == Ending::Reset,
        failed: peer == Ending::Reset,
        urgent: false,
        arrivals: end.read_total() + readable as u64 + peer as u64,
    }
}

/// Follows `tcp_poll` in the kernel's `net/ipv4/tcp.c`.
fn in_engine(region: &Region, conn: baton_consumer::consumer::Conn, shut: bool) -> Readiness {
    let consumer = &region.consumer;
    let Some(stream) = consumer.stream(conn) else { return Readiness::default() };
    // The connection is moving. Calls wait until it has arrived.
    if stream.is_moved() || region.dead {
        return Readiness { readable: stream.readable() > 0, ..Readiness::default() };
    }
    let (free, used) = (consumer.writable(conn), stream.unacknowledged());
    let closed = stream.is_closed();
    Readiness {
        readable: stream.readable() > 0 || stream.peer_finished(),
        writable: closed || shut || (free > 0 && free >= used / 2),
        peer_finished: stream.peer_finished(),
        ended: closed,
        failed: closed && consumer.error(conn).is_some(),
        urgent: false,
        arrivals: stream.received_total() + u64::from(stream.peer_finished()) + u64::from(closed),
    }
}

fn in_kernel(connection: &Connection) -> Readiness {
    let asked = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP | PollFlags::PRI;
    let mut fds = [PollFd::new(&connection.fd, asked)];
    // On failure nothing is ready, and the caller asks again.
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    let found = fds[0].revents();
    Readiness {
        readable: found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
        writable: found.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR),
        peer_finished: found.contains(PollFlags::RDHUP),
        ended: found.contains(PollFlags::HUP),
        failed: found.contains(PollFlags::ERR),
        urgent: found.contains(PollFlags::PRI),
        arrivals: 0,
    }
}
