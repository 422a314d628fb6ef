//! Busy polling for a short time before a thread sleeps, if an engine runs in this program. How
//! long is decided by [`baton_consumer::pace`], for each thread by itself.
//!
//! A signal handler that runs during busy polling has the same effect as one that runs before the
//! wait.

use crate::service;
use baton_consumer::clock;
use baton_consumer::lookers::{Lookers, Place};
use baton_consumer::pace::Pace;
use baton_consumer::pacing::PACING;
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::thread::available_parallelism;
use std::time::Duration;

static CPUS: OnceLock<usize> = OnceLock::new();
static LOOKERS: OnceLock<Lookers> = OnceLock::new();

fn cpus() -> usize {
    *CPUS.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

thread_local! {
    static PACE: RefCell<Pace> = RefCell::new(Pace::new(cpus()));
    /// The number of bytes that this thread has read and written.
    static CARRIED: Cell<u64> = const { Cell::new(0) };
}

/// Counts bytes that this thread has read or written.
pub fn count_bytes(bytes: usize) {
    let _ = CARRIED.try_with(|carried| carried.set(carried.get() + bytes as u64));
}

/// A pause of this thread: it has nothing to do.
pub struct Pause {
    begun: u64,
    /// How long it polls, in nanoseconds.
    look: u64,
    /// This thread's place, until it sleeps.
    place: Option<Place<'static>>,
}

impl Pause {
    pub fn begin() -> Pause {
        let look = if service::has_pairs() { PACING.program } else { PACING.device };
        let begun = clock::at_once();
        let mut place = None;
        let enter = |ns| {
            place = LOOKERS.get_or_init(|| Lookers::new(cpus())).enter(begun, ns);
            place.is_some()
        };
        let carried = CARRIED.try_with(Cell::get).unwrap_or(0);
        let look = with(|pace| pace.on_pause(carried, look, enter)).unwrap_or(0);
        Pause { begun, look, place }
    }

    /// Polls memory until `is_over`, for as long as it pays. Returns the pause if it goes on.
    pub fn look(mut self, is_over: impl Fn() -> bool) -> Option<Pause> {
        while self.passed() < self.look {
            if is_over() {
                self.end(1);
                return None;
            }
            std::hint::spin_loop();
        }
        self.place = None;
        Some(self)
    }

    /// Waits until `go` finds something, or until the time `left` has passed. `go` sleeps for the time
    /// it is given at most, and returns its result and the number of events that it found. It is called
    /// with zero while the thread polls.
    pub fn wait<T>(mut self, left: Option<Duration>, mut go: impl FnMut(Option<Duration>) -> (T, usize)) -> T {
        let mut outcome = None;
        if left.is_none_or(|left| left > Duration::from_nanos(self.look)) {
            while outcome.is_none() && self.passed() < self.look {
                outcome = Some(go(Some(Duration::ZERO))).filter(|(_, count)| *count > 0);
            }
        }
        self.place = None;
        let (outcome, count) = outcome.unwrap_or_else(|| go(left));
        self.end(count);
        outcome
    }

    fn passed(&self) -> u64 {
        clock::at_once().saturating_sub(self.begun)
    }

    fn end(&self, events: usize) {
        with(|pace| {
            pace.on_resume(self.passed());
            pace.on_frames(events);
        });
    }
}

/// A pause that [waits](Pause::wait).
pub fn wait<T>(left: Option<Duration>, go: impl FnMut(Option<Duration>) -> (T, usize)) -> T {
    Pause::begin().wait(left, go)
}

/// True if a thread that polls is to ask the kernel, too, which it `asked` at that time by
/// [`clock::at_once`]. That costs more than a look at memory.
pub fn is_kernel_due(asked: u64) -> bool {
    Duration::from_nanos(clock::at_once().saturating_sub(asked)) > PACING.kernel
}

/// Returns `None` if a signal handler interrupted another use of the pace, or if the thread's local
/// data is being destroyed.
fn with<R>(run: impl FnOnce(&mut Pace) -> R) -> Option<R> {
    PACE.try_with(|pace| pace.try_borrow_mut().ok().map(|mut pace| run(&mut pace))).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn a_thread_polls_first_if_its_waits_are_short_and_sleeps_after_that() {
        // The first try finds something.
        assert_eq!(wait(None, |left| (left, 1)), None, "nothing is known yet");
        let looks = (0..10_000).any(|_| wait(None, |left| (left, 1)) == AT_ONCE);
        assert_eq!(looks, *CPUS.get().unwrap() > 1);
        // Polling finds nothing.
        let mut tries = Vec::new();
        let slept = wait(None, |left| {
            tries.push(left);
            (left, usize::from(left.is_none()))
        });
        assert_eq!((slept, tries.iter().all(|left| *left == AT_ONCE)), (None, false));
        assert_eq!(tries.iter().filter(|left| left.is_none()).count(), 1);
    }
}
