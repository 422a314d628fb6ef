//! All runs of one point.

use serde::{Deserialize, Serialize};

/// All runs of one point, one per round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series<P, R> {
    /// The point.
    #[serde(flatten)]
    pub point: P,
    /// Its runs.
    pub runs: Vec<R>,
}

impl<P, R> Series<P, R> {
    /// A figure of all runs that have it.
    pub fn values(&self, figure: impl Fn(&R) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(figure).collect()
    }

    /// A figure of each run, divided by that of the base's run in the same round.
    pub fn ratios(&self, base: &Self, figure: impl Fn(&R) -> Option<f64>) -> Vec<f64> {
        let pairs = self.runs.iter().zip(&base.runs);
        pairs.filter_map(|(run, base)| Some(figure(run)? / figure(base)?)).collect()
    }
}
