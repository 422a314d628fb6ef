//! Configurations by the paper's shorthand (CH table 3), each run once.

use super::metric::Metric;
use crate::select::{ByGain, ByResponse, Selection};
use crate::workload::Kind;
use crate::world::{Config, run};
use baton_policy::rules::Rule;
use core::num::NonZeroU64;
use std::collections::BTreeMap;

/// The configuration of a shorthand, with `base` for everything that it leaves open. `predict`, `responses` and
/// `oracle` are selections as well. Returns `None` if it is no shorthand.
pub fn configuration(shorthand: &str, base: &Config) -> Option<(Config, Box<dyn Selection>)> {
    let parts: Vec<&str> = shorthand.split('-').collect();
    let &[letter, places, priority @ ("P" | "N"), load @ ("L" | "N"), selection, mips] = parts.as_slice() else {
        return None;
    };
    let workload = Kind::ALL.into_iter().find(|kind| kind.letter() == letter)?;
    let selection: Box<dyn Selection> = match selection {
        "FCFS" => Box::new(Rule::FirstCome),
        "predict" => Box::new(ByGain::predict(&base.costs)),
        "responses" => Box::new(ByResponse::seen(&base.costs)),
        "oracle" => Box::new(ByResponse::oracle(&base.costs)),
        threshold => Box::new(Rule::AfterSends(threshold.strip_prefix('T')?.parse::<NonZeroU64>().ok()?)),
    };
    let config = Config {
        workload,
        clients: workload.clients(),
        places: places.parse().ok()?,
        host_first: priority == "P",
        load_control: load == "L",
        mips: mips.parse().ok().filter(|&mips| mips > 0)?,
        ..base.clone()
    };
    Some((config, selection))
}

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Run {
    values: [f64; Metric::ALL.len()],
    /// Time since the start in ns, soft limit, connections on the NIC.
    pub course: Vec<(u64, u32, u32)>,
}

impl Run {
    /// The value of a quantity.
    pub fn get(&self, metric: Metric) -> f64 {
        self.values[metric as usize]
    }
}

/// All runs so far.
pub struct Runs<'a> {
    base: &'a Config,
    progress: &'a mut dyn FnMut(&str),
    done: BTreeMap<String, Run>,
}

impl<'a> Runs<'a> {
    /// No runs yet. `progress` is told each configuration before it runs.
    pub fn new(base: &'a Config, progress: &'a mut dyn FnMut(&str)) -> Runs<'a> {
        Runs { base, progress, done: BTreeMap::new() }
    }

    /// The configuration that shorthands leave open.
    pub fn base(&self) -> &'a Config {
        self.base
    }

    /// The run of a shorthand, which is run if it was not yet; `None` if it is no shorthand.
    pub fn get(&mut self, shorthand: &str) -> Option<&Run> {
        if !self.done.contains_key(shorthand) {
            let (config, mut selection) = configuration(shorthand, self.base)?;
            (self.progress)(shorthand);
            let measured = run(&config, selection.as_mut());
            let values = Metric::ALL.map(|metric| metric.of(&measured));
            self.done.insert(shorthand.to_owned(), Run { values, course: measured.course });
        }
        self.done.get(shorthand)
    }

    /// A quantity of a shorthand's run.
    pub fn value(&mut self, shorthand: &str, metric: Metric) -> Option<f64> {
        self.get(shorthand).map(|run| run.get(metric))
    }

    /// By how many percent a quantity is greater in one run than in another.
    pub fn gain(&mut self, shorthand: &str, over: &str, metric: Metric) -> Option<f64> {
        let (one, other) = (self.value(shorthand, metric)?, self.value(over, metric)?);
        Some(100.0 * (one / other - 1.0))
    }
}
