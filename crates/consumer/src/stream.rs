//! A byte stream over one queue pair.
//!
//! Each direction has a ring buffer, which is posted again for each lap; only cursors move. So two
//! extents are enough for any traffic, and the engine is told nothing but positions:
//!
//! ```text
//!  send     snd_done ........ snd_tail ........ snd_done + size
//!             | not acked yet    |  space to write  |
//!  receive  rcv_read ........ rcv_done ........ rcv_read + size = rcv_limit
//!             | to be read       |  posted          |
//! ```
//!
//! A direction has no buffer until it needs one: a write takes the send ring; arriving data
//! (`WANT_BUFFER`) or a read takes the receive ring. Both are returned after the connection was
//! idle for a while: the consumer asks the engine to forget what is posted (`Stream::retire`), and
//! once it has (`Stream::on_retired`), the rings belong to the pool again. Bytes written in between
//! wait in the ring for the answer.
//!
//! A direction that proves fast gets a large ring in place of its small one (`Stream::grow`): the
//! next lap uses the large ring while the last lap of the small ring is still in use.

mod idle;
mod passage;
mod ring;
mod source;
mod unpublished;

use crate::buffers::{BufferPool, Share};
use baton_engine::region::{ConsumerRegion, Events, Queue};
pub(crate) use passage::Rings;
use ring::{Ring, piece, post_laps};
pub use source::{FilePiece, Source};
use std::io::{self, ErrorKind};

/// Bits of [`Stream::flags`].
mod flags {
    /// The program has shut down sending.
    pub const SHUT: u8 = 1 << 0;
    /// Extents of the receive ring are posted up to the end of its lap.
    pub const RECEIVES: u8 = 1 << 1;
    /// Extents of the send ring are posted up to the end of its lap.
    pub const SENDS: u8 = 1 << 2;
    /// The engine was asked to forget what is posted, and has not answered.
    pub const RETIRING: u8 = 1 << 3;
    /// Bytes moved since [`Stream::was_active`](super::Stream::was_active).
    pub const ACTIVE: u8 = 1 << 4;
    /// The stream is on the consumer's list of streams with buffers.
    pub const LISTED: u8 = 1 << 5;
    /// A soft error is pending.
    pub const SOFT_ERROR: u8 = 1 << 6;
    /// Small rings are replaced by large ones at the end of their laps.
    pub const GROWS: u8 = 1 << 7;
}

const _: () = assert!(size_of::<Option<Stream>>() == 64, "a stream must fit one cache line");

/// A connection as its consumer sees it.
#[derive(Debug, Default)]
pub struct Stream {
    send: Ring,
    receive: Ring,
    snd_tail: u64,
    snd_done: u64,
    rcv_read: u64,
    rcv_done: u64,
    rcv_limit: u64,
    /// All events so far.
    pub(crate) events: Events,
    flags: u8,
    /// The program has closed the connection.
    released: bool,
    /// How much of the send ring is used.
    snd_share: Share,
    rcv_share: Share,
}

impl Stream {
    #[inline]
    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Takes in the engine's events. Returns `true` if a reader or writer should look.
    pub(crate) fn on_events(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        events: Events,
        pool: &mut BufferPool,
    ) -> bool {
        self.events |= events;
        self.flags |= flags::ACTIVE;
        if self.is_waiting() {
            return false;
        }
        let view = region.qp(qp);
        if events.intersects(Events::RECV | Events::PEER_FIN | Events::CLOSED) {
            // For an adopted connection, the engine reports nothing before everything was posted.
            self.rcv_done = self.rcv_done.max(view.rcv_done());
        }
        if events.intersects(Events::SEND | Events::CLOSED) {
            self.snd_done = view.snd_done();
            self.send.pass(self.snd_done, pool);
        }
        if events.contains(Events::ERROR) {
            self.flags &= !flags::SOFT_ERROR;
            self.flags |= if self.is_closed() { 0 } else { flags::SOFT_ERROR };
        }
        if events.contains(Events::WANT_BUFFER) {
            self.post_receive(region, qp, pool);
        }
        let end = Events::PEER_FIN | Events::CLOSED | Events::ERROR | Events::MOVED;
        events.intersects(Events::RECV | Events::SEND | Events::ESTABLISHED | end)
    }

    /// Number of bytes that can be read now.
    #[inline]
    pub fn readable(&self) -> usize {
        (self.rcv_done - self.rcv_read) as usize
    }

    /// Number of bytes received in order since the connection began, read or not.
    #[inline]
    pub fn received_total(&self) -> u64 {
        self.rcv_done
    }

    /// Number of bytes written since the connection began, sent or not.
    #[inline]
    pub fn written_total(&self) -> u64 {
        self.snd_tail
    }

    /// Number of bytes that can be written now.
    #[inline]
    pub fn writable(&self, pool: &BufferPool) -> usize {
        if self.is(flags::SHUT) || self.events.intersects(Events::CLOSED | Events::MOVED) {
            return 0;
        }
        let limit = self.send.room_end(self.snd_done, self.snd_share, pool);
        limit.saturating_sub(self.snd_tail) as usize
    }

    /// Number of written bytes that the peer has not acknowledged.
    #[inline]
    pub fn unacknowledged(&self) -> usize {
        (self.snd_tail - self.snd_done) as usize
    }

    /// True once the handshake is complete.
    #[inline]
    pub fn is_established(&self) -> bool {
        self.events.intersects(Events::ESTABLISHED | Events::ACCEPTED)
    }

    /// True once the connection has ended normally or by an error. Received bytes may still be
    /// readable.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.events.contains(Events::CLOSED)
    }

    /// True once the peer has finished sending.
    #[inline]
    pub fn peer_finished(&self) -> bool {
        self.events.intersects(Events::PEER_FIN | Events::CLOSED)
    }

    /// True once the program has closed the connection.
    pub(crate) fn is_released(&self) -> bool {
        self.released
    }

    pub(crate) fn note_accepted(&mut self) {
        self.events |= Events::ACCEPTED;
    }

    pub(crate) fn note_released(&mut self) {
        self.released = true;
    }

    /// Returns the error that ended the connection. While it lasts, returns its last soft error, if
    /// there was one (RFC 9293 MUST-47).
    pub fn error(&self, region: &ConsumerRegion, qp: u32) -> Option<io::Error> {
        let errno = region.qp(qp).error();
        (self.events.contains(Events::ERROR) && errno != 0).then(|| io::Error::from_raw_os_error(errno as i32))
    }

    /// Returns the soft error that occurred since the last call, if the connection still lasts.
    pub(crate) fn take_soft_error(&mut self, region: &ConsumerRegion, qp: u32) -> Option<io::Error> {
        let soft = self.is(flags::SOFT_ERROR);
        self.flags &= !flags::SOFT_ERROR;
        self.error(region, qp).filter(|_| soft)
    }

    /// Moves received bytes to `buf`. Returns 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes are available; otherwise the error that ended the connection.
    pub fn read(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        buf: &mut [u8],
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let count = self.peek(region, qp, buf, pool)?;
        if count > 0 {
            self.consume(region, qp, count, pool);
        }
        Ok(count)
    }

    /// Copies received bytes to `buf` without consuming them.
    ///
    /// # Errors
    /// Those of [`Stream::read`].
    pub fn peek(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        buf: &mut [u8],
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let count = self.readable().min(buf.len());
        if count == 0 {
            return self.nothing_to_read(region, qp, buf.is_empty(), pool);
        }
        let ring = self.receive;
        assert!(ring.has_buffer(), "received bytes are in the ring");
        let mut done = 0;
        while done < count {
            let extent = piece(region, ring, pool, self.rcv_read + done as u64, count - done);
            region.read(extent, &mut buf[done..done + extent.len() as usize]);
            done += extent.len() as usize;
        }
        Ok(count)
    }

    /// Discards up to `limit` received bytes without copying them, because they are in the
    /// program's memory already. Returns 0 once the peer has finished.
    ///
    /// # Errors
    /// Those of [`Stream::read`].
    pub fn skip(&mut self, region: &ConsumerRegion, qp: u32, limit: usize, pool: &mut BufferPool) -> io::Result<usize> {
        let count = self.readable().min(limit);
        if count == 0 {
            return self.nothing_to_read(region, qp, limit == 0, pool);
        }
        self.consume(region, qp, count, pool);
        Ok(count)
    }

    fn nothing_to_read(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        nothing_asked: bool,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        // After the peer's FIN a read returns 0, whatever happened later (Linux: `SOCK_DONE`).
        if nothing_asked || self.events.contains(Events::PEER_FIN) {
            return Ok(0);
        }
        if self.events.contains(Events::CLOSED)
            && let Some(error) = self.error(region, qp)
        {
            return Err(error);
        }
        if self.peer_finished() {
            return Ok(0);
        }
        if self.is_moved() {
            return Err(ErrorKind::NotConnected.into());
        }
        // A read is waiting, so data can be placed at its final position.
        if !self.receive.has_buffer() {
            self.post_receive(region, qp, pool);
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Stream position of the next byte to read, if none has arrived and more may, into buffers that are posted.
    pub(crate) fn awaited(&self) -> Option<u64> {
        let posted = self.is(flags::RECEIVES) && !self.is(flags::RETIRING);
        let awaits = posted && self.readable() == 0 && !self.is_released() && !self.is_elsewhere();
        (awaits && !self.peer_finished()).then_some(self.rcv_read)
    }

    /// The next `count` bytes were received into the program's memory.
    pub(crate) fn take_placed(&mut self, region: &ConsumerRegion, qp: u32, count: usize, pool: &mut BufferPool) {
        self.rcv_done = self.rcv_done.max(region.qp(qp).rcv_done());
        assert!(count <= self.readable(), "what was placed was received");
        self.consume(region, qp, count, pool);
    }

    fn consume(&mut self, region: &ConsumerRegion, qp: u32, count: usize, pool: &mut BufferPool) {
        self.rcv_read += count as u64;
        region.qp(qp).set_rcv_read(self.rcv_read);
        self.flags |= flags::ACTIVE;
        if !self.is(flags::RECEIVES) && self.rcv_read == self.rcv_done {
            self.receive.give_back(pool);
            return;
        }
        self.receive.pass(self.rcv_read, pool);
        // A doorbell costs the engine a look, which is worthwhile for an eighth of the ring.
        let room_end = self.receive.room_end(self.rcv_read, self.rcv_share, pool);
        if room_end.saturating_sub(self.rcv_limit) >= (room_end - self.rcv_read) / 8 {
            self.post_receive(region, qp, pool);
        }
    }

    /// Posts all free space of the receive ring, and takes a ring first if there is none.
    pub(crate) fn post_receive(&mut self, region: &ConsumerRegion, qp: u32, pool: &mut BufferPool) {
        if self.is_released() || self.is(flags::RETIRING) || self.is_closed() || self.is_elsewhere() {
            return;
        }
        if !self.receive.ensure(pool) {
            return;
        }
        let from = self.receive.posted_end(self.rcv_limit, self.is(flags::RECEIVES), pool);
        let grows = self.is(flags::GROWS) && self.receive.is_small(pool) && self.rcv_share == Share::default();
        if grows && !self.receive.grow(self.rcv_read, from, pool) {
            self.flags &= !flags::GROWS;
        }
        let limit = self.receive.room_end(self.rcv_read, self.rcv_share, pool);
        if limit <= self.rcv_limit {
            return;
        }
        post_laps(region, qp, Queue::Receive, &mut self.receive, pool, from, limit);
        self.flags |= flags::RECEIVES | flags::ACTIVE;
        self.events = self.events.without(Events::WANT_BUFFER);
        self.rcv_limit = limit;
        region.qp(qp).set_rcv_limit(limit);
        region.ring_doorbell(qp);
    }

    /// Queues bytes for sending and returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` if the ring is full; `BrokenPipe` after `shutdown`; otherwise the error that
    /// ended the connection.
    pub(crate) fn write(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        data: impl Source,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let count = self.queue(region, qp, data, pool)?;
        if count > 0 {
            self.post_send(region, qp, count, pool);
        }
        Ok(count)
    }

    /// Copies bytes into the ring until it is full or the source ends. The caller moves the cursor.
    fn queue(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        data: impl Source,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let room = self.room(region, qp, pool)?;
        let count = room.min(data.at_most());
        if count == 0 {
            return if data.at_most() == 0 { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        if !self.send.has_buffer() {
            return Err(ErrorKind::OutOfMemory.into());
        }
        let mut done = 0;
        while done < count {
            let extent = piece(region, self.send, pool, self.snd_tail + done as u64, count - done);
            let put = match data.put(done, region, extent) {
                Err(error) if done == 0 => return Err(error),
                put => put.unwrap_or(0),
            };
            done += put;
            if put < extent.len() as usize {
                break;
            }
        }
        Ok(done)
    }

    fn room(&mut self, region: &ConsumerRegion, qp: u32, pool: &mut BufferPool) -> io::Result<usize> {
        if self.events.contains(Events::CLOSED) {
            return Err(self.error(region, qp).unwrap_or(ErrorKind::BrokenPipe.into()));
        }
        if self.is(flags::SHUT) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.is_moved() {
            return Err(ErrorKind::NotConnected.into());
        }
        self.send.ensure(pool);
        let grows = self.is(flags::GROWS) && self.send.is_small(pool) && self.snd_share == Share::default();
        if grows && !self.is(flags::RETIRING) && !self.has_unpublished() {
            let posted_end = self.send.posted_end(self.snd_tail, self.is(flags::SENDS), pool);
            if !self.send.grow(self.snd_done, posted_end, pool) {
                self.flags &= !flags::GROWS;
            }
        }
        Ok(self.writable(pool))
    }

    fn post_send(&mut self, region: &ConsumerRegion, qp: u32, count: usize, pool: &BufferPool) {
        if !self.send.has_buffer() {
            return;
        }
        let posted = self.take_published(region, qp);
        self.snd_tail += count as u64;
        self.flags |= flags::ACTIVE;
        if !self.is(flags::RETIRING) {
            self.tell_tail(region, qp, posted, pool);
        }
    }

    /// Posts the bytes written after position `posted`.
    fn tell_tail(&mut self, region: &ConsumerRegion, qp: u32, posted: u64, pool: &BufferPool) {
        let from = self.send.posted_end(posted, self.is(flags::SENDS), pool);
        post_laps(region, qp, Queue::Send, &mut self.send, pool, from, self.snd_tail);
        self.flags |= flags::SENDS;
        region.qp(qp).set_snd_tail(self.snd_tail);
        region.ring_doorbell(qp);
    }

    /// Total number of laps posted by both rings so far.
    #[inline]
    pub(crate) fn laps(&self) -> u32 {
        self.send.laps().wrapping_add(self.receive.laps())
    }

    /// Makes each ring continue in a large one at the end of its lap, unless the program has chosen
    /// the size.
    pub(crate) fn grow(&mut self) {
        self.flags |= flags::GROWS;
    }

    /// Sets how much of the send ring and of the receive ring is used from now on. Bytes in them
    /// and extents posted to the engine stay.
    pub(crate) fn set_shares(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        send: Share,
        receive: Share,
        pool: &mut BufferPool,
    ) {
        (self.snd_share, self.rcv_share) = (send, receive);
        if self.is(flags::RECEIVES) {
            self.post_receive(region, qp, pool);
        }
    }

    /// Notes that nothing more is written.
    pub(crate) fn shut(&mut self) -> bool {
        let first = !self.is(flags::SHUT);
        self.flags |= flags::SHUT;
        first
    }

    /// The engine has stopped using the queue pair and the rings.
    pub(crate) fn end(&mut self, pool: &mut BufferPool) {
        self.send.give_back(pool);
        self.receive.give_back(pool);
        *self = Stream { released: true, ..self.next() };
    }

    /// Returns the stream for the queue pair's next connection, which is on the consumer's list if
    /// this one was.
    pub(crate) fn next(&self) -> Stream {
        Stream { flags: self.flags & flags::LISTED, ..Stream::default() }
    }
}
