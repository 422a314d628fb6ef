//! Whether this thread holds locks of ours: then a signal handler of the program that
//! interrupted it may not wait for them, nor leave them behind by `exit` or `longjmp`.
//!
//! Where handlers are known to whoever lets a program run on this ([`postpone`](crate::signals::postpone)),
//! they run when the last lock is freed. A thread that sleeps holds nothing, so a handler that
//! interrupts a wait runs at once, and can do all that it could do otherwise.

use crate::signals;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

thread_local! {
    /// Only this thread's handlers see it change.
    static LOCKS: AtomicU32 = const { AtomicU32::new(0) };
}

/// True if this thread was interrupted while it held a lock.
pub fn interrupted() -> bool {
    LOCKS.try_with(|locks| locks.load(Ordering::Relaxed)).unwrap_or(0) > 0
}

/// One lock more, as long as it lives.
struct One;

impl One {
    fn more() -> One {
        let _ = LOCKS.try_with(|locks| locks.store(locks.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
        One
    }
}

impl Drop for One {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        let left = LOCKS.try_with(|locks| {
            let left = locks.load(Ordering::Relaxed) - 1;
            locks.store(left, Ordering::Relaxed);
            left
        });
        compiler_fence(Ordering::SeqCst);
        if left == Ok(0) {
            signals::resume();
        }
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

    /// Takes a lock if it is free.
    pub fn if_free(lock: impl FnOnce() -> Option<G>) -> Option<Counted<G>> {
        let one = One::more();
        Some(Counted { guard: lock()?, _one: one })
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
