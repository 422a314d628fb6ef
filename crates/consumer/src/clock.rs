//! The clock of points of time: nanoseconds of `CLOCK_MONOTONIC`, by the processor's counter where that is
//! reliable.
//!
//! The counter is read in a fraction of the time that a call of `clock_gettime(2)` takes. It must agree with
//! `CLOCK_MONOTONIC`, since points of other processes and of BPF (`bpf_ktime_get_ns`) are compared with
//! ours. So each thread looks at both clocks again once a millisecond has gone by: what the kernel slews
//! (NTP; 500 parts in a million at most) comes to less than a microsecond in between, and what this thread's
//! rate is wrong by to less.

use crate::signals;
use crate::sys::counter_unsafe::{clock, is_reliable, read};
use std::cell::Cell;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The counter's rate is measured for this long.
const MEASURED: Duration = Duration::from_millis(20);

/// Both clocks are looked at again after this many nanoseconds.
const AGAIN: u64 = 1_000_000;

/// Fractions of a nanosecond in a rate.
const SHIFT: u32 = 32;

/// Both clocks at the same moment.
#[derive(Clone, Copy)]
struct Anchor {
    count: u64,
    ns: u64,
}

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { count: 0, ns: 0 }) };
}

/// The counter's rate: nanoseconds a count, times 2^32; 0 if it is not to be used.
static RATE: OnceLock<u64> = OnceLock::new();

/// The time in nanoseconds of `CLOCK_MONOTONIC`. The first call of a process takes 20 ms.
#[inline]
pub fn monotonic() -> u64 {
    match RATE.get() {
        Some(0) => clock(),
        Some(rate) => by_counter(*rate),
        None => first(),
    }
}

/// The same, but no call waits: until the counter's rate is known, it asks the system. [`prepare`] has the rate
/// measured.
#[inline]
pub fn at_once() -> u64 {
    match RATE.get() {
        Some(rate) if *rate > 0 => by_counter(*rate),
        _ => clock(),
    }
}

/// Has a thread of its own measure the counter's rate, in 20 ms, if it is not known. Without a thread
/// [`at_once`] goes on asking the system.
pub fn prepare() {
    if RATE.get().is_none() {
        // Measured outside the lock: a child of a fork meanwhile finds it free.
        let measured = || {
            let _ = RATE.set(rate());
        };
        signals::blocked(|| drop(thread::Builder::new().name("baton-clock".into()).spawn(measured)));
    }
}

/// True if the processor's counter is what [`monotonic`] reads.
pub fn is_by_counter() -> bool {
    first();
    RATE.get().is_some_and(|rate| *rate > 0)
}

#[inline]
fn by_counter(rate: u64) -> u64 {
    let anchor = ANCHOR.get();
    let count = read();
    let ns = scale(count.wrapping_sub(anchor.count), rate);
    if ns < AGAIN { anchor.ns + ns } else { look_again() }
}

fn scale(counts: u64, rate: u64) -> u64 {
    ((u128::from(counts) * u128::from(rate)) >> SHIFT) as u64
}

#[cold]
fn first() -> u64 {
    RATE.get_or_init(rate);
    clock()
}

fn rate() -> u64 {
    if is_reliable() { measure() } else { 0 }
}

#[cold]
fn look_again() -> u64 {
    let anchor = both();
    ANCHOR.set(anchor);
    anchor.ns
}

/// The clocks as near to each other as a few attempts get them: a thread may be interrupted in between.
fn both() -> Anchor {
    let attempt = || {
        let before = read();
        let ns = clock();
        let took = read().wrapping_sub(before);
        (took, Anchor { count: before.wrapping_add(took / 2), ns })
    };
    let attempts: [_; 3] = std::array::from_fn(|_| attempt());
    attempts.into_iter().min_by_key(|(took, _)| *took).map_or(Anchor { count: 0, ns: 0 }, |(_, anchor)| anchor)
}

fn measure() -> u64 {
    let (started, start) = (Instant::now(), both());
    while started.elapsed() < MEASURED {
        std::thread::sleep(MEASURED / 4);
    }
    let end = both();
    let counts = end.count.wrapping_sub(start.count);
    let ns = end.ns.saturating_sub(start.ns);
    if counts == 0 { 0 } else { ((u128::from(ns) << SHIFT) / u128::from(counts)) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_system_s_clock() {
        monotonic();
        let mut worst = 0;
        for _ in 0..2000 {
            // Read in between, so that an interruption moves the bounds and proves nothing wrong.
            let before = clock();
            let here = monotonic();
            let after = clock();
            worst = worst.max(before.saturating_sub(here)).max(here.saturating_sub(after));
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(worst < 2_000, "{worst} ns apart");
    }

    #[test]
    fn who_does_not_wait_gets_the_same_time() {
        prepare();
        let started = Instant::now();
        let mut last = 0;
        while started.elapsed() < 4 * MEASURED {
            let before = clock();
            let here = at_once();
            let after = clock();
            assert!(here + 2_000 > before && here < after + 2_000, "{before} {here} {after}");
            assert!(here + 2_000 > last, "{last} {here}");
            last = here;
        }
    }

    #[test]
    fn it_goes_on_across_threads() {
        let first = monotonic();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            monotonic()
        });
        let later = later.join().unwrap();
        assert!(later > first + 1_900_000, "{first} {later}");
    }
}
