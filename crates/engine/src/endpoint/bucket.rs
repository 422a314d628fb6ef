//! A token bucket: a rate per second on average, and a burst at once.

use baton_tcp::time::{Duration, Instant};

/// A limit on how often something is done. Credit is time: a token costs its
/// share of a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    token: Duration,
    full: Duration,
    credit: Duration,
    seen: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(per_second: u64, burst: u64) -> Bucket {
        let token = Duration(1_000_000_000 / per_second);
        let full = token.saturating_mul(burst);
        Bucket { token, full, credit: full, seen: Instant(0) }
    }

    /// Takes a token; false if there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.credit = (self.credit + now.since(self.seen)).min(self.full);
        self.seen = now;
        let granted = self.credit >= self.token;
        if granted {
            self.credit = Duration(self.credit.0 - self.token.0);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        for start in [0, 5_000_000_000] {
            let mut bucket = Bucket::new(100, 10);
            let taken = |from: u64, to: u64, bucket: &mut Bucket| {
                (from..to).filter(|ms| bucket.take(Instant(start + ms * 1_000_000))).count()
            };
            assert_eq!((0..50).filter(|_| bucket.take(Instant(start))).count(), 10);
            let second = taken(200, 1200, &mut bucket);
            assert!((100..=120).contains(&second), "{second} in a second");
        }
    }
}
