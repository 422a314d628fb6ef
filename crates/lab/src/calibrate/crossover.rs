//! The largest message for which an engine is not dearer than the kernel.
//!
//! Costs are measured round after round, so each size has a list of savings: the share of the kernel's
//! cost that the engine saved in a round. The savings of neighbouring sizes are pooled until they fall
//! with size (isotonic regression by pool-adjacent-violators), since an engine that copies each byte
//! cannot gain more from larger messages. So one size that was disturbed does not end the range.
//!
//! A saving near zero has a sign that noise decides. A machine that was calibrated before keeps its
//! crossover unless the saving leaves a band of [`BAND`] around zero.

use baton_apps::measure::median;

/// Half the width of the band in which an earlier crossover stays, as a share of the kernel's cost.
pub const BAND: f64 = 0.02;

/// The savings of one message size.
#[derive(Clone, Debug)]
pub struct Savings {
    /// Bytes of a message.
    pub bytes: u64,
    /// The share of the kernel's cost that the engine saved, in each round; negative if it cost more.
    pub shares: Vec<f64>,
}

/// The largest size at which the engine is not dearer, of sizes in rising order; `None` if it is dearer
/// at the smallest. `before` is the crossover of an earlier calibration, if there was one.
pub fn crossover(sizes: &[Savings], before: Option<Option<u64>>) -> Option<u64> {
    let least = |bytes: u64| match before {
        None => 0.0,
        Some(Some(crossover)) if bytes <= crossover => -BAND,
        Some(_) => BAND,
    };
    let medians: Vec<f64> = sizes.iter().map(|size| median(&size.shares).map_or(-1.0, |it| it.median)).collect();
    let pays = sizes.iter().zip(falling(&medians)).take_while(|(size, saving)| *saving >= least(size.bytes));
    pays.last().map(|(size, _)| size.bytes)
}

/// The sequence that never rises and is closest to `values`, by least squares.
fn falling(values: &[f64]) -> Vec<f64> {
    // Sums and lengths of the pools.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &value in values {
        let mut pool = (value, 1);
        while let Some(&(sum, count)) = pools.last()
            && sum / count as f64 <= pool.0 / pool.1 as f64
        {
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / count as f64, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(shares: &[f64]) -> Vec<Savings> {
        (6..).zip(shares).map(|(power, share)| Savings { bytes: 1 << power, shares: vec![*share] }).collect()
    }

    #[test]
    fn it_is_the_largest_size_before_the_engine_is_dearer() {
        assert_eq!(crossover(&sizes(&[0.3, 0.2, 0.05, -0.1, -0.3]), None), Some(256));
        assert_eq!(crossover(&sizes(&[0.3, 0.2, 0.1]), None), Some(256));
        assert_eq!(crossover(&sizes(&[-0.1, -0.2]), None), None);
        assert_eq!(crossover(&[], None), None);
    }

    #[test]
    fn one_disturbed_size_does_not_end_the_range() {
        assert_eq!(crossover(&sizes(&[0.3, -0.02, 0.2, 0.1, -0.2]), None), Some(512));
        // Nor does one lucky size extend it.
        assert_eq!(crossover(&sizes(&[0.3, 0.1, -0.3, 0.05, -0.3]), None), Some(128));
    }

    #[test]
    fn a_median_ignores_a_bad_round() {
        let size = |bytes, shares: &[f64]| Savings { bytes, shares: shares.to_vec() };
        let measured = [size(64, &[0.3, -5.0, 0.2]), size(128, &[-0.2, 0.9, -0.1])];
        assert_eq!(crossover(&measured, None), Some(64));
    }

    #[test]
    fn noise_around_zero_does_not_move_an_earlier_crossover() {
        let noisy = [sizes(&[0.3, 0.01, -0.01, -0.015]), sizes(&[0.3, 0.019, 0.015, -0.01])];
        for measured in &noisy {
            for before in [64, 128, 256, 512] {
                assert_eq!(crossover(measured, Some(Some(before))), Some(before));
            }
        }
        let clear = sizes(&[0.3, 0.1, -0.1, -0.2]);
        for before in [None, Some(64), Some(512)] {
            assert_eq!(crossover(&clear, Some(before)), Some(128));
        }
        // An engine that did not pay before has to pay clearly.
        assert_eq!(crossover(&sizes(&[0.01, -0.3]), Some(None)), None);
    }

    #[test]
    fn the_fit_falls_and_keeps_the_sum() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let values: Vec<f64> = (0..9).map(|_| random.f64() - 0.5).collect();
            let fit = falling(&values);
            assert!(fit.windows(2).all(|pair| pair[0] >= pair[1] - 1e-12), "{fit:?}");
            assert!((fit.iter().sum::<f64>() - values.iter().sum::<f64>()).abs() < 1e-9);
        }
    }
}
