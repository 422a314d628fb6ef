//! A byte stream over one queue pair.
//!
//! Each direction has a ring buffer that is posted again for each lap; what
//! moves is a cursor. So two extents are enough for any traffic, and nothing is
//! told to the engine but positions:
//!
//! ```text
//!   send     snd_done ........ snd_tail ........ snd_done + size
//!              | not acked yet    |  room to write   |
//!   receive  rcv_read ........ rcv_done ........ rcv_read + size = rcv_limit
//!              | to be read       |  posted          |
//! ```
//!
//! A direction has no buffer until it needs one: the first write takes the send
//! ring, the first data that arrives (`WANT_BUFFER`) or the first read takes the
//! receive ring.

use crate::buffers::BufferPool;
use baton_engine::region::{ConsumerRegion, Events, Extent, Queue};
use std::io::{self, ErrorKind};
use std::num::NonZeroU32;

/// One direction's ring: stream position `p` lies `p % size` into it. Small, for
/// idle connections have it too.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// Number of its buffer, plus 1.
    buffer: NonZeroU32,
    /// Laps posted.
    laps: u32,
}

impl Ring {
    fn take(pool: &mut BufferPool) -> Option<Ring> {
        let buffer = NonZeroU32::MIN.checked_add(pool.take()?)?;
        Some(Ring { buffer, laps: 0 })
    }

    fn number(self) -> u32 {
        self.buffer.get() - 1
    }

    /// Where in the data area it begins, if each buffer has `size` bytes.
    #[inline]
    fn offset(self, size: u32) -> u64 {
        u64::from(self.number()) * u64::from(size)
    }
}

const _: () = assert!(size_of::<Option<Stream>>() == 64, "a stream is one cache line");

/// One connection as its consumer sees it.
#[derive(Debug, Default)]
pub struct Stream {
    send: Option<Ring>,
    receive: Option<Ring>,
    snd_tail: u64,
    snd_done: u64,
    rcv_read: u64,
    rcv_done: u64,
    rcv_limit: u64,
    /// Everything that happened so far.
    events: Events,
    shut: bool,
    closed: bool,
    /// A soft error waits to be taken.
    soft_error: bool,
}

impl Stream {
    /// Takes in what the engine says; `true` if a reader or writer should look.
    pub(crate) fn on_events(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        events: Events,
        pool: &mut BufferPool,
    ) -> bool {
        self.events |= events;
        let view = region.qp(qp);
        if events.intersects(Events::RECV | Events::PEER_FIN | Events::CLOSED) {
            self.rcv_done = view.rcv_done();
        }
        if events.intersects(Events::SEND | Events::CLOSED) {
            self.snd_done = view.snd_done();
        }
        if events.contains(Events::ERROR) {
            self.soft_error = !self.events.contains(Events::CLOSED);
        }
        if events.contains(Events::WANT_BUFFER) {
            self.post_receive(region, qp, pool);
        }
        events.intersects(
            Events::RECV | Events::SEND | Events::PEER_FIN | Events::CLOSED | Events::ERROR | Events::ESTABLISHED,
        )
    }

    /// Bytes that can be read now.
    #[inline]
    pub fn readable(&self) -> usize {
        (self.rcv_done - self.rcv_read) as usize
    }

    /// Bytes received in order since the connection began, read or not.
    #[inline]
    pub fn received_total(&self) -> u64 {
        self.rcv_done
    }

    /// Bytes that can be written now.
    #[inline]
    pub fn writable(&self, pool: &BufferPool) -> usize {
        if self.shut || self.events.contains(Events::CLOSED) {
            return 0;
        }
        (self.snd_done + u64::from(pool.size()) - self.snd_tail) as usize
    }

    /// Bytes written that the peer has not acknowledged.
    #[inline]
    pub fn unacknowledged(&self) -> usize {
        (self.snd_tail - self.snd_done) as usize
    }

    /// True once the handshake is complete.
    #[inline]
    pub fn is_established(&self) -> bool {
        self.events.intersects(Events::ESTABLISHED | Events::ACCEPTED)
    }

    /// True once the connection is gone; `Ok` bytes may still be readable.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.events.contains(Events::CLOSED)
    }

    /// True once the peer has sent all it will.
    #[inline]
    pub fn peer_finished(&self) -> bool {
        self.events.intersects(Events::PEER_FIN | Events::CLOSED)
    }

    /// True once the consumer let go of it.
    pub(crate) fn is_released(&self) -> bool {
        self.closed
    }

    pub(crate) fn note_accepted(&mut self) {
        self.events |= Events::ACCEPTED;
    }

    pub(crate) fn note_released(&mut self) {
        self.closed = true;
    }

    /// What ended the connection; while it lasts, the last soft error that it met
    /// (RFC 9293 MUST-47), if any.
    pub fn error(&self, region: &ConsumerRegion, qp: u32) -> Option<io::Error> {
        let errno = region.qp(qp).error();
        (self.events.contains(Events::ERROR) && errno != 0).then(|| io::Error::from_raw_os_error(errno as i32))
    }

    /// The soft error that came since the last call, if one did and the connection
    /// still lasts.
    pub(crate) fn take_soft_error(&mut self, region: &ConsumerRegion, qp: u32) -> Option<io::Error> {
        let soft = std::mem::take(&mut self.soft_error);
        self.error(region, qp).filter(|_| soft)
    }

    /// Moves received bytes to `buf`. 0 once the peer has finished.
    ///
    /// # Errors
    /// `WouldBlock` if nothing waits; else what ended the connection.
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

    /// Copies received bytes to `buf` and leaves them to be read again.
    ///
    /// # Errors
    /// As for [`Stream::read`].
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
        let ring = self.receive.expect("received bytes lie in the ring");
        let mut done = 0;
        while done < count {
            let extent = piece(region, ring, pool.size(), self.rcv_read + done as u64, count - done);
            region.read(extent, &mut buf[done..done + extent.len() as usize]);
            done += extent.len() as usize;
        }
        Ok(count)
    }

    /// Forgets up to `limit` received bytes where they lie: they were delivered
    /// into the program's memory already. 0 once the peer has finished.
    ///
    /// # Errors
    /// As for [`Stream::read`].
    pub fn skip(&mut self, region: &ConsumerRegion, qp: u32, limit: usize, pool: &mut BufferPool) -> io::Result<usize> {
        let count = self.readable().min(limit);
        if count == 0 {
            return self.nothing_to_read(region, qp, limit == 0, pool);
        }
        self.consume(region, qp, count, pool);
        Ok(count)
    }

    /// Where up to `limit` readable bytes lie, as far as they lie together.
    pub fn received(&self, region: &ConsumerRegion, limit: usize, pool: &BufferPool) -> Option<Extent> {
        let count = self.readable().min(limit);
        let ring = self.receive.filter(|_| count > 0)?;
        Some(piece(region, ring, pool.size(), self.rcv_read, count))
    }

    fn nothing_to_read(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        nothing_asked: bool,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        if nothing_asked {
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
        // Somebody reads: data is welcome at its final position.
        if self.receive.is_none() {
            self.post_receive(region, qp, pool);
        }
        Err(ErrorKind::WouldBlock.into())
    }

    fn consume(&mut self, region: &ConsumerRegion, qp: u32, count: usize, pool: &mut BufferPool) {
        self.rcv_read += count as u64;
        // A doorbell costs the engine a look; an eighth of the ring is worth one.
        let room = self.rcv_read + u64::from(pool.size()) - self.rcv_limit;
        if room >= u64::from(pool.size() / 8) {
            self.post_receive(region, qp, pool);
        }
    }

    /// Posts all that is free of the receive ring, taking one if there is none.
    pub(crate) fn post_receive(&mut self, region: &ConsumerRegion, qp: u32, pool: &mut BufferPool) {
        if self.closed || self.events.contains(Events::CLOSED) {
            return;
        }
        if self.receive.is_none() {
            self.receive = Ring::take(pool);
        }
        let Some(ring) = &mut self.receive else { return };
        let limit = self.rcv_read + u64::from(pool.size());
        if limit == self.rcv_limit {
            return;
        }
        post_laps(region, qp, Queue::Receive, ring, pool.size(), limit);
        self.rcv_limit = limit;
        region.qp(qp).set_rcv_limit(limit);
        region.ring_doorbell(qp);
    }

    /// Queues bytes for sending and returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` if the ring is full; `BrokenPipe` after `shutdown`; else what
    /// ended the connection.
    pub fn write(&mut self, region: &ConsumerRegion, qp: u32, data: &[u8], pool: &mut BufferPool) -> io::Result<usize> {
        let room = self.room(region, qp, pool)?;
        let count = room.min(data.len());
        if count == 0 {
            return if data.is_empty() { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let Some(ring) = self.send else { return Err(ErrorKind::OutOfMemory.into()) };
        let mut done = 0;
        while done < count {
            let extent = piece(region, ring, pool.size(), self.snd_tail + done as u64, count - done);
            region.write(extent, &data[done..done + extent.len() as usize]);
            done += extent.len() as usize;
        }
        self.post_send(region, qp, count, pool);
        Ok(count)
    }

    /// Where the next bytes to be sent are to be written, as far as the room lies
    /// together; [`Stream::commit`] then sends them. Saves the copy of `write`.
    ///
    /// # Errors
    /// As for [`Stream::write`].
    pub fn reserve(&mut self, region: &ConsumerRegion, qp: u32, pool: &mut BufferPool) -> io::Result<Extent> {
        let room = self.room(region, qp, pool)?;
        let Some(ring) = self.send.filter(|_| room > 0) else { return Err(ErrorKind::WouldBlock.into()) };
        Ok(piece(region, ring, pool.size(), self.snd_tail, room))
    }

    /// Sends `count` bytes of what [`Stream::reserve`] gave.
    pub fn commit(&mut self, region: &ConsumerRegion, qp: u32, count: usize, pool: &mut BufferPool) {
        let count = count.min(self.writable(pool));
        self.post_send(region, qp, count, pool);
    }

    fn room(&mut self, region: &ConsumerRegion, qp: u32, pool: &mut BufferPool) -> io::Result<usize> {
        if self.events.contains(Events::CLOSED) {
            return Err(self.error(region, qp).unwrap_or(ErrorKind::BrokenPipe.into()));
        }
        if self.shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.send.is_none() {
            self.send = Ring::take(pool);
        }
        Ok(self.writable(pool))
    }

    fn post_send(&mut self, region: &ConsumerRegion, qp: u32, count: usize, pool: &BufferPool) {
        let Some(ring) = &mut self.send else { return };
        self.snd_tail += count as u64;
        post_laps(region, qp, Queue::Send, ring, pool.size(), self.snd_tail);
        region.qp(qp).set_snd_tail(self.snd_tail);
        region.ring_doorbell(qp);
    }

    /// Notes that no more is written.
    pub(crate) fn shut(&mut self) -> bool {
        !std::mem::replace(&mut self.shut, true)
    }

    /// Gives both rings back: the engine uses them no longer.
    pub(crate) fn drop_buffers(&mut self, pool: &mut BufferPool) {
        for ring in [self.send.take(), self.receive.take()].into_iter().flatten() {
            pool.give_back(ring.number());
        }
    }
}

/// `count` bytes at most of a ring from stream position `pos` on, up to its end.
fn piece(region: &ConsumerRegion, ring: Ring, size: u32, pos: u64, count: usize) -> Extent {
    let at = (pos % u64::from(size)) as u32;
    let len = count.min((size - at) as usize) as u32;
    region.extent(ring.offset(size) + u64::from(at), len).expect("the pool lies within the data area")
}

/// Posts the ring again for each lap that reaches into `limit`.
fn post_laps(region: &ConsumerRegion, qp: u32, queue: Queue, ring: &mut Ring, size: u32, limit: u64) {
    while u64::from(ring.laps) * u64::from(size) < limit {
        let extent = region.extent(ring.offset(size), size).expect("the pool lies within the data area");
        let in_use = ring.laps.min(1);
        region.qp(qp).post(queue, ring.laps, in_use, extent).expect("two laps are in use at most");
        ring.laps = ring.laps.wrapping_add(1);
    }
}
