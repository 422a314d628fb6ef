//! Letting requests gather: if many connections are busy and the engine is inside the program, a
//! thread without work takes a nap before it waits for the next frame.
//!
//! A poll of the devices, or a wait, costs as much for one frame as for ten. Each frame that ends a
//! wait costs its sender a wake-up, and replies that leave together wake their receiver once. So
//! the requests of many connections are cheaper in batches; each of them waits for those before it
//! anyway, so the nap delays none. With few connections, in request and reply, a nap would cost
//! latency; there the thread polls ([`crate::busy_poll`]).

/// The number of reports in a round.
const ROUND: usize = 16;

/// The number of different connections in a round from which they count as many.
const MANY: usize = 14;

/// The longest duration of a round in nanoseconds: in a longer one there is nothing to gather.
const SOON_NS: u64 = 500_000;

/// The recent reports of an epoll set.
#[derive(Debug, Default)]
pub struct Gather {
    /// The connections that were reported in this round, each once, and their number.
    reported: [u32; ROUND],
    connections: usize,
    reports: usize,
    /// When the round began, in nanoseconds.
    since: u64,
    many: bool,
}

impl Gather {
    /// Counts a report of the connection of this number. It keeps the number when the program takes it out of the
    /// set and puts it in again, as some do for each request. `clock` gives nanoseconds and is read when a round
    /// ends.
    pub fn on_report(&mut self, connection: u32, clock: impl FnOnce() -> u64) {
        if !self.reported[..self.connections].contains(&connection) {
            self.reported[self.connections] = connection;
            self.connections += 1;
        }
        self.reports += 1;
        if self.reports == ROUND {
            let now = clock();
            self.many = self.connections >= MANY && now.saturating_sub(self.since) <= SOON_NS;
            *self = Gather { since: now, many: self.many, ..Gather::default() };
        }
    }

    /// True if many connections are busy now. The result of a round expires after a while.
    pub fn is_many(&self, clock: impl FnOnce() -> u64) -> bool {
        self.many && clock().saturating_sub(self.since) <= 4 * SOON_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports `connections` in turn for a number of rounds, one report every `distance_ns`.
    fn after(connections: usize, rounds: usize, distance_ns: u64) -> bool {
        later(connections, rounds, distance_ns, 0)
    }

    /// As [`after`], followed by a silence.
    fn later(connections: usize, rounds: usize, distance_ns: u64, silence_ns: u64) -> bool {
        let (mut gather, mut now) = (Gather::default(), 1 << 40);
        for _ in 0..rounds * ROUND / connections {
            for connection in 0..connections as u32 {
                now += distance_ns;
                gather.on_report(connection, || now);
            }
        }
        gather.is_many(|| now + silence_ns)
    }

    #[test]
    fn many_busy_connections_differ_from_few_and_from_idle_ones() {
        assert!(after(16, 3, 10_000));
        assert!(after(64, 8, 10_000));
        assert!(!after(8, 8, 10_000), "few");
        assert!(!after(64, 8, 100_000), "rare reports");
        assert!(!after(16, 1, 10_000), "nothing is known in the first round");
        assert!(later(16, 3, 10_000, SOON_NS));
        assert!(!later(16, 3, 10_000, 10 * SOON_NS), "they are no longer busy");
    }
}
