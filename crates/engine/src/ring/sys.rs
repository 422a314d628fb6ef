//! The slots of a ring: memory that two threads share, each slot at a time
//! belonging to one of them.
//!
//! This module upholds together with `ring.rs`, its only user:
//! * `write(position)` is called by the producer alone, and only when the
//!   consumer's position, read with Acquire, is above `position - capacity`: so
//!   nobody reads the slot.
//! * `read` and `slice` are called by the consumer alone, for positions below
//!   the producer's, read with Acquire: so the slots were written, and are not
//!   written again before the consumer's position passes them. The slice borrows
//!   the consumer, whose position cannot move while it lives.
//!
//! Under loom each slot carries a cell of loom's that checks these claims.

use core::mem::MaybeUninit;
use std::cell::UnsafeCell;

#[cfg(not(loom))]
pub(super) use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
pub(super) use loom::sync::atomic::AtomicUsize;

pub(super) struct Slots<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    #[cfg(loom)]
    watch: Box<[loom::cell::UnsafeCell<()>]>,
}

// SAFETY: a slot is accessed by one thread at a time, see above, and what moves
// between threads is a `T`, which is Send.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T: Copy> Slots<T> {
    pub(super) fn new(capacity: usize) -> Slots<T> {
        assert!(capacity.is_power_of_two());
        Slots {
            slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
            #[cfg(loom)]
            watch: (0..capacity).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        }
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn write(&self, position: usize, value: T) {
        let slot = position & (self.slots.len() - 1);
        #[cfg(loom)]
        self.watch[slot].with_mut(|_| ());
        // SAFETY: the slot is the producer's, see above.
        unsafe { (*self.slots[slot].get()).write(value) };
    }

    #[inline]
    pub(super) fn read(&self, position: usize) -> T {
        let slot = position & (self.slots.len() - 1);
        #[cfg(loom)]
        self.watch[slot].with(|_| ());
        // SAFETY: the slot is the consumer's and was written, see above.
        unsafe { (*self.slots[slot].get()).assume_init() }
    }

    /// Up to `count` values from `position` on, as far as the slots lie together.
    #[inline]
    pub(super) fn slice(&self, position: usize, count: usize) -> &[T] {
        let first = position & (self.slots.len() - 1);
        let count = count.min(self.slots.len() - first);
        let slots = &self.slots[first..first + count];
        #[cfg(loom)]
        self.watch[first..first + count].iter().for_each(|watch| watch.with(|_| ()));
        // SAFETY: these slots are the consumer's and were written, see above; an
        // UnsafeCell<MaybeUninit<T>> has the layout of a T.
        unsafe { core::slice::from_raw_parts(slots.as_ptr().cast::<T>(), slots.len()) }
    }
}
