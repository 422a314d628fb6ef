//! Round trips with copy and checksum apart, and in one pass (LA §4.1.1: table 6).

use super::trips::{self, Trips, Variant};
use super::{TRIPS, findings};
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Row, of};
use baton_engine::engine::EngineConfig;
use std::fmt;

/// Round trips with copy and checksum apart, and in one pass.
pub const EXPERIMENT: Experiment = Experiment {
    id: "la-passes",
    title: "Round trips with copy and checksum apart, and in one pass",
    needs: &[],
    axes: &[Axis { name: "message_bytes", about: "bytes of a request and of its answer" }, TRIPS],
    command: "baton lab la",
    run,
};

/// The paper's round trips in microseconds: checksum apart from the copy, and in one pass with it.
const PAPER: [(usize, [f64; 2]); 8] = [
    (4, [1021.0, 1249.0]),
    (20, [1039.0, 1256.0]),
    (80, [1289.0, 1477.0]),
    (200, [1520.0, 1707.0]),
    (500, [2140.0, 2222.0]),
    (1400, [2976.0, 2691.0]),
    (4000, [5891.0, 4644.0]),
    (8000, [10636.0, 8062.0]),
];

/// Both engines copy and sum like this, on the way in and on the way out.
#[derive(Clone, Copy)]
enum Passes {
    Apart,
    One,
}

impl Variant for Passes {
    fn tune(self, config: &mut EngineConfig) {
        config.one_pass = matches!(self, Passes::One);
    }
}

impl fmt::Display for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Passes::Apart => "copy, then checksum",
            Passes::One => "copy and checksum in one pass",
        })
    }
}

fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
    let mut sizes = Vec::new();
    for bytes in extent.values(Axis::MESSAGES.name)? {
        sizes.push((bytes, trips::alternate(lab, extent, bytes, &[Passes::Apart, Passes::One])?));
    }
    findings(extent, of("la-table-6", table_6(&sizes)))
}

fn table_6(sizes: &[(usize, Vec<Trips>)]) -> Vec<Row> {
    let (mut rows, mut savings) = (Vec::new(), Vec::new());
    for (bytes, found) in sizes {
        let [apart, one] = &found[..] else { continue };
        let at = ("bytes", *bytes as f64);
        let paper = PAPER.iter().find(|(size, _)| size == bytes).map(|(_, values)| *values);
        let saving = one.decrease(apart);
        rows.push(Row::point("copy, then checksum", at, "us", paper.map(|[apart, _]| apart), apart.micros()));
        rows.push(Row::point("copy and checksum in one pass", at, "us", paper.map(|[_, one]| one), one.micros()));
        rows.push(Row::point("saving", at, "%", paper.map(|[apart, one]| 100.0 * (1.0 - one / apart)), saving));
        savings.push((*bytes, saving));
    }
    rows.push(Row::new("one pass is faster from this size on", "bytes", Some(1400.0), gain_from(&savings)));
    rows
}

/// The smallest size from which on every size saves time.
fn gain_from(savings: &[(usize, Option<f64>)]) -> Option<f64> {
    let gains = |(_, saving): &&(usize, Option<f64>)| saving.is_some_and(|saving| saving > 0.0);
    savings.iter().rev().take_while(gains).last().map(|(bytes, _)| *bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan;
    use baton_apps::signal::Stop;

    #[test]
    fn each_size_has_both_columns_of_the_paper() {
        let stop = Stop::default();
        let extent = plan("quick").unwrap().remove(EXPERIMENT.id).unwrap();
        let rows = run(&Lab::in_memory(&stop, &|_| ()), &extent).unwrap().rows;
        let times: Vec<_> = rows.iter().filter(|(_, row)| row.unit == "us").collect();
        assert_eq!(times.len(), 6);
        assert!(times.iter().all(|(id, row)| *id == "la-table-6" && row.here > Some(0.0) && row.paper.is_some()));
    }

    #[test]
    fn one_pass_gains_from_the_size_behind_the_last_loss() {
        let savings = |values: [f64; 3]| [4, 500, 8000].into_iter().zip(values.map(Some)).collect::<Vec<_>>();
        assert_eq!(gain_from(&savings([-1.0, 2.0, 3.0])), Some(500.0));
        assert_eq!(gain_from(&savings([1.0, -2.0, 3.0])), Some(8000.0));
        assert_eq!(gain_from(&savings([1.0, 2.0, -3.0])), None);
        assert_eq!(gain_from(&savings([1.0, 2.0, 3.0])), Some(4.0));
    }
}
