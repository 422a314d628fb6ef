//! The engines inside the program, under a lock of their own: while one thread drives them, others read, write and
//! take in results.
//!
//! ```text
//!  call: | library's lock: copies bytes, rings |  nobody drives  --> drives the engines, then takes in the results
//!                                                 somebody does  --> leaves: that thread drives once more
//! ```
//!
//! A thread that leaves has noted before that something was rung. One that drives looks for such a note after it has
//! released the lock, so none is lost. It drives a few rounds on behalf of others, then leaves the rest to the library's
//! thread.
//!
//! *Order of locks*: the library's lock comes first. A thread that drives has no other lock, except for a
//! [posted](super::posted) buffer and on the library's thread.

use super::local_engine::LocalEngine;
use baton_consumer::held::Counted;
use baton_consumer::pacing::PACING;
use baton_engine::streamer::PostedReceive;
use baton_ipc::engine::monotonic;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Most rounds of engine work in one call: taking in completions may give an engine more to do.
const ROUNDS: u32 = 8;

/// The engines of this program.
#[derive(Default)]
pub(super) struct Engines {
    list: Mutex<Vec<LocalEngine>>,
    /// Number of engines.
    count: AtomicUsize,
    /// Doorbells may have been rung since somebody last began to drive.
    rung: AtomicBool,
    /// Written bytes are waiting for the end of a batch.
    waits: AtomicBool,
    /// Number of polls of all devices that have begun.
    polls: AtomicU64,
    /// When the last poll began, in nanoseconds of `CLOCK_MONOTONIC`.
    looked_at: AtomicU64,
}

/// The locked engines.
pub(super) type Locked<'a> = Counted<MutexGuard<'a, Vec<LocalEngine>>>;

impl Engines {
    /// Takes the lock.
    pub fn lock(&self) -> Locked<'_> {
        Counted::lock(&self.list)
    }

    /// Takes the lock if nobody drives.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        Counted::try_lock(&self.list)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds an engine.
    pub fn add(&self, engine: LocalEngine) {
        let mut list = self.lock();
        list.push(engine);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Drops the engines that `is_lost` selects. Returns true if there were some.
    pub fn lose(&self, is_lost: impl FnMut(&mut LocalEngine) -> bool) -> bool {
        self.lose_of(&mut self.lock(), is_lost)
    }

    fn lose_of(&self, list: &mut Vec<LocalEngine>, is_lost: impl FnMut(&mut LocalEngine) -> bool) -> bool {
        let before = list.len();
        list.extract_if(.., is_lost).for_each(drop);
        self.count.store(list.len(), Ordering::Relaxed);
        list.len() != before
    }

    /// Notes that a doorbell was rung.
    pub fn note_rung(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// True if a doorbell was rung that nobody has begun to drive for. The question comes after the caller's release of
    /// the lock, or before it tries to take it, so that of two threads one sees the other.
    pub fn is_rung(&self) -> bool {
        fence(Ordering::SeqCst);
        self.rung.load(Ordering::Acquire)
    }

    /// Takes the lock for a poll of the devices. `None` if another thread has begun one since this call began.
    pub fn lock_to_poll(&self) -> Option<Locked<'_>> {
        let begun = self.polls.load(Ordering::SeqCst);
        let list = self.lock();
        (self.polls.load(Ordering::SeqCst) == begun).then_some(list)
    }

    /// Drives all engines, that of a region with a buffer for the bytes of a connection. Returns true if one was lost.
    pub fn drive_all(
        &self,
        list: &mut Vec<LocalEngine>,
        clock: u64,
        receive: bool,
        mut posted: Option<(u32, &mut PostedReceive<'_>)>,
    ) -> bool {
        // It reads the note, so that what was rung before is seen from here on.
        self.rung.swap(false, Ordering::AcqRel);
        if receive {
            self.polls.fetch_add(1, Ordering::SeqCst);
            self.looked_at.store(clock, Ordering::Relaxed);
        }
        self.lose_of(list, |local| {
            let posted = posted.as_mut().filter(|(region, _)| local.drives(*region)).map(|(_, posted)| &mut **posted);
            local.runner.drive(clock, receive, posted).is_err()
        })
    }

    /// Notes that something waits for the end of a batch.
    pub fn begin_batch(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// True if something has waited for the end of a batch. It is sent now.
    pub fn end_batch(&self) -> bool {
        self.waits.load(Ordering::Relaxed) && self.waits.swap(false, Ordering::Relaxed)
    }

    /// Calls `run`, which drives, while there is something to drive for and no other thread drives. Returns true if there
    /// still is after [`ROUNDS`]: this thread has driven for others long enough.
    pub fn while_rung(&self, mut run: impl FnMut(Locked<'_>)) -> bool {
        for _ in 0..ROUNDS {
            if !self.is_rung() {
                return false;
            }
            let Some(list) = self.try_lock() else { return false };
            run(list);
        }
        self.is_rung()
    }

    /// True if the devices were not polled for a while.
    pub fn is_stale(&self, clock: u64) -> bool {
        self.age(clock) > PACING.fresh
    }

    fn age(&self, clock: u64) -> Duration {
        Duration::from_nanos(clock.saturating_sub(self.looked_at.load(Ordering::Relaxed)))
    }

    /// True if a call that found nothing to read or no space polls the devices.
    pub fn is_due(&self) -> bool {
        !self.is_empty() && self.age(monotonic()) > PACING.just_now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn nothing_that_was_rung_is_left_when_all_have_gone() {
        const THREADS: u64 = 2;
        let (engines, rung, driven) = (Engines::default(), AtomicU64::new(0), AtomicU64::new(0));
        let meeting = Barrier::new(THREADS as usize);
        let call = |round: u64| {
            meeting.wait();
            rung.fetch_add(1, Ordering::SeqCst);
            engines.note_rung();
            // Once more is the share of the library's thread.
            while engines.while_rung(|list| {
                engines.rung.swap(false, Ordering::AcqRel);
                driven.store(rung.load(Ordering::SeqCst), Ordering::SeqCst);
                // The others come meanwhile.
                thread::yield_now();
                drop(list);
            }) {}
            meeting.wait();
            u64::from(driven.load(Ordering::SeqCst) < THREADS * round)
        };
        let left = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| (1..=10_000).map(call).sum::<u64>())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        assert_eq!(left, 0, "calls came and went, and nobody drove for them");
    }
}
