//! Streams whose connections arrive from another stack or leave for one: the consumer's part.
//!
//! ```text
//!  consumer                          driver
//!  expect_adoption --token-->        Streamer::adopt(token, snapshot)
//!  bring(token, queues)              <- the two queues that it captured
//!  SocketEvent::Adopted, once both are here
//!
//!  Stream::is_moved                  <- Streamer::suspend, let_go
//!  leave(conn) -> what is still here
//! ```
//!
//! The queues and the engine's announcement may arrive in either order, because from another
//! process they arrive on different ways.

use crate::consumer::{Conn, Consumer, SocketEvent};
use crate::expected::Expected;
pub use crate::moved::{Adoption, Brought, LeftBehind, Remains};
use crate::stream::{Rings, Stream};
use std::io::{self, ErrorKind};

impl Consumer {
    /// Prepares for an arriving connection.
    pub fn expect_adoption(&mut self) -> Adoption {
        let adoption = Adoption(self.token());
        self.adoptions.0.push(Expected { adoption, qp: None, brought: None });
        adoption
    }

    /// Like [`Consumer::expect_adoption`], for a token that the driver chose. A consumer that uses
    /// this must make no other requests with tokens.
    pub fn expect(&mut self, adoption: Adoption) {
        self.adoptions.0.push(Expected { adoption, qp: None, brought: None });
    }

    /// Cancels an adoption that the engine refused or was never asked for.
    pub fn forget_adoption(&mut self, adoption: Adoption) {
        let Some(at) = self.adoptions.0.iter().position(|expected| expected.adoption == adoption) else { return };
        if let Some((_, rings)) = self.adoptions.0.swap_remove(at).brought {
            rings.give_back(&mut self.pool);
        }
    }

    /// Longest queue, in bytes, that an arriving connection may bring.
    pub fn brings_at_most(&self) -> u32 {
        self.pool.largest_size()
    }

    /// True if queues of these lengths do not fit now, but would fit if large buffers were free.
    pub fn lacks_buffers_for(&self, send: u32, unread: u32) -> bool {
        send.max(unread) <= self.brings_at_most() && !self.pool.has_large_for(&[send, unread])
    }

    /// Supplies the queues of an arriving connection, whose peer's window allows `window` further
    /// bytes. If this is called before the engine is asked to adopt, a refusal has no cost.
    ///
    /// # Errors
    /// `InvalidInput` if a queue is longer than a large stream buffer, `OutOfMemory` if no buffer
    /// is free, `NotFound` if the connection is not expected.
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

    /// Returns the bytes of a suspended connection that are here and that the engine does not have.
    /// `tail_pos` is the position up to which the engine has the send queue. Changes nothing.
    pub fn standing(&self, conn: Conn, tail_pos: u64) -> Option<LeftBehind> {
        Some(self.stream(conn)?.standing(&self.region, conn.0, tail_pos, &self.pool))
    }

    /// Like [`Consumer::standing`], for a connection known to have received bytes up to position
    /// `rcv_pos`. Its engine may have died before it could report that here.
    pub fn standing_at(&mut self, conn: Conn, tail_pos: u64, rcv_pos: u64) -> Option<LeftBehind> {
        let stream = self.streams.get_mut(conn.0 as usize)?.as_mut()?;
        stream.note_received(rcv_pos);
        Some(stream.standing(&self.region, conn.0, tail_pos, &self.pool))
    }

    /// Releases a moved connection and returns the bytes that it left here. Returns `None` if it
    /// has not moved.
    pub fn leave(&mut self, conn: Conn) -> Option<LeftBehind> {
        let stream = self.stream(conn).filter(|stream| stream.is_moved())?;
        let left = stream.left_behind(&self.region, conn.0, &self.pool);
        self.close(conn);
        self.streams[conn.0 as usize].as_mut().into_iter().for_each(Stream::note_left);
        Some(left)
    }

    /// Handles a queue pair that the engine has given back. The bytes that a moved connection left
    /// there exist nowhere else. Which of them the new location has may be announced only later.
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
            // The adoption was cancelled.
            None => self.abort(Conn(qp)),
        }
    }

    /// Starts the stream if both the queue pair and the queues are here.
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
