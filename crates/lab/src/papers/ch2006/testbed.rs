//! CH §5 in virtual time: the configurations of the paper's simulated web server, in the testbed.

use crate::experiment::{Axis, Drawn, Experiment, Extent, Findings, Lab, Row, Rows};
use crate::report::claim::Claim;
use crate::report::short;
use anyhow::Context;
use baton_testbed::ch::runs::Runs;
use baton_testbed::ch::sensitivity::sensitivity;
use baton_testbed::ch::statements::{Statement, statements};
use baton_testbed::ch::{self, IDS};
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

/// The exhibit that varies each cost.
const SENSITIVITY: &str = "ch-sensitivity";

/// Configurations whose costs are varied.
const VARIED: [&str; 2] = ["W-4096-P-L-FCFS-400", "W-1024-N-N-FCFS-400"];

/// All rows that were asked for, and the paper's comparisons.
#[derive(Debug, Serialize)]
struct Outcome {
    packets: u64,
    rows: Vec<ch::Row>,
    comparisons: Vec<Statement>,
}

/// Runs every configuration that a wanted exhibit has. The paper's comparisons are checked if all are
/// wanted, as they need most of the runs.
fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Outcome> {
    let thousands: Vec<u64> = extent.values("thousand_packets")?;
    let packets = thousands.first().context("no value of thousand_packets")? * 1000;
    let exhibits: Vec<String> = extent.values(Axis::EXHIBIT.name)?;
    let wanted = |id: &str| exhibits.iter().any(|wanted| wanted == id);
    let base = Config { warm_up: packets * 2 / 3, measured: packets, ..Config::baseline() };
    let mut progress = |name: &str| lab.tell(name);
    let mut runs = Runs::new(&base, &mut progress);
    let mut rows = Vec::new();
    for id in IDS.into_iter().filter(|id| wanted(id)) {
        lab.step(id)?;
        rows.extend(ch::experiments(&mut runs, |one| one == id));
    }
    let all = IDS.into_iter().all(&wanted);
    let comparisons = if all { statements(&mut runs) } else { Vec::new() };
    for name in VARIED.into_iter().filter(|_| wanted(SENSITIVITY)) {
        lab.step(name)?;
        rows.extend(sensitivity(&base, name, &mut |what| lab.tell(what)));
    }
    Ok(Outcome { packets, rows, comparisons })
}

impl Outcome {
    fn findings(&self) -> anyhow::Result<Findings> {
        let row = |row: &ch::Row| {
            let ch::Row { id, name, unit, paper, here, on } = row;
            let drawn = on.map_or(Drawn::Bar, |(line, x)| Drawn::Point { line: line.to_owned(), x });
            (*id, Row { name: name.clone(), unit, paper: *paper, here: *here, drawn })
        };
        let rows: Rows = self.rows.iter().map(row).collect();
        let claims = self.comparisons.iter().map(claim).collect();
        Ok(Findings::new(self, table(&rows), claims)?.showing(rows))
    }
}

/// A comparison of the paper as a claim.
fn claim(statement: &Statement) -> Claim {
    let Statement { claim, unit, paper, here, .. } = statement;
    let paper = paper.map_or(String::new(), |paper| format!(" ({} {unit})", short(paper)));
    Claim {
        source: "CH section 5".to_owned(),
        paper: format!("{claim}{paper}").into(),
        here: format!("{} {unit}", short(*here)),
        holds: Some(statement.holds()),
    }
}

fn table(rows: &Rows) -> String {
    let mut out = String::new();
    for (id, Row { name, unit, paper, here, .. }) in rows {
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let _ = writeln!(out, "{id:18} {name:62} {:>10} {:>10} {unit}", text(*paper), text(*here));
    }
    out
}
