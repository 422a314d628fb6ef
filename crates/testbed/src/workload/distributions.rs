//! Distributions of files, sizes and requests.

/// Ranks by Zipf's law: the probability of a rank is in proportion to `rank` to the power of `-exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Sum of the probabilities up to each rank, not normalised.
    sums: Vec<f64>,
}

impl Zipf {
    /// Ranks from 0 to `ranks` - 1; at least one.
    pub fn new(ranks: u32, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=ranks.max(1)).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Zipf { sums: sums.collect() }
    }

    /// Draws a rank.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> u32 {
        let at = rng.f64() * self.sums.last().copied().unwrap_or_default();
        self.sums.partition_point(|&sum| sum < at).min(self.sums.len() - 1) as u32
    }
}

/// A log-normal value of this median and sigma (Box and Muller).
pub fn log_normal(rng: &mut fastrand::Rng, median: f64, sigma: f64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (core::f64::consts::TAU * rng.f64()).cos();
    median * (sigma * normal).exp()
}

/// A value of the bounded Pareto distribution from 1 to `most`, rounded down.
pub fn pareto(rng: &mut fastrand::Rng, shape: f64, most: f64) -> usize {
    let low = most.powf(-shape);
    let u = low + rng.f64() * (1.0 - low);
    (u.powf(-1.0 / shape) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_of_zipf_comes_twice_as_often_as_the_second() {
        let (zipf, mut rng) = (Zipf::new(100, 1.0), fastrand::Rng::with_seed(1));
        let mut counts = [0u32; 100];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.85..2.15).contains(&ratio), "{ratio}");
    }

    #[test]
    fn half_of_log_normal_values_are_below_the_median() {
        let mut rng = fastrand::Rng::with_seed(1);
        let below = (0..10_000).filter(|_| log_normal(&mut rng, 1500.0, 1.5) < 1500.0).count();
        assert!((4_800..5_200).contains(&below), "{below}");
    }

    #[test]
    fn pareto_keeps_its_bounds() {
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn: Vec<usize> = (0..10_000).map(|_| pareto(&mut rng, 1.1, 40.0)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&1), Some(&39)));
    }
}
