//! A pair as its broker sees it: how far it has come, and that it goes no further.

use crate::link::SlotError;
use crate::memory::Side;
use crate::peer::{Ending, Fault};
use crate::words::fence;
use core::num::NonZeroU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// How far both ends of a pair have come, each at the index of its side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Course {
    /// Bytes that each end wrote.
    pub written: [u64; 2],
    /// Bytes that each end read of the other's.
    pub read: [u64; 2],
    /// How far each has ended.
    pub ends: [Ending; 2],
}

impl Course {
    /// Reads how far a pair has come. A side that has yet to begin it has written and read nothing.
    ///
    /// # Errors
    /// [`SlotError`] if there is no such slot, or the two sides contradict each other.
    pub fn read(sides: [&Side; 2], slot: u32, number: NonZeroU64) -> Result<Course, SlotError> {
        let mut course = Course { written: [0; 2], read: [0; 2], ends: [Ending::Open; 2] };
        if sides.iter().any(|side| slot >= side.layout().slots()) {
            return Err(SlotError::Range(slot));
        }
        let begun = sides.map(|side| side.block(slot).out.number.load(Acquire) == number.get());
        // Tails first: the heads that were read belong to them, and only grow.
        for at in [0, 1] {
            if begun[at] {
                course.read[at] = sides[at].block(slot).inward.tail.load(Acquire);
            }
        }
        for at in [0, 1] {
            if begun[at] {
                let out = &sides[at].block(slot).out;
                course.ends[at] = Ending::from_word(out.end.load(Acquire))?;
                course.written[at] = out.head.load(Acquire);
            }
        }
        for at in [0, 1] {
            let (written, read) = (course.written[at], course.read[1 - at]);
            let area = u64::from(sides[at].layout().area_bytes());
            if read > written {
                return Err(Fault::TailAhead(read, written).into());
            }
            // The reader may have gone on since its tail was read, and the writer with it, but not by more
            // than another area where it writes at most once more.
            if written - read > 2 * area {
                return Err(Fault::Unread(written - read).into());
            }
        }
        Ok(course)
    }

    /// Stops a pair and reads how far it has come. Each end may finish the write that is under way, which
    /// fits into its area beside what counts here; a later one writes nothing. Ends may go on reading.
    ///
    /// # Errors
    /// Those of [`Course::read`]; the pair is stopped then, too, if there is such a slot.
    pub fn stop(sides: [&Side; 2], slot: u32, number: NonZeroU64) -> Result<Course, SlotError> {
        for side in sides.iter().filter(|side| slot < side.layout().slots()) {
            side.block(slot).out.stopped.store(number.get(), Relaxed);
        }
        fence(SeqCst);
        Course::read(sides, slot, number)
    }
}
