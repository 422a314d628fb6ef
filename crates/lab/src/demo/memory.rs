//! The demo without privileges: the same loads between two engines on one
//! thread, over a wire in memory.
//!
//! Every run has its own pair of engines, so that runs do not affect each other.

use super::Options;
use super::loads::{self, Load, What};
use crate::report::{Cell, Check, Machine, Report, Run, Side, Wire};
use crate::watch::Watch;
use crate::workload::generate::tce_share;
use crate::workload::memory::{Pair, run_pair};
use crate::workload::site::Site;
use crate::world::serve::port;
use anyhow::{Context, bail, ensure};
use baton_apps::fetch::{Body, Fetch, Progress};
use baton_apps::load::{self, Kind as LoadKind};
use baton_apps::measure::Cpu;
use baton_apps::net::Net;
use baton_apps::services::{Kind, Message};
use baton_apps::signal::Stop;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Time that one check may take.
const PATIENCE: Duration = Duration::from_secs(12);

/// Bytes that are echoed and compared one by one.
const ECHOED: usize = 16 << 20;

/// A wire of this demo.
struct MemoryWire {
    wire: Wire,
    offloads: bool,
}

fn wires() -> [MemoryWire; 2] {
    let wire = |id: &str, name: &str, about: &str, offloads| MemoryWire {
        wire: Wire {
            id: id.to_owned(),
            side: Side::Baton,
            name: name.to_owned(),
            about: about.to_owned(),
            baseline: None,
            command: "two engines on one thread of this process".to_owned(),
        },
        offloads,
    };
    [
        wire("memory", "Baton, offloads", "Wire in memory, MTU 1500: segments of up to 64 KB pass whole.", true),
        wire("memory-plain", "Baton, no offloads", "Wire in memory, MTU 1500, checksums in software.", false),
    ]
}

/// Runs the demo in this process. `why` is the reason why the real demo is not possible.
///
/// # Errors
/// If an engine cannot be made, a load fails, or the demo is asked to end.
pub fn run(why: &str, options: &Options, stop: &Stop, watch: &dyn Watch) -> anyhow::Result<Report> {
    let (start, started) = (Instant::now(), httpdate::fmt_http_date(SystemTime::now()));
    let background = Cpu::idle_check(Duration::from_millis(300))?;
    let site = Site::new().context("cannot write the files to serve")?;
    let loads: Vec<Load> = loads::all(options).into_iter().map(Load::in_process).collect();
    let wires = wires();
    watch.plan((options.rounds + 1) * loads.len() * wires.len());
    let (mut checks, mut cells) = (Vec::new(), Vec::new());
    for load in &loads {
        for wire in &wires {
            watch.step(&format!("checking {}", wire.wire.name));
            checks.extend(check(wire, load, &site, stop)?);
            cells.push(Cell { wire: wire.wire.id.clone(), load: load.info.id.clone(), runs: Vec::new() });
        }
    }
    for round in 1..=options.rounds {
        let mut cell = cells.iter_mut();
        for load in &loads {
            for (wire, cell) in wires.iter().zip(&mut cell) {
                watch.step(&format!("round {round} of {} · {} · {}", options.rounds, load.info.name, wire.wire.name));
                cell.runs.push(measure(wire, load, options.run, &site, stop)?);
            }
        }
    }
    Ok(Report {
        started,
        seconds: start.elapsed().as_secs_f64(),
        machine: Machine::here(background),
        rounds: options.rounds,
        wires: wires.into_iter().map(|wire| wire.wire).collect(),
        loads: loads.into_iter().map(|load| load.info).collect(),
        cells,
        moves: None,
        both_ends: None,
        checks,
        not_shown: vec![
            format!("the kernel next to Baton, TAP and AF_XDP: {why}"),
            "live connections that move: this demo has no connections in the kernel".to_owned(),
            "programs that use the kernel's TCP, such as curl: they cannot reach a wire in memory".to_owned(),
        ],
    })
}

fn check(wire: &MemoryWire, load: &Load, site: &Site, stop: &Stop) -> anyhow::Result<Option<Check>> {
    let (what, seen) = match &load.what {
        What::Curl => ("a download has the file's digest", check_digest(wire, site, stop)),
        What::Generator { kind: LoadKind::Echo, connections: 1, .. } => {
            let seen = generate(wire, LoadKind::Echo, 1, ECHOED, Duration::ZERO, load::Check::All).map(|_| ());
            ("16 MiB there and back, every byte compared", seen.map(|()| format!("{ECHOED} bytes")))
        }
        What::Generator { kind: LoadKind::Receive, .. } => {
            let seen = generate(wire, LoadKind::Receive, 1, 0, Duration::from_millis(100), load::Check::All);
            ("a received stream, every byte compared", seen.map(|run| format!("{} bytes", run.bytes)))
        }
        What::Generator { .. } => return Ok(None),
    };
    if stop.requested() {
        bail!("interrupted");
    }
    let (ok, seen) = match seen {
        Ok(seen) => (true, seen),
        Err(error) => (false, format!("{error:#}")),
    };
    Ok(Some(Check { wire: wire.wire.name.clone(), what: what.to_owned(), ok, seen }))
}

fn check_digest(wire: &MemoryWire, site: &Site, stop: &Stop) -> anyhow::Result<String> {
    let digest = Rc::new(RefCell::new(Sha256::new()));
    let mut pair = Pair::new(wire.offloads)?;
    pair.offer(&Kind::Http(site.dir().into()), Message::default())?;
    let bytes = fetch(&mut pair, Some(&digest), stop)?;
    let got: [u8; 32] = digest.borrow().clone().finalize().into();
    ensure!(got == site.sha256, "{bytes} bytes with another digest");
    Ok(format!("{bytes} bytes"))
}

fn measure(wire: &MemoryWire, load: &Load, length: Duration, site: &Site, stop: &Stop) -> anyhow::Result<Run> {
    if stop.requested() {
        bail!("interrupted");
    }
    match load.what {
        What::Generator { kind, connections, size } => {
            generate(wire, kind, connections, size, length, load::Check::Ends)
        }
        What::Curl => {
            let mut pair = Pair::new(wire.offloads)?;
            pair.offer(&Kind::Http(site.dir().into()), Message::default())?;
            let (before, cpu, start) = (pair.engine_stats(), Cpu::now()?, Instant::now());
            let mut bytes = 0;
            while start.elapsed() < length {
                bytes += fetch(&mut pair, None, stop)?;
            }
            let (seconds, cpu) = (start.elapsed().as_secs_f64(), Cpu::now()? - cpu);
            let tce = tce_share(before.as_ref(), pair.engine_stats().as_ref());
            Ok(Run { seconds, bytes, requests: 0, latency_ns: None, cpu, tce })
        }
    }
}

fn generate(
    wire: &MemoryWire,
    kind: LoadKind,
    connections: usize,
    size: usize,
    length: Duration,
    check: load::Check,
) -> anyhow::Result<Run> {
    let mut pair = Pair::new(wire.offloads)?;
    for service in [Kind::Echo, Kind::Discard, Kind::Chargen] {
        pair.offer(&service, Message::default())?;
    }
    let target = SocketAddr::new([10, 77, 0, 2].into(), port::of(kind));
    let load = load::Load {
        kind,
        target,
        connections,
        size,
        warmup: length / 4,
        length,
        check,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    run_pair(&mut pair, &load)
}

/// Receives a body, counts its bytes, and computes its digest if asked to.
struct Sink {
    bytes: Rc<RefCell<u64>>,
    digest: Option<Rc<RefCell<Sha256>>>,
}

impl Body for Sink {
    fn on_head(&mut self, _len: Option<u64>) {}

    fn on_data(&mut self, data: &[u8]) -> io::Result<()> {
        *self.bytes.borrow_mut() += data.len() as u64;
        if let Some(digest) = &self.digest {
            digest.borrow_mut().update(data);
        }
        Ok(())
    }
}

/// Fetches the file once and returns its length.
fn fetch(pair: &mut Pair, digest: Option<&Rc<RefCell<Sha256>>>, stop: &Stop) -> anyhow::Result<u64> {
    let bytes = Rc::new(RefCell::new(0));
    let sink = Sink { bytes: bytes.clone(), digest: digest.cloned() };
    let (fetch, progress) = Fetch::new("10.77.0.2", &format!("/{}", Site::NAME), sink);
    pair.client.connect(SocketAddr::new([10, 77, 0, 2].into(), 80), Box::new(fetch))?;
    let deadline = Instant::now() + PATIENCE;
    while *progress.borrow() == Progress::Running {
        pair.turn()?;
        ensure!(!stop.requested(), "interrupted");
        ensure!(Instant::now() < deadline, "the fetch took too long");
    }
    match &*progress.borrow() {
        Progress::Complete => Ok(*bytes.borrow()),
        other => bail!("{other:?}"),
    }
}
