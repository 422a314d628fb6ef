//! What coalescing in front of it saves the kernel's stack: `baton bump bench`.
//!
//! ```text
//!   namespace "client"                    namespace "server"
//!   baton load -- kernel TCP --- veth --- kernel TCP                   kernel
//!                                veth --- baton bump --- TAP --- kernel TCP    all others
//! ```
//!
//! The client sends single segments of MTU size (TSO and GSO off, checksums left to the
//! device as the papers' NICs had them), and GRO is off at the receiving end, where it
//! would hide what is measured. Every contender has a wire of its own; the rest is the
//! same, so that what differs is the bump and its limit. CPU time is that of the whole
//! machine, sender included, for on one machine the two cannot be told apart; the papers'
//! senders were machines of their own.

mod chapters;
mod child;
mod page;

pub use chapters::{CHAPTERS, Chapter};

use super::Report as BumpReport;
use crate::demo::{Server, World, configure, generate, veth};
use crate::load::{Kind, Outcome};
use crate::measure::{Cpu, Median, median};
use crate::report::Machine;
use crate::signal::Stop;
use anyhow::{Context, bail};
use child::BumpChild;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// What stands in front of the kernel's stack.
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

    /// What the bump is told, if there is one.
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

/// What the client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Send or echo.
    pub kind: Kind,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of a write or a request.
    pub size: usize,
}

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of everything.
    pub rounds: usize,
    /// Length of one run.
    pub length: Duration,
    /// Only chapters whose name contains this.
    pub only: String,
}

/// All runs of one contender at one work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Name of the chapter.
    pub chapter: String,
    /// Who.
    pub contender: Contender,
    /// At what.
    pub work: Work,
    /// One a round.
    pub runs: Vec<Outcome>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Findings {
    /// Where.
    pub machine: Machine,
    /// Every contender at every work.
    pub series: Vec<Series>,
    /// What each bump counted, by its contender's name and chapter.
    pub bumps: Vec<(String, BumpReport)>,
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
    /// Requests a second.
    Requests,
}

impl Figure {
    /// Its value in a run, if the run has it.
    pub fn of(self, run: &Outcome) -> Option<f64> {
        let (bytes, busy) = (run.bytes as f64, run.cpu.busy());
        let sound = |value: f64| value.is_finite().then_some(value);
        match self {
            Figure::Throughput => sound(bytes * 8e-9 / run.seconds),
            Figure::CpuPerByte => sound(busy * 1e9 / bytes),
            Figure::PerCpuSecond => sound(bytes * 8e-9 / busy),
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
}

/// Runs the chapters.
///
/// # Errors
/// If a wire cannot be made, a load fails, or the measurement is asked to end.
pub fn run(world: &World, options: &Options, stop: &Stop, tell: &dyn Fn(&str)) -> anyhow::Result<Findings> {
    let background = Cpu::idle_check(Duration::from_millis(300))?;
    let mut findings = Findings { machine: Machine::here(background), series: Vec::new(), bumps: Vec::new() };
    for (number, chapter) in (0..).zip(CHAPTERS).filter(|(_, chapter)| chapter.name.contains(&options.only)) {
        let wires: anyhow::Result<Vec<Wire>> =
            (0..).zip(chapter.contenders).map(|(i, who)| Wire::new(world, *who, (number, i), stop)).collect();
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
    fn new(world: &World, contender: Contender, (chapter, number): (u8, u8), stop: &Stop) -> anyhow::Result<Wire> {
        let device = format!("bw-{chapter}-{number}");
        let subnet = chapter * 16 + number;
        let addr = |host: u8| IpAddr::from([10, 78, subnet, host]);
        veth(world, &device, true)?;
        world.client.run(&format!("ethtool -K {device} tso off gso off gro off"))?;
        world.server.run(&format!("ethtool -K {device} gro off"))?;
        configure(&world.client, &device, &[format!("{}/24", addr(1))])?;
        configure(&world.server, &device, &[format!("{}/24", addr(2))])?;
        let bump = match contender.arguments() {
            None => None,
            Some(more) => {
                let words = format!("--wire {device} --host bh-{chapter}-{number}");
                let arguments: Vec<String> = words.split_whitespace().map(str::to_owned).chain(more).collect();
                Some(BumpChild::start(&world.server, &arguments)?)
            }
        };
        let stack = format!("--port kernel --addr {} --message {}", addr(2), 64 << 10);
        let server = Server::start(&world.server, &stack, &[], stop)?;
        Ok(Wire { contender, addr: addr(2), server, bump })
    }

    fn name(&self, work: &Work) -> String {
        format!("{} · {} connections · {} bytes", self.contender.name(), work.connections, work.size)
    }

    fn measure(&self, world: &World, work: &Work, options: &Options, stop: &Stop) -> anyhow::Result<Outcome> {
        if stop.requested() {
            bail!("interrupted");
        }
        let arguments = [
            format!("--connections={}", work.connections),
            format!("--size={}", work.size),
            format!("--seconds={}", options.length.as_secs_f64()),
            format!("--warmup={}", (options.length / 4).as_secs_f64()),
            format!("--peer-pid={}", self.server.pid()),
        ];
        generate(world, self.addr, work.kind, &arguments, stop).with_context(|| self.name(work))
    }
}
