//! Connections whose other end is in a program of this machine: bytes go through a link
//! ([`baton_pair`]), with no engine.
//!
//! A program has one *bell*, an eventfd that the programs at the other sides ring if this one sleeps. For
//! threads that sleep it is one of the [devices](super::direct): a thread that slept on it looks afterwards.

use super::connection::Connection;
use super::descriptors::lifted;
use super::links::Joined;
use super::location::{InPair, LinkName, Location};
use super::near::PairEnd;
use super::setting::Setting;
use super::shared::{Inner, Shared};
use crate::sys::buffer_locks::is_send_buffer_set;
use baton_consumer::link::open_link;
use baton_ipc::message::{Incoming, Request};
use baton_pair::{Bell, End, Ending, Fault, WriteError};
use rustix::net::sockopt;
use std::collections::btree_map::Entry;
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that a socket takes for its program at least, before it stops the peer (`tcp_rmem`, by default).
const RECEIVED: usize = 64 << 10;

/// Room in bytes for which a writer that waits is woken.
const WORTH_A_WAKE_UP: usize = 64 << 10;

/// An end that cannot go on: its peer broke the rules.
fn broken(fault: Fault) -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, fault)
}

fn reset() -> io::Error {
    ErrorKind::ConnectionReset.into()
}

impl Inner {
    /// A link to another program.
    pub(super) fn on_link(&mut self, shared: &Shared, name: LinkName, fds: [Option<OwnedFd>; 4]) {
        let [Some(ours), Some(theirs), Some(bell), Some(their_bell)] = fds else { return };
        // A connection that comes by a link that cannot be mapped is declined.
        let Ok(link) = open_link(&ours, &theirs) else { return };
        self.pairs.enter(name, Joined::new(link, lifted(ours), their_bell), bell);
        shared.attendance.rings.store(true, Ordering::Relaxed);
        shared.attendance.change();
    }

    /// A connection that was handed over waits in the kernel for its other end.
    pub(super) fn on_waits(&mut self, seq: u64, id: u64) {
        self.take_from_adoption(seq, id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.enter_kernel();
            connection.waits = true;
        }
        self.settle(id);
    }

    /// Makes a connection of a socket whose adoption is under way.
    fn take_from_adoption(&mut self, seq: u64, id: u64) {
        if let Entry::Vacant(place) = self.connections.entry(id)
            && let Some(adopting) = self.adopting.get_mut(&seq)
            && let Some(fd) = adopting.fd.take()
        {
            place.insert(Connection::new(fd, seq, std::mem::take(&mut adopting.before)));
        }
    }

    /// A connection arrives at a slot of a link.
    pub(super) fn on_pair(&mut self, incoming: Incoming, first: bool, slot: (u32, u64)) {
        let Incoming { seq, id, region, .. } = incoming;
        self.take_from_adoption(seq, id);
        let taken = self.enter_pair(id, (region, first), slot);
        let _ = self.say(&Request::Brought { id, taken }, Vec::new());
        if taken {
            if self.connection(id).is_some_and(|connection| connection.restoring) {
                let _ = self.say(&Request::Restore { id }, Vec::new());
            }
            self.settle(id);
        }
    }

    fn enter_pair(&mut self, id: u64, name: LinkName, slot: (u32, u64)) -> bool {
        let Inner { connections, pairs, .. } = self;
        let (Some(connection), Some(joined)) = (connections.get_mut(&id), pairs.at(name)) else {
            return false;
        };
        if let Some(pair) = connection.pair() {
            // An earlier broker brought it, and died before it noted the answer.
            return (pair.link, pair.slot) == (name, slot.0);
        }
        let Some(number) = NonZeroU64::new(slot.1) else { return false };
        if !matches!(connection.location(), Location::Away(_)) || !connection.unread.is_empty() {
            return false;
        }
        let Ok(end) = joined.link.resume(slot.0, number) else { return false };
        joined.names.insert(slot.0, id);
        let end = PairEnd::new(end, joined.bell.clone());
        connection.enter_pair(InPair { link: name, slot: slot.0, end, stood: None });
        connection.bound_pair();
        // They were written after those that came along.
        connection.flush_pair();
        true
    }

    /// Takes in what other programs told.
    pub(super) fn hear_pairs(&mut self, shared: &Shared) {
        if self.pairs.is_empty() {
            return;
        }
        for id in self.pairs.news() {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.flush_pair();
            connection.wake();
            if connection.closed && connection.unsent.is_empty() {
                self.close(id);
            }
        }
        // The thread that takes news has said that nobody sleeps, on behalf of all.
        if shared.attendance.somebody_sleeps() {
            self.prepare_pairs();
        }
    }

    /// Before a thread sleeps on the bell. If there are news, it is rung for that thread.
    pub(super) fn prepare_pairs(&mut self) {
        if !self.pairs.prepare_sleep() {
            self.pairs.ring_own();
        }
    }

    pub(super) fn read_pair(&mut self, id: u64, buf: &mut [u8]) -> io::Result<usize> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let Some(InPair { end, .. }) = connection.pair() else { return Err(ErrorKind::WouldBlock.into()) };
        if buf.is_empty() {
            return Ok(0);
        }
        let read = end.with(|end| {
            let (mut count, mut bell) = end.read(buf)?;
            if count == 0 && end.ask_for_data(1)? {
                (count, bell) = end.read(buf)?;
            }
            Ok((count, bell, end.peer_end()))
        });
        let (count, bell, peer) = read.ok_or(ErrorKind::WouldBlock)?.map_err(broken)?;
        end.ring(bell);
        match peer {
            _ if count > 0 => Ok(count),
            Ending::Open => Err(ErrorKind::WouldBlock.into()),
            Ending::Finished | Ending::Closed => Ok(0),
            Ending::Reset => {
                self.end_pair(id, None);
                Err(reset())
            }
        }
    }

    pub(super) fn write_pair(&mut self, id: u64, data: &[u8]) -> io::Result<usize> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if connection.shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        connection.flush_pair();
        if !connection.unsent.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Some(InPair { end, .. }) = connection.pair() else { return Err(ErrorKind::WouldBlock.into()) };
        let written = end.with(|end| {
            let mut written = end.write(data);
            // A writer that waits is woken once there is room for much, as in `sk_stream_is_writeable`.
            if matches!(written, Ok((0, _))) && !data.is_empty() && end.ask_for_room(WORTH_A_WAKE_UP)? {
                written = end.write(data);
            }
            if matches!(written, Ok((count, _)) if count > 0) {
                end.stop_asking_for_room();
            }
            Ok(written.map_err(|error| (error, end.peer_end())))
        });
        match written.ok_or(ErrorKind::WouldBlock)?.map_err(broken)? {
            Ok((0, _)) if !data.is_empty() => Err(ErrorKind::WouldBlock.into()),
            Ok((count, bell)) => {
                end.ring(bell);
                Ok(count)
            }
            Err((WriteError::Reset, Ending::Closed)) => {
                // A segment would have gone out, and its answer would have been a reset.
                self.end_pair(id, Some(reset()));
                Ok(data.len())
            }
            Err((WriteError::Reset, _)) => {
                self.end_pair(id, None);
                Err(reset())
            }
            Err((WriteError::Closed, _)) => Err(ErrorKind::BrokenPipe.into()),
            Err((error, _)) => Err(io::Error::new(ErrorKind::ConnectionAborted, error)),
        }
    }

    /// The connection has ended, with an error for the next call to report. Bytes that arrived before can
    /// still be read.
    fn end_pair(&mut self, id: u64, error: Option<io::Error>) {
        let Inner { connections, pairs, .. } = self;
        let Some(connection) = connections.get_mut(&id) else { return };
        if let Location::Pair(pair) = connection.end(error)
            && let Some(mut end) = pairs.leave(*pair)
        {
            connection.unread.extend(end.unread().unwrap_or_default());
        }
    }

    /// The program has finished writing.
    pub(super) fn finish_pair(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.flush_pair();
        // Otherwise it finishes once they are written.
        if connection.unsent.is_empty()
            && let Some(InPair { end, .. }) = connection.pair()
        {
            end.ring(end.with(End::finish).unwrap_or_default());
        }
    }

    /// The program has closed the stream, whose unread bytes make it a reset. True if the pair goes home already: the
    /// socket is closed once it is there, without the bytes that the program has read.
    pub(super) fn close_pair(&mut self, id: u64) -> bool {
        let there = self.channel.is_some();
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let aborts = connection.aborts();
        let Some(InPair { end, .. }) = connection.pair() else { return false };
        let closed = end.with(|end| {
            let unread = end.readable().map_or(true, |bytes| bytes > 0);
            let bell = if aborts || unread { end.reset() } else { end.close() };
            // The broker stops the pair, then looks at its ends: one of both sees the other's.
            (bell, end.is_stopped())
        });
        let (bell, stopped) = closed.unwrap_or_default();
        end.ring(bell);
        stopped && there
    }

    /// The end of a pair that calls may use without this lock: nothing is to be read or written before.
    pub(super) fn near(&mut self, id: u64) -> Option<Arc<PairEnd>> {
        let connection = self.connections.get_mut(&id).filter(|it| it.unread.is_empty() && it.unsent.is_empty())?;
        connection.pair().map(|pair| pair.end.clone())
    }
}

impl Connection {
    /// The error of a pair that the other end has reset, while the program has yet to see it.
    pub(super) fn reset_in_pair(&mut self) -> Option<io::Error> {
        let looked = self.pair()?.end.with(|end| Ok((end.readable()?, end.peer_end())))?;
        match looked {
            Ok((_, Ending::Reset)) => Some(reset()),
            Ok((_, Ending::Open | Ending::Finished | Ending::Closed)) => None,
            Err(fault) => Some(broken(fault)),
        }
    }

    /// Bounds what may be unread as `SO_SNDBUF` does, if the program has set that. The peer's socket would take
    /// some more.
    pub(super) fn bound_pair(&mut self) {
        let set =
            self.setting(|setting| if let Setting::SendBuffer(bytes) = setting { Some(*bytes as usize) } else { None });
        let fd = self.fd.as_fd();
        // The kernel reports twice the size that was set.
        let before = || sockopt::socket_send_buffer_size(fd).ok().map(|bytes| bytes / 2);
        let is_set = || is_send_buffer_set(fd).unwrap_or(false);
        let bytes = set.or_else(|| is_set().then(before).flatten());
        if let (Some(bytes), Some(pair)) = (bytes, self.pair()) {
            pair.end.with(|end| end.limit_outgoing(bytes.saturating_add(RECEIVED)));
        }
    }

    /// Writes the bytes in `unsent` to the pair, then finishes if the program has finished writing. Bytes that do not
    /// fit stay, and news of room bring the next try. Those for a peer that is gone are lost, and the next call says
    /// so.
    pub(super) fn flush_pair(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let (mut waiting, shut) = (std::mem::take(&mut self.unsent), self.shut);
        let Some(InPair { end, .. }) = self.pair() else { return self.unsent = waiting };
        let bell = end.with(|end| {
            let mut bell = Bell::NONE;
            while !waiting.is_empty() {
                match end.write(waiting.as_slices().0) {
                    Ok((0, _)) if end.ask_for_room(1) == Ok(true) && !end.is_stopped() => {}
                    Ok((0, _)) => return bell,
                    Err(_) => {
                        waiting.clear();
                        return bell;
                    }
                    Ok((count, rings)) => {
                        bell |= rings;
                        waiting.drain(..count);
                    }
                }
            }
            if shut { bell | end.finish() } else { bell }
        });
        end.ring(bell.unwrap_or_default());
        self.unsent = waiting;
    }

    /// A pair has come home: the kernel has what was received from `rcv_pos` on, and nothing of what was written
    /// beyond `tail_pos`.
    pub(super) fn take_from_pair(&mut self, end: &End, (rcv_pos, tail_pos): (u64, u64)) {
        self.skip_next(end.read_total().saturating_sub(rcv_pos));
        let unsent = end.written_since(tail_pos);
        let younger = std::mem::replace(&mut self.unsent, unsent.into());
        self.unsent.extend(younger);
    }
}
