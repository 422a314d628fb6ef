//! The slowest messages of a way of a connection, in memory that another process reads meanwhile.

use crate::exemplar::WORDS_EACH;
use crate::{Direction, Exemplar, KEPT, KEPT_WORDS};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Times that they are read until nothing was written meanwhile. Those of a way that changes that often are read
/// the next time.
const READINGS: usize = 4;

/// The [`KEPT`] slowest messages of a way. All zeros is none. One thread at a time writes, any number read
/// meanwhile. Its layout is that of `struct slowest` in `bpf/programs/latency.h`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slowest {
    /// Odd while one is written.
    writes: AtomicU64,
    /// Nanoseconds of the fastest of them; 0 while there are fewer than there may be.
    least: AtomicU64,
    /// The place of that one.
    at: AtomicU64,
    kept: [[AtomicU64; WORDS_EACH]; KEPT],
}

impl Slowest {
    /// True if a message that took so long is among the slowest.
    #[inline]
    pub fn takes(&self, whole: u64) -> bool {
        whole > self.least.load(Ordering::Relaxed)
    }

    /// Keeps a message instead of the fastest one, for [`Slowest::takes`] said so. For who records the way.
    #[cold]
    pub fn keep(&self, message: &Exemplar) {
        self.write(|| {
            // Another process may have written any number there.
            let at = self.at.load(Ordering::Relaxed) as usize % KEPT;
            for (word, value) in self.kept[at].iter().zip(message.words()) {
                word.store(value, Ordering::Relaxed);
            }
            let wholes = self.kept.iter().map(|words| words[1].load(Ordering::Relaxed));
            let (at, least) = wholes.enumerate().min_by_key(|(_, whole)| *whole).unwrap_or_default();
            self.least.store(least, Ordering::Relaxed);
            self.at.store(at as u64, Ordering::Relaxed);
        });
    }

    /// Forgets all. For who records the way, or while no connection has it.
    pub fn clear(&self) {
        if self.kept[0][0].load(Ordering::Relaxed) == 0 {
            // Nothing was kept: the rest of the memory is not touched.
            return;
        }
        self.write(|| {
            let kept = self.kept.iter().flatten();
            kept.chain([&self.least, &self.at]).for_each(|word| word.store(0, Ordering::Relaxed));
        });
    }

    /// A writer that was killed left an odd number, which the next one makes good.
    fn write(&self, change: impl FnOnce()) {
        let odd = self.writes.load(Ordering::Relaxed) | 1;
        self.writes.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.writes.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// The messages at this moment, the slowest first. None if they were written again and again meanwhile.
    pub fn read(&self, direction: Direction) -> Vec<Exemplar> {
        for _ in 0..READINGS {
            let writes = self.writes.load(Ordering::Acquire);
            let mut words = [0; KEPT_WORDS];
            words[0] = writes;
            for (word, value) in words[3..].iter_mut().zip(self.kept.iter().flatten()) {
                *word = value.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if self.writes.load(Ordering::Relaxed) == writes
                && let Some(all) = Exemplar::of_words(direction, &words)
            {
                return all;
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layer, PARTS};
    use std::sync::atomic::AtomicBool;

    /// A message each of whose numbers follows from how long it took.
    fn message(whole: u64) -> Exemplar {
        Exemplar::new(Direction::Receive, whole * 10, whole, whole as u32, [whole / PARTS as u64; PARTS])
    }

    #[test]
    fn the_slowest_stay_and_the_others_cost_a_comparison() {
        let slowest = Slowest::default();
        assert_eq!(size_of_val(&slowest), KEPT_WORDS * size_of::<u64>());
        assert_eq!(slowest.read(Direction::Receive), []);
        for whole in [5, 80, 3, 70, 1, 60, 2, 50, 40, 4, 30, 20, 10] {
            if slowest.takes(whole) {
                slowest.keep(&message(whole));
            }
        }
        let kept = slowest.read(Direction::Receive);
        assert_eq!(kept, [80, 70, 60, 50, 40, 30, 20, 10].map(message));
        assert_eq!(kept[7].layers().next(), Some((Layer::ReceiveDevice, 1)));
        assert!(!slowest.takes(10) && slowest.takes(11));
        slowest.clear();
        assert_eq!(slowest.read(Direction::Receive), []);
        assert!(slowest.takes(1));
    }

    #[test]
    fn a_writer_that_was_killed_hides_them_until_the_next_one() {
        let slowest = Slowest::default();
        slowest.keep(&message(8));
        slowest.writes.fetch_add(1, Ordering::Relaxed);
        assert_eq!(slowest.read(Direction::Receive), []);
        slowest.at.store(u64::MAX, Ordering::Relaxed);
        slowest.keep(&message(16));
        assert_eq!(slowest.read(Direction::Receive), [16, 8].map(message));
    }

    #[test]
    fn no_reader_sees_a_message_that_is_half_written() {
        let (slowest, ends) = (Slowest::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..200_000).for_each(|whole| slowest.keep(&message(whole)));
                ends.store(true, Ordering::Relaxed);
            });
            while !ends.load(Ordering::Relaxed) {
                for seen in slowest.read(Direction::Receive) {
                    assert_eq!(seen, message(seen.whole));
                }
            }
        });
        assert_eq!(slowest.read(Direction::Receive)[0], message(199_999));
    }
}
