//! `baton bump bench`: measures what coalescing in front of the kernel's stack saves it.
//!
//! It compares with RA, *Optimizing TCP Receive Performance* (receive aggregation), and RSC, *Receive
//! Side Coalescing for Accelerating TCP/IP Processing*.
//!
//! ```text
//!   namespace "client"                    namespace "server"
//!   baton load -- kernel TCP --- veth --- kernel TCP                   kernel
//!                                veth --- baton bump --- TAP --- kernel TCP    all others
//! ```
//!
//! The client sends single segments of MTU size (TSO and GSO off, checksums left to the device, as with
//! the papers' NICs). GRO is off at the receiving end, where it would hide the effect. Every contender
//! has its own wire, and only the bump and its limit differ. CPU time is that of the whole machine,
//! including the sender, except in chapters that pin sender and receiver to different CPUs (`apart`),
//! since the papers' senders were separate machines.

mod apart;
mod chapters;
mod child;
mod page;
mod routines;

pub use chapters::{CHAPTERS, Chapter};

use crate::report::Machine;
use crate::report::bump::Report as BumpReport;
use crate::workload::generate::generate;
use crate::world::World;
use crate::world::serve::Server;
use crate::world::wire::{configure, veth};
use anyhow::{Context, bail};
use baton_apps::load::{Kind, Outcome};
use baton_apps::measure::{Cpu, Median, median};
use baton_apps::signal::Stop;
use child::BumpChild;
use routines::{Costs, Looking};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Runs by routine at most, until one is seen.
const LOOKS: usize = 3;

/// The device in front of the kernel's stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Nothing.
    Kernel,
    /// A bump that only carries frames: a read and a write each.
    Bare,
    /// A bump with this limit; with 1 nothing is coalesced.
    Limit(u32),
    /// The same with RSC's rules and its buffer of 8192 bytes.
    Rsc(u32),
    /// A bump with this limit whose ACKs are not expanded.
    Stretch(u32),
}

impl Contender {
    /// A few words.
    pub fn name(self) -> String {
        match self {
            Contender::Kernel => "kernel, no bump".to_owned(),
            Contender::Bare => "bare bump".to_owned(),
            Contender::Limit(1) | Contender::Rsc(1) => "off".to_owned(),
            Contender::Limit(limit) => format!("limit {limit}"),
            Contender::Rsc(limit) => format!("RSC_{limit}"),
            Contender::Stretch(limit) => format!("limit {limit}, ACKs a run"),
        }
    }

    /// The options of the bump, if there is one.
    fn arguments(self) -> Option<Vec<String>> {
        let words = match self {
            Contender::Kernel => return None,
            Contender::Bare => "--bare".to_owned(),
            Contender::Limit(limit) => format!("--limit {limit}"),
            Contender::Rsc(limit) => format!("--profile rsc --limit {limit}"),
            Contender::Stretch(limit) => format!("--limit {limit} --ack-offload off"),
        };
        Some(words.split_whitespace().map(str::to_owned).collect())
    }
}

/// The client's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Send or echo.
    pub kind: Kind,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of a write or a request.
    pub size: usize,
}

/// Options of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of everything.
    pub rounds: usize,
    /// Length of one run.
    pub length: Duration,
    /// Run only chapters whose names contain this.
    pub only: String,
}

/// All runs of one contender at one work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Name of the chapter.
    pub chapter: String,
    /// The contender.
    pub contender: Contender,
    /// The work.
    pub work: Work,
    /// The runs, one per round.
    pub runs: Vec<Outcome>,
}

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Findings {
    /// Where.
    pub machine: Machine,
    /// Every contender at every work.
    pub series: Vec<Series>,
    /// The counters of each bump, by the contender's name and the chapter.
    pub bumps: Vec<(String, BumpReport)>,
    /// Receiver's CPU time per segment by routine; empty if there is no `perf`.
    pub routines: Vec<(Contender, Costs)>,
}

/// A figure of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Payload, in Gb/s.
    Throughput,
    /// CPU time of the machine a byte of payload, in nanoseconds.
    CpuPerByte,
    /// Payload in Gb for each second of CPU time of the machine.
    PerCpuSecond,
    /// Payload in Gb for each second of the receiver's CPU.
    PerReceiverSecond,
    /// Requests a second.
    Requests,
}

impl Figure {
    /// Its unit, in a few letters.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Throughput => "Gb/s",
            Figure::CpuPerByte => "ns/byte",
            Figure::PerCpuSecond | Figure::PerReceiverSecond => "Gb/CPU s",
            Figure::Requests => "/s",
        }
    }

    /// Its value in a run, if the run has it.
    pub fn of(self, run: &Outcome) -> Option<f64> {
        let (bytes, busy) = (run.bytes as f64, run.cpu.busy());
        let sound = |value: f64| value.is_finite().then_some(value);
        match self {
            Figure::Throughput => sound(bytes * 8e-9 / run.seconds),
            Figure::CpuPerByte => sound(busy * 1e9 / bytes),
            Figure::PerCpuSecond => sound(bytes * 8e-9 / busy),
            Figure::PerReceiverSecond => sound(bytes * 8e-9 / run.peer_cpu?.busy()),
            Figure::Requests => sound(run.requests as f64 / run.seconds),
        }
    }
}

impl Series {
    /// The median of a figure.
    pub fn median(&self, figure: Figure) -> Option<Median> {
        median(&self.runs.iter().filter_map(|run| figure.of(run)).collect::<Vec<_>>())
    }

    /// The median of the rounds' ratios to another's.
    pub fn ratio(&self, base: &Series, figure: Figure) -> Option<f64> {
        let pairs = self.runs.iter().zip(&base.runs);
        let ratios: Vec<f64> = pairs.filter_map(|(a, b)| Some(figure.of(a)? / figure.of(b)?)).collect();
        median(&ratios).map(|ratio| ratio.median)
    }
}

/// A wire that is up, with what stands behind it.
struct Wire {
    contender: Contender,
    addr: IpAddr,
    server: Server,
    bump: Option<BumpChild>,
    /// Sender and receiver have CPUs of their own.
    apart: bool,
}

/// Runs the chapters.
///
/// # Errors
/// If a wire cannot be made, a load fails, or the measurement is asked to end.
pub fn run(world: &World, options: &Options, stop: &Stop, tell: &dyn Fn(&str)) -> anyhow::Result<Findings> {
    let background = Cpu::idle_check(Duration::from_millis(300))?;
    let mut findings =
        Findings { machine: Machine::here(background), series: Vec::new(), bumps: Vec::new(), routines: Vec::new() };
    for (number, chapter) in (0..).zip(CHAPTERS).filter(|(_, chapter)| chapter.name.contains(&options.only)) {
        let wires: anyhow::Result<Vec<Wire>> =
            (0..).zip(chapter.contenders).map(|(i, who)| Wire::new(world, *who, &chapter, (number, i), stop)).collect();
        let wires = wires?;
        let mut series: Vec<Series> = Vec::new();
        for work in chapter.works {
            series.extend(chapter.contenders.iter().map(|contender| Series {
                chapter: chapter.name.to_owned(),
                contender: *contender,
                work: *work,
                runs: Vec::new(),
            }));
        }
        for round in 0..options.rounds {
            for work in chapter.works {
                for turn in 0..wires.len() {
                    let wire = &wires[(turn + round) % wires.len()];
                    tell(&format!(
                        "round {} of {} · {} · {}",
                        round + 1,
                        options.rounds,
                        chapter.name,
                        wire.name(work)
                    ));
                    let run = wire.measure(world, work, options, stop)?;
                    let of_this = |s: &&mut Series| s.contender == wire.contender && s.work == *work;
                    series.iter_mut().find(of_this).expect("made above").runs.push(run);
                }
            }
        }
        findings.series.extend(series);
        for wire in wires.iter().filter(|_| chapter.routines) {
            tell(&format!("{} · by routine · {}", chapter.name, wire.contender.name()));
            findings.routines.extend(wire.routines(world, &chapter.works[0], options, stop)?);
        }
        for mut wire in wires {
            if let Some(bump) = &mut wire.bump {
                let report = bump.report()?;
                findings.bumps.push((format!("{}, {}", chapter.name, wire.contender.name()), report));
            }
        }
    }
    Ok(findings)
}

impl Wire {
    fn new(
        world: &World,
        contender: Contender,
        chapter: &Chapter,
        (place, number): (u8, u8),
        stop: &Stop,
    ) -> anyhow::Result<Wire> {
        let device = format!("bw-{place}-{number}");
        let subnet = place * 16 + number;
        let addr = |host: u8| IpAddr::from([10, 78, subnet, host]);
        veth(world, &device, true)?;
        world.client.run(&format!("ethtool -K {device} tso off gso off gro off"))?;
        world.server.run(&format!("ethtool -K {device} gro off"))?;
        configure(&world.client, &device, &[format!("{}/24", addr(1))])?;
        configure(&world.server, &device, &[format!("{}/24", addr(2))])?;
        if chapter.apart {
            apart::steer(world, &device)?;
        }
        let receiver = chapter.apart.then_some(apart::RECEIVER);
        let bump = match contender.arguments() {
            None => None,
            Some(more) => {
                let words = format!("--wire {device} --host bh-{place}-{number}");
                let arguments: Vec<String> = words.split_whitespace().map(str::to_owned).chain(more).collect();
                Some(apart::on(receiver, || BumpChild::start(&world.server, &arguments))?)
            }
        };
        let stack = format!("--port kernel --addr {} --message {}", addr(2), 64 << 10);
        let server = apart::on(receiver, || Server::start(&world.server, &stack, &[], stop))?;
        Ok(Wire { contender, addr: addr(2), server, bump, apart: chapter.apart })
    }

    /// The cost of a segment by routine, from a run used only for this. `None` if there is no `perf`, or
    /// if it takes no samples.
    fn routines(
        &self,
        world: &World,
        work: &Work,
        options: &Options,
        stop: &Stop,
    ) -> anyhow::Result<Option<(Contender, Costs)>> {
        let Some(bump) = self.bump.as_ref().map(BumpChild::id) else { return Ok(None) };
        for _ in 0..LOOKS {
            let Some(looking) = Looking::start(apart::RECEIVER)? else { return Ok(None) };
            let run = self.measure(world, work, options, stop)?;
            let looks = looking.end(bump)?;
            // The first start of perf, from disk, may have been too slow.
            if !looks.is_empty() {
                let busy = run.peer_cpu.map_or(0.0, |cpu| cpu.busy());
                return Ok(Some((self.contender, routines::costs(&looks, busy, run.bytes))));
            }
        }
        Ok(None)
    }

    fn name(&self, work: &Work) -> String {
        format!("{} · {} connections · {} bytes", self.contender.name(), work.connections, work.size)
    }

    fn measure(&self, world: &World, work: &Work, options: &Options, stop: &Stop) -> anyhow::Result<Outcome> {
        if stop.requested() {
            bail!("interrupted");
        }
        let mut arguments = vec![
            format!("--connections={}", work.connections),
            format!("--size={}", work.size),
            format!("--seconds={}", options.length.as_secs_f64()),
            format!("--warmup={}", (options.length / 4).as_secs_f64()),
            format!("--peer-pid={}", self.server.pid()),
        ];
        if self.apart {
            arguments.push(format!("--peer-cpu={}", apart::RECEIVER));
        }
        let (addr, sender) = (self.addr, self.apart.then_some(apart::SENDER));
        apart::on(sender, || generate(world, addr, work.kind, &arguments, stop)).with_context(|| self.name(work))
    }
}
