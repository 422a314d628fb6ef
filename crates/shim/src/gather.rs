//! Letting requests gather: where many connections are busy at once and the engine is inside
//! the program, a thread that has nothing to do naps before it waits for the next frame.
//!
//! Each look at the devices and each wait costs as much for one frame as for ten, and each wait
//! that a frame ends costs its sender a wake-up; and answers that leave together find their
//! receiver in one piece of work, too. So requests of many connections are cheaper by the
//! dozen, and since each waits for those before it anyway, the nap makes none of them later.
//! Where a few connections go to and fro it would: those are looked for at once, see
//! [`crate::patience`].

use std::time::Duration;

/// How long a nap is asked to be; the kernel's timers add some 50 µs.
pub const NAP: Duration = Duration::from_micros(80);

/// Reports from one count to the next.
const ROUND: u32 = 16;

/// Different connections among them from which there are many.
const MANY: u32 = 14;

/// Time that they may take, in nanoseconds: else there is nothing to gather.
const SOON_NS: u64 = 500_000;

/// What a set has reported lately.
#[derive(Debug, Default)]
pub struct Gather {
    /// Number of the count.
    round: u32,
    reports: u32,
    connections: u32,
    /// When it began.
    since: u64,
    many: bool,
}

impl Gather {
    /// A connection is reported. `seen` is its own: the count that it was in last. `clock` is
    /// read when a count ends, in nanoseconds.
    pub fn on_report(&mut self, seen: &mut u32, clock: impl FnOnce() -> u64) {
        // The first count has number 0, as what was never counted has.
        let round = self.round.wrapping_add(1);
        self.connections += u32::from(std::mem::replace(seen, round) != round);
        self.reports += 1;
        if self.reports == ROUND {
            let now = clock();
            self.many = self.connections >= MANY && now.saturating_sub(self.since) <= SOON_NS;
            *self = Gather { round, since: now, many: self.many, ..Gather::default() };
        }
    }

    /// True if many connections are busy now: what nobody has reported for long is over.
    pub fn is_many(&self, clock: impl FnOnce() -> u64) -> bool {
        self.many && clock().saturating_sub(self.since) <= 4 * SOON_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many rounds of reports of so many connections in turn, at this distance.
    fn after(connections: usize, rounds: usize, distance_ns: u64) -> bool {
        later(connections, rounds, distance_ns, 0)
    }

    /// The same, and then for so long nothing.
    fn later(connections: usize, rounds: usize, distance_ns: u64, silence_ns: u64) -> bool {
        let (mut gather, mut seen, mut now) = (Gather::default(), vec![0; connections], 1 << 40);
        for _ in 0..rounds * ROUND as usize / connections {
            for seen in &mut seen {
                now += distance_ns;
                gather.on_report(seen, || now);
            }
        }
        gather.is_many(|| now + silence_ns)
    }

    #[test]
    fn many_connections_that_are_busy_are_told_from_few_and_from_idle_ones() {
        assert!(after(16, 3, 10_000));
        assert!(after(64, 8, 10_000));
        assert!(!after(8, 8, 10_000), "few");
        assert!(!after(64, 8, 100_000), "seldom");
        assert!(!after(16, 1, 10_000), "at first nothing is known");
        assert!(later(16, 3, 10_000, SOON_NS));
        assert!(!later(16, 3, 10_000, 10 * SOON_NS), "they are busy no more");
    }
}
