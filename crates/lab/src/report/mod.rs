//! The results of the demo in three forms: a table for the terminal ([`table`]), JSON (the types of this
//! module), and a self-contained HTML page ([`html`]).
//!
//! A report is a matrix of wires and loads: each [`Cell`] holds the runs of one load over one wire, and
//! the median of the runs is shown. A Baton wire is compared with the kernel wire that it names as its
//! baseline. Connections that move have a chapter of their own ([`moves`]), and so have programs of one
//! machine ([`both_ends`]).

mod axis;
pub mod both_ends;
pub mod bump;
pub mod capture;
mod caution;
pub mod claim;
#[cfg(test)]
mod colours;
pub mod grid;
pub mod heat;
pub mod html;
pub mod latency;
pub mod lines;
mod machine;
mod matrix;
mod matrix_page;
pub mod moves;
mod moves_page;
mod nanoseconds;
pub mod origin;
pub mod plot;
mod ratio;
pub mod sweep;
pub mod table;
mod timeline;
mod wrap;

pub use machine::Machine;
pub use matrix::Matrix;

use baton_apps::load::Outcome;
use baton_apps::measure::{Cpu, Median, median};
use serde::{Deserialize, Serialize};

/// All results of one demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// When it began, as an HTTP date (GMT).
    pub started: String,
    /// How long it took in total, in seconds.
    pub seconds: f64,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Measured runs a cell.
    pub rounds: usize,
    /// The wires, in the order shown.
    pub wires: Vec<Wire>,
    /// The loads, in the order shown.
    pub loads: Vec<LoadInfo>,
    /// Every load on every wire that it ran on.
    pub cells: Vec<Cell>,
    /// Live connections that move; `None` where the demo has no kernel to move them from.
    pub moves: Option<moves::Moves>,
    /// Programs of one machine; `None` where the demo has no kernel to compare with.
    pub both_ends: Option<both_ends::BothEnds>,
    /// The checks made in addition to the measurements.
    pub checks: Vec<Check>,
    /// Parts that could not be shown, with the reasons.
    pub not_shown: Vec<String>,
}

/// The TCP that serves on a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The kernel's TCP.
    Kernel,
    /// Baton's.
    Baton,
}

/// One way to join client and server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wire {
    /// Short identifier.
    pub id: String,
    /// The TCP that serves.
    pub side: Side,
    /// Name for people.
    pub name: String,
    /// A sentence that describes it.
    pub about: String,
    /// The kernel wire to compare a Baton wire with.
    pub baseline: Option<String>,
    /// The command that serves, as a user would type it.
    pub command: String,
}

/// A load that clients put on the services.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadInfo {
    /// Short identifier.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// A sentence that describes it.
    pub about: String,
    /// True if it is measured in requests, false if in bytes.
    pub requests: bool,
    /// The command that was run, as a user would type it.
    pub command: String,
}

/// The runs of one load on one wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Id of the wire.
    pub wire: String,
    /// Id of the load.
    pub load: String,
    /// Each measured run.
    pub runs: Vec<Run>,
}

/// One measured run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Payload bytes that passed.
    pub bytes: u64,
    /// Requests answered.
    pub requests: u64,
    /// Latency of a request in nanoseconds: median, 99th percentile, largest.
    pub latency_ns: Option<[u64; 3]>,
    /// CPU time of the whole machine.
    pub cpu: Cpu,
    /// Share of the interval that the TCP Control Engine worked.
    pub tce: Option<f64>,
}

/// A check, which passed or failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Name of the wire.
    pub wire: String,
    /// The property that was checked.
    pub what: String,
    /// True if it passed.
    pub ok: bool,
    /// The observation as a sentence.
    pub seen: String,
}

impl From<Outcome> for Run {
    fn from(outcome: Outcome) -> Run {
        let Outcome { seconds, bytes, requests, latency_ns, cpu, .. } = outcome;
        Run { seconds, bytes, requests, latency_ns, cpu, tce: None }
    }
}

/// A figure that a cell has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Payload, in Gb/s.
    Throughput,
    /// Requests per second.
    Requests,
    /// CPU seconds of the machine per GB of payload.
    CpuPerGb,
    /// CPU microseconds of the machine per request.
    CpuPerRequest,
    /// Median latency in microseconds.
    P50,
    /// 99th percentile of latency in microseconds.
    P99,
    /// Share of one CPU that the TCP Control Engine used, in percent.
    Tce,
    /// Share of the machine's CPU time spent in soft interrupts, in percent.
    Softirq,
}

impl Figure {
    /// Its value in one run, if the run has it.
    pub fn of(self, run: &Run) -> Option<f64> {
        let per = |amount: f64| (amount > 0.0).then(|| run.cpu.busy / amount);
        let latency = |i: usize| run.latency_ns.map(|ns| ns[i] as f64 / 1e3);
        match self {
            Figure::Throughput => (run.seconds > 0.0).then(|| run.bytes as f64 * 8e-9 / run.seconds),
            Figure::Requests => (run.requests > 0).then(|| run.requests as f64 / run.seconds),
            Figure::CpuPerGb => per(run.bytes as f64 / 1e9),
            Figure::CpuPerRequest => per(run.requests as f64 / 1e6),
            Figure::P50 => latency(0),
            Figure::P99 => latency(1),
            Figure::Tce => run.tce.map(|share| share * 100.0),
            Figure::Softirq => run.cpu.softirq_share().map(|share| share * 100.0),
        }
    }

    /// Its unit, as written after a number.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Throughput => "Gb/s",
            Figure::Requests => "/s",
            Figure::CpuPerGb => "s/GB",
            Figure::CpuPerRequest | Figure::P50 | Figure::P99 => "µs",
            Figure::Tce | Figure::Softirq => "%",
        }
    }
}

impl Cell {
    /// The median of a figure over the runs, if they have it.
    pub fn median(&self, figure: Figure) -> Option<Median> {
        median_of(&self.runs, figure)
    }
}

/// The median of a figure over runs, if they have it.
pub fn median_of(runs: &[Run], figure: Figure) -> Option<Median> {
    let values: Vec<f64> = runs.iter().filter_map(|run| figure.of(run)).collect();
    median(&values)
}

impl Report {
    /// Its loads by its wires.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix { wires: &self.wires, loads: &self.loads, cells: &self.cells }
    }

    /// A figure of a Baton wire, divided by its baseline's.
    pub fn ratio(&self, wire: &Wire, load: &str, figure: Figure) -> Option<f64> {
        self.matrix().ratio(wire, load, figure)
    }

    /// A warning about the state of the machine, if one is needed.
    pub fn caution(&self) -> Option<String> {
        let percent = self.machine.background * 100.0;
        (percent >= 10.0)
            .then(|| format!("other programs used {percent:.0} % of the CPUs just before, which disturbs all results"))
    }

    /// Returns true if every check passed.
    pub fn all_right(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

/// A number with three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 999_500.0 => format!("{:.2}M", value / 1e6),
        v if v >= 9_995.0 => format!("{:.1}k", value / 1e3),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A count with a comma between its thousands.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 999, 1000, 123_456, 1_234_567].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn figures_follow_from_a_run() {
        let cpu = Cpu { busy: 2.0, user: 0.5, system: 0.5, irq: 0.0, softirq: 1.0, steal: 9.0 };
        let run = Run {
            seconds: 2.0,
            bytes: 4_000_000_000,
            requests: 1000,
            latency_ns: Some([1500, 2500, 9000]),
            cpu,
            tce: Some(0.125),
        };
        let figures = [
            (Figure::Throughput, 16.0),
            (Figure::Requests, 500.0),
            (Figure::CpuPerGb, 0.5),
            (Figure::CpuPerRequest, 2000.0),
            (Figure::P50, 1.5),
            (Figure::P99, 2.5),
            (Figure::Tce, 12.5),
            (Figure::Softirq, 50.0),
        ];
        for (figure, value) in figures {
            assert_eq!(figure.of(&run), Some(value), "{figure:?}");
        }
        assert_eq!(Figure::CpuPerGb.of(&Run::default()), None);
    }

    #[test]
    fn numbers_are_short() {
        let shorts = [0.0, 0.0123, 0.456, 7.891, 56.78, 123.4, 4567.0, 45_678.0, 1_234_567.0].map(short);
        assert_eq!(shorts, ["0.00", "0.012", "0.46", "7.89", "56.8", "123", "4567", "45.7k", "1.23M"]);
    }
}
