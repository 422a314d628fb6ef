//! Going to sleep without missing a wake-up, and waking only a side that sleeps.
//!
//! ```text
//!   sleeper                          caller
//!   asleep = 1                       entry into the ring
//!   fence                            fence
//!   look at the ring once more       look at asleep; if 1, clear it and wake
//! ```
//!
//! Of two stores before the fences, at least one is seen after them. So either
//! the sleeper finds the entry and stays up, or the caller finds the flag.

use core::sync::atomic::Ordering::{self, Relaxed, SeqCst};

/// An atomic word: the standard library's, or loom's in a model. Its methods are those of
/// `AtomicU32`.
pub trait Word {
    /// Reads it.
    fn load(&self, order: Ordering) -> u32;
    /// Writes it.
    fn store(&self, value: u32, order: Ordering);
    /// Writes it and gives back what it was.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// A fence of the same library.
    fn fence(order: Ordering);
}

macro_rules! word {
    ($($path:tt)*) => {
        impl Word for $($path)*::AtomicU32 {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u32 {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: u32, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: u32, order: Ordering) -> u32 {
                self.swap(value, order)
            }
            #[inline(always)]
            fn fence(order: Ordering) {
                $($path)*::fence(order);
            }
        }
    };
}

word!(core::sync::atomic);
#[cfg(loom)]
word!(loom::sync::atomic);

/// Says that this side is about to sleep; false if `more` work turned up.
pub fn announce_sleep<W: Word>(asleep: &W, more: impl FnOnce() -> bool) -> bool {
    // A store would do, but loom orders only a swap after the last caller's swap.
    asleep.swap(1, Relaxed);
    W::fence(SeqCst);
    if more() {
        asleep.store(0, Relaxed);
        return false;
    }
    true
}

/// True if the other side sleeps and the caller now has to wake it.
#[inline]
pub fn claim_wake<W: Word>(asleep: &W) -> bool {
    W::fence(SeqCst);
    asleep.load(Relaxed) != 0 && asleep.swap(0, SeqCst) != 0
}

#[cfg(all(loom, test))]
mod under_loom {
    use super::*;
    use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
    use loom::sync::atomic::AtomicU32;
    use loom::thread;
    use std::sync::Arc;

    /// A doorbell's words: what it tells of, whether it is rung, ring, sleep.
    struct Words {
        cursor: AtomicU32,
        rung: AtomicU32,
        tail: AtomicU32,
        asleep: AtomicU32,
    }

    #[test]
    fn a_rung_doorbell_is_heard() {
        loom::model(|| {
            let word = || AtomicU32::new(0);
            let words = Arc::new(Words { cursor: word(), rung: word(), tail: word(), asleep: word() });
            let shared = Arc::clone(&words);
            let sleeper = thread::current();
            let caller = thread::spawn(move || {
                for value in 1..3 {
                    shared.cursor.store(value, Release);
                    if shared.rung.swap(1, AcqRel) == 0 {
                        shared.tail.store(shared.tail.load(Relaxed) + 1, Release);
                    }
                    if claim_wake(&shared.asleep) {
                        sleeper.unpark();
                    }
                }
            });
            let mut head = 0;
            // Loom fails the model if this thread sleeps for good.
            loop {
                if words.tail.load(Acquire) != head {
                    head += 1;
                    words.rung.swap(0, AcqRel);
                    if words.cursor.load(Acquire) == 2 {
                        break;
                    }
                } else if announce_sleep(&words.asleep, || words.tail.load(Acquire) != head) {
                    thread::park();
                    words.asleep.store(0, Relaxed);
                }
            }
            caller.join().unwrap();
        });
    }
}
