//! The other program's control block as far as this side believes it: each word read once and checked.

use crate::words::Block;
use core::num::NonZeroU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Whether more bytes can come from an end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Ending {
    /// They can.
    Open = 0,
    /// It has written its last byte (as a FIN says).
    Finished = 1,
    /// It has, and is gone: it reads nothing more. An answer would meet an RST.
    Closed = 2,
    /// It is gone, and left bytes unread (as an RST says). Bytes that it wrote before can be read.
    Reset = 3,
}

/// A peer's word that cannot be: the peer does not keep to the rules, and the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer's count of written bytes went back.
    #[error("the peer's count of written bytes went from {0} back to {1}")]
    HeadBack(u64, u64),
    /// The peer says that it wrote more than its area can hold.
    #[error("the peer says that {0} bytes are unread, more than its area holds")]
    HeadAhead(u64),
    /// The peer wrote after its end.
    #[error("the peer wrote {0} bytes after its end")]
    AfterEnd(u64),
    /// The peer's count of read bytes went back.
    #[error("the peer's count of read bytes went from {0} back to {1}")]
    TailBack(u64, u64),
    /// The peer says that it read more than was written.
    #[error("the peer says that it read {0} of {1} written bytes")]
    TailAhead(u64, u64),
    /// More is unread than the area holds. Only an end that was taken over can see this, from what the
    /// program before it left.
    #[error("{0} bytes are unread, more than the area holds")]
    Unread(u64),
    /// A position that no stream reaches. Only an end that was taken over can see this.
    #[error("a position of {0} bytes, which no stream reaches")]
    TooFar(u64),
    /// The peer's end is none that exists.
    #[error("the peer's end is {0}, which means nothing")]
    NoSuchEnd(u32),
    /// The peer's end went back.
    #[error("the peer's end went from {0:?} back to {1:?}")]
    EndBack(Ending, Ending),
    /// A program wrote more than it had announced. Only a follower can see this, from programs whose library
    /// does not announce what it writes.
    #[error("{1} bytes were written, of which {0} were announced")]
    Unannounced(u64, u64),
}

impl Ending {
    pub(crate) fn from_word(word: u32) -> Result<Ending, Fault> {
        match word {
            0 => Ok(Ending::Open),
            1 => Ok(Ending::Finished),
            2 => Ok(Ending::Closed),
            3 => Ok(Ending::Reset),
            other => Err(Fault::NoSuchEnd(other)),
        }
    }
}

/// The peer's words so far.
#[derive(Debug)]
pub(crate) struct Peer {
    number: NonZeroU64,
    /// The peer has begun this pair, so its block is about it.
    begun: bool,
    pub(crate) head: u64,
    pub(crate) tail: u64,
    pub(crate) end: Ending,
}

impl Peer {
    /// A peer that may have yet to begin; this side has read `read` bytes of it.
    pub(crate) fn new(number: NonZeroU64, read: u64) -> Peer {
        Peer { number, begun: false, head: read, tail: 0, end: Ending::Open }
    }

    /// The pair's number.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// Whether the peer's block is about this pair.
    #[inline]
    pub(crate) fn has_begun(&mut self, block: &Block) -> bool {
        if !self.begun {
            self.begun = block.out.number.load(Acquire) == self.number.get();
        }
        self.begun
    }

    /// Learns how much the peer wrote, and its end. The end is read first: the peer writes it last, so
    /// with it the number of bytes is final.
    #[inline]
    pub(crate) fn learn_written(&mut self, block: &Block, read: u64, area: u32) -> Result<(), Fault> {
        if !self.has_begun(block) {
            return Ok(());
        }
        let end = block.out.end.load(Acquire);
        let head = block.out.head.load(Acquire);
        self.believe_written(end, head, read, area)
    }

    #[inline]
    fn believe_written(&mut self, end: u32, head: u64, read: u64, area: u32) -> Result<(), Fault> {
        let end = Ending::from_word(end)?;
        if end < self.end {
            return Err(Fault::EndBack(self.end, end));
        }
        if head < self.head {
            return Err(Fault::HeadBack(self.head, head));
        }
        if self.end != Ending::Open && head != self.head {
            return Err(Fault::AfterEnd(head - self.head));
        }
        // This side has read no more than a head that it believed.
        if head - read > u64::from(area) {
            return Err(Fault::HeadAhead(head - read));
        }
        (self.end, self.head) = (end, head);
        Ok(())
    }

    /// Learns how much of what this side wrote the peer has read.
    #[inline]
    pub(crate) fn learn_read(&mut self, block: &Block, written: u64, area: u32) -> Result<(), Fault> {
        let tail = if self.has_begun(block) { block.inward.tail.load(Acquire) } else { self.tail };
        self.believe_read(tail, written, area)
    }

    #[inline]
    fn believe_read(&mut self, tail: u64, written: u64, area: u32) -> Result<(), Fault> {
        if tail < self.tail {
            return Err(Fault::TailBack(self.tail, tail));
        }
        if tail > written {
            return Err(Fault::TailAhead(tail, written));
        }
        if written - tail > u64::from(area) {
            return Err(Fault::Unread(written - tail));
        }
        self.tail = tail;
        Ok(())
    }

    /// The peer wants to be told that `written` bytes have been written.
    #[inline]
    pub(crate) fn wants_data(&mut self, block: &Block, written: u64) -> bool {
        self.has_begun(block) && written >= block.inward.data_at.load(Relaxed)
    }

    /// The peer wants to be told that `read` bytes have been read.
    #[inline]
    pub(crate) fn wants_room(&mut self, block: &Block, read: u64) -> bool {
        self.has_begun(block) && read >= block.out.room_at.load(Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const AREA: u32 = 4096;

    fn peer() -> Peer {
        let mut peer = Peer::new(NonZeroU64::MIN, 0);
        peer.believe_written(0, 100, 0, AREA).unwrap();
        peer.believe_read(50, 200, AREA).unwrap();
        peer
    }

    #[test]
    fn what_can_be_is_believed() {
        let mut peer = peer();
        peer.believe_written(0, 100, 100, AREA).unwrap();
        peer.believe_written(0, 4196, 100, AREA).unwrap();
        peer.believe_written(1, 4296, 200, AREA).unwrap();
        peer.believe_written(2, 4296, 200, AREA).unwrap();
        assert_eq!((peer.head, peer.end), (4296, Ending::Closed));
        peer.believe_written(3, 4296, 200, AREA).unwrap();
        assert_eq!((peer.head, peer.end), (4296, Ending::Reset));
        peer.believe_read(50, 200, AREA).unwrap();
        peer.believe_read(200, 200, AREA).unwrap();
        peer.believe_read(200, 4296, AREA).unwrap();
        assert_eq!(peer.tail, 200);
    }

    #[test]
    fn what_cannot_be_is_a_fault_and_changes_nothing() {
        for (end, head, fault) in [
            (0, 99, Fault::HeadBack(100, 99)),
            (0, 4097, Fault::HeadAhead(4097)),
            (0, u64::MAX, Fault::HeadAhead(u64::MAX)),
            (4, 100, Fault::NoSuchEnd(4)),
            (u32::MAX, 100, Fault::NoSuchEnd(u32::MAX)),
        ] {
            let mut peer = peer();
            assert_eq!(peer.believe_written(end, head, 0, AREA), Err(fault));
            assert_eq!((peer.head, peer.end), (100, Ending::Open));
        }
        let mut finished = peer();
        finished.believe_written(1, 120, 0, AREA).unwrap();
        assert_eq!(finished.believe_written(1, 121, 0, AREA), Err(Fault::AfterEnd(1)));
        assert_eq!(finished.believe_written(2, 121, 0, AREA), Err(Fault::AfterEnd(1)));
        assert_eq!(finished.believe_written(0, 120, 0, AREA), Err(Fault::EndBack(Ending::Finished, Ending::Open)));
        for (tail, fault) in [(49, Fault::TailBack(50, 49)), (201, Fault::TailAhead(201, 200))] {
            let mut peer = peer();
            assert_eq!(peer.believe_read(tail, 200, AREA), Err(fault));
            assert_eq!(peer.tail, 50);
        }
        assert_eq!(peer().believe_read(50, 4147, AREA), Err(Fault::Unread(4097)));
    }
}
