//! Where the time of a message goes, layer by layer (LA §2.2: tables 2 and 3).
//!
//! ```text
//!   client's namespace, kernel            wires of the demo        server's namespace
//!     waits in write and read  <------  veth, TAP, AF_XDP  ------>  kernel, or an engine in this process
//!                                                                   a whole request in, its answer out
//! ```
//!
//! The server's side is measured, of either stack: the way of its answers out, and of its requests in. A
//! run is a new connection; runs over the wires take turns. Each run is read in slices of round trips, so
//! that what else the machine does spoils a few slices, and the median over the slices is shown.

mod client;
mod far;
mod paper;
mod rows;
mod times;

use super::{TRIPS, findings};
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need, of};
use crate::workload::wires::{Made, make};
use anyhow::{Context, bail};
use baton_kernel::latency::{By, Wanted, Watch, sights};
use baton_latency::{Direction, Table, WatchMemory};
use client::Client;
use far::{Ending, Orders};
use rows::{Seen, Stack, table};
use std::fmt;
use std::sync::Arc;
use times::Means;

/// Times by layer.
pub const EXPERIMENT: Experiment = Experiment {
    id: "la-layers",
    title: "Time of messages by layer, of the kernel and of the engine, over every device",
    needs: &[Need::ROOT],
    axes: &[Axis { name: "message_bytes", about: "bytes of a request and of its answer" }, TRIPS],
    command: "baton lab la",
    run,
};

/// Round trips of a slice.
const SLICE: usize = 500;

/// A wire with its server; the memory is that of the engine's times, `None` if the server is the kernel's.
type Wire = Made<Option<Arc<WatchMemory>>>;

/// A size over a wire.
#[derive(Clone, Copy)]
struct Point<'a> {
    wire: &'a Wire,
    stack: Stack,
    bytes: usize,
}

impl fmt::Display for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes · {}", self.bytes, self.wire.name())
    }
}

fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
    let world = lab.world()?;
    let orders = Arc::new(Orders::default());
    std::thread::scope(|scope| {
        // Dropped before the scope waits for its threads.
        let _ending = Ending(orders.clone());
        let (wires, missing) = make(world, lab.stop(), |far| far::start(scope, world, far, &orders))?;
        missing.into_iter().for_each(|what| lab.tell(&format!("not measured: {what}")));
        measure(lab, extent, &wires, &orders)
    })
}

fn measure(lab: &Lab<'_>, extent: &Extent, wires: &[Wire], orders: &Orders) -> anyhow::Result<Findings> {
    let sizes: Vec<usize> = extent.values(Axis::MESSAGES.name)?;
    let trips = extent.values::<usize>(TRIPS.name)?.into_iter().max().context("a plan without round trips")?;
    let kernel = kernel_sight(lab);
    let stack = |wire: &Wire| if wire.server.is_some() { Some(Stack::Engine) } else { kernel };
    let points =
        |bytes| wires.iter().filter_map(move |wire| Some(Point { wire, stack: stack(wire)?, bytes })).collect();
    let groups = sizes.iter().map(|&bytes| points(bytes)).collect();
    let series = lab.alternate(extent.rounds, groups, |point| {
        let run = one(lab, point, trips, orders);
        run.map_err(|error| match orders.failure() {
            Some(why) => error.context(format!("the server failed: {why}")),
            None => error,
        })
    })?;
    let seen: Vec<Seen<'_>> = series
        .into_iter()
        .map(|series| {
            let Point { wire, stack, bytes } = series.point;
            Seen { wire: wire.name(), stack, bytes, slices: series.runs.concat() }
        })
        .collect();
    let table = |id, way| of(id, table(way, &sizes, &seen));
    let rows = [table("la-table-2", Direction::Transmit), table("la-table-3", Direction::Receive)];
    findings(extent, rows.concat())
}

/// How this kernel's layers can be seen; `None` if they cannot, after telling why.
fn kernel_sight(lab: &Lab<'_>) -> Option<Stack> {
    match sights() {
        Ok(sights) => {
            for sight in sights.iter().filter(|sight| !sight.note.is_empty()) {
                lab.tell(&format!("kernel, {}: {}", sight.way.name(), sight.note));
            }
            let by = |way| sights.iter().find(|sight| sight.way == way).map_or(By::Nothing, |sight| sight.by);
            Some(Stack::Kernel(Direction::ALL.map(by)))
        }
        Err(error) => {
            lab.tell(&format!("not measured: the kernel's layers: {error}"));
            None
        }
    }
}

/// Makes the round trips of a run on a new connection, and reads the server's times after each slice.
fn one(lab: &Lab<'_>, point: &Point<'_>, trips: usize, orders: &Orders) -> anyhow::Result<Vec<Means>> {
    let (world, wire) = (lab.world()?, point.wire);
    orders.expect(point.bytes);
    let server = *wire.addrs.first().context("a wire without an address")?;
    let mut client = Client::connect(world, server, point.bytes)?;
    let mut times = match &wire.server {
        Some(memory) => Times::Engine(memory.clone()),
        None => {
            let wanted = Wanted::Tuple(client.at_server);
            // Only connections of the namespace in which it starts are watched.
            Times::Kernel(Box::new(world.server.enter(|| Ok(Watch::start(&wanted, 1)?))?))
        }
    };
    client.turn(SLICE)?;
    let (mut before, mut slices) = (times.read()?, Vec::new());
    for _ in 0..trips.div_ceil(SLICE) {
        if lab.stop().requested() {
            bail!("interrupted");
        }
        client.turn(SLICE)?;
        let now = times.read()?;
        slices.push(Means::of(&now.since(&before)));
        before = now;
    }
    Ok(slices)
}

/// Where the times of a server's connections are read.
enum Times {
    Kernel(Box<Watch>),
    Engine(Arc<WatchMemory>),
}

impl Times {
    /// All times so far.
    fn read(&mut self) -> anyhow::Result<Table> {
        Ok(match self {
            Times::Engine(memory) => memory.all(),
            Times::Kernel(watch) => {
                let mut all = Table::default();
                watch.read()?.connections.iter().for_each(|watched| all.add(&watched.table));
                all
            }
        })
    }
}
