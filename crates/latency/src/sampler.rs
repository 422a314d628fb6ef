//! Which messages are recorded, where not all are.

/// Chooses one of so many, on average. The distances are random, so that no rhythm of the messages decides
/// what is seen of them.
#[derive(Clone, Debug)]
pub struct Sampler {
    one_in: u32,
    /// How many are left until the next one that is chosen.
    left: u32,
    state: u32,
}

impl Sampler {
    /// The rarest choice: one in so many.
    pub const RAREST: u32 = 1 << 16;

    /// Chooses one in `one_in`; all with 0 or 1.
    pub fn new(one_in: u32) -> Sampler {
        let mut sampler = Sampler { one_in: one_in.clamp(1, Sampler::RAREST), left: 0, state: 0x9e37_79b9 };
        sampler.draw();
        sampler
    }

    /// It chooses one in so many.
    pub fn one_in(&self) -> u32 {
        self.one_in
    }

    /// One more came: true if it is chosen.
    #[inline]
    pub fn chooses(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.draw();
        true
    }

    /// Draws the distance to the next one: 1 to 2 N - 1, each as likely, so N on average.
    #[cold]
    fn draw(&mut self) {
        // Xorshift (Marsaglia, Journal of Statistical Software 8 (14), 2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        let distances = u64::from(2 * self.one_in - 1);
        self.left = 1 + ((u64::from(self.state) * distances) >> 32) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_chosen_whatever_their_rhythm() {
        for one_in in [0, 1, 2, 3, 8, 32, 1000] {
            let mut sampler = Sampler::new(one_in);
            let total = 2000 * one_in.max(1);
            let mut chosen = [0u32; 2];
            for n in 0..total {
                chosen[n as usize % 2] += u32::from(sampler.chooses());
            }
            let expected = f64::from(total / one_in.max(1));
            let error = (f64::from(chosen[0] + chosen[1]) / expected - 1.0).abs();
            assert!(error < 0.05, "one in {one_in}: {chosen:?} of {total}");
            let odd = f64::from(chosen[1]) / f64::from(chosen[0] + chosen[1]);
            assert!((0.45..0.55).contains(&odd), "one in {one_in}: {chosen:?}");
        }
    }
}
