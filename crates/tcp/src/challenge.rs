//! How many challenge ACKs a host sends (RFC 5961 §7).
//!
//! One budget serves all connections, so an attacker that can count the challenge ACKs on its
//! own connection could tell whether a guess about another connection used one up
//! (CVE-2016-5696). So the budget of each second is drawn at random between half of the limit
//! and one and a half times it, as Linux does.

use crate::time::{Duration, Instant};

/// The host's budget of challenge ACKs.
#[derive(Clone, Debug)]
pub struct ChallengeLimiter {
    per_second: u32,
    left: u32,
    second_ends: Instant,
    random: u64,
}

impl ChallengeLimiter {
    /// A budget of `per_second` on average; `seed` is any secret number.
    pub fn new(per_second: u32, seed: u64) -> ChallengeLimiter {
        ChallengeLimiter { per_second, left: 0, second_ends: Instant(0), random: seed | 1 }
    }

    /// True if one more challenge ACK may go out now; it is taken off the budget.
    pub fn allow(&mut self, now: Instant) -> bool {
        if now >= self.second_ends {
            self.second_ends = now + Duration::from_secs(1);
            self.left = self.per_second / 2 + ((u64::from(self.per_second) * self.draw()) >> 32) as u32;
        }
        // RFC5961-7-1: the number of challenge ACKs in a second is bounded.
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    /// 32 bits of xorshift64*: unpredictable enough to hide one count a second.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_in_one_second(limiter: &mut ChallengeLimiter, start: Instant) -> u32 {
        (0..10_000).filter(|i| limiter.allow(start + Duration::from_micros(i * 50))).count() as u32
    }

    // tests: RFC5961-7-1
    #[test]
    fn a_second_holds_about_the_limit_and_not_always_the_same() {
        let mut limiter = ChallengeLimiter::new(100, 42);
        let counts: Vec<u32> =
            (0..50).map(|s| allowed_in_one_second(&mut limiter, Instant(0) + Duration::from_secs(s))).collect();
        assert!(counts.iter().all(|&n| (50..=150).contains(&n)), "{counts:?}");
        assert!(counts.iter().any(|&n| n != counts[0]), "the budget must not be guessable: {counts:?}");
    }

    #[test]
    fn zero_allows_none() {
        assert!(!ChallengeLimiter::new(0, 1).allow(Instant(5)));
    }
}
