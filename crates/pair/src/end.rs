//! One end of a connection: what its program writes and reads.

mod home;

use crate::peer::{Ending, Fault, Peer};
use crate::shared::{Bell, Shared};
use crate::words::{Block, Inward, NEVER, fence};
use core::num::NonZeroU64;
use core::ops::Range;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::fmt;
use std::sync::Arc;

/// A stream goes back to its area's first byte rather than touch another page, where it can.
const PAGE: u64 = if cfg!(loom) { 1 } else { 4096 };
/// An end that is taken over has come no further than this, so that its sums cannot overflow.
pub(crate) const FARTHEST: u64 = 1 << 62;

/// Why nothing can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// This end has been finished or reset.
    #[error("this end has been closed for writing")]
    Closed,
    /// The peer is gone.
    #[error("the peer has reset the connection")]
    Reset,
    /// The peer broke the rules.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// How far both directions have come, in bytes since the pair began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Positions {
    /// Bytes that this end has written.
    pub written: u64,
    /// Of those, bytes that the peer has read.
    pub read_by_peer: u64,
    /// Bytes that the peer has written.
    pub written_by_peer: u64,
    /// Of those, bytes that this end has read.
    pub read: u64,
}

/// One end of a connection. Its cursors are its own; the memory only tells the peer of them.
///
/// A [`Fault`] of the peer comes back from every later call, except [`End::finish`] and [`End::reset`].
/// Dropping an end frees the slot for this program and tells the peer nothing.
pub struct End {
    shared: Arc<Shared>,
    slot: u32,
    /// Bytes written, and the position that lies at the area's first byte.
    written: u64,
    origin: u64,
    /// Most bytes that may be unread, at most the area.
    limit: u64,
    /// Bytes of the area that may have been touched, from its first on.
    touched: u64,
    /// How far this end has ended.
    end: Ending,
    /// Bytes read.
    read: u64,
    /// Positions that this end asks the peer for, as they stand in its block.
    room_at: u64,
    data_at: u64,
    peer: Peer,
    fault: Option<Fault>,
}

impl End {
    pub(crate) fn begin(shared: Arc<Shared>, slot: u32, number: NonZeroU64) -> End {
        let block = shared.ours.block(slot);
        // A follower of the slot's last pair is not to take these words for that pair's.
        block.out.number.store(0, Relaxed);
        fence(Release);
        let Inward { tail, reach, prior, .. } = &block.inward;
        for word in [&block.out.head, &block.out.origin, tail, reach, prior] {
            word.store(0, Relaxed);
        }
        block.out.end.store(Ending::Open as u32, Relaxed);
        block.out.room_at.store(NEVER, Relaxed);
        block.inward.data_at.store(NEVER, Relaxed);
        block.out.number.store(number.get(), Release);
        End::at(shared, slot, Peer::new(number, 0))
    }

    /// An end that goes on from the words of its block; `None` if they are about another pair.
    pub(crate) fn resume(shared: Arc<Shared>, slot: u32, number: NonZeroU64) -> Result<Option<End>, Fault> {
        let block = shared.ours.block(slot);
        let is_this = block.out.number.load(Relaxed) == number.get();
        let (written, origin) = (block.out.head.load(Relaxed), block.out.origin.load(Relaxed));
        let (end, read) = (block.out.end.load(Relaxed), block.inward.tail.load(Relaxed));
        let mut resumed = End::at(shared, slot, Peer::new(number, read));
        if !is_this {
            return Ok(None);
        }
        if let Some(far) = [written, read].into_iter().find(|&position| position > FARTHEST) {
            return Err(Fault::TooFar(far));
        }
        (resumed.written, resumed.origin, resumed.read) = (written, origin, read);
        resumed.end = Ending::from_word(end)?;
        resumed.touched = resumed.area();
        resumed.block().out.left.store(0, Relaxed);
        resumed.stop_asking_for_data();
        resumed.stop_asking_for_room();
        resumed.look_in()?;
        resumed.look_out()?;
        Ok(Some(resumed))
    }

    fn at(shared: Arc<Shared>, slot: u32, peer: Peer) -> End {
        let limit = shared.ours.layout().area_bytes().into();
        End {
            shared,
            slot,
            written: 0,
            origin: 0,
            limit,
            touched: 0,
            end: Ending::Open,
            read: 0,
            room_at: NEVER,
            data_at: NEVER,
            peer,
            fault: None,
        }
    }

    /// The slot that the connection has in its link.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Writes bytes up to the free room, which may be 0. Returns their number, and whether the caller has to
    /// ring the peer's bell. Once the pair goes home, it writes nothing.
    ///
    /// # Errors
    /// [`WriteError`]; then nothing was written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(usize, Bell), WriteError> {
        self.check()?;
        if self.end != Ending::Open {
            return Err(WriteError::Closed);
        }
        self.look_in()?;
        if self.peer.end >= Ending::Closed {
            return Err(WriteError::Reset);
        }
        if self.is_stopped() {
            return Ok((0, Bell::NONE));
        }
        // The tail's line is the reader's: it is fetched only where the last look does not suffice.
        if self.known_room() < bytes.len() {
            self.look_out()?;
        }
        let count = bytes.len().min(self.known_room());
        if count == 0 {
            return Ok((0, Bell::NONE));
        }
        let (first, second) = self.place(count as u64)?;
        let (ours, slot) = (&self.shared.ours, self.slot);
        // A follower that reads one of the bytes below finds these words, too (`follower`).
        ours.block(slot).inward.reach.store(self.written + count as u64, Relaxed);
        fence(Release);
        ours.copy_in(slot, first.0, &bytes[..first.1]);
        ours.copy_in(slot, 0, &bytes[first.1..first.1 + second]);
        self.written += count as u64;
        ours.block(slot).out.head.store(self.written, Release);
        fence(SeqCst);
        let wanted = self.peer.wants_data(self.shared.theirs.block(slot), self.written);
        Ok((count, if wanted { self.shared.tell(slot) } else { Bell::NONE }))
    }

    /// Where the next `count` bytes go: offset and length of the first piece, length of the second, which
    /// begins at 0.
    fn place(&mut self, count: u64) -> Result<((u32, usize), usize), Fault> {
        let area = self.area();
        let mut offset = self.written.wrapping_sub(self.origin) & (area - 1);
        // Where all is read and another page would be touched, begin again at the first: so a connection
        // whose messages are answered keeps to one page, and to memory that is in the cache.
        if offset != 0 && (offset - 1) / PAGE != (offset + count - 1) / PAGE {
            self.look_out()?;
            if self.peer.tail == self.written {
                self.begin_again(self.origin);
                offset = 0;
            }
        }
        self.touched = self.touched.max(offset + count).min(area);
        let first = count.min(area - offset);
        Ok(((offset as u32, first as usize), (count - first) as usize))
    }

    /// The next byte lies at the area's first one. Bytes from position `prior` on lie where they were.
    fn begin_again(&mut self, prior: u64) {
        self.block().inward.prior.store(prior, Relaxed);
        self.origin = self.written;
        self.block().out.origin.store(self.origin, Release);
    }

    /// True once a broker has stopped the pair ([`Course::stop`](crate::Course::stop)): it goes home.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.block().out.stopped.load(Relaxed) == self.peer.number()
    }

    /// Bytes that this end has written since the pair began.
    pub fn written_total(&self) -> u64 {
        self.written
    }

    /// Bytes that this end has read since the pair began.
    pub fn read_total(&self) -> u64 {
        self.read
    }

    /// Bytes that can be written now.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn room(&mut self) -> Result<usize, Fault> {
        self.check()?;
        self.look_out()?;
        Ok(self.known_room())
    }

    /// True if neither end can write, since the bytes that each has written fill their area.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn is_full(&mut self) -> Result<bool, Fault> {
        let theirs = self.shared.theirs.layout().area_bytes() as usize;
        Ok(self.room()? == 0 && self.readable()? == theirs)
    }

    /// Bytes that this end wrote and the peer has not read.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn unread_by_peer(&mut self) -> Result<usize, Fault> {
        self.check()?;
        self.look_out()?;
        Ok((self.written - self.peer.tail) as usize)
    }

    /// Lets at most `bytes` be unread by the peer: at least 1, at most the area. Bytes that are written
    /// already stay. Call [`End::ask_for_room`] again if there is something to wait for.
    pub fn limit_outgoing(&mut self, bytes: usize) {
        self.limit = (bytes as u64).clamp(1, self.area());
    }

    /// Reads the bytes that are there, up to the length of `into`. Returns their number, which may be 0, and
    /// whether the caller has to ring the peer's bell. After the last byte, [`End::peer_end`] says whether more can come.
    ///
    /// # Errors
    /// [`Fault`] of the peer; then nothing was read.
    pub fn read(&mut self, into: &mut [u8]) -> Result<(usize, Bell), Fault> {
        let count = self.peek(into)?;
        if count == 0 {
            return Ok((0, Bell::NONE));
        }
        self.read += count as u64;
        self.block().inward.tail.store(self.read, Release);
        fence(SeqCst);
        let wanted = self.peer.wants_room(self.shared.theirs.block(self.slot), self.read);
        Ok((count, if wanted { self.shared.tell(self.slot) } else { Bell::NONE }))
    }

    /// As [`End::read`], but the bytes stay.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn peek(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        self.check()?;
        if self.known_readable() < into.len() {
            self.look_in()?;
        }
        let count = into.len().min(self.known_readable());
        if count == 0 {
            return Ok(0);
        }
        let (theirs, slot) = (&self.shared.theirs, self.slot);
        let area = theirs.layout().area_bytes();
        // Read after the head that it belongs to; it stays until all up to that head is read.
        let origin = theirs.block(slot).out.origin.load(Relaxed);
        let offset = (self.read.wrapping_sub(origin) & u64::from(area - 1)) as u32;
        let first = count.min((area - offset) as usize);
        theirs.copy_out(slot, offset, &mut into[..first]);
        theirs.copy_out(slot, 0, &mut into[first..count]);
        Ok(count)
    }

    /// Bytes that can be read now.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn readable(&mut self) -> Result<usize, Fault> {
        self.check()?;
        self.look_in()?;
        Ok(self.known_readable())
    }

    /// Whether the peer has ended, as of the last call that looked ([`End::readable`] always does). If it
    /// has, the bytes that this call found are its last.
    pub fn peer_end(&self) -> Ending {
        self.peer.end
    }

    /// How far this end has ended.
    pub fn own_end(&self) -> Ending {
        self.end
    }

    /// Says that this end writes nothing more (FIN).
    pub fn finish(&mut self) -> Bell {
        self.end_as(Ending::Finished)
    }

    /// Says that this end writes nothing more, and reads nothing more (FIN, and an RST for an answer).
    pub fn close(&mut self) -> Bell {
        self.end_as(Ending::Closed)
    }

    /// Says that this end is gone (RST).
    pub fn reset(&mut self) -> Bell {
        self.end_as(Ending::Reset)
    }

    fn end_as(&mut self, end: Ending) -> Bell {
        self.end = self.end.max(end);
        self.block().out.end.store(self.end as u32, Release);
        fence(SeqCst);
        self.shared.tell_end(self.slot)
    }

    /// Asks to be told once at least `least` bytes can be read (SO_RCVLOWAT; at least 1, at most an area),
    /// or the peer has ended. True if that is so now. Whatever the answer, the peer tells of every write
    /// from then on, until [`End::stop_asking_for_data`].
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn ask_for_data(&mut self, least: usize) -> Result<bool, Fault> {
        self.check()?;
        let least = (least as u64).clamp(1, self.shared.theirs.layout().area_bytes().into());
        let data_at = self.read + least;
        if self.data_at != data_at {
            self.data_at = data_at;
            self.block().inward.data_at.store(data_at, Relaxed);
            fence(SeqCst);
        }
        self.look_in()?;
        Ok(self.peer.head >= data_at || self.peer.end != Ending::Open)
    }

    /// Asks to be told of no more data. An end is told of all the same.
    pub fn stop_asking_for_data(&mut self) {
        self.data_at = NEVER;
        self.block().inward.data_at.store(NEVER, Relaxed);
    }

    /// Asks to be told once at least `least` bytes can be written (at least 1, at most the limit), or the
    /// peer is gone. True if that is so now. Whatever the answer, the peer tells of every read from then on,
    /// until [`End::stop_asking_for_room`]. Ask again after a write.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn ask_for_room(&mut self, least: usize) -> Result<bool, Fault> {
        self.check()?;
        let least = (least as u64).clamp(1, self.limit);
        let room_at = (self.written + least).saturating_sub(self.limit);
        if self.room_at != room_at {
            self.room_at = room_at;
            self.block().out.room_at.store(room_at, Relaxed);
            fence(SeqCst);
        }
        self.look_in()?;
        self.look_out()?;
        Ok(self.peer.tail >= room_at || self.peer.end >= Ending::Closed)
    }

    /// Asks to be told of no more room.
    pub fn stop_asking_for_room(&mut self) {
        self.room_at = NEVER;
        self.block().out.room_at.store(NEVER, Relaxed);
    }

    /// How far both directions have come: what the way home starts from.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn positions(&mut self) -> Result<Positions, Fault> {
        self.check()?;
        self.look_in()?;
        self.look_out()?;
        let Peer { head, tail, .. } = self.peer;
        Ok(Positions { written: self.written, read_by_peer: tail, written_by_peer: head, read: self.read })
    }

    /// Bytes of our side's memory that hold nothing, for the caller to give back to the system: those of
    /// the area beyond its first `keep`, if they were touched and the peer has read all. They end at pages.
    /// The next write begins at the area's first byte again. Give them back before it.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn unused_memory(&mut self, keep: usize) -> Result<Option<Range<usize>>, Fault> {
        self.check()?;
        self.look_out()?;
        let keep = (keep as u64).min(self.area()).next_multiple_of(PAGE);
        if self.peer.tail != self.written || self.touched <= keep {
            return Ok(None);
        }
        self.begin_again(self.written);
        let start = self.shared.ours.area_of(self.slot).start;
        let touched = self.touched.next_multiple_of(PAGE);
        self.touched = keep;
        Ok(Some(start + keep as usize..start + touched as usize))
    }

    fn area(&self) -> u64 {
        self.shared.ours.layout().area_bytes().into()
    }

    #[inline]
    fn block(&self) -> &Block {
        self.shared.ours.block(self.slot)
    }

    #[inline]
    fn known_room(&self) -> usize {
        self.limit.saturating_sub(self.written - self.peer.tail) as usize
    }

    #[inline]
    fn known_readable(&self) -> usize {
        (self.peer.head - self.read) as usize
    }

    /// Learns what the peer wrote, and its end.
    #[inline]
    fn look_in(&mut self) -> Result<(), Fault> {
        let theirs = &self.shared.theirs;
        let seen = self.peer.learn_written(theirs.block(self.slot), self.read, theirs.layout().area_bytes());
        seen.inspect_err(|fault| self.fault = Some(*fault))
    }

    /// Learns what the peer read.
    #[inline]
    fn look_out(&mut self) -> Result<(), Fault> {
        let area = self.shared.ours.layout().area_bytes();
        let seen = self.peer.learn_read(self.shared.theirs.block(self.slot), self.written, area);
        seen.inspect_err(|fault| self.fault = Some(*fault))
    }

    #[inline]
    fn check(&self) -> Result<(), Fault> {
        self.fault.map_or(Ok(()), Err)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let out = &self.block().out;
        if out.number.load(Relaxed) == self.peer.number() {
            // After the last reading of the other side.
            out.left.store(self.peer.number(), Release);
        }
        self.shared.used[self.slot as usize].store(false, Release);
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let End { slot, written, read, end, peer, fault, .. } = self;
        f.debug_struct("End")
            .field("slot", slot)
            .field("written", written)
            .field("read", read)
            .field("end", end)
            .field("peer", peer)
            .field("fault", fault)
            .finish_non_exhaustive()
    }
}
