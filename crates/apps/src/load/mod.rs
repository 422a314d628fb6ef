//! Load generators: requests and responses, bulk sending, bulk receiving.
//!
//! They are [`Handler`](crate::net::Handler)s like the services, so they run on kernel sockets and
//! on the engine. [`run`] opens the connections, waits for a warm-up, and then measures an interval:
//! the bytes and requests, the latency of each request, and the CPU time of the whole machine.

mod clients;
mod spec;

pub use spec::{Check, Kind, Load};

use crate::measure::{Cpu, Tasks};
use crate::net::Net;
use clients::{Receiver, Requester, Sender};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use spec::{MAX_LATENCY, Shared};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The results of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Payload bytes in the loaded direction.
    pub bytes: u64,
    /// Requests answered in full.
    pub requests: u64,
    /// Connections that carried data.
    pub connections: usize,
    /// Latency of a request in nanoseconds: median, 99th percentile, largest.
    pub latency_ns: Option<[u64; 3]>,
    /// CPU time of the whole machine in the interval.
    pub cpu: Cpu,
    /// CPU time of the programs at both ends and of the kernel's soft-interrupt threads in the interval, in
    /// seconds; 0 if those at the other end are not known.
    pub tasks_seconds: f64,
    /// CPU time in the interval on the CPU to which the other end is pinned, if it is.
    pub peer_cpu: Option<Cpu>,
}

/// Time allowed for connections to open, in addition to the warm-up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `load` on `net`. A `peer` on the same thread is driven alternately with `net`, and neither
/// sleeps.
///
/// # Errors
/// If a connection fails, a received byte is wrong, or a connection carries no data in time.
pub fn run(net: &mut dyn Net, load: &Load, mut peer: Option<&mut dyn Net>) -> io::Result<Outcome> {
    let latency = Histogram::new_with_bounds(1, MAX_LATENCY, 3).map_err(io::Error::other)?;
    let shared = Shared { measuring: false, bytes: 0, requests: 0, started: 0, latency, failure: None };
    let shared = Rc::new(RefCell::new(shared));
    for _ in 0..load.connections {
        match load.kind {
            Kind::Echo => net.connect(load.target, Box::new(Requester::new(load, shared.clone())))?,
            Kind::Send => net.connect(load.target, Box::new(Sender::new(load, shared.clone())))?,
            Kind::Receive => net.connect(load.target, Box::new(Receiver::new(load, shared.clone())))?,
        }
    }
    let mut turn_until = |done: &dyn Fn(&Shared) -> bool, deadline: Instant| -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let shared = shared.borrow();
            if let Some(failure) = &shared.failure {
                return Err(io::Error::other(failure.clone()));
            }
            if done(&shared) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            drop(shared);
            match &mut peer {
                None => net.turn(left.min(Duration::from_millis(100)))?,
                Some(peer) => {
                    net.turn(Duration::ZERO)?;
                    peer.turn(Duration::ZERO)?;
                }
            }
        }
    };
    if !turn_until(&|shared| shared.started == load.connections, Instant::now() + PATIENCE)? {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "not all connections carried data within 10 s"));
    }
    turn_until(&|_| false, Instant::now() + load.warmup)?;
    let tasks = (!load.peer_pids.is_empty()).then(|| Tasks::with(&load.peer_pids)).transpose()?;
    let tasks_seconds = || tasks.as_ref().map_or(Ok(0.0), Tasks::seconds);
    let tasks_before = tasks_seconds()?;
    let peer_cpu = || load.peer_cpu.map(Cpu::of).transpose();
    let (cpu, peer_before, start) = (Cpu::now()?, peer_cpu()?, Instant::now());
    shared.borrow_mut().measuring = true;
    turn_until(&|_| false, start + load.length)?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), Cpu::now()? - cpu);
    let peer_cpu = peer_cpu()?.zip(peer_before).map(|(after, before)| after - before);
    let tasks_seconds = tasks_seconds()? - tasks_before;
    let shared = shared.borrow();
    let at = |quantile| shared.latency.value_at_quantile(quantile);
    Ok(Outcome {
        seconds,
        bytes: shared.bytes,
        requests: shared.requests,
        connections: shared.started,
        latency_ns: (!shared.latency.is_empty()).then(|| [at(0.5), at(0.99), shared.latency.max()]),
        cpu,
        tasks_seconds,
        peer_cpu,
    })
}
