//! How busy the TCP Control Engine (TCE) is while data moves, by message size (LC §5, figures 3 to 6).
//!
//! LC is Shalev, Makhervaks and others, *Loosely Coupled TCP Acceleration Architecture* (2006). It
//! measured its control engine at 12 % of one 1.8 GHz CPU while receiving 3.7 Gb/s, and at less than
//! 20 % in all cases. Only the share per Gb/s carries over to another machine, so the report has it too.

use crate::report::html::page;
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::{Figure, Machine, Run, Side, short};
use crate::workload::memory::{Pair, run_pair};
use crate::workload::wires::{TapRun, tap_run};
use crate::world::World;
use anyhow::bail;
use baton_apps::load::{Check, Kind as LoadKind, Load};
use baton_apps::measure::{Median, median};
use baton_apps::services::{Kind, Message};
use baton_apps::signal::Stop;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Message sizes in bytes: the paper's range.
pub const SIZES: [usize; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The paper's result: share of a 1.8 GHz CPU at a rate in Gb/s, receiving.
const PAPER: (f64, f64) = (0.12, 3.7);

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

/// One size in one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Whether Baton sends or receives.
    pub direction: Direction,
    /// Bytes per read or write of the service, and per write of the client.
    pub message_bytes: usize,
    /// Each measured run.
    pub runs: Vec<Run>,
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

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of runs of each size in each direction.
    pub rounds: usize,
    /// Length of one run.
    pub length: Duration,
    /// True if segments of up to 64 KB pass unsplit.
    pub offloads: bool,
}

/// Measures every size in both directions: over a TAP device against the kernel if there is a `world`,
/// otherwise over a wire in memory.
///
/// # Errors
/// If a load fails or the measurement is asked to end.
pub fn run(world: Option<&World>, options: &Options, stop: &Stop, tell: &dyn Fn(&str)) -> anyhow::Result<Outcome> {
    let &Options { rounds, length, offloads } = options;
    let background = baton_apps::measure::Cpu::idle_check(Duration::from_millis(300))?;
    let mut points = Vec::new();
    for direction in [Direction::Receive, Direction::Transmit] {
        points.extend(SIZES.map(|message_bytes| Point { direction, message_bytes, runs: Vec::new() }));
    }
    for round in 1..=rounds {
        for point in &mut points {
            tell(&format!("round {round} of {rounds} · {} · {} bytes", point.direction.name(), point.message_bytes));
            if stop.requested() {
                bail!("interrupted");
            }
            let (load, message_bytes) = (point.direction.load(), point.message_bytes);
            point.runs.push(match world {
                Some(world) => tap_run(world, &TapRun { offloads, load, message_bytes, length }, stop)?,
                None => memory_run(offloads, point.direction, message_bytes, length)?,
            });
        }
    }
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
        peer_pid: None,
        peer_cpu: None,
    };
    run_pair(&mut pair, &load)
}

impl Point {
    fn median(&self, figure: Figure) -> Option<Median> {
        median(&self.runs.iter().filter_map(|run| figure.of(run)).collect::<Vec<_>>())
    }

    /// Share of a CPU in percent per Gb/s.
    fn tce_per_gbps(&self) -> Option<f64> {
        Some(self.median(Figure::Tce)?.median / self.median(Figure::Throughput)?.median)
    }
}

impl Outcome {
    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        let mut out = format!("{:<10}{:>10}{:>14}{:>12}{:>18}\n", "", "message", "rate", "TCE", "TCE per Gb/s");
        for point in &self.points {
            let text = |value: Option<f64>, unit: &str| value.map_or(String::new(), |v| format!("{} {unit}", short(v)));
            let rate = text(point.median(Figure::Throughput).map(|m| m.median), "Gb/s");
            let tce = text(point.median(Figure::Tce).map(|m| m.median), "%");
            let per = text(point.tce_per_gbps(), "%");
            let (direction, message) = (point.direction.name(), point.message_bytes);
            let _ = writeln!(out, "{direction:<10}{message:>10}{rate:>14}{tce:>12}{per:>18}");
        }
        let (share, rate) = PAPER;
        let (rate_text, tce, per) = (format!("{rate} Gb/s"), format!("{} %", share * 100.0), share * 100.0 / rate);
        let _ = writeln!(out, "{:<10}{:>10}{rate_text:>14}{tce:>12}{:>18}", "paper", "", format!("{} %", short(per)));
        let _ = writeln!(out, "over a {}; the paper's CPU ran at 1.8 GHz (LC, figures 3 to 6)", self.wire);
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
                    point.direction.name(),
                    point.message_bytes,
                    run.seconds,
                    run.bytes,
                    run.cpu.busy(),
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
                let points = self.points.iter().filter(|point| point.direction == direction);
                let row = |point: &Point| {
                    let mark = Mark::Bar(point.median(figure)?);
                    Some(Row { label: format!("{} KiB", point.message_bytes >> 10), side: Side::Baton, mark })
                };
                let mut rows: Vec<Row> = points.filter_map(row).collect();
                if direction == Direction::Receive {
                    let value = if figure == Figure::Tce { share * 100.0 } else { rate };
                    let mark = Mark::Bar(Median { median: value, min: value, max: value });
                    rows.push(Row { label: "paper".to_owned(), side: Side::Kernel, mark });
                }
                Group { label: format!("{}, by message size", direction.name()), rows }
            });
            let plot = Plot { id, title: title.to_owned(), unit: figure.unit(), groups: groups.into() };
            if let Some(svg) = plot.render() {
                let _ =
                    write!(body, "<figure><h3>{title} <span class=\"soft\">{}</span></h3>{svg}</figure>", plot.unit);
            }
        }
        let _ = write!(body, "</div><h2>Numbers</h2><div class=\"scroll\"><pre>{}</pre></div>", self.table());
        let lead = format!(
            "Over a {}. {} × {}, Linux {}.",
            self.wire, self.machine.cpus, self.machine.cpu, self.machine.kernel
        );
        page("How busy the TCP Control Engine is", &lead, &body)
    }
}
