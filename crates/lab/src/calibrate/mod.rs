//! `baton calibrate`: what a request costs in the kernel and in an engine on this machine, by message
//! size and placement, and what a move costs.
//!
//! ```text
//!   baton load, 1 and 32 connections ── veth pair ── echo server on the kernel's TCP
//!        the same client             ── veth pair ── the same server, in an engine of each placement
//! ```
//!
//! A program that is asked one request at a time sleeps and wakes for each; one that is asked by many at
//! once never sleeps. An engine that saves in the one case may lose in the other, so both are measured
//! and count alike.
//!
//! Rounds alternate: each has every size in every place, and each place is first in turn. CPU time is
//! that of the client, the server, the service and the kernel's soft-interrupt threads, so other programs
//! disturb it little. The client costs the same everywhere; its time is part of both sums and no part of
//! their difference.

mod crossover;
mod moves;

use crate::watch::Watch;
use crate::workload::generate::generate;
use crate::workload::place::{self, Place};
use crate::workload::server::Kind;
use crate::workload::ways::Way;
use crate::world::World;
use anyhow::{Context, bail};
use baton_apps::load;
use baton_apps::measure::{Cpu, median};
use baton_apps::signal::Stop;
use crossover::{Savings, crossover};
use moves::Batch;
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Sizes of messages, in bytes: each is sent and returned.
pub const SIZES: [u64; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// The largest message that goes in one packet.
const ONE_PACKET: u64 = 1024;

/// Connections of the loads: requests one at a time, and many at once.
pub const LOADS: [usize; 2] = [1, 32];

/// Rounds that are measured by default, and the fewest of them, if time is short.
pub const ROUNDS: usize = 5;
const FEWEST: usize = 3;

/// No round begins that would not end by then.
const LIMIT: Duration = Duration::from_secs(54);

/// The priority, as nice(1) counts it, at which all is measured.
const PRIORITY: i32 = -10;

/// The placements, with the ways of serving that have them.
const PLACEMENTS: [(&str, &str); 2] = [("direct", "direct-tc"), ("service", "service-tc")];

/// The measured costs of each placement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Rounds that were measured.
    pub rounds: usize,
    /// Share of the CPUs that other programs used just before, 0 to 1.
    pub background: f64,
    /// Each placement.
    pub placements: Vec<Placement>,
}

/// One placement of the engine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Placement {
    /// Its name, as `baton run --engine` has it.
    pub name: String,
    /// Bytes in both directions for each request, up to which the engine is not dearer; none if the
    /// kernel is cheaper at every size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossover_bytes: Option<u64>,
    /// The saving of a small packet in the engine, in nanoseconds of CPU time; 0 if there is none.
    pub saving_ns: u32,
    /// The cost of a move, in nanoseconds of CPU time.
    pub move_ns: u32,
    /// The cost of a request of each size.
    pub sizes: Vec<Size>,
}

/// The cost of a request of one size: medians of the rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Size {
    /// Bytes of the request, and of its answer.
    pub bytes: u64,
    /// CPU time in the kernel under each of [`LOADS`], in nanoseconds.
    pub kernel_ns: Costs<u32>,
    /// CPU time in the engine under each of them, in nanoseconds.
    pub engine_ns: Costs<u32>,
}

/// The cost of a request under each of [`LOADS`].
type Costs<T> = [T; LOADS.len()];

impl Placement {
    /// The largest message of the grid that pays.
    fn message(&self) -> Option<u64> {
        self.crossover_bytes.map(|bytes| bytes / 2)
    }
}

/// Measures so many rounds, for at most a minute. `before` is an earlier calibration of this machine, whose crossovers
/// stay where noise alone would move them.
///
/// # Errors
/// If something cannot be set up or measured, or the measurement is asked to end.
pub fn run(
    world: &World,
    rounds: usize,
    before: Option<&Calibration>,
    (stop, watch): (&Stop, &dyn Watch),
) -> anyhow::Result<Calibration> {
    let begun = Instant::now();
    let background = Cpu::idle_check(Duration::from_millis(500))?;
    // Children inherit it. As the service's own priority: other programs disturb the rounds less.
    setpriority_process(None, PRIORITY).context("raising the priority")?;
    watch.plan(rounds * (SIZES.len() + 1) + 1);
    watch.step("starting servers");
    let home = place::home()?;
    let ways = ["kernel", "unmoved"].into_iter().chain(PLACEMENTS.map(|(_, way)| way));
    let mut places = Vec::new();
    for (id, subnet) in ways.zip(1..) {
        let mut place = Place::new(world, Way::of(id).context("no such way")?, subnet, home.path())?;
        place.serve(Kind::Echo)?;
        places.push(place);
    }
    let mut measured = Measured::default();
    for round in 0..rounds {
        let round_begun = Instant::now();
        measured.round(&places, (round, rounds), stop, watch)?;
        if round + 1 >= FEWEST && begun.elapsed() + round_begun.elapsed() > LIMIT {
            break;
        }
    }
    for place in places {
        place.end()?;
    }
    Ok(measured.calibration(background, before))
}

/// Costs, in nanoseconds.
#[derive(Default)]
struct Measured {
    /// By round and size: the kernel's cost of a request, then that of each placement.
    requests: Vec<Vec<[Costs<f64>; 1 + PLACEMENTS.len()]>>,
    /// By round: the cost of a move to each placement.
    moves: Vec<[f64; PLACEMENTS.len()]>,
}

impl Measured {
    fn round(
        &mut self,
        places: &[Place<'_>],
        (round, rounds): (usize, usize),
        stop: &Stop,
        watch: &dyn Watch,
    ) -> anyhow::Result<()> {
        let step = |what: String| {
            watch.step(&format!("round {} of {rounds} · {what}", round + 1));
            if stop.requested() { bail!("interrupted") } else { Ok(()) }
        };
        let [kernel, unmoved, engines @ ..] = places else { bail!("too few places") };
        let mut sizes = Vec::new();
        for bytes in SIZES {
            step(format!("messages of {bytes} bytes"))?;
            let mut costs = [[0.0; LOADS.len()]; 1 + PLACEMENTS.len()];
            for (load, connections) in LOADS.into_iter().enumerate() {
                for turn in 0..costs.len() {
                    let at = (turn + round) % costs.len();
                    let place = if at == 0 { kernel } else { &engines[at - 1] };
                    costs[at][load] = request_ns(place, connections, bytes, stop).with_context(|| place.way.name)?;
                }
            }
            sizes.push(costs);
        }
        step("moves".to_owned())?;
        let stayed = moves::batch(unmoved).context("connections that stay")?;
        let mut costs = [0.0; PLACEMENTS.len()];
        for (cost, place) in costs.iter_mut().zip(engines) {
            let moved: Batch = moves::batch(place).with_context(|| place.way.name)?;
            *cost = moves::cost(&moved, &stayed);
        }
        self.requests.push(sizes);
        self.moves.push(costs);
        Ok(())
    }

    fn calibration(&self, background: f64, before: Option<&Calibration>) -> Calibration {
        let placements = PLACEMENTS.iter().enumerate().map(|(at, (name, _))| {
            let before = before.and_then(|it| it.placements.iter().find(|before| before.name == *name));
            self.placement(name, at, before.map(Placement::message))
        });
        Calibration { rounds: self.requests.len(), background, placements: placements.collect() }
    }

    fn placement(&self, name: &str, at: usize, before: Option<Option<u64>>) -> Placement {
        let middle = |values: &[f64]| median(values).map_or(0.0, |it| it.median);
        let ns = |value: f64| value.round().max(0.0) as u32;
        // The mean of a figure of both loads, in each round.
        let each = |size: usize, figure: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
            let of = |costs: &[Costs<f64>; 1 + PLACEMENTS.len()]| {
                (0..LOADS.len()).map(|load| figure(costs[0][load], costs[1 + at][load])).sum::<f64>()
            };
            self.requests.iter().map(|sizes| of(&sizes[size]) / LOADS.len() as f64).collect()
        };
        let cost = |size: usize, place: usize| {
            let of = |load: usize| self.requests.iter().map(|sizes| sizes[size][place][load]).collect::<Vec<_>>();
            std::array::from_fn(|load| ns(middle(&of(load))))
        };
        let savings = SIZES
            .iter()
            .enumerate()
            .map(|(size, &bytes)| Savings { bytes, shares: each(size, &|kernel, engine| 1.0 - engine / kernel) });
        let crossover = crossover(&savings.collect::<Vec<_>>(), before);
        let small = SIZES.iter().take_while(|bytes| crossover.is_some_and(|it| **bytes <= it.min(ONE_PACKET)));
        let saved: Vec<f64> =
            small.enumerate().flat_map(|(size, _)| each(size, &|kernel, engine| kernel - engine)).collect();
        let sizes = SIZES.iter().enumerate().map(|(size, &bytes)| Size {
            bytes,
            kernel_ns: cost(size, 0),
            engine_ns: cost(size, 1 + at),
        });
        Placement {
            name: name.to_owned(),
            // A message is there in both directions.
            crossover_bytes: crossover.map(|bytes| 2 * bytes),
            saving_ns: ns(middle(&saved)),
            move_ns: ns(middle(&self.moves.iter().map(|costs| costs[at]).collect::<Vec<_>>())),
            sizes: sizes.collect(),
        }
    }
}

/// CPU time of a request and its answer, in nanoseconds.
fn request_ns(place: &Place<'_>, connections: usize, bytes: u64, stop: &Stop) -> anyhow::Result<f64> {
    let mut arguments = vec![
        format!("--connections={connections}"),
        format!("--size={bytes}"),
        "--warmup=0.05".to_owned(),
        "--seconds=0.12".to_owned(),
    ];
    arguments.extend(place.processes(Kind::Echo).iter().map(|pid| format!("--peer-pid={pid}")));
    let run = generate(place.world, place.address, load::Kind::Echo, &arguments, stop)?;
    Ok(run.tasks_seconds * 1e9 / run.requests.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        // The first placement saves 2 µs of 20 µs at first, and loses from 2048 bytes on; the second loses.
        let costs = |bytes: u64| {
            let saved = if bytes < 2048 { 2_000.0 } else { -4_000.0 };
            [[20_000.0; 2], [20_000.0 - saved; 2], [25_000.0; 2]]
        };
        let round = SIZES.map(costs).to_vec();
        Measured { requests: vec![round; 3], moves: vec![[80_000.0, 90_000.0]; 3] }
    }

    #[test]
    fn a_placement_has_its_crossover_saving_and_move() {
        let calibration = measured().calibration(0.0, None);
        let [direct, service] = &calibration.placements[..] else { panic!("{calibration:?}") };
        assert_eq!((direct.name.as_str(), direct.crossover_bytes), ("direct", Some(2048)));
        assert_eq!((direct.saving_ns, direct.move_ns), (2_000, 80_000));
        assert_eq!((service.crossover_bytes, service.saving_ns, service.move_ns), (None, 0, 90_000));
        assert_eq!(service.sizes[0], Size { bytes: 64, kernel_ns: [20_000; 2], engine_ns: [25_000; 2] });
    }

    #[test]
    fn an_earlier_calibration_is_taken_into_account_by_placement() {
        let first = measured().calibration(0.0, None);
        let mut again = measured();
        for round in &mut again.requests {
            // Now the engine costs 1 % more at 1024 bytes, which may be noise.
            round[4][1] = [20_200.0; 2];
        }
        assert_eq!(again.calibration(0.0, None).placements[0].crossover_bytes, Some(1024));
        assert_eq!(again.calibration(0.0, Some(&first)).placements[0].crossover_bytes, Some(2048));
    }
}
