//! Chance: one seed, and everything that follows from it.
//!
//! Each part of the world has a generator of its own, forked from the seed, so
//! that one more draw in one part does not change what the others draw.

use baton_tcp::time::Duration;
use std::fmt;

/// A probability in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ppm(pub u32);

impl Ppm {
    /// It never happens.
    pub const NEVER: Ppm = Ppm(0);

    /// True with this probability.
    pub fn draw(self, rng: &mut fastrand::Rng) -> bool {
        self.0 > 0 && rng.u32(..1_000_000) < self.0
    }
}

impl fmt::Debug for Ppm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

/// A span of up to `most`, uniformly.
pub fn up_to(rng: &mut fastrand::Rng, most: Duration) -> Duration {
    Duration(rng.u64(..=most.0))
}

/// One of `choices`.
///
/// # Panics
/// If there is none.
pub fn pick<T: Copy>(rng: &mut fastrand::Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_is_met() {
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn = |ppm, rng: &mut fastrand::Rng| (0..100_000).filter(|_| Ppm(ppm).draw(rng)).count();
        assert_eq!(drawn(0, &mut rng), 0);
        assert_eq!(drawn(1_000_000, &mut rng), 100_000);
        let tenth = drawn(100_000, &mut rng);
        assert!((9_000..11_000).contains(&tenth), "{tenth}");
    }
}
