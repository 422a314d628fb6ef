//! CH §5 in virtual time: the configurations of the paper's simulated web server, in the testbed.

use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Row, Rows};
use anyhow::Context;
use baton_testbed::ch;
use baton_testbed::world::Config;
use serde::Serialize;
use std::fmt::Write as _;

/// The paper's configurations in virtual time.
pub const EXPERIMENT: Experiment = Experiment {
    id: "testbed",
    title: "A web server and its offload NIC in virtual time, under the paper's policies",
    needs: &[],
    axes: &[
        Axis::EXHIBIT,
        Axis { name: "thousand_packets", about: "packets that count in each run, after two thirds as many of warm-up" },
    ],
    command: "baton lab ch",
    run: |lab, extent| run(lab, extent)?.findings(),
};

/// All rows that were asked for.
#[derive(Debug, Serialize)]
struct Outcome {
    packets: u64,
    rows: Vec<ch::Row>,
}

/// Runs every configuration that a wanted exhibit has.
fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Outcome> {
    let thousands: Vec<u64> = extent.values("thousand_packets")?;
    let packets = thousands.first().context("no value of thousand_packets")? * 1000;
    let wanted: Vec<String> = extent.values(Axis::EXHIBIT.name)?;
    let base = Config { warm_up: packets * 2 / 3, measured: packets, ..Config::baseline() };
    let rows = ch::experiments(&base, &mut |name| lab.tell(name));
    let rows = rows.into_iter().filter(|row| wanted.iter().any(|id| id == row.id)).collect();
    Ok(Outcome { packets, rows })
}

impl Outcome {
    fn findings(&self) -> anyhow::Result<Findings> {
        let row = |row: &ch::Row| (row.id, Row::new(row.name.clone(), row.unit, row.paper, Some(row.here)));
        let rows: Rows = self.rows.iter().map(row).collect();
        Ok(Findings::new(self, table(&rows), Vec::new())?.showing(rows))
    }
}

fn table(rows: &Rows) -> String {
    let mut out = String::new();
    for (id, Row { name, unit, paper, here, .. }) in rows {
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let _ = writeln!(out, "{id:18} {name:48} {:>10} {:>10} {unit}", text(*paper), text(*here));
    }
    out
}
