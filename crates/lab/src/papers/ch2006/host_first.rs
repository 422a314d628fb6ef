//! The delay of host packets beside a busy engine (CH §3.1, table 1).
//!
//! ```text
//!   CPU 0   wrk, nginx, the engine with a fifth of this CPU    N connections on the engine
//!   CPU 1   baton load, baton serve                            1 connection in the kernel
//! ```
//!
//! All of them share one interface. The connection in the kernel sends a byte there and back and measures
//! how long that takes, while the engine is idle, while it is idle but its CPU is not, and while more frames
//! wait for it than it can serve. The three follow each other in rounds. A fourth has the same load in the
//! kernel, so the engine has nothing to do: a delay beside it is not the engine's.
//!
//! With two CPUs the engine could delay the ping-pong by taking its CPU, its cache or its place in a queue
//! of the kernel. So both have a CPU and a queue of the wire of their own, and precede all other programs. Then the engine's own queue is all that is left to wait for. With one queue for
//! both, an XDP program handles the frames of both on one CPU, engine or not.

use super::PART;
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need, Source, Statement};
use crate::papers::CH;
use crate::report::claim::{self, Claim};
use crate::report::html::page;
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::{Machine, Side, short};
use crate::workload::generate::generate;
use crate::workload::place::{Place, Queues, Setting, home};
use crate::workload::server::Kind;
use crate::workload::ways::{Steer, Way};
use crate::world::cpu::{self, Share};
use crate::world::serve::Server;
use anyhow::{Context, ensure};
use baton_apps::background::Background;
use baton_apps::load;
use baton_apps::measure::{Cpu, Median, Quartiles, median, quartiles};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A connection in the kernel beside an engine.
pub const EXPERIMENT: Experiment = Experiment {
    id: "ch-host-first",
    title: "Delay of a connection in the kernel while the engine beside it is idle or overloaded",
    needs: &[Need::ROOT, Need { what: "nginx and wrk", without: None }],
    axes: &[
        Axis { name: "steer", about: "how frames reach the engine" },
        Axis { name: "engine", about: "what the engine and its CPU do" },
        Axis { name: "connections", about: "connections on the engine" },
    ],
    command: "baton bench run ch-host-first",
    run: |lab, extent| run(lab, extent)?.findings(),
};

const TABLE_1: Source = Source { paper: &CH, place: "table 1" };

/// The paper's statement.
const STATEMENT: Statement<Report> = Statement {
    source: TABLE_1,
    says: "with host first \"the median packet delay of host packets is about 6–10 us even though 1024 connections \
           are handed off to the NIC\"; 2 µs without handoff",
    judge: |report| {
        let ratios = report.steers().into_iter().flat_map(|steer| {
            Delay::BOTH.map(|delay| Some((steer, delay, report.ratio(steer, Engine::Overloaded, delay)?.median)))
        });
        let ratios: Option<Vec<(Steer, Delay, f64)>> = ratios.collect();
        let ratios = ratios.filter(|ratios| !ratios.is_empty())?;
        let words =
            ratios.iter().map(|(steer, delay, ratio)| format!("{ratio:.2}× {} ({})", delay.name(), steer.word()));
        let words: Vec<String> = words.collect();
        let here = format!("beside an overloaded engine the delay is {} of that beside an idle one", words.join(", "));
        Some((here, ratios.iter().all(|(.., ratio)| *ratio <= MOST)))
    },
};

/// The largest ratio of delays that counts as none.
const MOST: f64 = 1.1;

/// CPU of the engine, of its program and of the program's clients.
const ENGINE_CPU: usize = 0;
/// CPU of both ends of the connection in the kernel.
const OWN_CPU: usize = 1;
const SUBNET: u8 = 140;
/// Time in which the load reaches the engine.
const RAMP: Duration = Duration::from_secs(1);
/// Time in which the engine ends its connections, after the load.
const REST: Duration = Duration::from_secs(3);
/// Time that the load may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Frames that an engine takes at once; with fewer it is not overloaded.
const BURST: u32 = 64;

/// No queue is too long or short, so load control only measures.
const MEASURE: &str = "[engine]\nload = \"0-4294967295\"\n";

/// The work of the engine and of its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Neither has anything to do.
    Idle,
    /// The engine has nothing to do; its CPU runs a loop.
    Beside,
    /// More frames wait than it can serve.
    Overloaded,
    /// The engine has nothing to do; the load is in the kernel.
    Bypassed,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Idle => "idle engine",
            Engine::Beside => "idle engine, busy CPU",
            Engine::Overloaded => "overloaded engine",
            Engine::Bypassed => "load in the kernel",
        }
    }
}

/// A kind of steering and a state of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// How frames reach the engine.
    pub steer: Steer,
    /// Work of the engine and of its CPU.
    pub engine: Engine,
    /// Connections on it.
    pub connections: u32,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}", self.steer.word(), self.engine.name())
    }
}

/// The delay of the connection in the kernel, and the load of the engine at the end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Bytes that went there and back.
    pub requests: u64,
    /// Their delay in nanoseconds: median and 99th percentile.
    pub delay_ns: [u64; 2],
    /// Connections on the engine.
    pub on_engine: u32,
    /// Frames that waited for the engine.
    pub queued: u32,
}

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Every state of the engine with every kind of steering.
    pub series: Vec<Series>,
}

type Series = crate::experiment::Series<Point, Run>;

/// A figure of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delay {
    Median,
    P99,
}

impl Delay {
    const BOTH: [Delay; 2] = [Delay::Median, Delay::P99];

    fn name(self) -> &'static str {
        match self {
            Delay::Median => "p50",
            Delay::P99 => "p99",
        }
    }

    fn of(self, run: &Run) -> f64 {
        run.delay_ns[usize::from(self == Delay::P99)] as f64
    }
}

/// Measures the delay in every state of the engine, with every kind of steering.
///
/// # Errors
/// If a wire or a program cannot be started, or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Report> {
    let (steers, engines) = (extent.values::<Steer>("steer")?, extent.values::<Engine>("engine")?);
    let connections = *extent.values("connections")?.first().context("no number of connections")?;
    // The others would be measured too.
    let _first = Share::preferred()?;
    let files = home()?;
    let mut sides = Vec::new();
    for (steer, subnet) in steers.into_iter().zip(SUBNET..) {
        lab.step(&format!("setting up {}", steer.word()))?;
        sides.push((steer, Beside::new(lab, steer, subnet, files.path())?));
    }
    let background = Cpu::idle_check(Duration::from_millis(500))?;
    let group = |(steer, _): &(Steer, Beside<'_>)| {
        engines.iter().map(|&engine| Point { steer: *steer, engine, connections }).collect()
    };
    let series = lab.alternate(extent.rounds, sides.iter().map(group).collect(), |point| {
        let (_, beside) = sides.iter().find(|(steer, _)| *steer == point.steer).context("an unknown steering")?;
        beside.measure(lab, point, extent.length())
    })?;
    Ok(Report { machine: Machine::here(background), series })
}

/// An engine, and two servers on its interface: one whose connections are on it, and one in the kernel.
struct Beside<'a> {
    /// Ends before its place.
    _throttle: Share,
    _echo: Server,
    place: Place<'a>,
}

impl<'a> Beside<'a> {
    fn new(lab: &'a Lab<'_>, steer: Steer, subnet: u8, files: &std::path::Path) -> anyhow::Result<Beside<'a>> {
        let world = lab.world()?;
        let id = match steer {
            Steer::Tc => "service-tc",
            Steer::Xdp => "service-xdp",
        };
        let way = Way::of(id).context("an unknown way")?;
        let setting = Setting { settings: MEASURE, queues: Queues::EachCpu };
        let place = cpu::on(Some(ENGINE_CPU), || {
            let mut place = Place::with(world, way, subnet, files, &setting)?;
            place.serve(Kind::Crowd)?;
            Ok(place)
        })?;
        let engine = place.service().context("no service")?.engine()?;
        let stack = format!("--port kernel --addr {}", place.address);
        let stop = lab.stop();
        let start = || Server::start(&world.server, &stack, &[], stop);
        let echo = cpu::on(Some(OWN_CPU), start)?;
        Ok(Beside { _throttle: Share::throttled(engine, PART)?, _echo: echo, place })
    }

    fn measure(&self, lab: &Lab<'_>, point: &Point, length: Duration) -> anyhow::Result<Run> {
        match point.engine {
            Engine::Idle => self.ping_pong(lab, length),
            Engine::Beside => {
                let done = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let spin = || {
                        cpu::on(Some(ENGINE_CPU), || {
                            while !done.load(Ordering::Relaxed) {
                                std::hint::spin_loop();
                            }
                            Ok(())
                        })
                    };
                    let spinning = scope.spawn(spin);
                    let run = self.ping_pong(lab, length);
                    done.store(true, Ordering::Relaxed);
                    spinning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(run)
                })
            }
            Engine::Overloaded => {
                let run = self.beside_load(lab, point, length)?;
                ensure!(run.queued >= BURST, "the engine is not overloaded: {} frames wait for it", run.queued);
                Ok(run)
            }
            Engine::Bypassed => {
                let service = self.place.service().context("no service")?.connect()?;
                let policy = service.policy()?;
                service.reload(Some(&"never".parse()?))?;
                let run = self.beside_load(lab, point, length);
                service.reload(Some(&policy))?;
                let run = run?;
                ensure!(run.on_engine == 0, "{} connections are on the engine", run.on_engine);
                Ok(run)
            }
        }
    }

    /// Measures while requests over many connections keep the engine's CPU busy.
    fn beside_load(&self, lab: &Lab<'_>, point: &Point, length: Duration) -> anyhow::Result<Run> {
        let mut wrk = self.place.world.client.command("wrk");
        let url = format!("http://{}:{}/1k", self.place.address, Kind::Crowd.port());
        wrk.args(["-t1", &format!("-c{}", point.connections), "--timeout=60s"]);
        wrk.args([&format!("-d{}s", (length + RAMP + PATIENCE).as_secs()), &url]);
        wrk.stdin(Stdio::null()).stdout(Stdio::null());
        let start = || Background::start(&mut wrk, PATIENCE).context("cannot start wrk");
        let wrk = cpu::on(Some(ENGINE_CPU), start)?;
        std::thread::sleep(RAMP);
        let run = self.ping_pong(lab, length)?;
        drop(wrk);
        std::thread::sleep(REST);
        Ok(run)
    }

    fn ping_pong(&self, lab: &Lab<'_>, length: Duration) -> anyhow::Result<Run> {
        let (Place { world, address, .. }, stop) = (&self.place, lab.stop());
        let seconds = format!("--seconds={}", length.as_secs_f64());
        let arguments = ["--connections=1", "--size=1", "--warmup=0.2", &seconds].map(str::to_owned);
        let client = || generate(world, *address, load::Kind::Echo, &arguments, stop);
        let run = cpu::on(Some(OWN_CPU), client)?;
        let [median, p99, _] = run.latency_ns.context("no byte came back")?;
        let loads = self.place.service().context("no service")?.connect()?.loads()?;
        // An engine without frames measures nothing.
        let load = loads.last().map(|(_, past)| past).filter(|past| past.ago_ms < 2_000).map(|past| past.load);
        Ok(Run {
            requests: run.requests,
            delay_ns: [median, p99],
            on_engine: load.map_or(0, |load| load.connections),
            queued: load.map_or(0, |load| load.queued),
        })
    }
}

impl Report {
    fn find(&self, steer: Steer, engine: Engine) -> Option<&Series> {
        self.series.iter().find(|series| series.point.steer == steer && series.point.engine == engine)
    }

    fn steers(&self) -> Vec<Steer> {
        let mut steers: Vec<Steer> = self.series.iter().map(|series| series.point.steer).collect();
        steers.dedup();
        steers
    }

    /// The ratio of a delay to that beside an idle engine.
    fn ratio(&self, steer: Steer, engine: Engine, delay: Delay) -> Option<Quartiles> {
        let base = self.find(steer, Engine::Idle)?;
        quartiles(&self.find(steer, engine)?.ratios(base, |run| Some(delay.of(run))))
    }

    fn claims(&self) -> Vec<Claim> {
        vec![STATEMENT.claim(self)]
    }

    /// The results in every form.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self) -> anyhow::Result<Findings> {
        Ok(Findings::new(self, self.table(), self.claims())?.with(self.csv(), self.page()))
    }

    fn table(&self) -> String {
        let mut out =
            format!("{:<28}{:>12}{:>20}{:>12}{:>20}{:>10}\n", "", "p50", "to idle", "p99", "to idle", "queue");
        for Series { point, runs } in &self.series {
            let _ = write!(out, "{:<28}", format!("{}, {}", point.steer.word(), point.engine.name()));
            for delay in Delay::BOTH {
                let micros = self.median(point.steer, point.engine, delay).map_or(0.0, |m| m.median);
                let ratio = self.ratio(point.steer, point.engine, delay).map_or(String::new(), |q| q.ratio());
                let _ = write!(out, "{:>12}{ratio:>20}", format!("{} µs", short(micros)));
            }
            let queued: Vec<f64> = runs.iter().map(|run| f64::from(run.queued)).collect();
            let _ = writeln!(out, "{:>10}", median(&queued).map_or(0.0, |m| m.median));
        }
        let connections = self.series.first().map_or(0, |series| series.point.connections);
        let _ = writeln!(
            out,
            "1 byte there and back over a connection in the kernel; {connections} connections on an engine with {PART} % \
             of another CPU\nmedians of alternating rounds, ratios with quartiles; queue: frames that waited for the \
             engine; other programs used {:.0} % of the CPUs just before",
            self.machine.background * 100.0
        );
        claim::lines(&mut out, &self.claims());
        out
    }

    /// A delay in microseconds.
    fn median(&self, steer: Steer, engine: Engine, delay: Delay) -> Option<Median> {
        median(&self.find(steer, engine)?.values(|run| Some(delay.of(run) / 1e3)))
    }

    fn csv(&self) -> String {
        let mut out = "steer,engine,connections,round,requests,p50_ns,p99_ns,on_engine,queued\n".to_owned();
        for Series { point: Point { steer, engine, connections }, runs } in &self.series {
            for (round, Run { requests, delay_ns: [p50, p99], on_engine, queued }) in runs.iter().enumerate() {
                let _ = writeln!(
                    out,
                    "{},{},{connections},{round},{requests},{p50},{p99},{on_engine},{queued}",
                    steer.word(),
                    engine.name()
                );
            }
        }
        out
    }

    fn page(&self) -> String {
        let mut body = String::from("<div class=\"plots\">");
        for (delay, id, title) in
            [(Delay::Median, "p50", "Median delay"), (Delay::P99, "p99", "99th percentile of the delay")]
        {
            let groups = self.steers().into_iter().map(|steer| {
                let row = |series: &Series| {
                    let mark = Mark::Bar(self.median(steer, series.point.engine, delay)?);
                    let side = if series.point.engine == Engine::Overloaded { Side::Baton } else { Side::Kernel };
                    Some(Row { label: series.point.engine.name().into(), side, mark })
                };
                let rows = self.series.iter().filter(|series| series.point.steer == steer).filter_map(row).collect();
                Group { label: steer.word().into(), rows }
            });
            let plot = Plot { id: id.to_owned(), title: title.to_owned(), unit: "µs", groups: groups.collect() };
            if let Some(svg) = plot.render() {
                let _ = write!(body, "<figure><h3>{title} <span class=\"soft\">µs</span></h3>{svg}</figure>");
            }
        }
        body.push_str("</div><h2>The paper's statement</h2>");
        claim::paragraphs(&mut body, &self.claims());
        let _ = write!(body, "<h2>Numbers</h2><div class=\"scroll\"><pre>{}</pre></div>", self.table());
        let Machine { cpus, cpu, kernel, .. } = &self.machine;
        let lead = format!(
            "A connection in the kernel beside an engine on the same interface. {cpus} × {cpu}, Linux {kernel}."
        );
        page("Host first", &lead, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{PLANS, plan};

    #[test]
    fn the_statement_holds_up_to_a_tenth() {
        let series = |engine, p99| Series {
            point: Point { steer: Steer::Tc, engine, connections: 1 },
            runs: vec![Run { requests: 1, delay_ns: [100, p99], on_engine: 1, queued: 1 }],
        };
        for (p99, holds) in [(1_100, true), (1_101, false)] {
            let machine = Machine::here(0.0);
            let series = vec![series(Engine::Idle, 1_000), series(Engine::Overloaded, p99)];
            assert_eq!(Report { machine, series }.claims()[0].holds, Some(holds), "{p99}");
        }
        let idle_only = Report { machine: Machine::here(0.0), series: vec![series(Engine::Idle, 1)] };
        assert_eq!(idle_only.claims()[0].holds, None);
    }

    #[test]
    fn the_plans_name_known_values() {
        for (name, _) in PLANS {
            let extent = &plan(name).unwrap()[EXPERIMENT.id];
            assert!(extent.values::<Steer>("steer").is_ok() && extent.values::<Engine>("engine").is_ok(), "{name}");
            assert!(extent.values::<u32>("connections").is_ok(), "{name}");
        }
    }
}
