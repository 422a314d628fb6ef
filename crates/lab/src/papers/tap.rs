//! Baton on a TAP device, compared with the kernel and with the bare device.
//!
//! ```text
//!   client: kernel TCP, baton load ─┬─ veth pair ─── kernel TCP, baton serve (without GRO, and with it)
//!                                   ├─ TAP device ── Baton, baton serve
//!                                   └─ TAP device ── baton bare: frames, no TCP
//! ```
//!
//! The client is always the same program on the same stack, so only the far end differs. The kernel's
//! far end is behind a veth pair, the cheapest wire between two stacks of the kernel: it passes frames
//! by reference, without TAP's copy through a file descriptor.
//!
//! Without offloads, both ends of the veth pair have every offload off, and the client's end of the TAP
//! device has all off except GRO, which merges frames that Baton makes wait there. So the same frames of
//! MTU size with software checksums pass everywhere. A second veth pair has GRO on, to show what merging
//! does for the kernel itself. With offloads, segments of up to 64 KB pass unsplit and without checksums
//! on all wires. Congestion control is NewReno everywhere.
//!
//! Programs at both ends of a bulk transfer write and read messages of one size, 64 KB by default. With
//! offloads, the kernel's cost depends on this size more than Baton's does.
//!
//! Every load runs on every wire once per round, in an order that rotates from round to round. CPU time
//! is that of the whole machine, including soft interrupts. The CPU time of only the two programs and the
//! soft-interrupt threads, which other programs disturb less, is reported too.

use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need};
use crate::report::{Machine, short};
use crate::workload::generate::generate;
use crate::world::World;
use crate::world::serve::Server;
use crate::world::wire::{configure, veth};
use anyhow::{Context, ensure};
use baton_apps::load::{Kind, Outcome};
use baton_apps::measure::{Cpu, Median, median};
use baton_apps::signal::Stop;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

/// An engine on a TAP device beside the kernel.
pub const EXPERIMENT: Experiment = Experiment {
    id: "tap",
    title: "Bulk transfer and echo over a TAP device, next to the kernel and the bare device",
    needs: &[Need::ROOT],
    axes: &[
        Axis { name: "load", about: "what the client does" },
        Axis { name: "far", about: "what stands at the far end" },
        Axis { name: "offloads", about: "whether segments of up to 64 KB pass unsplit" },
        Axis { name: Axis::MESSAGES.name, about: "bytes per write and per read of bulk loads, at both ends" },
    ],
    command: "baton bench tap",
    run: |lab, extent| run(lab, extent)?.findings(),
};

/// The far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Far {
    /// The kernel's TCP, behind a veth pair.
    Kernel,
    /// The same with GRO; only on wires without other offloads.
    KernelGro,
    /// Baton's engine on a TAP device.
    Baton,
    /// The TAP device alone.
    Bare,
}

impl Far {
    const ALL: [Far; 4] = [Far::Kernel, Far::KernelGro, Far::Baton, Far::Bare];

    fn name(self) -> &'static str {
        match self {
            Far::Kernel => "kernel",
            Far::KernelGro => "kernel with GRO",
            Far::Baton => "Baton",
            Far::Bare => "bare device",
        }
    }

    fn wire(self) -> &'static str {
        match self {
            Far::Kernel | Far::KernelGro => "veth",
            Far::Baton | Far::Bare => "TAP",
        }
    }
}

/// The client's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Send, receive or echo.
    pub kind: Kind,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of a request; 0 for bulk.
    pub size: usize,
}

/// Loads with their names.
const LOADS: [(LoadSpec, &str); 5] = [
    (LoadSpec { kind: Kind::Send, connections: 1, size: 0 }, "bulk receive"),
    (LoadSpec { kind: Kind::Receive, connections: 1, size: 0 }, "bulk send"),
    (LoadSpec { kind: Kind::Echo, connections: 1, size: 64 }, "echo 64 B, 1 connection"),
    (LoadSpec { kind: Kind::Echo, connections: 16, size: 64 }, "echo 64 B, 16 connections"),
    (LoadSpec { kind: Kind::Echo, connections: 256, size: 64 }, "echo 64 B, 256 connections"),
];

/// One load on one wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Segments of up to 64 KB pass whole.
    pub offloads: bool,
    /// The far end.
    pub far: Far,
    /// Name of the load, from the far end's view.
    pub load: String,
}

/// All runs of one load on one wire.
type Series = crate::experiment::Series<Point, Outcome>;

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Bytes of a bulk write and of a bulk read.
    pub message: usize,
    /// Every load on every wire.
    pub series: Vec<Series>,
}

/// A wire that is up, with a service at its far end.
struct Wire {
    far: Far,
    offloads: bool,
    addr: IpAddr,
    server: Server,
}

/// A measured value of a run; smaller is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    /// CPU time of the machine a byte or request, in nanoseconds.
    Machine,
    /// CPU time of the programs a byte or request, in nanoseconds.
    Tasks,
    /// Median latency in nanoseconds.
    Median,
}

impl Figure {
    fn of(self, run: &Outcome) -> Option<f64> {
        let count = if run.requests > 0 { run.requests } else { run.bytes };
        let per = |seconds: f64| (count > 0).then(|| seconds * 1e9 / count as f64);
        match self {
            Figure::Machine => per(run.cpu.busy),
            Figure::Tasks => per(run.tasks_seconds),
            Figure::Median => run.latency_ns.map(|[median, ..]| median as f64),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}{}", self.load, self.far.name(), if self.offloads { ", offloads" } else { "" })
    }
}

/// Runs all loads on all wires.
///
/// # Errors
/// If a wire cannot be made, a load fails, or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Report> {
    let names: Vec<String> = extent.values("load")?;
    ensure!(!names.is_empty(), "no load matches --only; known: {}", LOADS.map(|(_, name)| name).join("; "));
    let message = *extent.values(Axis::MESSAGES.name)?.first().context("no size of messages")?;
    let wires = wires(lab, extent, message)?;
    let background = Cpu::idle_check(Duration::from_millis(500))?;
    let point = |load: &str, wire: &Wire| Point { offloads: wire.offloads, far: wire.far, load: load.to_owned() };
    let groups = names.iter().map(|load| wires.iter().map(|wire| point(load, wire)).collect()).collect();
    let series = lab.alternate(extent.rounds, groups, |point| {
        let wire = wires.iter().find(|wire| wire.far == point.far && wire.offloads == point.offloads);
        let (spec, _) = LOADS.iter().find(|(_, name)| *name == point.load).context("an unknown load")?;
        measure(lab, wire.context("no such wire")?, spec, (message, extent.length()))
    })?;
    Ok(Report { machine: Machine::here(background), message, series })
}

fn measure(
    lab: &Lab<'_>,
    wire: &Wire,
    spec: &LoadSpec,
    (message, length): (usize, Duration),
) -> anyhow::Result<Outcome> {
    let mut arguments = vec![
        format!("--connections={}", spec.connections),
        format!("--size={}", if spec.size == 0 { message } else { spec.size }),
        format!("--seconds={}", length.as_secs_f64()),
        format!("--warmup={}", (length / 4).as_secs_f64()),
        format!("--peer-pid={}", wire.server.pid()),
    ];
    if wire.far == Far::Bare {
        // The bare device does not send the ramp.
        arguments.push("--unchecked".to_owned());
    }
    generate(lab.world()?, wire.addr, spec.kind, &arguments, lab.stop())
}

fn wires(lab: &Lab<'_>, extent: &Extent, message: usize) -> anyhow::Result<Vec<Wire>> {
    let (world, fars) = (lab.world()?, extent.values::<Far>("far")?);
    let mut wires = Vec::new();
    for offloads in extent.values("offloads")? {
        let fars = fars.iter().filter(|far| !(offloads && **far == Far::KernelGro));
        for (far, subnet) in fars.zip(if offloads { 20 } else { 10 }..) {
            wires.push(Wire::new(world, *far, (offloads, message), subnet, lab.stop())?);
        }
    }
    Ok(wires)
}

impl Wire {
    fn new(
        world: &World,
        far: Far,
        (offloads, message): (bool, usize),
        subnet: u8,
        stop: &Stop,
    ) -> anyhow::Result<Wire> {
        let device = format!("bt-{subnet}");
        let addr = |host: u8| IpAddr::from([10, 77, subnet, host]);
        let cidr = |host: u8| [format!("{}/24", addr(host))];
        let (far_cidr, addr) = (cidr(2), addr(2));
        let options = if offloads { "" } else { ",novnet" };
        let server = match far {
            Far::Kernel | Far::KernelGro => {
                veth(world, &device, offloads)?;
                if far == Far::KernelGro {
                    for end in [&world.client, &world.server] {
                        end.run(&format!("ethtool -K {device} gro on"))?;
                    }
                }
                configure(&world.server, &device, &far_cidr)?;
                Server::start(&world.server, &format!("--port kernel --addr {addr} --message {message}"), &[], stop)?
            }
            Far::Baton => {
                let stack = format!("--port tap:{device}{options} --addr {addr}/24 --cc reno --message {message}");
                Server::start(&world.server, &stack, &[], stop)?
            }
            Far::Bare => {
                let arguments = [format!("tap:{device}{options}"), addr.to_string()];
                Server::start_as(&world.server, "bare", &arguments, stop)?
            }
        };
        if matches!(far, Far::Baton | Far::Bare) {
            world.server.ip(&format!("link set {device} netns {}", world.client.name()))?;
            if !offloads {
                world.client.run(&format!("ethtool -K {device} tx off tso off gso off"))?;
            }
        }
        configure(&world.client, &device, &cidr(1))?;
        Ok(Wire { far, offloads, addr, server })
    }
}

impl Report {
    fn find(&self, offloads: bool, load: &str, far: Far) -> Option<&Series> {
        self.series
            .iter()
            .find(|Series { point, .. }| point.offloads == offloads && point.load == load && point.far == far)
    }

    /// Loads and offloads in the order measured.
    fn groups(&self) -> Vec<(bool, &str)> {
        let mut groups: Vec<(bool, &str)> = Vec::new();
        for series in &self.series {
            let group = (series.point.offloads, series.point.load.as_str());
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<34}{:>13}{:>25}{:>8}{:>25}{:>8}{:>12}{:>8}\n",
            "", "rate", "CPU, machine", "ratio", "CPU, programs", "ratio", "p50", "ratio"
        );
        for (offloads, load) in self.groups() {
            let _ = writeln!(out, "{load}{}", if offloads { ", offloads" } else { "" });
            for far in Far::ALL {
                let Some(series) = self.find(offloads, load, far) else { continue };
                let kernel = self.find(offloads, load, Far::Kernel).unwrap_or(series);
                let _ = writeln!(
                    out,
                    "  {:<32}{:>13}{:>25}{:>8}{:>25}{:>8}{:>12}{:>8}",
                    format!("{}, {}", far.name(), far.wire()),
                    rate(series),
                    text(series, Figure::Machine),
                    ratio(series, kernel, Figure::Machine),
                    text(series, Figure::Tasks),
                    ratio(series, kernel, Figure::Tasks),
                    text(series, Figure::Median),
                    ratio(series, kernel, Figure::Median),
                );
            }
        }
        let _ = writeln!(
            out,
            "medians (smallest–largest) of alternated rounds; a ratio is the median of the rounds' ratios to the \
             kernel\nbulk in messages of {} KB; others used {:.0} % of the CPUs just before",
            self.message >> 10,
            self.machine.background * 100.0
        );
        out
    }

    /// The results in every form.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self) -> anyhow::Result<Findings> {
        Ok(Findings { files: self.rounds(), ..Findings::new(self, self.table(), Vec::new())? })
    }

    /// For every load and figure a table of all runs in the form of alternated rounds.
    fn rounds(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for (offloads, load) in self.groups() {
            for (figure, what) in
                [(Figure::Machine, "machine-cpu"), (Figure::Tasks, "programs-cpu"), (Figure::Median, "p50")]
            {
                let mut csv = "contender,round,ns\n".to_owned();
                for far in Far::ALL {
                    let runs = self.find(offloads, load, far).map_or(&[][..], |series| &series.runs);
                    for (round, value) in runs.iter().filter_map(|run| figure.of(run)).enumerate() {
                        let _ = writeln!(csv, "\"{}\",{round},{value:.4}", far.name());
                    }
                }
                if csv.lines().count() > 1 {
                    let load: Vec<&str> = load.split(|c: char| !c.is_ascii_alphanumeric()).collect();
                    let load = load.join("-").replace("--", "-");
                    let per = if figure == Figure::Median {
                        ""
                    } else {
                        ["-a-byte", "-a-request"][usize::from(load.starts_with("echo"))]
                    };
                    files.push((format!("tap-{}{load}-{what}{per}.csv", if offloads { "offloads-" } else { "" }), csv));
                }
            }
        }
        files
    }
}

fn values(series: &Series, figure: Figure) -> Vec<f64> {
    series.values(|run| figure.of(run))
}

fn rate(series: &Series) -> String {
    let per_second = |count: fn(&Outcome) -> u64| {
        median(&series.values(|run| Some(count(run) as f64 / run.seconds))).map_or(0.0, |m| m.median)
    };
    match per_second(|run| run.requests) {
        0.0 => format!("{} Gb/s", short(per_second(|run| run.bytes) * 8e-9)),
        requests => format!("{}k /s", short(requests / 1e3)),
    }
}

fn text(series: &Series, figure: Figure) -> String {
    let Some(Median { median, min, max }) = median(&values(series, figure)) else { return String::new() };
    let (scale, unit) = match figure {
        Figure::Median => return format!("{} µs", short(median / 1e3)),
        // Nanoseconds per byte equal seconds per gigabyte.
        _ if series.point.load.starts_with("bulk") => (1.0, "s/GB"),
        _ => (1e-3, "µs"),
    };
    format!("{} ({}–{}) {unit}", short(median * scale), short(min * scale), short(max * scale))
}

fn ratio(series: &Series, base: &Series, figure: Figure) -> String {
    median(&series.ratios(base, |run| figure.of(run))).map_or(String::new(), |m| format!("{:.2}×", m.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plans_name_known_loads_and_far_ends() {
        for (name, _) in crate::experiment::PLANS {
            let extent = &crate::experiment::plan(name).unwrap()[EXPERIMENT.id];
            let loads = extent.values::<String>("load").unwrap();
            assert!(loads.iter().all(|load| LOADS.iter().any(|(_, known)| known == load)), "{name}: {loads:?}");
            assert!(extent.values::<Far>("far").is_ok(), "{name}");
        }
    }
}
