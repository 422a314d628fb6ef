//! How much to measure: the plans.

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The plans by name: the only place that has rounds, lengths and the values of axes.
pub const PLANS: [(&str, &str); 2] =
    [("quick", include_str!("../../plans/quick.toml")), ("whole", include_str!("../../plans/whole.toml"))];

/// How much of one experiment to measure.
#[derive(Clone, Debug, Deserialize)]
pub struct Extent {
    /// Number of runs of each point.
    pub rounds: usize,
    /// Length of a run in seconds; 0 for an experiment whose runs end by themselves.
    #[serde(default)]
    pub seconds: f64,
    /// The values of each axis.
    #[serde(flatten)]
    axes: BTreeMap<String, toml::Value>,
}

/// The extent of each experiment in a plan, by the experiment's id.
///
/// # Errors
/// If there is no plan of this name.
pub fn plan(name: &str) -> anyhow::Result<BTreeMap<String, Extent>> {
    let (_, text) = PLANS.iter().find(|(known, _)| *known == name).with_context(|| format!("no plan {name}"))?;
    toml::from_str(text).with_context(|| format!("cannot understand plan {name}"))
}

impl Extent {
    /// The values of an axis.
    ///
    /// # Errors
    /// If it has none, or not of this type.
    pub fn values<T: DeserializeOwned>(&self, axis: &str) -> anyhow::Result<Vec<T>> {
        let values = self.axes.get(axis).with_context(|| format!("no values of {axis}"))?;
        values.clone().try_into().with_context(|| format!("values of {axis}"))
    }

    /// Replaces the values of an axis.
    ///
    /// # Errors
    /// If TOML has no form for them.
    pub fn set<T: Serialize>(&mut self, axis: &str, values: &[T]) -> anyhow::Result<()> {
        let values = toml::Value::try_from(values).with_context(|| format!("values of {axis}"))?;
        self.axes.insert(axis.to_owned(), values);
        Ok(())
    }

    /// The names of the axes that have values.
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.axes.keys().map(String::as_str)
    }

    /// Length of a run.
    pub fn length(&self) -> std::time::Duration {
        std::time::Duration::from_secs_f64(self.seconds)
    }
}
