//! Slots of one size that a producer fills and a consumer empties, in order, each
//! on a thread of its own if need be: the unsafe room of the in-memory wire.
//!
//! ```text
//!        head (consumer's)          tail (producer's)
//!          v                          v
//!   | free | waiting | waiting | waiting | free | free |     index = count mod slots
//! ```
//!
//! This module upholds: slots in `head..tail` belong to the consumer, all others to
//! the producer. Only [`Producer`] moves `tail`, with release, after the slot's
//! bytes and note are written; only [`Consumer`] moves `head`, with release, after
//! it is done reading. Each side reads the other's count with acquire. Counts only
//! grow; `tail - head` is at most the number of slots. Neither handle can be
//! cloned, so each count has one writer, and a slot is reached through `&mut self`,
//! so its borrow ends before the count moves.
//!
//! Under loom each slot carries a cell of loom's that checks these claims.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;
#[cfg(not(loom))]
use std::sync::atomic::AtomicUsize;

/// A cache line of its own, so that the two counts do not share one.
#[repr(align(128))]
struct Line(AtomicUsize);

struct Shared<N> {
    /// Number of slots less one; the number is a power of two.
    mask: usize,
    slot_len: usize,
    bytes: Box<[UnsafeCell<u8>]>,
    notes: Box<[UnsafeCell<N>]>,
    #[cfg(loom)]
    watch: Box<[loom::cell::UnsafeCell<()>]>,
    tail: Line,
    head: Line,
}

// SAFETY: slots and notes are reached by one side at a time, see the header.
unsafe impl<N: Send> Sync for Shared<N> {}

/// The filling end.
pub struct Producer<N> {
    shared: Arc<Shared<N>>,
    tail: usize,
    /// `head` as last seen.
    head: usize,
}

/// The emptying end.
pub struct Consumer<N> {
    shared: Arc<Shared<N>>,
    head: usize,
    /// `tail` as last seen.
    tail: usize,
}

/// Makes `slots` slots (rounded up to a power of two) of `slot_len` bytes, each
/// with a note of type `N`. Memory is touched only once a slot is used.
pub fn slab<N: Copy + Default>(slots: usize, slot_len: usize) -> (Producer<N>, Consumer<N>) {
    let slots = slots.next_power_of_two();
    // Zeroed by the allocator, so untouched pages stay unmapped.
    let bytes: Box<[u8]> = vec![0; slots * slot_len].into_boxed_slice();
    // SAFETY: `UnsafeCell<u8>` has the layout of `u8`.
    let bytes = unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) };
    let notes = (0..slots).map(|_| UnsafeCell::new(N::default())).collect();
    let count = || Line(AtomicUsize::new(0));
    let shared = Arc::new(Shared {
        mask: slots - 1,
        slot_len,
        bytes,
        notes,
        #[cfg(loom)]
        watch: (0..slots).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        tail: count(),
        head: count(),
    });
    (Producer { shared: shared.clone(), tail: 0, head: 0 }, Consumer { shared, head: 0, tail: 0 })
}

impl<N> Shared<N> {
    fn slot(&self, count: usize) -> *mut u8 {
        UnsafeCell::raw_get(self.bytes[(count & self.mask) * self.slot_len..].as_ptr())
    }

    fn note(&self, count: usize) -> *mut N {
        self.notes[count & self.mask].get()
    }
}

impl<N: Copy> Producer<N> {
    /// Bytes a slot.
    pub fn slot_len(&self) -> usize {
        self.shared.slot_len
    }

    /// The `ahead`-th free slot, or `None` if there are not that many.
    pub fn slot(&mut self, ahead: usize) -> Option<&mut [u8]> {
        let count = self.tail.wrapping_add(ahead);
        if count.wrapping_sub(self.head) > self.shared.mask {
            self.head = self.shared.head.0.load(Ordering::Acquire);
            if count.wrapping_sub(self.head) > self.shared.mask {
                return None;
            }
        }
        #[cfg(loom)]
        self.shared.watch[count & self.shared.mask].with_mut(|_| ());
        // SAFETY: `count` is not in head..tail and less than a round ahead of head,
        // so the slot is the producer's, and `&mut self` makes the borrow the only one.
        Some(unsafe { std::slice::from_raw_parts_mut(self.shared.slot(count), self.shared.slot_len) })
    }

    /// Writes the note of the `ahead`-th free slot, which [`Producer::slot`] has given.
    pub fn set_note(&mut self, ahead: usize, note: N) {
        let count = self.tail.wrapping_add(ahead);
        assert!(count.wrapping_sub(self.head) <= self.shared.mask, "a note on a slot that was not given");
        #[cfg(loom)]
        self.shared.watch[count & self.shared.mask].with_mut(|_| ());
        // SAFETY: as in `slot`.
        unsafe { self.shared.note(count).write(note) };
    }

    /// Hands the first `n` free slots to the consumer.
    pub fn publish(&mut self, n: usize) {
        self.tail = self.tail.wrapping_add(n);
        assert!(self.tail.wrapping_sub(self.head) <= self.shared.mask + 1, "published slots that were not given");
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }
}

impl<N: Copy> Consumer<N> {
    /// Number of waiting slots, `enough` at least if there are that many.
    pub fn waiting(&mut self, enough: usize) -> usize {
        if self.tail.wrapping_sub(self.head) < enough {
            self.tail = self.shared.tail.0.load(Ordering::Acquire);
        }
        self.tail.wrapping_sub(self.head)
    }

    /// The `behind`-th waiting slot and its note; `behind` is less than
    /// [`Consumer::waiting`] has said.
    pub fn slot(&self, behind: usize) -> (&[u8], N) {
        assert!(behind < self.tail.wrapping_sub(self.head), "read a slot that is not waiting");
        let count = self.head.wrapping_add(behind);
        #[cfg(loom)]
        self.shared.watch[count & self.shared.mask].with(|_| ());
        // SAFETY: `count` is in head..tail, so slot and note are the consumer's and
        // were written before `tail` was; `&self` keeps `release` off meanwhile.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.shared.slot(count), self.shared.slot_len);
            (bytes, self.shared.note(count).read())
        }
    }

    /// Gives the first `n` waiting slots back.
    pub fn release(&mut self, n: usize) {
        assert!(n <= self.tail.wrapping_sub(self.head), "released slots that were not waiting");
        self.head = self.head.wrapping_add(n);
        self.shared.head.0.store(self.head, Ordering::Release);
    }
}

#[cfg(all(loom, test))]
mod under_loom {
    use super::slab;
    use loom::thread;

    #[test]
    fn frames_pass_whole_and_in_order() {
        loom::model(|| {
            let (mut producer, mut consumer) = slab::<u8>(2, 1);
            let sender = thread::spawn(move || {
                for (i, burst) in [2, 1].into_iter().enumerate() {
                    for ahead in 0..burst {
                        while producer.slot(ahead).is_none() {
                            thread::yield_now();
                        }
                        producer.slot(ahead).expect("free as seen")[0] = (2 * i + ahead) as u8;
                        producer.set_note(ahead, (2 * i + ahead) as u8);
                    }
                    producer.publish(burst);
                }
            });
            let mut expected = 0;
            while expected < 3 {
                let count = consumer.waiting(2);
                if count == 0 {
                    thread::yield_now();
                }
                for behind in 0..count {
                    let (bytes, note) = consumer.slot(behind);
                    assert_eq!((bytes[0], note), (expected, expected));
                    expected += 1;
                }
                consumer.release(count);
            }
            sender.join().unwrap();
        });
    }
}
