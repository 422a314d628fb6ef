//! Round trips between two engines in memory, by variants of the engine that take turns.
//!
//! ```text
//!   round:  variant a | b | c | b | c | a | c | a | b | ...      a slice of round trips each
//! ```
//!
//! A slice is short, so what else the machine does meets all variants alike. Ratios are those of
//! slices that follow each other. Both engines run on one thread, which never sleeps, so a round trip
//! takes what the thread's CPU clock says: no time of other programs.

use crate::experiment::{Extent, Lab};
use crate::workload::memory::Pair;
use anyhow::{Context, bail};
use baton_apps::measure::median;
use baton_apps::net::{Flow, Handler, Net, StreamIo};
use baton_apps::services::{Kind, Message, ramp};
use baton_engine::engine::EngineConfig;
use baton_port::MemoryOptions;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Largest IP packet: 4,096 bytes of payload, with headers and timestamps. So 8,000 bytes are two
/// segments and 4,000 are one, as in the paper (§3).
pub const MTU: u16 = 4096 + 52;

/// Round trips of a slice.
const SLICE: usize = 500;

/// The longest time without a round trip, after which a measurement fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A variant of the engine that is compared.
pub trait Variant: Copy + Display {
    /// Makes an engine's configuration that of this variant.
    fn tune(self, config: &mut EngineConfig);

    /// Makes the options of the wire those of this variant.
    fn wire(self, options: MemoryOptions) -> MemoryOptions {
        options
    }
}

/// The round trips of one size by one variant.
#[derive(Debug, Default)]
pub struct Trips {
    slices: Vec<Slice>,
    /// Counters of both engines together.
    counters: BTreeMap<String, u64>,
}

/// Some round trips that follow each other. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// CPU time of a round trip, as a mean.
    trip: f64,
    /// The same for each packet that arrived.
    packet: f64,
    /// Time of the TCEs for each packet that arrived.
    decisions: f64,
}

impl Trips {
    /// CPU time of a round trip, in microseconds.
    pub fn micros(&self) -> Option<f64> {
        Some(self.median(|slice| slice.trip)? / 1e3)
    }

    /// CPU time for each packet, in nanoseconds: both engines and both programs.
    pub fn packet_nanos(&self) -> Option<f64> {
        self.median(|slice| slice.packet)
    }

    /// Time of the TCE for each packet, in nanoseconds.
    pub fn decision_nanos(&self) -> Option<f64> {
        self.median(|slice| slice.decisions)
    }

    /// By how much a round trip is shorter than the base's, in percent.
    pub fn decrease(&self, base: &Trips) -> Option<f64> {
        let pairs = self.slices.iter().zip(&base.slices);
        let all: Vec<f64> = pairs.map(|(here, base)| 100.0 * (1.0 - here.trip / base.trip)).collect();
        Some(median(&all)?.median)
    }

    fn median(&self, of: impl Fn(&Slice) -> f64) -> Option<f64> {
        Some(median(&self.slices.iter().map(of).collect::<Vec<_>>())?.median)
    }

    /// A counter of both engines together.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// No round trips, but what two engines have counted since they were made.
    pub fn counting(pair: &mut Pair) -> Trips {
        Trips { slices: Vec::new(), counters: counters(pair) }
    }
}

/// Runs the plan's round trips of one size by each variant, in slices that take turns. Each round
/// makes the engines anew.
///
/// # Errors
/// If the plan has no number of round trips, an engine fails, a wrong byte comes back, or the
/// measurement is asked to end.
pub fn alternate<V: Variant>(
    lab: &Lab<'_>,
    extent: &Extent,
    bytes: usize,
    variants: &[V],
) -> anyhow::Result<Vec<Trips>> {
    let wanted = *extent.values::<usize>(super::TRIPS.name)?.first().context("no number of round trips")?;
    let mut found: Vec<Trips> = variants.iter().map(|_| Trips::default()).collect();
    for round in 1..=extent.rounds {
        lab.step(&format!("round {round} of {} · {bytes} bytes", extent.rounds))?;
        let mut rigs = variants.iter().map(|variant| Rig::new(*variant, bytes)).collect::<anyhow::Result<Vec<_>>>()?;
        for rig in &mut rigs {
            rig.turn_for(SLICE)?;
        }
        for slice in 0..wanted.div_ceil(SLICE) {
            if lab.stop().requested() {
                bail!("interrupted");
            }
            for turn in 0..rigs.len() {
                let at = (slice + turn) % rigs.len();
                rigs[at].measure(&mut found[at])?;
            }
        }
    }
    Ok(found)
}

/// Two engines, and one connection between them that always has a request on the way.
struct Rig {
    pair: Pair,
    progress: Rc<Progress>,
}

#[derive(Default)]
struct Progress {
    done: Cell<usize>,
    failure: RefCell<Option<String>>,
}

impl Rig {
    fn new(variant: impl Variant, bytes: usize) -> anyhow::Result<Rig> {
        let mut pair = Pair::tuned(variant.wire(MemoryOptions::new().mtu(MTU)), |config| variant.tune(config))?;
        pair.offer(&Kind::Echo, Message::default())?;
        let progress = Rc::new(Progress::default());
        let asker = Asker { progress: progress.clone(), offset: 0, sent: 0, received: 0, buf: vec![0; bytes.max(1)] };
        let target = SocketAddr::new([10, 77, 0, 2].into(), Kind::Echo.default_port());
        pair.client.connect(target, Box::new(asker))?;
        Ok(Rig { pair, progress })
    }

    /// Measures a slice.
    fn measure(&mut self, trips: &mut Trips) -> anyhow::Result<()> {
        let before = counters(&mut self.pair);
        let trip = self.turn_for(SLICE)?;
        let mut counted = counters(&mut self.pair);
        for (name, count) in &mut counted {
            *count = count.saturating_sub(*before.get(name).unwrap_or(&0));
            *trips.counters.entry(name.clone()).or_default() += *count;
        }
        let of = |name: &str| counted.get(name).copied().unwrap_or(0) as f64;
        let packets = of("streamer.rx_frames");
        trips.slices.push(Slice {
            trip,
            packet: trip * SLICE as f64 / packets,
            decisions: of("tce.busy_ticks") / packets,
        });
        Ok(())
    }

    /// Makes so many round trips; returns the mean CPU time of one in nanoseconds.
    fn turn_for(&mut self, trips: usize) -> anyhow::Result<f64> {
        let first = self.progress.done.get();
        let (start, cpu) = (Instant::now(), cpu_nanos());
        let mut idle = 0_u32;
        loop {
            let before = self.progress.done.get();
            self.pair.turn()?;
            let done = self.progress.done.get();
            if done - first >= trips {
                return Ok((cpu_nanos() - cpu) as f64 / (done - first) as f64);
            }
            idle = if done == before { idle + 1 } else { 0 };
            if idle % 1024 == 1023 {
                if let Some(failure) = self.progress.failure.borrow().as_ref() {
                    bail!("{failure}");
                }
                if start.elapsed() > PATIENCE {
                    bail!("no answer within {} s", PATIENCE.as_secs());
                }
            }
        }
    }
}

/// The counters of both engines of a pair, added.
fn counters(pair: &mut Pair) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (name, count) in
        [pair.client.stats(), pair.server.stats()].into_iter().filter_map(|it| it.engine).flat_map(|it| it.counters)
    {
        *counters.entry(name).or_default() += count;
    }
    counters
}

/// CPU time of this thread, in nanoseconds.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Sends a piece of the ramp, waits until all of it has returned, and goes on with the next.
struct Asker {
    progress: Rc<Progress>,
    /// Place of the request in the ramp.
    offset: u64,
    sent: usize,
    received: usize,
    /// As long as a request.
    buf: Vec<u8>,
}

impl Handler for Asker {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        loop {
            while self.sent < self.buf.len() {
                let data = ramp::from(self.offset + self.sent as u64);
                self.sent += io.write(&data[..data.len().min(self.buf.len() - self.sent)])?;
            }
            while self.received < self.buf.len() {
                let len = io.read(&mut self.buf[self.received..])?;
                let read = &self.buf[self.received..self.received + len];
                if len == 0 || !ramp::ends_match(self.offset + self.received as u64, read) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is not the request"));
                }
                self.received += len;
            }
            self.offset += self.buf.len() as u64;
            (self.sent, self.received) = (0, 0);
            self.progress.done.set(self.progress.done.get() + 1);
        }
    }

    fn on_end(&mut self, error: Option<&io::Error>) {
        if let Some(error) = error {
            self.progress.failure.borrow_mut().get_or_insert_with(|| error.to_string());
        }
    }
}
