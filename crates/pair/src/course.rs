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

/// True if both programs have let go of the slot's last pair, or have begun none: the next may begin. Until then an
/// end may have yet to read the bytes that it takes home.
pub fn is_let_go(sides: [&Side; 2], slot: u32) -> bool {
    sides.into_iter().all(|side| {
        let out = &side.block(slot).out;
        out.left.load(Acquire) == out.number.load(Acquire)
    })
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

    /// Bytes that one end has not read of the `written` ones, once the pair is stopped. If its program reads on
    /// meanwhile, the first of them may be anything.
    pub fn unread(&self, sides: [&Side; 2], slot: u32, end: usize) -> Vec<u8> {
        let from = sides[1 - end];
        let (written, area) = (self.written[1 - end], u64::from(from.layout().area_bytes()));
        // An end that has closed has read all before. So this is where it stopped.
        let tail = sides[end].block(slot).inward.tail.load(Acquire).clamp(self.read[end], written);
        // Bytes further back have been read, or their place would not have been written again.
        let count = (written - tail).min(area);
        let mut bytes = vec![0; count as usize];
        let origin = from.block(slot).out.origin.load(Relaxed);
        let offset = ((written - count).wrapping_sub(origin) & (area - 1)) as u32;
        let first = bytes.len().min((area - u64::from(offset)) as usize);
        from.copy_out(slot, offset, &mut bytes[..first]);
        from.copy_out(slot, 0, &mut bytes[first..]);
        bytes
    }

    /// Bytes that the program of a side has read, if it has not let go of this pair.
    pub fn still_read(side: &Side, slot: u32, number: NonZeroU64) -> Option<u64> {
        let block = (slot < side.layout().slots()).then(|| side.block(slot))?;
        let is_held = block.out.number.load(Acquire) == number.get() && block.out.left.load(Acquire) != number.get();
        is_held.then(|| block.inward.tail.load(Acquire))
    }

    /// True if a pair has been [stopped](Course::stop), or was about to be.
    pub fn is_stopped(sides: [&Side; 2], slot: u32, number: NonZeroU64) -> bool {
        let mut known = sides.into_iter().filter(|side| slot < side.layout().slots());
        known.any(|side| side.block(slot).out.stopped.load(Relaxed) == number.get())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::link::Link;

    #[test]
    fn a_pair_that_is_stopped_goes_no_further_and_keeps_its_bytes() {
        let sides = [(); 2].map(|()| Side::heap(Layout::new(2, 4096).unwrap()));
        let [one, other] = [[0, 1], [1, 0]].map(|[a, b]| Link::new(sides[a].clone(), sides[b].clone()).unwrap());
        let number = NonZeroU64::MIN;
        let (mut first, mut second) = (one.begin(1, number).unwrap(), other.begin(1, number).unwrap());
        assert_eq!(first.write(b"carried").unwrap().0, 7);
        assert_eq!(second.read(&mut [0; 3]).unwrap().0, 3);
        let _ = second.finish();
        assert!(!Course::is_stopped([&sides[0], &sides[1]], 1, number));
        let course = Course::stop([&sides[0], &sides[1]], 1, number).unwrap();
        let ends = [Ending::Open, Ending::Finished];
        assert_eq!(course, Course { written: [7, 0], read: [0, 3], ends });
        assert_eq!(first.write(b"late").unwrap().0, 0);
        assert!(first.is_stopped() && Course::is_stopped([&sides[0], &sides[1]], 1, number));
        assert_eq!(first.written_since(5), b"ed");
        assert_eq!(course.unread([&sides[0], &sides[1]], 1, 1), b"ried");
        assert!(course.unread([&sides[0], &sides[1]], 1, 0).is_empty());
        // The next pair of the slot is another one, once both have let go of this one.
        assert_eq!(Course::still_read(&sides[1], 1, number), Some(3));
        drop(first);
        assert!(!is_let_go([&sides[0], &sides[1]], 1));
        drop(second);
        assert_eq!(Course::still_read(&sides[1], 1, number), None);
        assert!(is_let_go([&sides[0], &sides[1]], 1) && is_let_go([&sides[0], &sides[1]], 0));
        let number = NonZeroU64::new(2).unwrap();
        let mut first = one.begin(1, number).unwrap();
        assert!(!is_let_go([&sides[0], &sides[1]], 1));
        assert_eq!(first.write(b"on").unwrap().0, 2);
        assert_eq!(Course::read([&sides[0], &sides[1]], 1, number).unwrap().written, [2, 0]);
        assert!(Course::read([&sides[0], &sides[1]], 2, number).is_err());
    }

    #[test]
    fn an_end_that_has_closed_is_read_to_its_end_and_takes_nothing() {
        let sides = [(); 2].map(|()| Side::heap(Layout::new(1, 4096).unwrap()));
        let [one, other] = [[0, 1], [1, 0]].map(|[a, b]| Link::new(sides[a].clone(), sides[b].clone()).unwrap());
        let (mut first, mut second) =
            (one.begin(0, NonZeroU64::MIN).unwrap(), other.begin(0, NonZeroU64::MIN).unwrap());
        assert_eq!(first.write(b"last").unwrap().0, 4);
        let _ = first.close();
        assert_eq!(second.read(&mut [0; 9]).unwrap().0, 4);
        assert_eq!(second.peer_end(), Ending::Closed);
        assert_eq!(second.write(b"lost"), Err(crate::WriteError::Reset));
    }
}
