//! CPU time as a function of the limit of a run (RA §5.2).
//!
//! RA is *Optimizing TCP Receive Performance* (receive aggregation).

/// A fit of CPU time over the limit k.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// The part that does not depend on the limit, in the unit of the values.
    pub x: f64,
    /// The part that is divided by the limit.
    pub y: f64,
    /// Coefficient of determination.
    pub r2: f64,
}

/// Fits `x + y/k` to pairs of k and value by least squares; `None` of fewer than three.
pub fn fit(points: &[(u32, f64)]) -> Option<Fit> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let pairs: Vec<(f64, f64)> = points.iter().map(|(k, value)| (1.0 / f64::from(*k), *value)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (mean_u, mean_v) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let y = sum(&|p| (p.0 - mean_u) * (p.1 - mean_v)) / sum(&|p| (p.0 - mean_u).powi(2));
    let x = mean_v - y * mean_u;
    let rest = sum(&|p| (p.1 - x - y * p.0).powi(2));
    let all = sum(&|p| (p.1 - mean_v).powi(2));
    Some(Fit { x, y, r2: 1.0 - rest / all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_what_points_were_made_of() {
        let points: Vec<(u32, f64)> = [1, 2, 3, 5, 20, 44].map(|k| (k, 0.4 + 1.2 / f64::from(k))).into();
        let Fit { x, y, r2 } = fit(&points).unwrap();
        assert!((x - 0.4).abs() < 1e-9 && (y - 1.2).abs() < 1e-9 && (r2 - 1.0).abs() < 1e-9, "{x} {y} {r2}");
        assert_eq!(fit(&points[..2]), None);
    }
}
