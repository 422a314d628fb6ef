//! Unmodified programs under `baton run`, compared with the kernel.
//!
//! Every load runs on every way ([`crate::workload`]) once per round, in an order that rotates from
//! round to round, so that changes on the machine affect all of them. CPU time is that of the whole
//! machine, including the client. A ratio is the median of the rounds' ratios to the kernel over the
//! same frames, with the first and third quartile; with xdp a second ratio is to the kernel with its
//! offloads. One way is the kernel a second time, over another wire: its distance from one is the noise
//! of every ratio.
//!
//! For comparison, the report also has the cost of the bare TAP device for the same direction, without
//! TCP and without steering: a responder that answers frames ([`crate::workload::bare`]). The cost of
//! idle connections ([`crate::workload::idle`]) comes last.

use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need};
use crate::report::{Machine, short};
use crate::workload::client::{LOADS, Load, Outcome, What};
use crate::workload::generate::generate;
use crate::workload::idle;
use crate::workload::idle::Idle;
use crate::workload::place::{Place, home};
use crate::workload::server::Kind;
use crate::workload::ways::{WAYS, Way};
use crate::world::serve::Server as Bare;
use crate::world::wire::configure;
use crate::world::{World, find_program};
use anyhow::{Context, ensure};
use baton_apps::fail::usage;
use baton_apps::load;
use baton_apps::measure::{Cpu, Quartiles, quartiles};
use baton_apps::signal::Stop;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Programs under `baton run` beside the kernel alone.
pub const EXPERIMENT: Experiment = Experiment {
    id: "programs",
    title: "Unmodified programs under baton run, next to the same programs on the kernel",
    needs: &[
        Need::ROOT,
        Need { what: "redis", without: Some("leaves out redis and idle connections") },
        Need { what: "nginx and wrk", without: Some("leaves out nginx") },
        Need { what: "iperf3", without: Some("leaves out bulk") },
    ],
    axes: &[
        Axis { name: "load", about: "what the client does" },
        Axis { name: "way", about: "where the engine runs, and how frames reach it" },
    ],
    command: "baton bench programs",
    run: |lab, extent| run(lab, extent)?.findings(),
};

/// The first way's subnet, and the bare device's.
const SUBNET: u8 = 120;
const BARE_SUBNET: u8 = 119;

/// The id of the bare device among the ways.
const BARE: &str = "bare";

/// The id of idle connections among the loads.
const IDLE: &str = "idle";

/// Time for which idle connections are measured.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// Bytes per write of iperf3.
const MESSAGE: u32 = 128 << 10;

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
        let way = Way::of(&self.way).map_or("bare TAP device", |way| way.name);
        write!(f, "{load} · {way}")
    }
}

/// All runs of one load on one way.
type Series = crate::experiment::Series<Point, Outcome>;

/// How many of a server's connections were on the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// Id of the way.
    pub way: String,
    /// Name of the program.
    pub program: String,
    /// Connections on the engine.
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

/// Runs all loads on all ways.
///
/// # Errors
/// If the kernel's ways cannot be set up, a load fails, or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Report> {
    if extent.seconds.fract() != 0.0 {
        return Err(usage(format!("a run cannot take {} s", extent.seconds), "give whole seconds"));
    }
    let (world, ids) = (lab.world()?, extent.values::<String>("load")?);
    let (loads, mut not_here) = loads(&ids);
    let idle = find_program(Kind::Redis.program().0).is_some() && ids.iter().any(|id| id == IDLE);
    ensure!(!loads.is_empty() || idle, "no load matches --only; known: {} {IDLE}", LOADS.map(|load| load.id).join(" "));
    let ways = ways(&extent.values::<String>("way")?);
    ensure!(!ways.is_empty(), "no way matches --way; known: {}", WAYS.map(|way| way.id).join(" "));
    let home = home()?;
    let mut places = Vec::new();
    for (way, subnet) in ways.iter().zip(SUBNET..) {
        lab.tell(&format!("setting up {}", way.name));
        match set_up(world, *way, subnet, home.path(), &loads, idle) {
            Ok(place) => places.push(place),
            Err(error) if way.baseline.is_none() => return Err(error),
            Err(error) => not_here.push(format!("{}: {error:#}", way.name)),
        }
    }
    let bare = bare(world, lab.stop())?;
    let background = Cpu::idle_check(Duration::from_millis(500))?;
    let series = measure(lab, extent, &loads, &places)?;
    drop(bare);
    let mut idles = Vec::new();
    for place in places.iter().filter(|_| idle) {
        lab.tell(&format!("{} idle connections · {}", idle::CONNECTIONS, place.way.name));
        idles.push(idle::measure(place, IDLE_FOR).with_context(|| format!("idle connections on {}", place.way.name))?);
    }
    let mut shares = Vec::new();
    for place in places {
        let way = place.way;
        for (kind, moved) in place.end()?.into_iter().filter(|_| way.moves()) {
            let program = kind.program().0.to_owned();
            shares.push(Share { way: way.id.into(), program, moved: moved.moved, all: moved.all });
        }
    }
    Ok(Report { machine: Machine::here(background), series, idle: idles, shares, not_here })
}

/// Runs the loads in every place, and on the bare device where it has such a load.
fn measure(lab: &Lab<'_>, extent: &Extent, loads: &[Load], places: &[Place<'_>]) -> anyhow::Result<Vec<Series>> {
    let (seconds, world) = (extent.seconds as u32, lab.world()?);
    let group = |load: &Load| {
        let ways = places.iter().map(|place| place.way.id).chain(bare_kind(load).map(|_| BARE));
        ways.map(|way| Point { load: load.id.into(), way: way.into() }).collect()
    };
    // How many requests each load has in each place.
    let mut requests: BTreeMap<(String, String), u64> = BTreeMap::new();
    lab.alternate(extent.rounds, loads.iter().map(group).collect(), |Point { load: id, way }| {
        let load = Load::of(id).context("an unknown load")?;
        let Some(place) = places.iter().find(|place| place.way.id == way) else {
            return run_bare(world, bare_kind(&load).context("no such load")?, seconds, lab.stop());
        };
        load.run(place, seconds, requests.entry((id.clone(), way.clone())).or_default(), lab.stop())
    })
}

/// The requested loads that are possible, and the reasons why others are not.
fn loads(ids: &[String]) -> (Vec<Load>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for load in LOADS.into_iter().filter(|load| ids.iter().any(|id| id == load.id)) {
        let programs = [load.program(), load.server().program()];
        match programs.into_iter().find(|(name, _)| *name != "baton" && find_program(name).is_none()) {
            None => found.push(load),
            Some((name, package)) => {
                missing.push(format!("{}: {name} is not installed: apt-get install {package}", load.name))
            }
        }
    }
    (found, missing)
}

/// The requested ways, and the kernel ways that they are compared with.
fn ways(ids: &[String]) -> Vec<Way> {
    let named = |way: &Way| ids.iter().any(|id| id == way.id);
    let is_base = |way: &Way| WAYS.iter().any(|other| named(other) && other.baseline == Some(way.id));
    let any = WAYS.iter().any(named);
    // Also show the cost of losing the offloads.
    WAYS.into_iter().filter(|way| any && (named(way) || is_base(way) || way.id == "kernel")).collect()
}

fn set_up<'a>(
    world: &'a World,
    way: Way,
    subnet: u8,
    home: &Path,
    loads: &[Load],
    idle: bool,
) -> anyhow::Result<Place<'a>> {
    let mut place = Place::new(world, way, subnet, home)?;
    for kind in [Kind::Nginx, Kind::Redis, Kind::Iperf, Kind::Echo] {
        if loads.iter().any(|load| load.server() == kind) || idle && kind == Kind::Redis {
            place.serve(kind)?;
        }
    }
    Ok(place)
}

/// The load for the bare device that corresponds to a load, if there is one.
fn bare_kind(load: &Load) -> Option<load::Kind> {
    match load.what {
        What::Iperf { reverse: true, connections: 1 } => Some(load::Kind::Receive),
        What::Iperf { reverse: false, connections: 1 } => Some(load::Kind::Send),
        What::PingPong => Some(load::Kind::Echo),
        _ => None,
    }
}

fn bare_address() -> IpAddr {
    IpAddr::from([10, 77, BARE_SUBNET, 2])
}

fn bare(world: &World, stop: &Stop) -> anyhow::Result<Bare> {
    let device = format!("bt-{BARE_SUBNET}");
    let arguments = [format!("tap:{device}"), bare_address().to_string()];
    let bare = Bare::start_as(&world.server, "bare", &arguments, stop)?;
    world.server.ip(&format!("link set {device} netns {}", world.client.name()))?;
    configure(&world.client, &device, &[format!("10.77.{BARE_SUBNET}.1/24")])?;
    Ok(bare)
}

fn run_bare(world: &World, kind: load::Kind, seconds: u32, stop: &Stop) -> anyhow::Result<Outcome> {
    let size = if kind == load::Kind::Echo { 1 } else { MESSAGE };
    let arguments = [
        "--connections=1".to_owned(),
        format!("--size={size}"),
        format!("--seconds={seconds}"),
        "--warmup=0.2".to_owned(),
        // The bare device does not send the ramp.
        "--unchecked".to_owned(),
    ];
    let run = generate(world, bare_address(), kind, &arguments, stop).context("the bare device")?;
    let p50_ns = run.latency_ns.map_or(0, |[median, ..]| median);
    let bytes = if run.requests > 0 { 0 } else { run.bytes };
    Ok(Outcome { seconds: run.seconds, requests: run.requests, bytes, p50_ns, cpu: run.cpu })
}

/// A measured value of a run; smaller is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    /// CPU time of the machine per request or byte, in nanoseconds.
    Cost,
    /// Median latency in nanoseconds.
    Median,
}

impl Figure {
    fn of(self, run: &Outcome) -> Option<f64> {
        match self {
            Figure::Cost => run.cost(),
            Figure::Median => (run.p50_ns > 0).then_some(run.p50_ns as f64),
        }
    }
}

fn values(series: &Series, figure: Figure) -> Vec<f64> {
    series.values(|run| figure.of(run))
}

fn ratio(series: &Series, base: &Series, figure: Figure) -> Option<Quartiles> {
    quartiles(&series.ratios(base, |run| figure.of(run)))
}

impl Report {
    fn find(&self, load: &str, way: &str) -> Option<&Series> {
        self.series.iter().find(|Series { point, .. }| point.load == load && point.way == way)
    }

    fn loads(&self) -> Vec<Load> {
        LOADS.into_iter().filter(|load| self.series.iter().any(|series| series.point.load == load.id)).collect()
    }

    /// Ids and names of the ways in the order of display; the bare device is last.
    fn ways(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        WAYS.iter().map(|way| (way.id, way.name)).chain([(BARE, "bare TAP device")])
    }

    /// A figure of a load on a way, divided by the kernel's over the same frames.
    pub fn cost_ratio(&self, load: &str, way: &str) -> Option<Quartiles> {
        let base = Way::of(way).map_or(Some("kernel"), |way| way.baseline)?;
        ratio(self.find(load, way)?, self.find(load, base)?, Figure::Cost)
    }

    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<30}{:>13}{:>14}{:>20}{:>15}{:>12}{:>20}\n",
            "", "rate", "CPU", "to the kernel", "with offloads", "p50", "to the kernel"
        );
        for load in self.loads() {
            let _ = writeln!(out, "{}", load.name);
            for (way, name) in self.ways() {
                let Some(series) = self.find(load.id, way).filter(|series| !series.runs.is_empty()) else { continue };
                let base = Way::of(way).map_or(Some("kernel"), |way| way.baseline);
                let base = base.and_then(|base| self.find(load.id, base));
                let offloads = self.find(load.id, "kernel").filter(|_| way.ends_with("-xdp"));
                let to = |base: Option<&Series>, figure| base.and_then(|base| ratio(series, base, figure));
                let short_ratio = to(offloads, Figure::Cost).map_or(String::new(), |q| format!("{:.2}×", q.median));
                let text = |q: Option<Quartiles>| q.map_or(String::new(), |q| q.ratio());
                let _ = writeln!(
                    out,
                    "  {:<28}{:>13}{:>14}{:>20}{:>15}{:>12}{:>20}",
                    name,
                    rate(series, &load),
                    cost(series, &load),
                    text(to(base, Figure::Cost)),
                    short_ratio,
                    latency(series),
                    text(to(base, Figure::Median)),
                );
            }
        }
        out.push_str("medians of alternating rounds; ratios of CPU time and latency with quartiles; less is better\n");
        for idle in &self.idle {
            let name = Way::of(&idle.way).map_or("", |way| way.name);
            let _ = writeln!(out, "{} idle connections, {name}: {:.1} % of a CPU", idle.connections, idle.cpu * 100.0);
        }
        for share in &self.shares {
            let name = Way::of(&share.way).map_or("", |way| way.name);
            let _ =
                writeln!(out, "{}, {name}: {} of {} connections on the engine", share.program, share.moved, share.all);
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
        Ok(Findings { files: self.rounds(), ..Findings::new(self, self.table(), Vec::new())? })
    }

    /// For every load and figure a table of all runs in the form of alternated rounds.
    fn rounds(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for load in self.loads() {
            let per = if load.has_requests() { "cpu-a-request" } else { "cpu-a-byte" };
            for (figure, what) in [(Figure::Cost, per), (Figure::Median, "p50")] {
                let mut csv = "contender,round,ns\n".to_owned();
                for (way, name) in self.ways() {
                    let values = self.find(load.id, way).map_or(Vec::new(), |series| values(series, figure));
                    for (round, value) in values.iter().enumerate() {
                        let _ = writeln!(csv, "\"{name}\",{round},{value:.4}");
                    }
                }
                if csv.lines().count() > 1 {
                    files.push((format!("programs-{}-{what}.csv", load.id), csv));
                }
            }
        }
        files
    }
}

fn middle(values: &[f64]) -> f64 {
    quartiles(values).map_or(0.0, |q| q.median)
}

fn rate(series: &Series, load: &Load) -> String {
    let rate = middle(&series.values(|run| Some(run.rate())));
    if load.has_requests() { format!("{} /s", short(rate)) } else { format!("{} Gb/s", short(rate * 8e-9)) }
}

fn cost(series: &Series, load: &Load) -> String {
    let cost = middle(&values(series, Figure::Cost));
    // Nanoseconds per byte equal seconds per gigabyte.
    if load.has_requests() { format!("{} µs", short(cost / 1e3)) } else { format!("{} s/GB", short(cost)) }
}

fn latency(series: &Series) -> String {
    let values = values(series, Figure::Median);
    if values.is_empty() { String::new() } else { format!("{} µs", short(middle(&values) / 1e3)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let run = |busy: f64, p50_ns| {
            let cpu = baton_apps::measure::Cpu { busy, ..Default::default() };
            Outcome { seconds: 1.0, requests: 1_000_000, bytes: 0, p50_ns, cpu }
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
        assert_eq!(report.cost_ratio("ping-pong", "service-tc").unwrap().median, 0.75);
        assert_eq!(report.cost_ratio("ping-pong", "service-xdp").unwrap().median, 0.5);
        assert_eq!(report.cost_ratio("ping-pong", "kernel"), None);
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
    fn a_way_comes_with_its_kernels() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            super::ways(&names).iter().map(|way| way.id).collect::<Vec<_>>()
        };
        assert_eq!(of(&["service-xdp"]), ["kernel", "kernel-xdp", "service-xdp"]);
        assert_eq!(of(&["unmoved", "again"]), ["kernel", "again", "unmoved"]);
        assert_eq!(of(&WAYS.map(|way| way.id)).len(), WAYS.len());
        assert!(of(&["none"]).is_empty());
    }

    #[test]
    fn the_whole_plan_has_every_load_and_every_way() {
        let plan = crate::experiment::plan("whole").unwrap();
        let values = |axis| plan[EXPERIMENT.id].values::<String>(axis).unwrap();
        assert_eq!(values("way"), WAYS.map(|way| way.id));
        assert_eq!(values("load"), [&LOADS.map(|load| load.id)[..], &[IDLE]].concat());
    }
}
