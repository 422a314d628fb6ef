//! Tables and figures of CH as rows, each beside the paper's value where it prints one.
//!
//! ```text
//!   figures: the paper's values --+
//!   runs: a configuration's run --+--> experiments: Row
//!                                 +--> statements: Statement
//! ```

pub mod figures;
pub mod metric;
pub mod runs;
pub mod sensitivity;
pub mod statements;

use crate::calibration::{BASELINE, STATIC_NIC_IDLE};
use crate::workload::{Kind, shares};
use figures::{FIGURES, GAINS};
use metric::Metric;
use runs::Runs;

/// One value of an experiment.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Row {
    /// The experiment, such as `ch-figure-5`.
    pub id: &'static str,
    /// Configuration and quantity.
    pub name: String,
    /// Unit of both values.
    pub unit: &'static str,
    /// The paper's value, if it prints one.
    pub paper: Option<f64>,
    /// The value here.
    pub here: Option<f64>,
    /// The line of a plot that the value is on, and its x.
    pub on: Option<(&'static str, f64)>,
}

/// The experiments, in the order of the paper.
pub const IDS: [&str; 10] = [
    "ch-calibration",
    "ch-table-1",
    "ch-figure-4",
    "ch-figure-5",
    "ch-gains",
    "ch-figure-6",
    "ch-figure-7",
    "ch-selection",
    "ch-figure-8",
    "ch-response-times",
];

/// Configurations of figure 5.
const FIGURE_5: [&str; 22] = [
    "W-0-N-N-FCFS-400",
    "W-256-N-N-FCFS-400",
    "W-1024-N-N-FCFS-400",
    "W-1024-P-N-FCFS-400",
    "W-1024-P-L-FCFS-400",
    "W-4096-P-N-FCFS-400",
    "W-4096-P-L-FCFS-400",
    "I-0-N-N-FCFS-400",
    "I-1024-N-N-FCFS-400",
    "I-1024-P-N-FCFS-400",
    "I-4096-P-N-FCFS-400",
    "I-4096-P-L-FCFS-400",
    "S-0-N-N-FCFS-400",
    "S-2048-N-N-FCFS-400",
    "S-2048-P-N-FCFS-400",
    "S-4096-P-N-FCFS-400",
    "S-4096-P-L-FCFS-400",
    "D-0-N-N-FCFS-400",
    "D-1024-N-N-FCFS-400",
    "D-1024-P-N-FCFS-400",
    "D-4096-P-N-FCFS-400",
    "D-4096-P-L-FCFS-400",
];

const TABLE_1: [&str; 4] = ["W-0-N-N-FCFS-400", "W-256-N-N-FCFS-400", "W-1024-N-N-FCFS-400", "W-1024-P-N-FCFS-400"];

/// Selections that figure 7 and the prediction's experiment compare.
pub const SELECTIONS: [&str; 7] = ["FCFS", "T4", "T10", "T20", "predict", "responses", "oracle"];
const PLACES: [u32; 3] = [256, 512, 1024];

/// The rows of the wanted ones of [`IDS`].
pub fn experiments(runs: &mut Runs<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    IDS.into_iter().filter(|id| wanted(id)).flat_map(|id| experiment(id, runs)).collect()
}

fn experiment(id: &'static str, runs: &mut Runs<'_>) -> Vec<Row> {
    use Metric::*;
    match id {
        "ch-calibration" => calibration(id, runs),
        "ch-table-1" => {
            rows(id, runs, &TABLE_1.map(str::to_owned), &[SendDelay, ReceiveDelay, HostIdle, NicIdle, RequestRate])
        }
        "ch-figure-4" => lifetimes(id, runs.base().seed),
        "ch-figure-5" => rows(id, runs, &FIGURE_5.map(str::to_owned), &Metric::ALL),
        "ch-gains" => gains(id, runs),
        "ch-figure-6" => course(id, runs, "W-4096-P-L-FCFS-400"),
        "ch-figure-7" => {
            let names = PLACES.iter().flat_map(|places| SELECTIONS.map(|by| format!("W-{places}-P-L-{by}-400")));
            rows(id, runs, &names.collect::<Vec<_>>(), &[HandedOff, NicPackets, NicIdle, RequestRate])
        }
        "ch-selection" => rows(id, runs, &tenths(), &[NicPackets, NicIdle, RequestRate]),
        "ch-figure-8" => {
            let letters = Kind::ALL.map(Kind::letter);
            let names = letters.iter().flat_map(|w| [400, 600, 800].map(|mips| format!("{w}-4096-P-L-FCFS-{mips}")));
            rows(id, runs, &names.collect::<Vec<_>>(), &[HandedOff, NicPackets, NicIdle, RequestRate, ContentRate])
        }
        _ => {
            let names = |w: &str| {
                ["0-N-N-FCFS-400", "1024-N-N-FCFS-400", "1024-P-L-FCFS-400", "4096-P-L-FCFS-600", "4096-P-L-FCFS-800"]
                    .map(|rest| format!("{w}-{rest}"))
            };
            let names: Vec<String> = Kind::ALL.into_iter().flat_map(|kind| names(kind.letter())).collect();
            rows(id, runs, &names, &[Response])
        }
    }
}

/// Each workload with places for a tenth of its connections, by each selection.
fn tenths() -> Vec<String> {
    let of = |kind: Kind| SELECTIONS.map(|by| format!("{}-{}-P-L-{by}-400", kind.letter(), kind.clients() / 10));
    Kind::ALL.into_iter().flat_map(of).collect()
}

fn rows(id: &'static str, runs: &mut Runs<'_>, names: &[String], metrics: &[Metric]) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in names {
        for &metric in metrics {
            let printed = FIGURES.iter().find(|&&(of, printed, what, _)| of == id && printed == name && what == metric);
            rows.push(Row {
                id,
                name: format!("{name} {}", metric.label()),
                unit: metric.unit(),
                paper: printed.map(|figure| figure.3),
                here: runs.value(name, metric),
                on: None,
            });
        }
    }
    rows
}

/// The figures that the calibration reads, so no predictions.
fn calibration(id: &'static str, runs: &mut Runs<'_>) -> Vec<Row> {
    let read = [
        ("W-0-N-N-FCFS-400", Metric::RequestRate, BASELINE.request_rate),
        ("W-0-N-N-FCFS-400", Metric::Stack, BASELINE.stack),
        ("W-0-N-N-FCFS-400", Metric::NicIdle, BASELINE.nic_idle),
        ("S-0-N-N-FCFS-400", Metric::NicIdle, STATIC_NIC_IDLE),
    ];
    let row = |(name, metric, paper): (&str, Metric, f64)| Row {
        id,
        name: format!("{name} {}", metric.label()),
        unit: metric.unit(),
        paper: Some(paper),
        here: runs.value(name, metric),
        on: None,
    };
    read.map(row).into()
}

/// CH figure 4: the paper prints bounds, less than 10 % and more than 45 %, and for W more than 60 % (§5.2).
fn lifetimes(id: &'static str, seed: u64) -> Vec<Row> {
    let of = |kind: Kind| {
        let (half, tenth) = shares(kind.generator(seed).as_mut(), 20_000);
        let row = |name: &str, paper, here| Row {
            id,
            name: format!("{} packets of {name}", kind.letter()),
            unit: "%",
            paper: Some(paper),
            here: Some(here),
            on: None,
        };
        let most = if kind == Kind::WorldCup { 60.0 } else { 45.0 };
        [row("the shorter half of the connections", 10.0, half), row("the longest tenth", most, tenth)]
    };
    Kind::ALL.into_iter().flat_map(of).collect()
}

fn gains(id: &'static str, runs: &mut Runs<'_>) -> Vec<Row> {
    let row = |&(name, over, metric, paper): &figures::Gain| Row {
        id,
        name: format!("{name} over {over} {}", metric.label()),
        unit: "%",
        paper: Some(paper),
        here: runs.gain(name, over, metric),
        on: None,
    };
    GAINS.iter().map(row).collect()
}

/// CH figure 6: the soft limit, and the connections on the NIC, ten times a second.
fn course(id: &'static str, runs: &mut Runs<'_>, name: &str) -> Vec<Row> {
    let Some(run) = runs.get(name) else { return Vec::new() };
    let points = run.course.iter().step_by(10);
    let rows = points.flat_map(|&(at, limit, there)| {
        [("soft limit", limit), ("connections on the NIC", there)].map(|(what, here)| Row {
            id,
            name: format!("{what} after {:.1} s", at as f64 / 1e9),
            unit: "connections",
            paper: None,
            here: Some(f64::from(here)),
            on: Some((what, at as f64 / 1e9)),
        })
    });
    rows.collect()
}
