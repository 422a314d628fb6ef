//! Load control with a real service (CH §3.2, figure 6).
//!
//! ```text
//!   wrk, N connections ---- veth ---- nginx under baton run ---- engine
//!                                                                  |
//!     all of them are on the engine | it gets a fifth of a CPU | it gets all of it back
//!     ------------------------------+--------------------------+------------------------> time
//!                                   0                        length
//! ```
//!
//! Each arm differs in who limits the connections on the engine: nobody, a fixed limit, or load control. In
//! one arm there is no Baton. Every run makes its wire, its service and its servers anew, and begins once the
//! connections are where the arm puts them. Throughput counts after `SETTLED`, by nginx' own count.

mod crowd;
mod report;

use super::PART;
use crate::experiment::{Axis, Experiment, Extent, Lab, Need, Source};
use crate::papers::CH;
use crate::report::Machine;
use crate::world::cpu::Share;
use anyhow::Context;
use baton_apps::measure::Cpu;
use crowd::Crowd;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant};

/// A web server whose engine gets too little CPU time.
pub const EXPERIMENT: Experiment = Experiment {
    id: "ch-load",
    title: "Load control of an engine with a fifth of a CPU, under a web server's connections",
    needs: &[Need::ROOT, Need { what: "nginx and wrk", without: None }],
    axes: &[
        Axis { name: "arm", about: "who limits the connections on the engine" },
        Axis { name: "connections", about: "connections of the web server" },
    ],
    command: "baton bench run ch-load",
    run: |lab, extent| run(lab, extent)?.findings(),
};

const FIGURE_6: Source = Source { paper: &CH, place: "figure 6" };

/// Time after which load control has to have settled.
const SETTLED: Duration = Duration::from_secs(5);

/// The limit of the connections on the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// There is no Baton: all are in the kernel.
    Kernel,
    /// Nobody: all may be on the engine.
    Off,
    /// A fixed limit.
    Fixed(u32),
    /// Load control.
    Auto,
}

impl Arm {
    /// The most connections on the engine before it is throttled.
    fn limit(self) -> u32 {
        match self {
            Arm::Kernel => 0,
            Arm::Fixed(limit) => limit,
            Arm::Auto | Arm::Off => u32::MAX,
        }
    }

    /// Lines of the service's configuration file. Without load control the load is measured all the same.
    fn settings(self) -> String {
        let measured = "load = \"0-4294967295\"";
        match self {
            Arm::Kernel => String::new(),
            Arm::Off => format!("[engine]\n{measured}\n"),
            Arm::Fixed(limit) => format!("[engine]\n{measured}\nconnections = {limit}\n"),
            Arm::Auto => "[engine]\nload = \"auto\"\n".to_owned(),
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arm::Kernel => f.write_str("all in the kernel"),
            Arm::Off => f.write_str("no limit"),
            Arm::Fixed(limit) => write!(f, "at most {limit}"),
            Arm::Auto => f.write_str("load control"),
        }
    }
}

/// A look at a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the engine was throttled, in milliseconds.
    pub at_ms: u64,
    /// Requests that nginx had.
    pub requests: u64,
    /// Connections on the engine.
    pub on_engine: u32,
    /// The limit of load control, at most all connections.
    pub soft_limit: u32,
    /// Frames that waited for the engine.
    pub queued: u32,
    /// `Hiwat`, in frames.
    pub high: u32,
    /// Load control waits for connections to go home.
    pub sheds: bool,
    /// The part of the time that the engine slept, in thousandths.
    pub idle_permille: u16,
}

/// A run of an arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// While the engine was throttled.
    pub throttled: Vec<Sample>,
    /// After that.
    pub freed: Vec<Sample>,
    /// Connections that were reset before the client ended.
    pub resets: u64,
    /// Connections that nginx accepted; more than there are if one was lost.
    pub accepted: u64,
    /// Requests that the client sent and got no response to, beyond one for each connection.
    pub lost: u64,
    /// Errors that the client saw.
    pub errors: u64,
}

/// A point of the experiment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The limit of the connections on the engine.
    pub arm: Arm,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arm.fmt(f)
    }
}

type Series = crate::experiment::Series<Point, Run>;

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Connections of the web server.
    pub connections: u32,
    /// Every arm.
    pub series: Vec<Series>,
}

/// Runs every arm.
///
/// # Errors
/// If a wire or a program cannot be started, or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Report> {
    let arms: Vec<Arm> = extent.values("arm")?;
    let connections = *extent.values("connections")?.first().context("no number of connections")?;
    let background = Cpu::idle_check(Duration::from_millis(500))?;
    // The others would be measured too.
    let _first = Share::preferred()?;
    let points = arms.into_iter().map(|arm| Point { arm }).collect();
    let measure = |point: &Point| measure(lab, point.arm, connections, extent.length());
    let series = lab.alternate(extent.rounds, vec![points], measure)?;
    Ok(Report { machine: Machine::here(background), connections, series })
}

fn measure(lab: &Lab<'_>, arm: Arm, connections: u32, length: Duration) -> anyhow::Result<Run> {
    let crowd = Crowd::start(lab, arm, connections)?;
    let before = crowd.resets()?;
    let begun = Instant::now();
    let throttle = crowd.engine().map(|engine| Share::throttled(engine, PART)).transpose()?;
    let throttled = crowd.watch(lab, begun, length)?;
    drop(throttle);
    // The other arms do not change any more.
    let freed = if arm == Arm::Auto { crowd.watch(lab, begun, length)? } else { Vec::new() };
    let (resets, counts) = (crowd.resets()? - before, crowd.counts()?);
    let told = crowd.end()?;
    // At its end the client waits for one response on each connection.
    let lost = counts.requests.saturating_sub(told.requests + u64::from(connections));
    Ok(Run { throttled, freed, resets, accepted: counts.accepted, lost, errors: told.errors })
}
