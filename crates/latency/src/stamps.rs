//! A ring of points of time between a consumer and its engine: one side puts in, the other takes out.
//!
//! ```text
//!   sent   consumer -> engine   a write:   [call entered, bytes copied]
//!   told   engine -> consumer   a message: [first point known, consumer told]
//! ```
//!
//! The other side may be another process with a fault, or a hostile one. So nothing that is read here
//! is trusted: a ring whose cursors make no sense is emptied, and the side that takes an entry checks it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of a ring. A message that finds it full is not recorded, but counted. More would cost memory that
/// each message finds outside the caches, where many connections are watched.
pub const ENTRIES: usize = 32;

/// The points of a message that one side tells the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamps {
    /// Stream position just past the last byte of the message.
    pub end: u64,
    /// The first point, in nanoseconds of the clock.
    pub first: u64,
    /// The last point, in nanoseconds of the clock.
    pub last: u64,
}

/// A ring of [`Stamps`]. All zeros is an empty one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Ring {
    /// Entries put in since the start; written by the side that puts in.
    tail: AtomicU32,
    /// Entries taken out since the start; written by the side that takes out.
    head: AtomicU32,
    entries: Entries,
}

#[derive(Debug)]
#[repr(C)]
struct Entries([[AtomicU64; 3]; ENTRIES]);

impl Default for Entries {
    fn default() -> Entries {
        Entries(std::array::from_fn(|_| Default::default()))
    }
}

impl Ring {
    /// Puts an entry in; false if there is no room.
    #[inline]
    pub fn put(&self, stamps: &Stamps) -> bool {
        self.put_with(stamps, |_| {})
    }

    /// As [`Ring::put`]. If there is room, calls `beside` first, with the entry's place.
    #[inline]
    pub(crate) fn put_with(&self, stamps: &Stamps, beside: impl FnOnce(usize)) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) as usize >= ENTRIES {
            return false;
        }
        let at = tail as usize % ENTRIES;
        beside(at);
        let words = &self.entries.0[at];
        for (word, value) in words.iter().zip([stamps.end, stamps.first, stamps.last]) {
            word.store(value, Ordering::Relaxed);
        }
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// The oldest entry, which stays in.
    #[inline]
    pub fn peek(&self) -> Option<Stamps> {
        let (tail, head) = (self.tail.load(Ordering::Acquire), self.head.load(Ordering::Relaxed));
        if tail == head {
            return None;
        }
        if tail.wrapping_sub(head) as usize > ENTRIES {
            self.clear();
            return None;
        }
        let [end, first, last] = &self.entries.0[head as usize % ENTRIES];
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Some(Stamps { end: of(end), first: of(first), last: of(last) })
    }

    /// The place of the oldest entry, which [`Ring::peek`] showed.
    #[inline]
    pub(crate) fn oldest(&self) -> usize {
        self.head.load(Ordering::Relaxed) as usize % ENTRIES
    }

    /// Takes out the oldest entry, which [`Ring::peek`] showed.
    #[inline]
    pub fn pass(&self) {
        self.head.store(self.head.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Takes out the oldest entry.
    #[inline]
    pub fn take(&self) -> Option<Stamps> {
        let stamps = self.peek();
        stamps.is_some().then(|| self.pass());
        stamps
    }

    /// Takes out everything. For the side that takes out, or while no connection has the ring.
    pub fn clear(&self) {
        self.head.store(self.tail.load(Ordering::Acquire), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_in_the_order_in_which_they_came_and_a_full_ring_takes_none() {
        let ring = Ring::default();
        assert_eq!(ring.take(), None);
        for lap in 0..5u64 {
            let of = |n: u64| Stamps { end: lap * 100 + n, first: n, last: n + 1 };
            assert!((0..ENTRIES as u64).all(|n| ring.put(&of(n))));
            assert!(!ring.put(&of(99)));
            assert_eq!(ring.peek(), Some(of(0)));
            assert!((0..ENTRIES as u64).all(|n| ring.take() == Some(of(n))));
            assert_eq!(ring.take(), None);
        }
    }

    #[test]
    fn a_ring_whose_cursors_make_no_sense_is_emptied() {
        let ring = Ring::default();
        ring.tail.store(1000, Ordering::Relaxed);
        assert_eq!(ring.take(), None);
        assert!(ring.put(&Stamps::default()));
        assert_eq!(ring.take(), Some(Stamps::default()));
    }
}
