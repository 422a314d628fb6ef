//! Results of programs on several ways, as a table and as files.

use crate::experiment::Findings;
use crate::report::{Machine, short};
use crate::workload::account::Account;
use crate::workload::client::{LOADS, Load, Outcome};
use crate::workload::idle::Idle;
use crate::workload::ways::{PIPELINED, Placement, Way};
use baton_apps::measure::{Quartiles, quartiles};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write as _;

/// The id of the bare device among the ways.
pub const BARE: &str = "bare";

/// One load on one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Id of the load.
    pub load: String,
    /// Id of the way.
    pub way: String,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = Load::of(&self.load).map_or(self.load.as_str(), |load| load.name);
        write!(f, "{load} · {}", name_of(&self.way))
    }
}

/// All runs of one load on one way.
pub type Series = crate::experiment::Series<Point, Outcome>;

/// How many of a server's connections left the kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// Id of the way.
    pub way: String,
    /// Name of the program.
    pub program: String,
    /// Connections on the engine, or in pairs.
    pub moved: u64,
    /// All of them.
    pub all: u64,
}

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Every load on every way.
    pub series: Vec<Series>,
    /// Connections that do nothing, on every way.
    pub idle: Vec<Idle>,
    /// How many connections of each server moved.
    pub shares: Vec<Share>,
    /// Parts that are missing, with the reasons.
    pub not_here: Vec<String>,
}

/// The name of a way.
fn name_of(way: &str) -> &'static str {
    Way::of(way).map_or("bare TAP device", |way| way.name)
}

/// The id of the kernel's way over the same frames.
fn baseline_of(way: &str) -> Option<&'static str> {
    Way::of(way).map_or(Some("kernel"), |way| way.baseline)
}

/// A measured value of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// CPU time of the machine per request or byte, in nanoseconds.
    Cost,
    /// Requests or bytes for each nanosecond of CPU time of the machine. More is better.
    Work,
    /// Median latency in nanoseconds.
    Median,
}

impl Figure {
    fn of(self, run: &Outcome) -> Option<f64> {
        match self {
            Figure::Cost => run.cost(),
            Figure::Work => run.cost().map(f64::recip),
            Figure::Median => (run.p50_ns > 0).then_some(run.p50_ns as f64),
        }
    }
}

fn values(series: &Series, figure: Figure) -> Vec<f64> {
    series.values(|run| figure.of(run))
}

/// A series as a row of the table.
struct Row<'r> {
    report: &'r Report,
    load: &'r Load,
    series: &'r Series,
}

impl Row<'_> {
    /// A figure divided by that of another way.
    fn to(&self, way: Option<&str>, figure: Figure) -> Option<Quartiles> {
        let Row { report, load, series } = self;
        quartiles(&series.ratios(report.find(load.id, way?)?, |run| figure.of(run)))
    }

    fn to_kernel(&self, figure: Figure) -> String {
        self.to(baseline_of(&self.series.point.way), figure).map_or(String::new(), |q| q.ratio())
    }

    fn cost_to(&self, way: &str) -> String {
        self.to(Some(way), Figure::Cost).map_or(String::new(), |q| format!("{:.2}×", q.median))
    }

    fn rate(&self) -> String {
        let rate = middle(&self.series.values(|run| Some(run.rate())));
        if self.load.has_requests() { format!("{} /s", short(rate)) } else { format!("{} Gb/s", short(rate * 8e-9)) }
    }

    fn cost(&self) -> String {
        let cost = middle(&values(self.series, Figure::Cost));
        // Nanoseconds per byte equal seconds per gigabyte.
        if self.load.has_requests() { format!("{} µs", short(cost / 1e3)) } else { format!("{} s/GB", short(cost)) }
    }

    fn latency(&self) -> String {
        let values = values(self.series, Figure::Median);
        if values.is_empty() { String::new() } else { format!("{} µs", short(middle(&values) / 1e3)) }
    }

    /// How many of the client's connections were in pairs, in all runs.
    fn paired(&self) -> String {
        let accounts = self.series.runs.iter().filter_map(|run| run.account);
        accounts.reduce(Account::and).map_or(String::new(), |account| account.to_string())
    }
}

/// A column of the table.
struct Column {
    head: &'static str,
    width: usize,
    cell: fn(&Row<'_>) -> String,
}

const RATE: Column = Column { head: "rate", width: 13, cell: |row| row.rate() };
const CPU: Column = Column { head: "CPU", width: 14, cell: |row| row.cost() };
const P50: Column = Column { head: "p50", width: 12, cell: |row| row.latency() };
const CPU_RATIO: Column = Column { head: "to the kernel", width: 20, cell: |row| row.to_kernel(Figure::Cost) };
const P50_RATIO: Column = Column { head: "to the kernel", width: 20, cell: |row| row.to_kernel(Figure::Median) };

/// The columns for ways over wires.
const OVER_WIRES: [Column; 6] = [
    RATE,
    CPU,
    CPU_RATIO,
    Column {
        head: "with offloads",
        width: 15,
        cell: |row| if row.series.point.way.ends_with("-xdp") { row.cost_to("kernel") } else { String::new() },
    },
    P50,
    P50_RATIO,
];

/// The columns for ways of one machine.
const LOCALLY: [Column; 8] = [
    RATE,
    CPU,
    CPU_RATIO,
    Column { head: "work a CPU second", width: 20, cell: |row| row.to_kernel(Figure::Work) },
    P50,
    P50_RATIO,
    Column { head: "CPU to 256 at once", width: 20, cell: |row| row.cost_to(PIPELINED) },
    Column { head: "paired", width: 16, cell: |row| row.paired() },
];

impl Report {
    fn find(&self, load: &str, way: &str) -> Option<&Series> {
        self.series.iter().find(|Series { point, .. }| point.load == load && point.way == way)
    }

    fn loads(&self) -> Vec<Load> {
        LOADS.into_iter().filter(|load| self.series.iter().any(|series| series.point.load == load.id)).collect()
    }

    /// Ids of the ways in the order of display; the bare device is last.
    fn ways() -> impl Iterator<Item = &'static str> {
        Way::all().map(|way| way.id).chain([BARE])
    }

    /// A figure of a load on a way, divided by the kernel's over the same frames.
    pub fn ratio(&self, load: &str, way: &str, figure: Figure) -> Option<Quartiles> {
        let load = &Load::of(load)?;
        Row { report: self, load, series: self.find(load.id, way)? }.to(baseline_of(way), figure)
    }

    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        self.table_of(&OVER_WIRES)
    }

    /// The same for ways of one machine.
    pub fn local_table(&self) -> String {
        self.table_of(&LOCALLY)
    }

    fn table_of(&self, columns: &[Column]) -> String {
        let heads: String = columns.iter().map(|Column { head, width, .. }| format!("{head:>width$}")).collect();
        let mut out = format!("{:<30}{heads}\n", "");
        for load in &self.loads() {
            let _ = writeln!(out, "{}", load.name);
            for way in Report::ways() {
                let Some(series) = self.find(load.id, way).filter(|series| !series.runs.is_empty()) else { continue };
                let row = Row { report: self, load, series };
                let cell = |column: &Column| format!("{:>width$}", (column.cell)(&row), width = column.width);
                let cells: String = columns.iter().map(cell).collect();
                let _ = writeln!(out, "  {:<28}{cells}", name_of(way));
            }
        }
        out.push_str("medians of alternating rounds; ratios of CPU time and latency with quartiles; less is better\n");
        for idle in &self.idle {
            let (name, share) = (name_of(&idle.way), idle.cpu * 100.0);
            let _ = writeln!(out, "{} idle connections, {name}: {share:.1} % of a CPU", idle.connections);
        }
        for Share { way, program, moved, all } in &self.shares {
            let is_paired = Way::of(way).is_some_and(|way| way.placement == Placement::Paired);
            let place = if is_paired { "in pairs" } else { "on the engine" };
            let _ = writeln!(out, "{program}, {}: {moved} of {all} connections {place}", name_of(way));
        }
        for what in &self.not_here {
            let _ = writeln!(out, "not here: {what}");
        }
        let _ = writeln!(out, "other programs used {:.0} % of the CPUs just before", self.machine.background * 100.0);
        out
    }

    /// The results in every form.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self) -> anyhow::Result<Findings> {
        Ok(Findings { files: self.rounds("programs"), ..Findings::new(self, self.table(), Vec::new())? })
    }

    /// For every load and figure a table of all runs in the form of alternated rounds. The names of the files
    /// begin with `prefix`.
    pub fn rounds(&self, prefix: &str) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for load in self.loads() {
            let per = if load.has_requests() { "cpu-a-request" } else { "cpu-a-byte" };
            for (figure, what) in [(Figure::Cost, per), (Figure::Median, "p50")] {
                let mut csv = "contender,round,ns\n".to_owned();
                for way in Report::ways() {
                    let values = self.find(load.id, way).map_or(Vec::new(), |series| values(series, figure));
                    for (round, value) in values.iter().enumerate() {
                        let _ = writeln!(csv, "\"{}\",{round},{value:.4}", name_of(way));
                    }
                }
                if csv.lines().count() > 1 {
                    files.push((format!("{prefix}-{}-{what}.csv", load.id), csv));
                }
            }
        }
        files
    }
}

fn middle(values: &[f64]) -> f64 {
    quartiles(values).map_or(0.0, |q| q.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let run = |busy: f64, p50_ns| {
            let cpu = baton_apps::measure::Cpu { busy, ..Default::default() };
            Outcome { seconds: 1.0, requests: 1_000_000, p50_ns, cpu, ..Outcome::default() }
        };
        let series = |way: &str, all: &[f64]| Series {
            point: Point { load: "ping-pong".into(), way: way.into() },
            runs: all.iter().map(|busy| run(*busy, (busy * 1e4) as u64)).collect(),
        };
        Report {
            machine: Machine::default(),
            series: vec![
                series("kernel", &[2.0, 2.0, 4.0]),
                series("service-tc", &[1.0, 3.0, 3.0]),
                series("kernel-xdp", &[4.0, 4.0, 4.0]),
                series("service-xdp", &[2.0, 2.0, 2.0]),
                series(BARE, &[1.0, 1.0, 1.0]),
            ],
            idle: vec![Idle { way: "service-tc".into(), connections: 1000, cpu: 0.0042 }],
            shares: vec![Share { way: "service-tc".into(), program: "nginx".into(), moved: 9, all: 10 }],
            not_here: vec!["redis GET: no program".into()],
        }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios() {
        let report = report();
        assert_eq!(report.ratio("ping-pong", "service-tc", Figure::Cost).unwrap().median, 0.75);
        assert_eq!(report.ratio("ping-pong", "service-xdp", Figure::Cost).unwrap().median, 0.5);
        assert_eq!(report.ratio("ping-pong", "kernel", Figure::Cost), None);
    }

    #[test]
    fn the_table_has_every_way_with_its_ratios() {
        let table = report().table();
        let line = |name: &str| table.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(line("Baton service, tc").contains("0.75 (0.62–1.12)"), "{table}");
        let xdp = line("Baton service, xdp");
        assert!(xdp.contains("0.50 (0.50–0.50)") && xdp.contains("1.00×"), "{table}");
        assert!(line("bare TAP device").contains("0.50 (0.38–0.50)"), "{table}");
        assert!(table.contains("nginx, Baton service, tc: 9 of 10 connections on the engine"), "{table}");
        assert!(table.contains("1000 idle connections, Baton service, tc: 0.4 % of a CPU"), "{table}");
        assert!(table.contains("not here: redis GET"), "{table}");
    }

    #[test]
    fn raw_figures_are_there_for_each_load() {
        let findings = report().findings().unwrap();
        let file = |wanted: &str| findings.files.iter().find(|(name, _)| name == wanted).unwrap().1.as_str();
        let csv = file("programs-ping-pong-cpu-a-request.csv");
        assert_eq!(csv.lines().nth(1), Some("\"kernel\",0,2000.0000"));
        assert!(!file("programs-ping-pong-p50.csv").is_empty());
        assert_eq!(serde_json::from_str::<Report>(&findings.json).unwrap().series.len(), 5);
    }

    #[test]
    fn the_table_of_one_machine_says_what_was_in_pairs() {
        let mut report = report();
        let account = Account { moved: 2, paired: 1, all: 3 };
        let paired = report.series[1].runs.iter().map(|run| Outcome { account: Some(account), ..*run }).collect();
        report.series.push(Series { point: Point { load: "ping-pong".into(), way: "pair".into() }, runs: paired });
        report.shares = vec![Share { way: "pair".into(), program: "baton".into(), moved: 1, all: 3 }];
        let table = report.local_table();
        let row = table.lines().find(|line| line.trim_start().starts_with("Baton, pairs")).unwrap();
        // The medians of 1/0.5, 1/1.5 and 1/0.75.
        assert!(row.contains("1.33 (1.00–1.67)") && row.ends_with("3 of 9"), "{table}");
        assert!(table.contains("baton, Baton, pairs: 1 of 3 connections in pairs"), "{table}");
    }
}
