//! Sensitivity: what a conclusion becomes if a cost is wrong by a fifth.

use super::Row;
use super::metric::Metric;
use super::runs::Runs;
use crate::costs::Costs;
use crate::world::Config;

/// Gain in requests of a configuration over its workload's baseline, with each cost at 80 and at 120 %, in
/// percent.
pub fn sensitivity(base: &Config, shorthand: &str, progress: &mut dyn FnMut(&str)) -> Vec<Row> {
    let baseline = format!("{}-0-N-N-FCFS-400", shorthand.split('-').next().unwrap_or_default());
    let mut gain = |name: String, costs| {
        progress(&name);
        let base = Config { costs, ..base.clone() };
        let here = Runs::new(&base, &mut |_| ()).gain(shorthand, &baseline, Metric::RequestRate);
        Row { id: "ch-sensitivity", name: format!("{shorthand} gain, {name}"), unit: "%", paper: None, here, on: None }
    };
    let mut rows = vec![gain("costs as they are".to_owned(), base.costs)];
    for (name, access) in Costs::ENTRIES {
        for percent in [80, 120] {
            let mut costs = base.costs;
            *access(&mut costs) = *access(&mut costs) * percent / 100;
            rows.push(gain(format!("{name} at {percent} %"), costs));
        }
    }
    rows
}
