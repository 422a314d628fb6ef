//! Whether this thread holds locks of ours: then what calls is a signal handler that has
//! interrupted it, and may not wait for them.
//!
//! Such a call on a connection that is not in the kernel fails with `EAGAIN` if it reads or
//! writes. A thread that sleeps holds nothing, so a handler that interrupts a wait can do
//! all that it could do otherwise.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

thread_local! {
    static LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// True if this thread was interrupted while it held a lock.
pub fn interrupted() -> bool {
    LOCKS.try_with(Cell::get).unwrap_or(0) > 0
}

/// One lock more, as long as it lives.
struct One;

impl One {
    fn more() -> One {
        let _ = LOCKS.try_with(|locks| locks.set(locks.get() + 1));
        One
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let _ = LOCKS.try_with(|locks| locks.set(locks.get() - 1));
    }
}

/// A lock's guard, counted from before it is taken until after it is freed: fields are
/// dropped in this order.
pub struct Counted<G> {
    guard: G,
    _one: One,
}

impl<G> Counted<G> {
    /// Takes a lock.
    pub fn new(lock: impl FnOnce() -> G) -> Counted<G> {
        let one = One::more();
        Counted { guard: lock(), _one: one }
    }
}

impl<G: Deref> Deref for Counted<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Counted<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}
