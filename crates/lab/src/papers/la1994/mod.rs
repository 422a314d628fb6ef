//! LA, *Latency Analysis of TCP on an ATM Network*: round trips over every device, where the time of a
//! message goes by layer, what copies, checksums and the search for a connection cost, round trips with and
//! without header prediction, one pass and checksums, and who finds damage.

mod corruption;
mod kernels;
mod layers;
mod passes;
mod prediction;
mod round_trips;
mod search;
mod sums;
mod trips;

pub use corruption::EXPERIMENT as CORRUPTION;
pub use layers::EXPERIMENT as LAYERS;
pub use passes::EXPERIMENT as PASSES;
pub use prediction::EXPERIMENT as PREDICTION;
pub use round_trips::EXPERIMENT as ROUND_TRIPS;
pub use sums::EXPERIMENT as SUMS;

use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Row, Rows, of};
use crate::report::Machine;
use baton_apps::measure::{Cpu, median};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How many round trips a run makes; a plan has one number.
const TRIPS: Axis = Axis { name: "round_trips", about: "round trips of each size and variant in a round" };

/// Copies, checksums and searches in memory.
pub const MEMORY: Experiment = Experiment {
    id: "la-memory",
    title: "Copy and checksum, apart and in one pass, and the search for a connection",
    needs: &[],
    axes: &[
        Axis { name: "message_bytes", about: "bytes that are copied and summed" },
        Axis { name: "connections", about: "connections that are searched" },
    ],
    command: "baton lab la",
    run: |lab, extent| {
        let copies = kernels::run(lab, extent)?;
        let searches = search::run(lab, extent)?;
        let rows = [
            of("la-table-5", kernels::table_5(&copies)),
            of("la-figure-2", kernels::figure_2(&copies)),
            of("la-pcb-search", search::rows(&searches)),
        ];
        findings(extent, rows.concat())
    },
};

/// Results as JSON: where, how long, and every row.
#[derive(Serialize)]
struct Outcome<'a> {
    machine: Machine,
    seconds: f64,
    rows: Vec<&'a Row>,
}

fn findings(extent: &Extent, rows: Rows) -> anyhow::Result<Findings> {
    let machine = Machine::here(Cpu::idle_check(Duration::from_millis(300))?);
    let outcome = Outcome { machine, seconds: extent.seconds, rows: rows.iter().map(|(_, row)| row).collect() };
    let mut table = String::new();
    for (id, Row { name, unit, here, .. }) in &rows {
        let here = here.map_or("–".to_owned(), |here| format!("{here:.3}"));
        let _ = writeln!(table, "{id:14} {name:60} {here:>12} {unit}");
    }
    Ok(Findings::new(&outcome, table, Vec::new())?.showing(rows))
}

/// Nanoseconds that a call takes: the median over the rounds of means over `length`.
fn cost(lab: &Lab<'_>, extent: &Extent, what: &str, mut call: impl FnMut()) -> anyhow::Result<f64> {
    lab.step(what)?;
    let length = extent.length();
    let mut rounds = Vec::new();
    for _ in 0..extent.rounds {
        let (start, mut calls, mut some) = (Instant::now(), 0_u32, 1);
        while start.elapsed() < length {
            (0..some).for_each(|_| call());
            calls += some;
            some = (some * 2).min(1024);
        }
        rounds.push(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(median(&rounds).map_or(f64::NAN, |median| median.median))
}
