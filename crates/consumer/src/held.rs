//! Tracks whether this thread holds locks of this library. A signal handler of the program that
//! interrupts such a thread must not wait for those locks, and must not abandon them with `exit` or
//! `longjmp`.
//!
//! If the signal handlers are wrapped so that they call [`postpone`](crate::signals::postpone),
//! they run when the last lock is released. A sleeping thread holds no lock, so a handler that
//! interrupts a wait runs at once and without restrictions.

use crate::signals;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

thread_local! {
    /// Number of locks held. Only signal handlers on this thread can observe it changing.
    static LOCKS: AtomicU32 = const { AtomicU32::new(0) };
}

/// True if the calling thread holds a lock: a signal handler has interrupted it there.
pub fn interrupted() -> bool {
    LOCKS.try_with(|locks| locks.load(Ordering::Relaxed)).unwrap_or(0) > 0
}

/// Counts one lock while it exists.
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

/// A lock's guard. The lock is counted from before it is taken until after it is released, because
/// fields are dropped in declaration order.
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

impl<'a, T> Counted<MutexGuard<'a, T>> {
    /// Takes a mutex, also after a thread that held it has panicked: to be used where the state is valid then, too.
    pub fn lock(mutex: &'a Mutex<T>) -> Self {
        Counted::new(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, if it is free.
    pub fn try_lock(mutex: &'a Mutex<T>) -> Option<Self> {
        Counted::if_free(|| match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}

impl Counted<()> {
    /// Counts as a lock, for work between two locks that a signal handler must not abandon.
    pub fn whole() -> Counted<()> {
        Counted::new(|| ())
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
