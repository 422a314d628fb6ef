//! Streams of connections that come from another stack, and leave for one: the
//! consumer's part.
//!
//! ```text
//!   consumer                          driver
//!   expect_adoption --token-->        Streamer::adopt(token, snapshot)
//!   bring(token, queues)              <- the two queues that it captured
//!   SocketEvent::Adopted, once both are here
//!
//!   Stream::is_moved                  <- Streamer::suspend, let_go
//!   leave(conn) -> what is still here
//! ```
//!
//! The bytes and the engine's word may come in either order: from another process
//! they do not come the same way.

use crate::consumer::{Conn, Consumer, SocketEvent};
use crate::stream::{Rings, Stream};
use std::io::{self, ErrorKind};

/// A connection that is to come; its number is the token of the engine's `Adopt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Adoption(pub u64);

/// What a connection that moved left here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftBehind {
    /// Written, and not known to its new home: to be written there.
    pub unsent: Vec<u8>,
    /// Received, and not read: to be read before what comes there.
    pub unread: Vec<u8>,
    /// The program ended the sending direction, whether the engine knows or not.
    pub shut: bool,
}

/// What a connection left here whose new home is not known yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// Stream position of the first byte of `left.unsent`, in bytes.
    pub from: u64,
    /// All that the peer has not acknowledged, and that was not read.
    pub left: LeftBehind,
}

impl Remains {
    /// Without what its new home knows: the send queue up to `tail_pos`.
    pub fn beyond(mut self, tail_pos: u64) -> LeftBehind {
        let known = tail_pos.saturating_sub(self.from).min(self.left.unsent.len() as u64);
        self.left.unsent.drain(..known as usize);
        self.left
    }
}

/// What a connection brings along.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Brought {
    /// The send queue: bytes from `snd_una` on, sent or not.
    pub send: Vec<u8>,
    /// The receive queue: bytes before `rcv_nxt` that nobody has read.
    pub unread: Vec<u8>,
    /// Our side has closed: a FIN follows, or followed, the send queue.
    pub shut: bool,
}

#[derive(Debug)]
struct Expected {
    adoption: Adoption,
    qp: Option<u32>,
    brought: Option<(Brought, Rings)>,
}

/// Connections that are to come.
#[derive(Debug, Default)]
pub(crate) struct Adoptions(Vec<Expected>);

impl Consumer {
    /// Prepares for a connection to come.
    pub fn expect_adoption(&mut self) -> Adoption {
        let adoption = Adoption(self.token());
        self.adoptions.0.push(Expected { adoption, qp: None, brought: None });
        adoption
    }

    /// As [`Consumer::expect_adoption`], for a token that the driver chose. A consumer that
    /// uses this asks its engine for nothing that has a token.
    pub fn expect(&mut self, adoption: Adoption) {
        self.adoptions.0.push(Expected { adoption, qp: None, brought: None });
    }

    /// The engine refused it, or nobody asked the engine.
    pub fn forget_adoption(&mut self, adoption: Adoption) {
        let Some(at) = self.adoptions.0.iter().position(|expected| expected.adoption == adoption) else { return };
        if let Some((_, rings)) = self.adoptions.0.swap_remove(at).brought {
            rings.give_back(&mut self.pool);
        }
    }

    /// Bytes that either queue of a connection may bring along at most.
    pub fn brings_at_most(&self) -> u32 {
        self.pool.largest_size()
    }

    /// True if queues of these lengths could come along at another time, but not now: the large
    /// buffers are in use.
    pub fn lacks_buffers_for(&self, send: u32, unread: u32) -> bool {
        send.max(unread) <= self.brings_at_most() && !self.pool.has_large_for(&[send, unread])
    }

    /// Hands in what a connection brings along, whose peer was promised `window` bytes
    /// more. Done before the engine is asked, a refusal costs nothing.
    ///
    /// # Errors
    /// `InvalidInput` if a queue is longer than a large stream buffer, `OutOfMemory` if no
    /// buffer is free: then it cannot come. `NotFound` if it is not expected.
    pub fn bring(&mut self, adoption: Adoption, brought: Brought, window: u32) -> io::Result<()> {
        if brought.send.len().max(brought.unread.len()) > self.brings_at_most() as usize {
            return Err(ErrorKind::InvalidInput.into());
        }
        let awaited = |expected: &&mut Expected| expected.adoption == adoption && expected.brought.is_none();
        let expected = self.adoptions.0.iter_mut().find(awaited).ok_or(ErrorKind::NotFound)?;
        let rings = Rings::take(&brought, window, &mut self.pool).ok_or(ErrorKind::OutOfMemory)?;
        expected.brought = Some((brought, rings));
        self.settle(adoption);
        Ok(())
    }

    /// What of a suspended connection is here, and unknown to the engine, which said that
    /// it knows the send queue up to `tail_pos`. Nothing changes.
    pub fn standing(&self, conn: Conn, tail_pos: u64) -> Option<LeftBehind> {
        Some(self.stream(conn)?.standing(&self.region, conn.0, tail_pos, &self.pool))
    }

    /// As [`Consumer::standing`], of a connection of which somebody else knows that it
    /// received up to stream position `rcv_pos`: its engine, it may be, died before it could
    /// say so here.
    pub fn standing_at(&mut self, conn: Conn, tail_pos: u64, rcv_pos: u64) -> Option<LeftBehind> {
        let stream = self.streams.get_mut(conn.0 as usize)?.as_mut()?;
        stream.note_received(rcv_pos);
        Some(stream.standing(&self.region, conn.0, tail_pos, &self.pool))
    }

    /// Lets go of a connection that moved, and says what it left here. `None` if it
    /// did not move.
    pub fn leave(&mut self, conn: Conn) -> Option<LeftBehind> {
        let stream = self.stream(conn).filter(|stream| stream.is_moved())?;
        let left = stream.left_behind(&self.region, conn.0, &self.pool);
        self.close(conn);
        self.streams[conn.0 as usize].as_mut().into_iter().for_each(Stream::note_left);
        Some(left)
    }

    /// The engine has given a queue pair back. What a connection left there that moved is nowhere
    /// else, and whoever moves it may say how much of it is known there after the engine has.
    pub(crate) fn on_released(&mut self, qp: u32) {
        let Some(Some(stream)) = self.streams.get_mut(qp as usize) else { return };
        if stream.is_moved() && !stream.has_left() {
            let remains = stream.remains(&self.region, qp, &self.pool);
            self.events.push_back(SocketEvent::Parted { conn: Conn(qp), remains });
        }
        stream.end(&mut self.pool);
    }

    pub(crate) fn on_adopted(&mut self, qp: u32, token: u64) {
        self.new_stream(qp).note_adopted();
        match self.adoptions.0.iter_mut().find(|expected| expected.adoption.0 == token) {
            Some(expected) => {
                expected.qp = Some(qp);
                self.settle(Adoption(token));
            }
            // Nobody waits for it any more.
            None => self.abort(Conn(qp)),
        }
    }

    /// With queue pair and bytes both here the stream can begin.
    fn settle(&mut self, adoption: Adoption) {
        let ready =
            |expected: &Expected| expected.adoption == adoption && expected.qp.is_some() && expected.brought.is_some();
        let Some(at) = self.adoptions.0.iter().position(ready) else { return };
        let Expected { qp: Some(qp), brought: Some((brought, rings)), .. } = self.adoptions.0.swap_remove(at) else {
            return;
        };
        let Some(Some(stream)) = self.streams.get_mut(qp as usize) else { return rings.give_back(&mut self.pool) };
        let happened = stream.fill(&self.region, qp, &brought, rings, &mut self.pool);
        self.events.push_back(SocketEvent::Adopted { adoption, conn: Conn(qp) });
        self.on_ready(qp, happened);
    }
}
