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
mod claims;
mod fit;
mod page;
mod routines;
mod rows;

pub use chapters::{CHAPTERS, CONNECTIONS, Chapter, LATENCY, LIMIT, MESSAGES, RECEIVER};

use crate::experiment::{Axis, Extent, Findings, Lab};
use crate::report::Machine;
use crate::report::bump::Report as BumpReport;
use crate::workload::generate::generate;
use crate::world::cpu;
use crate::world::serve::Server;
use crate::world::wire::{configure, veth};
use baton_apps::load::{Kind, Outcome};
use baton_apps::measure::{Cpu, Median, median};
use child::BumpChild;
use routines::{Costs, Looking};
use serde::{Deserialize, Serialize};
use std::fmt;
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

/// One contender at one work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Name of the chapter.
    pub chapter: String,
    /// The way of receiving that was measured.
    pub contender: Contender,
    /// The load that it was measured with.
    pub work: Work,
}

/// All runs of one contender at one work.
pub type Series = crate::experiment::Series<Point, Outcome>;

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Where.
    pub machine: Machine,
    /// Every contender at every work.
    pub series: Vec<Series>,
    /// The counters of each bump, by the contender's name and the chapter.
    pub bumps: Vec<(String, BumpReport)>,
    /// Receiver's CPU time per segment by routine; empty if there is no `perf`.
    pub routines: Vec<(Contender, Costs)>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { chapter, contender, work } = self;
        write!(f, "{chapter} · {} · {} connections · {} bytes", contender.name(), work.connections, work.size)
    }
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
        let (bytes, busy) = (run.bytes as f64, run.cpu.busy);
        let sound = |value: f64| value.is_finite().then_some(value);
        match self {
            Figure::Throughput => sound(bytes * 8e-9 / run.seconds),
            Figure::CpuPerByte => sound(busy * 1e9 / bytes),
            Figure::PerCpuSecond => sound(bytes * 8e-9 / busy),
            Figure::PerReceiverSecond => sound(bytes * 8e-9 / run.peer_cpu?.busy),
            Figure::Requests => sound(run.requests as f64 / run.seconds),
        }
    }
}

impl Series {
    /// The median of a figure.
    pub fn median(&self, figure: Figure) -> Option<Median> {
        median(&self.values(|run| figure.of(run)))
    }

    /// The median of the rounds' ratios to another's.
    pub fn ratio(&self, base: &Series, figure: Figure) -> Option<f64> {
        median(&self.ratios(base, |run| figure.of(run))).map(|ratio| ratio.median)
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

/// Runs chapters, each as far as its extent says.
///
/// # Errors
/// If a wire cannot be made, a load fails, or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, chapters: &[(&'static Chapter, Extent)]) -> anyhow::Result<Results> {
    let background = Cpu::idle_check(Duration::from_millis(300))?;
    let machine = Machine::here(background);
    let mut results = Results { machine, series: Vec::new(), bumps: Vec::new(), routines: Vec::new() };
    for (number, (chapter, extent)) in (0..).zip(chapters) {
        chapter.run(lab, extent, number, &mut results)?;
    }
    Ok(results)
}

impl Chapter {
    /// Runs this chapter alone.
    fn alone(&'static self, lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
        run(lab, &[(self, extent.clone())])?.findings()
    }

    fn run(&self, lab: &Lab<'_>, extent: &Extent, number: u8, results: &mut Results) -> anyhow::Result<()> {
        let contenders: Vec<Contender> = extent.values("contender")?;
        let wires: anyhow::Result<Vec<Wire>> =
            (0..).zip(&contenders).map(|(i, who)| Wire::new(lab, *who, self, (number, i))).collect();
        let wires = wires?;
        let works = self.works(extent)?;
        let point = |work: Work, contender| Point { chapter: self.name.to_owned(), contender, work };
        let groups = works.iter().map(|work| contenders.iter().map(|who| point(*work, *who)).collect()).collect();
        results.series.extend(lab.alternate(extent.rounds, groups, |point| {
            let wire = wires.iter().find(|wire| wire.contender == point.contender);
            wire.expect("each contender has one").measure(lab, &point.work, extent.length())
        })?);
        for wire in wires.iter().filter(|_| self.routines) {
            lab.tell(&format!("{} · by routine · {}", self.name, wire.contender.name()));
            results.routines.extend(wire.routines(lab, &works[0], extent.length())?);
        }
        for mut wire in wires {
            if let Some(bump) = &mut wire.bump {
                results.bumps.push((format!("{}, {}", self.name, wire.contender.name()), bump.report()?));
            }
        }
        Ok(())
    }

    /// Every number of connections with every size of messages.
    fn works(&self, extent: &Extent) -> anyhow::Result<Vec<Work>> {
        let kind = if self.requests { Kind::Echo } else { Kind::Send };
        let sizes: Vec<usize> = extent.values(Axis::MESSAGES.name)?;
        let connections: Vec<usize> = extent.values("connections")?;
        let works = connections
            .into_iter()
            .flat_map(|connections| sizes.iter().map(move |&size| Work { kind, connections, size }));
        Ok(works.collect())
    }
}

impl Wire {
    fn new(lab: &Lab<'_>, contender: Contender, chapter: &Chapter, (place, number): (u8, u8)) -> anyhow::Result<Wire> {
        let (world, stop) = (lab.world()?, lab.stop());
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
                Some(cpu::on(receiver, || BumpChild::start(&world.server, &arguments))?)
            }
        };
        let stack = format!("--port kernel --addr {} --message {}", addr(2), 64 << 10);
        let server = cpu::on(receiver, || Server::start(&world.server, &stack, &[], stop))?;
        Ok(Wire { contender, addr: addr(2), server, bump, apart: chapter.apart })
    }

    /// The cost of a segment by routine, from a run used only for this. `None` if there is no `perf`, or
    /// if it takes no samples.
    fn routines(&self, lab: &Lab<'_>, work: &Work, length: Duration) -> anyhow::Result<Option<(Contender, Costs)>> {
        let Some(bump) = self.bump.as_ref().map(BumpChild::id) else { return Ok(None) };
        for _ in 0..LOOKS {
            let Some(looking) = Looking::start(apart::RECEIVER)? else { return Ok(None) };
            let run = self.measure(lab, work, length)?;
            let looks = looking.end(bump)?;
            // The first start of perf, from disk, may have been too slow.
            if !looks.is_empty() {
                let busy = run.peer_cpu.map_or(0.0, |cpu| cpu.busy);
                return Ok(Some((self.contender, routines::costs(&looks, busy, run.bytes))));
            }
        }
        Ok(None)
    }

    fn measure(&self, lab: &Lab<'_>, work: &Work, length: Duration) -> anyhow::Result<Outcome> {
        let mut arguments = vec![
            format!("--connections={}", work.connections),
            format!("--size={}", work.size),
            format!("--seconds={}", length.as_secs_f64()),
            format!("--warmup={}", (length / 4).as_secs_f64()),
            format!("--peer-pid={}", self.server.pid()),
        ];
        if self.apart {
            arguments.push(format!("--peer-cpu={}", apart::RECEIVER));
        }
        let (world, stop, addr) = (lab.world()?, lab.stop(), self.addr);
        let sender = self.apart.then_some(apart::SENDER);
        cpu::on(sender, || generate(world, addr, work.kind, &arguments, stop))
    }
}
