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

pub mod report;

use crate::world::World;
use crate::world::wire::{configure, veth};
use anyhow::{Context, bail};
use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::read::{Frame, Live, Sink};
use baton_analyse::study::Study;
use baton_analyse::sweep::{Axis, Point, Sweep};
use baton_apps::signal::Stop;
use rustix::net::{SendFlags, send};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Frames of an experiment (RSC §5.1).
pub const FRAMES: u64 = 10_000;
/// Connections of the sensitivity studies (RSC §5.2).
pub const STUDIED: usize = 16;
/// Senders of Figures 4 and 5.
pub const SENDERS: [usize; 6] = [4, 8, 16, 30, 60, 90];
/// Bytes of a message.
pub const MESSAGES: [usize; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

const CACHES: [u32; 7] = [1, 2, 3, 4, 5, 6, 8];
const BUFFERS: [u32; 5] = [2048, 4096, 8192, 16_384, 32_768];
const WINDOWS: [u32; 7] = [4, 8, 16, 20, 32, 64, 128];

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

impl Cell {
    /// The share of frames that a set of rules joins.
    pub fn share(&self, axis: Axis, value: u32) -> Option<f64> {
        self.points.iter().find(|point| point.axis == axis && point.value == value).map(Point::share)
    }

    /// The same with the paper's rules: 4 runs of 8 KB, a window of 20 frames.
    pub fn base(&self) -> f64 {
        self.share(Axis::Connections, u32::MAX).unwrap_or(0.0)
    }
}

/// Options of the experiments.
pub struct Options {
    /// Senders of Figures 4 and 5.
    pub senders: Vec<usize>,
    /// Bytes of a message.
    pub messages: Vec<usize>,
    /// Directory in which captures are kept.
    pub keep: Option<PathBuf>,
}

/// Runs all experiments, and reports each to `tell`.
///
/// # Errors
/// If devices cannot be made, a transfer does not start, or the measurement is interrupted.
pub fn run(world: &World, options: &Options, stop: &Stop, tell: &dyn Fn(&str)) -> anyhow::Result<Vec<Cell>> {
    prepare(world)?;
    let mut cells = Vec::new();
    for &senders in &options.senders {
        for &message in &options.messages {
            if stop.requested() {
                bail!("interrupted");
            }
            tell(&format!("{senders} senders, messages of {message} bytes"));
            let sweep = Sweep::of(Limits::of(Profile::Rsc), Checksums::Trust, points(senders));
            let name = |dir: &PathBuf| dir.join(format!("senders-{senders}-message-{message}.pcap"));
            let keep = options.keep.as_ref().map(name);
            let points = experiment(world, senders, message, sweep, keep.as_deref(), stop)
                .with_context(|| format!("{senders} senders, messages of {message} bytes"))?;
            cells.push(Cell { senders, message, points });
        }
    }
    Ok(cells)
}

/// The sets of rules to apply: the base and, with the paper's number of senders, the other axes.
fn points(senders: usize) -> Vec<(Axis, u32)> {
    let mut points = vec![(Axis::Connections, u32::MAX)];
    if senders == STUDIED {
        points.extend(CACHES.map(|value| (Axis::Cache, value)));
        points.extend(BUFFERS.map(|value| (Axis::Buffer, value)));
        points.extend(WINDOWS.map(|value| (Axis::Window, value)));
    }
    points
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
    world: &World,
    senders: usize,
    message: usize,
    sweep: Sweep,
    keep: Option<&Path>,
    stop: &Stop,
) -> anyhow::Result<Vec<Point>> {
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
        let outcome = capture(world, &mut received, stop);
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
fn capture(world: &World, received: &mut Received, stop: &Stop) -> anyhow::Result<()> {
    let mut live = world.server.enter(|| Live::open(DEVICE).context("cannot capture"))?;
    let deadline = Instant::now() + PATIENCE;
    while received.left > 0 {
        if stop.requested() {
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
