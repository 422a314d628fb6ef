//! How busy the TCP Control Engine (TCE) is while data moves, by message size (LC §5, figures 3 to 6).
//!
//! LC is Shalev, Makhervaks and others, *Loosely Coupled TCP Acceleration Architecture* (2006). It
//! measured its control engine at 12 % of one 1.8 GHz CPU while receiving 3.7 Gb/s, and at less than
//! 20 % in all cases. Only the share per Gb/s carries over to another machine, so the report has it too.

mod rows;

use super::LC;
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need, Series, Source, Statement};
use crate::report::claim::{self, Claim};
use crate::report::html::page;
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::{Figure, Machine, Run, Side, short};
use crate::workload::memory::{Pair, run_pair};
use crate::workload::wires::{TapRun, tap_run};
use anyhow::Context;
use baton_apps::load::{Check, Kind as LoadKind, Load};
use baton_apps::measure::{Cpu, Median, median};
use baton_apps::services::{Kind, Message};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// The share of the time in which the TCP Control Engine is busy.
pub const EXPERIMENT: Experiment = Experiment {
    id: "tce",
    title: "How busy the TCP Control Engine is, by message size and direction",
    needs: &[Need { without: Some("measures over a wire in memory"), ..Need::ROOT }],
    axes: &[
        Axis { name: "direction", about: "whether Baton receives or sends" },
        Axis::MESSAGES,
        Axis { name: "offloads", about: "whether segments of up to 64 KB pass unsplit" },
    ],
    command: "baton bench tce",
    run: |lab, extent| run(lab, extent)?.findings(),
};

const SOURCE: Source = Source { paper: &LC, place: "figures 3 to 6" };

/// The paper's result: share of a 1.8 GHz CPU at a rate in Gb/s, receiving.
const PAPER: (f64, f64) = (0.12, 3.7);

/// The paper's statements.
const STATEMENTS: [Statement<Outcome>; 2] = [
    Statement {
        source: Source { paper: &LC, place: "figure 4" },
        says: "the TCE yields 88 % of a 1.8 GHz CPU when it receives 3.7 Gb/s: it needs 3.24 % per Gb/s",
        judge: |outcome| {
            let shares = outcome.of(Direction::Receive).filter_map(Point::tce_per_gbps);
            let (low, high) = range(shares)?;
            Some((format!("{} to {} % of a CPU per Gb/s", short(low), short(high)), high <= PAPER.0 * 100.0 / PAPER.1))
        },
    },
    Statement {
        source: Source { paper: &LC, place: "section 6" },
        says: "3.7 Gb/s need less than 20 % of CPU time",
        judge: |outcome| {
            let shares = outcome.points.iter().filter_map(|point| Some(point.median(Figure::Tce)?.median));
            let (low, high) = range(shares)?;
            Some((format!("{} to {} % of a CPU, at every size both ways", short(low), short(high)), high < 20.0))
        },
    },
];

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.map(|value| (value, value)).reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
}

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Where.
    pub machine: Machine,
    /// Over what.
    pub wire: String,
    /// Every size in every direction.
    pub points: Vec<Point>,
}

/// The runs of one size in one direction.
pub type Point = Series<Way, Run>;

/// One size in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Way {
    /// Whether Baton sends or receives.
    pub direction: Direction,
    /// Bytes per read or write of the service, and per write of the client.
    pub message_bytes: usize,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {} bytes", self.direction.name(), self.message_bytes)
    }
}

/// Direction of the data, as Baton sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Baton receives.
    Receive,
    /// Baton sends.
    Transmit,
}

impl Direction {
    /// The client's load for this direction.
    fn load(self) -> LoadKind {
        match self {
            Direction::Receive => LoadKind::Send,
            Direction::Transmit => LoadKind::Receive,
        }
    }

    fn service(self) -> Kind {
        match self {
            Direction::Receive => Kind::Discard,
            Direction::Transmit => Kind::Chargen,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Direction::Receive => "receive",
            Direction::Transmit => "transmit",
        }
    }
}

/// Measures every size in both directions: over a TAP device against the kernel if there are namespaces,
/// otherwise over a wire in memory.
///
/// # Errors
/// If a load fails or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Outcome> {
    let (length, world) = (extent.length(), lab.world_or_memory());
    let offloads = *extent.values("offloads")?.first().context("no value of offloads")?;
    let background = Cpu::idle_check(Duration::from_millis(300))?;
    let sizes: Vec<usize> = extent.values(Axis::MESSAGES.name)?;
    let mut groups = Vec::new();
    for direction in extent.values("direction")? {
        groups.extend(sizes.iter().map(|&message_bytes| vec![Way { direction, message_bytes }]));
    }
    let points = lab.alternate(extent.rounds, groups, |&Way { direction, message_bytes }| match world {
        Some(world) => tap_run(world, &TapRun { offloads, load: direction.load(), message_bytes, length }, lab.stop()),
        None => memory_run(offloads, direction, message_bytes, length),
    })?;
    let wire = match world {
        Some(_) => "TAP device, MTU 1500, the kernel at the other end",
        None => "wire in memory, MTU 1500, another engine at the other end, both on one thread",
    };
    let frames = if offloads { "segments of up to 64 KB pass unsplit" } else { "every segment is a frame" };
    Ok(Outcome { machine: Machine::here(background), wire: format!("{wire}; {frames}"), points })
}

fn memory_run(offloads: bool, direction: Direction, message_bytes: usize, length: Duration) -> anyhow::Result<Run> {
    let mut pair = Pair::new(offloads)?;
    let service = direction.service();
    pair.offer(&service, Message(message_bytes))?;
    let load = Load {
        kind: direction.load(),
        target: SocketAddr::new([10, 77, 0, 2].into(), service.default_port()),
        connections: 1,
        size: message_bytes,
        warmup: length / 4,
        length,
        check: Check::Ends,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    run_pair(&mut pair, &load)
}

impl Point {
    fn median(&self, figure: Figure) -> Option<Median> {
        median(&self.values(|run| figure.of(run)))
    }

    /// Share of a CPU in percent per Gb/s.
    fn tce_per_gbps(&self) -> Option<f64> {
        Some(self.median(Figure::Tce)?.median / self.median(Figure::Throughput)?.median)
    }
}

impl Outcome {
    /// The points of one direction.
    fn of(&self, direction: Direction) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |series| series.point.direction == direction)
    }

    /// The paper's statements, compared with the results.
    pub fn claims(&self) -> Vec<Claim> {
        STATEMENTS.iter().map(|statement| statement.claim(self)).collect()
    }

    /// The results in every form.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self) -> anyhow::Result<Findings> {
        Ok(Findings::new(self, self.table(), self.claims())?.with(self.csv(), self.page()).showing(rows::rows(self)))
    }

    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        let mut out = format!("{:<10}{:>10}{:>14}{:>12}{:>18}\n", "", "message", "rate", "TCE", "TCE per Gb/s");
        for point in &self.points {
            let text = |value: Option<f64>, unit: &str| value.map_or(String::new(), |v| format!("{} {unit}", short(v)));
            let rate = text(point.median(Figure::Throughput).map(|m| m.median), "Gb/s");
            let tce = text(point.median(Figure::Tce).map(|m| m.median), "%");
            let per = text(point.tce_per_gbps(), "%");
            let (direction, message) = (point.point.direction.name(), point.point.message_bytes);
            let _ = writeln!(out, "{direction:<10}{message:>10}{rate:>14}{tce:>12}{per:>18}");
        }
        let (share, rate) = PAPER;
        let (rate_text, tce, per) = (format!("{rate} Gb/s"), format!("{} %", share * 100.0), share * 100.0 / rate);
        let _ = writeln!(out, "{:<10}{:>10}{rate_text:>14}{tce:>12}{:>18}", "paper", "", format!("{} %", short(per)));
        let _ = writeln!(out, "over a {}; the paper's CPU ran at 1.8 GHz ({SOURCE})", self.wire);
        claim::lines(&mut out, &self.claims());
        out
    }

    /// Every run as comma-separated values.
    pub fn csv(&self) -> String {
        let mut out = "direction,message_bytes,seconds,bytes,cpu_busy_s,tce_share\n".to_owned();
        for point in &self.points {
            for run in &point.runs {
                let _ = writeln!(
                    out,
                    "{},{},{:.6},{},{:.2},{:.6}",
                    point.point.direction.name(),
                    point.point.message_bytes,
                    run.seconds,
                    run.bytes,
                    run.cpu.busy,
                    run.tce.unwrap_or(f64::NAN)
                );
            }
        }
        out
    }

    /// A page with the figures as plots and the table.
    pub fn page(&self) -> String {
        let mut body = String::from("<div class=\"plots\">");
        let (share, rate) = PAPER;
        for (id, title, figure) in
            [("tce", "TCP Control Engine, share of one CPU", Figure::Tce), ("rate", "Throughput", Figure::Throughput)]
        {
            let groups = [Direction::Receive, Direction::Transmit].map(|direction| {
                let row = |point: &Point| {
                    let mark = Mark::Bar(point.median(figure)?);
                    Some(Row { label: format!("{} KiB", point.point.message_bytes >> 10), side: Side::Baton, mark })
                };
                let mut rows: Vec<Row> = self.of(direction).filter_map(row).collect();
                if direction == Direction::Receive {
                    let value = if figure == Figure::Tce { share * 100.0 } else { rate };
                    let mark = Mark::Bar(Median { median: value, min: value, max: value });
                    rows.push(Row { label: "paper".to_owned(), side: Side::Kernel, mark });
                }
                Group { label: format!("{}, by message size", direction.name()), rows }
            });
            let plot = Plot { id: id.to_owned(), title: title.to_owned(), unit: figure.unit(), groups: groups.into() };
            if let Some(svg) = plot.render() {
                let _ =
                    write!(body, "<figure><h3>{title} <span class=\"soft\">{}</span></h3>{svg}</figure>", plot.unit);
            }
        }
        body.push_str("</div><h2>The paper's statements</h2>");
        claim::paragraphs(&mut body, &self.claims());
        let _ = write!(body, "<h2>Numbers</h2><div class=\"scroll\"><pre>{}</pre></div>", self.table());
        let lead = format!(
            "Over a {}. {} × {}, Linux {}.",
            self.wire, self.machine.cpus, self.machine.cpu, self.machine.kernel
        );
        page("How busy the TCP Control Engine is", &lead, &body)
    }
}
