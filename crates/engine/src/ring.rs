//! A bounded ring between one producer and one consumer, on one thread or two.
//!
//! ```text
//!              head                tail
//!    free       v      waiting      v       free
//!   ----------[ x ][ x ][ x ][ x ][   ]-----------   slot = position % capacity
//!     consumer reads here          producer writes here
//! ```
//!
//! Positions count up for ever (modulo 2^64) and only their owner writes them.
//! Each side keeps a copy of the other's position and reads the shared one only
//! when the copy says that it is stuck, so that in the steady state no cache
//! line changes hands but those of the slots. Nothing waits and nothing is
//! dropped: a full ring refuses the entry, and its user stops taking in work.

mod sys;

use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::Arc;
use sys::{AtomicUsize, Slots};

/// A word alone on its pair of cache lines (adjacent lines are fetched together).
#[repr(align(128))]
struct Line(AtomicUsize);

struct Shared<T> {
    head: Line,
    tail: Line,
    slots: Slots<T>,
}

/// The writing end of a ring.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    published: usize,
    head: usize,
}

/// The reading end of a ring.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail: usize,
    high_water: usize,
}

/// A ring of at least `capacity` values (rounded up to a power of two).
pub fn ring<T: Copy + Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let slots = Slots::new(capacity.max(1).next_power_of_two());
    let line = || Line(AtomicUsize::new(0));
    let shared = Arc::new(Shared { head: line(), tail: line(), slots });
    let consumer = Consumer { shared: Arc::clone(&shared), head: 0, tail: 0, high_water: 0 };
    (Producer { shared, tail: 0, published: 0, head: 0 }, consumer)
}

impl<T: Copy + Send> Producer<T> {
    /// The most values that the ring holds.
    pub fn capacity(&self) -> usize {
        self.shared.slots.capacity()
    }

    /// Values that may be pushed now without being refused. Exact when read; it only grows
    /// until something is pushed.
    #[inline]
    pub fn free(&mut self) -> usize {
        self.head = self.shared.head.0.load(Acquire);
        self.capacity() - self.tail.wrapping_sub(self.head)
    }

    /// True if `count` values may be pushed; looks at the shared position only if
    /// it has to.
    #[inline]
    pub fn has_room(&mut self, count: usize) -> bool {
        self.capacity() - self.tail.wrapping_sub(self.head) >= count || self.free() >= count
    }

    /// How many values were ever put in, modulo the width of the type.
    #[inline]
    pub fn position(&self) -> usize {
        self.tail
    }

    /// Puts `value` behind the others and shows it to the consumer.
    ///
    /// # Errors
    /// Gives `value` back if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        self.stage(value)?;
        self.publish();
        Ok(())
    }

    /// Puts `value` behind the others; the consumer sees it after
    /// [`Producer::publish`]. For bursts on two threads.
    ///
    /// # Errors
    /// Gives `value` back if the ring is full.
    #[inline]
    pub fn stage(&mut self, value: T) -> Result<(), T> {
        if !self.has_room(1) {
            return Err(value);
        }
        // Free for us: the consumer's position, read with Acquire, has passed it.
        self.shared.slots.write(self.tail, value);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Shows all that was staged to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            self.published = self.tail;
            self.shared.tail.0.store(self.tail, Release);
        }
    }
}

impl<T: Copy + Send> Consumer<T> {
    /// The most values that the ring holds.
    pub fn capacity(&self) -> usize {
        self.shared.slots.capacity()
    }

    /// Values that wait.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.refresh();
        self.tail.wrapping_sub(self.head)
    }

    /// How many values were ever taken out, modulo the width of the type.
    #[inline]
    pub fn position(&self) -> usize {
        self.head
    }

    /// True if none waits.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.tail && self.len() == 0
    }

    /// The most values that were seen waiting at once. Taken when the producer's
    /// position is read, so a peak that came and went between two reads on
    /// another thread is missed.
    pub fn high_water(&self) -> usize {
        self.high_water
    }

    #[inline]
    fn refresh(&mut self) {
        self.tail = self.shared.tail.0.load(Acquire);
        self.high_water = self.high_water.max(self.tail.wrapping_sub(self.head));
    }

    /// The first value that waits, taken out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let value = self.shared.slots.read(self.head);
        self.advance(1);
        Some(value)
    }

    /// The values that wait, as far as they lie together (the rest comes first
    /// next time), without taking them out.
    #[inline]
    pub fn batch(&mut self) -> &[T] {
        let waiting = self.len();
        self.shared.slots.slice(self.head, waiting)
    }

    /// Takes the first `count` values out.
    ///
    /// # Panics
    /// If fewer have been seen to wait.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.tail.wrapping_sub(self.head), "values taken that were never seen");
        self.head = self.head.wrapping_add(count);
        self.shared.head.0.store(self.head, Release);
    }
}

/// The type system gives each end of a ring one owner: one of each, no clones.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Producer<u64>>();
    is_send::<Consumer<u64>>();
};
