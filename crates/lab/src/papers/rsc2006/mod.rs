//! Repeats §5 of RSC (*Receive Side Coalescing for Accelerating TCP/IP Processing*) with today's kernel
//! as the sender: how many frames of real traffic can be joined.
//!
//! ```text
//!   namespace "client"                               namespace "server"
//!   N senders, messages of S bytes -- 1 Gb/s, FIFO -- capture --> Sweep
//!                                                        \------> N receivers
//! ```
//!
//! As in the paper, each sender has one connection, each message ends with a segment of its own (with
//! PSH), 10,000 received frames are analysed, and the MSS is 1460. Segmentation offload stays on in the
//! senders' stacks and is undone before the wire, so a message leaves in a burst, and the wire carries
//! frames of 1500 bytes. One queue at 1 Gb/s replaces the paper's two switches and a machine per sender,
//! so bursts of different senders do not mix.

mod claims;
mod report;
mod rows;

use crate::experiment::{Axis as Varied, Experiment, Extent, Lab, Need};
use crate::report::Machine;
use crate::report::origin::Origin;
use crate::world::World;
use crate::world::wire::{configure, veth};
use anyhow::{Context, bail};
use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::read::{Frame, Live, Sink};
use baton_analyse::study::Study;
use baton_analyse::sweep::{Axis, Point, Sweep};
use baton_apps::measure::Cpu;
use rustix::net::{SendFlags, send};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Coalescing of real and of made traffic.
pub const EXPERIMENT: Experiment = Experiment {
    id: "rsc",
    title: "Frames of real transfers that receive side coalescing joins",
    needs: &[Need::ROOT],
    axes: &[
        Varied { name: "senders", about: "connections, each with a sender of its own" },
        Varied::MESSAGES,
        Varied { name: "cache", about: "runs held at a time, with 16 senders" },
        Varied { name: "buffer", about: "bytes of a run, with 16 senders" },
        Varied { name: "window", about: "frames in a moderation window, with 16 senders" },
    ],
    command: "baton trace paper",
    run: |lab, extent| run(lab, extent, None)?.findings(&Origin::of_this_process()),
};

/// Frames that are analysed of each transfer (RSC §5.1).
const FRAMES: u64 = 10_000;
/// Connections of the sensitivity studies (RSC §5.2).
const STUDIED: usize = 16;

const DEVICE: &str = "rsc";
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 90, 2);
/// Traffic before the first frame that counts.
const WARM_UP: Duration = Duration::from_millis(100);
/// Time limit of an experiment.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a frame that a kept capture has.
const SNAPSHOT: usize = 128;

/// One experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Number of senders, which have one connection each.
    pub senders: usize,
    /// Bytes of a message.
    pub message: usize,
    /// The results of each set of rules; `connections` is the base.
    pub points: Vec<Point>,
}

/// All transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The machine that they ran on.
    pub machine: Machine,
    /// The results of each.
    pub cells: Vec<Cell>,
}

impl Cell {
    /// The share of frames that a set of rules joins.
    pub fn share(&self, axis: Axis, value: u32) -> Option<f64> {
        self.points.iter().find(|point| point.axis == axis && point.value == value).map(|point| point.gain.share())
    }

    /// The same with the paper's rules: 4 runs of 8 KB, a window of 20 frames.
    pub fn base(&self) -> f64 {
        self.share(Axis::Connections, u32::MAX).unwrap_or(0.0)
    }
}

/// A transfer to measure.
struct Transfer {
    senders: usize,
    message: usize,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} senders, messages of {} bytes", self.senders, self.message)
    }
}

/// Measures every number of senders with every message size. `keep` is a directory for the captures.
///
/// # Errors
/// If devices cannot be made, a transfer does not start, or the measurement is interrupted.
pub fn run(lab: &Lab<'_>, extent: &Extent, keep: Option<&Path>) -> anyhow::Result<Outcome> {
    let world = lab.world()?;
    let background = Cpu::idle_check(Duration::from_millis(300)).context("cannot read /proc/stat")?;
    prepare(world)?;
    let messages: Vec<usize> = extent.values(Varied::MESSAGES.name)?;
    let mut transfers = Vec::new();
    for senders in extent.values("senders")? {
        transfers.extend(messages.iter().map(|&message| vec![Transfer { senders, message }]));
    }
    let series = lab.alternate(extent.rounds, transfers, |&Transfer { senders, message }| {
        let sweep = Sweep::of(Limits::of(Profile::Rsc), Checksums::Trust, points(senders, extent)?);
        let kept = keep.map(|dir| dir.join(format!("senders-{senders}-message-{message}.pcap")));
        let points = experiment(lab, (senders, message), sweep, kept.as_deref())?;
        Ok(Cell { senders, message, points })
    })?;
    Ok(Outcome {
        machine: Machine::here(background),
        cells: series.into_iter().flat_map(|series| series.runs).collect(),
    })
}

/// The sets of rules to apply: the base and, with the paper's number of senders, the other axes.
fn points(senders: usize, extent: &Extent) -> anyhow::Result<Vec<(Axis, u32)>> {
    let mut points = vec![(Axis::Connections, u32::MAX)];
    if senders == STUDIED {
        for axis in [Axis::Cache, Axis::Buffer, Axis::Window] {
            points.extend(extent.values(axis.name())?.into_iter().map(|value| (axis, value)));
        }
    }
    Ok(points)
}

/// The wire: a veth pair without offloads, 1 Gb/s towards the receiver.
fn prepare(world: &World) -> anyhow::Result<()> {
    veth(world, DEVICE, false)?;
    configure(&world.client, DEVICE, &["10.77.90.1/24".to_owned()])?;
    configure(&world.server, DEVICE, &[format!("{RECEIVER}/24")])?;
    for namespace in [&world.client, &world.server] {
        // As on the paper's machines: without timestamps a segment has 1460 bytes.
        namespace.enter(|| Ok(std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0")?))?;
    }
    // The burst is larger than any message, so that none is cut before the queue.
    world.client.run(&format!("tc qdisc replace dev {DEVICE} root tbf rate 1gbit burst 128kb limit 4mb"))
}

/// The frames of an experiment, looked at and perhaps kept, until there are enough.
struct Received {
    sweep: Sweep,
    kept: Option<BufWriter<File>>,
    left: u64,
    failed: Option<io::Error>,
}

impl Sink for Received {
    fn frame(&mut self, frame: &Frame<'_>) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.sweep.frame(frame);
        if let Some(file) = &mut self.kept
            && let Err(error) = write_record(file, frame)
        {
            self.failed = Some(error);
        }
    }
}

fn write_record(file: &mut impl Write, frame: &Frame<'_>) -> io::Result<()> {
    let data = &frame.data[..frame.data.len().min(SNAPSHOT)];
    let (seconds, ns) = (frame.time_ns / 1_000_000_000, frame.time_ns % 1_000_000_000);
    for word in [seconds as u32, ns as u32, data.len() as u32, frame.wire_len] {
        file.write_all(&word.to_le_bytes())?;
    }
    file.write_all(data)
}

/// A pcap file of Ethernet frames with times in nanoseconds, so far without any.
fn create(path: &Path) -> io::Result<BufWriter<File>> {
    let mut file = BufWriter::new(File::create(path)?);
    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, SNAPSHOT as u32, 1] {
        file.write_all(&u32::to_le_bytes(word))?;
    }
    Ok(file)
}

fn experiment(
    lab: &Lab<'_>,
    (senders, message): (usize, usize),
    sweep: Sweep,
    keep: Option<&Path>,
) -> anyhow::Result<Vec<Point>> {
    let world = lab.world()?;
    let listener = world.server.enter(|| Ok(TcpListener::bind((RECEIVER, 0))?))?;
    let target = listener.local_addr()?;
    let connect = |_| TcpStream::connect_timeout(&target, Duration::from_secs(5));
    let sending = world.client.enter(|| Ok((0..senders).map(connect).collect::<io::Result<Vec<_>>>()?))?;
    let accept = |_| listener.accept().map(|(socket, _): (TcpStream, SocketAddr)| socket);
    let receiving = (0..senders).map(accept).collect::<io::Result<Vec<_>>>()?;
    let kept = keep.map(create).transpose().context("cannot write the capture")?;
    let mut received = Received { sweep, kept, left: FRAMES, failed: None };
    let done = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let done = &done;
        for socket in &receiving {
            scope.spawn(move || receive(socket));
        }
        for socket in &sending {
            scope.spawn(move || transmit(socket, message, done));
        }
        thread::sleep(WARM_UP);
        let outcome = capture(lab, &mut received);
        done.store(true, Ordering::Relaxed);
        for socket in sending.iter().chain(&receiving) {
            // It may have ended by itself.
            let _ = socket.shutdown(Shutdown::Both);
        }
        outcome
    });
    outcome?;
    if let Some(error) = received.failed {
        return Err(error).context("cannot write the capture");
    }
    if let Some(file) = &mut received.kept {
        file.flush().context("cannot write the capture")?;
    }
    received.sweep.end();
    Ok(received.sweep.points().copied().collect())
}

/// Passes frames of the receiver's device to `received` until it has enough. The frames have no gap: the
/// socket's queue is empty at first and holds more than that number, so a busy machine can lose only
/// later frames.
fn capture(lab: &Lab<'_>, received: &mut Received) -> anyhow::Result<()> {
    let mut live = lab.world()?.server.enter(|| Live::open(DEVICE).context("cannot capture"))?;
    let deadline = Instant::now() + PATIENCE;
    while received.left > 0 {
        if lab.stop().requested() {
            bail!("interrupted");
        }
        if Instant::now() > deadline {
            bail!("only {} frames in {} s", FRAMES - received.left, PATIENCE.as_secs());
        }
        live.read(Duration::from_millis(100), received)?;
    }
    Ok(())
}

/// Sends messages until told to end. A mark after each makes the next one begin a new segment.
fn transmit(socket: &TcpStream, message: usize, done: &AtomicBool) {
    let data = vec![0x5a; message];
    if socket.set_nodelay(true).is_err() {
        return;
    }
    while !done.load(Ordering::Relaxed) {
        let mut rest = &data[..];
        while !rest.is_empty() {
            match send(socket, rest, SendFlags::EOR | SendFlags::NOSIGNAL) {
                Ok(len) => rest = &rest[len..],
                // The experiment is over.
                Err(_) => return,
            }
        }
    }
}

/// Receives and discards data until the connection ends.
fn receive(mut socket: &TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while socket.read(&mut buffer).is_ok_and(|len| len > 0) {}
}
