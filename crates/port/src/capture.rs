//! Captures of any port, as pcapng: to a file, or live into Wireshark.
//!
//! ```text
//!   baton … --pcap - | wireshark -k -i -            standard output
//!   mkfifo wire; wireshark -k -i wire & baton … --pcap wire
//! ```
//!
//! ```text
//!   receive, commit, gather --blocks--> buffer, bounded --thread--> file or pipe
//! ```
//!
//! The port never waits for the reader: frames that find the buffer full are left out and
//! counted, and the capture states their number at the next frame (`epb_dropcount`).
//! Super-frames, and checksums that are left to the device, are captured as the port carries
//! them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, TxMeta};

use crate::pcapng::{self, About, Direction};
use crate::sys::copy_parts;
use crate::wait::{WaitSet, Waitable};

/// The most bytes that wait for the reader.
pub const BUFFER_MAX: usize = 32 << 20;
/// How long closing a capture waits for a reader that takes nothing.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Nanoseconds since 1970, for captures of real time.
pub fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// The fate of a capture's frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CaptureStatus {
    /// Frames put into the buffer.
    pub captured: u64,
    /// Frames left out because the buffer was full, or because writing failed.
    pub dropped: u64,
    /// Why writing ended, if it failed: the reader is gone, the disk is full.
    pub failure: Option<String>,
    /// It failed since the reader of a pipe is gone.
    pub reader_gone: bool,
}

/// State that the port and the writing thread share.
#[derive(Default)]
struct Shared {
    buffer: Vec<u8>,
    closing: bool,
    finished: bool,
    failure: Option<io::Error>,
}

struct Queue {
    state: Mutex<Shared>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Plain bytes and flags: valid even after a panic of the other thread.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A capture that is being written.
pub struct Capture {
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
    clock: Box<dyn FnMut() -> u64 + Send>,
    captured: u64,
    dropped: u64,
    /// The number of those that the capture does not state yet.
    unsaid: u64,
}

impl Capture {
    /// Starts a capture into `path`: a file, which is replaced; a pipe made by
    /// `mkfifo`, which may get its reader later; or `-`, standard output. `clock`
    /// gives nanoseconds since 1970 ([`wall_clock_ns`]).
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &str, clock: impl FnMut() -> u64 + Send + 'static) -> io::Result<Self> {
        if path == "-" {
            return Self::start(|| Ok(io::stdout()), clock);
        }
        let path = PathBuf::from(path);
        if std::fs::metadata(&path).is_ok_and(|m| m.file_type().is_fifo()) {
            // Opening a pipe waits for its reader, so the thread has to do it.
            return Self::start(move || OpenOptions::new().write(true).open(&path), clock);
        }
        let file = File::create(&path)?;
        Self::start(move || Ok(file), clock)
    }

    fn start<W: Write>(
        open: impl FnOnce() -> io::Result<W> + Send + 'static,
        clock: impl FnMut() -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new() });
        let theirs = queue.clone();
        let writer = thread::Builder::new().name("capture".into()).spawn(move || write_all(&theirs, open))?;
        Ok(Self { queue, writer: Some(writer), clock: Box::new(clock), captured: 0, dropped: 0, unsaid: 0 })
    }

    /// Counts of the frames so far.
    pub fn status(&self) -> CaptureStatus {
        let shared = self.queue.lock();
        let failure = shared.failure.as_ref();
        let reader_gone = failure.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        let failure = failure.map(ToString::to_string);
        CaptureStatus { captured: self.captured, dropped: self.dropped, failure, reader_gone }
    }

    /// Ends the capture once the rest is written, as long as its reader takes it.
    pub fn finish(mut self) -> CaptureStatus {
        self.close();
        self.status()
    }

    /// True if frames of so many bytes in all, each with its block's overhead, still fit into the buffer.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.queue.lock().buffer.len() + bytes <= BUFFER_MAX
    }

    /// Writes the head of the capture: an interface called `name`, with Ethernet frames or IP packets.
    pub fn describe(&mut self, name: &str, ethernet: bool) {
        pcapng::start(&mut self.queue.lock().buffer, name, ethernet);
    }

    fn now(&mut self) -> u64 {
        (self.clock)()
    }

    /// Puts one frame, which `fill` writes, into the buffer.
    fn add(&mut self, time_ns: u64, direction: Direction, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.add_about(&About { time_ns, direction, dropped: 0, comment: "" }, len, fill);
    }

    /// Puts one frame of `len` bytes, which `fill` writes, into the buffer. Frames that found no room before it
    /// count as dropped, in addition to those that `about` knows of. [`Capture::hand_over`] has it written.
    pub fn add_about(&mut self, about: &About<'_>, len: usize, fill: impl FnOnce(&mut [u8])) {
        let mut shared = self.queue.lock();
        let most = len + pcapng::PACKET_OVERHEAD + pcapng::comment_len(about.comment);
        if shared.failure.is_some() || shared.buffer.len() + most > BUFFER_MAX {
            self.dropped += 1;
            self.unsaid += 1;
            return;
        }
        let dropped = about.dropped + std::mem::take(&mut self.unsaid);
        pcapng::packet(&mut shared.buffer, &About { dropped, ..*about }, len, fill);
        self.captured += 1;
    }

    /// Lets the thread write what is in the buffer.
    pub fn hand_over(&self) {
        self.queue.changed.notify_all();
    }

    /// Waits until the rest is written, as long as the reader takes it.
    fn close(&mut self) {
        let mut shared = self.queue.lock();
        shared.closing = true;
        self.hand_over();
        while !shared.finished {
            let left = shared.buffer.len();
            let (next, timeout) =
                self.queue.changed.wait_timeout(shared, CLOSE_PATIENCE).unwrap_or_else(PoisonError::into_inner);
            shared = next;
            if timeout.timed_out() && shared.buffer.len() >= left {
                // The reader is stuck; the thread ends with it or with the process.
                return;
            }
        }
        drop(shared);
        if let Some(writer) = self.writer.take() {
            // It only fails by a panic, which has been reported where it was.
            let _ = writer.join();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.close();
    }
}

/// The writing thread.
fn write_all<W: Write>(queue: &Queue, open: impl FnOnce() -> io::Result<W>) {
    let result = open().and_then(|mut out| {
        let mut batch = Vec::new();
        loop {
            let mut shared = queue.lock();
            while shared.buffer.is_empty() {
                if shared.closing {
                    return Ok(());
                }
                shared = queue.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut batch, &mut shared.buffer);
            drop(shared);
            out.write_all(&batch)?;
            out.flush()?;
            batch.clear();
        }
    });
    let mut shared = queue.lock();
    shared.failure = result.err();
    shared.finished = true;
    shared.buffer = Vec::new();
    queue.changed.notify_all();
}

/// A port with a capture of everything that passes it; without a capture it behaves as the port
/// itself.
pub struct Captured<P> {
    port: P,
    capture: Option<Capture>,
    /// The slot while there is a capture: outgoing frames have to be read here.
    slot: Vec<u8>,
}

impl<P: FrameIo> Captured<P> {
    /// Wraps `port`, which the capture calls `name`.
    pub fn new(port: P, name: &str, mut capture: Option<Capture>) -> Self {
        if let Some(capture) = &mut capture {
            capture.describe(name, port.capabilities().ethernet);
        }
        Self { port, capture, slot: Vec::new() }
    }

    /// The port inside.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port inside.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Counts of the capture's frames, if there is a capture.
    pub fn capture_status(&self) -> Option<CaptureStatus> {
        self.capture.as_ref().map(Capture::status)
    }
}

/// Captures bursts on their way to the sink behind.
struct Tee<'a, S> {
    capture: &'a mut Capture,
    sink: &'a mut S,
}

impl<S: FrameSink> FrameSink for Tee<'_, S> {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        let now = self.capture.now();
        for frame in frames {
            self.capture.add(now, Direction::Inbound, frame.data.len(), |to| to.copy_from_slice(frame.data));
        }
        self.capture.hand_over();
        self.sink.burst(frames);
    }
}

impl<P: FrameIo> FrameIo for Captured<P> {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        match &mut self.capture {
            None => self.port.receive(limit, sink),
            Some(capture) => self.port.receive(limit, &mut Tee { capture, sink }),
        }
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.port.slot(len)?;
        if self.capture.is_none() {
            return Some(room);
        }
        self.slot.resize(self.slot.len().max(len), 0);
        Some(&mut self.slot[..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        if let Some(capture) = &mut self.capture {
            let frame = &self.slot[..len];
            self.port.slot(len).expect("room was there when the slot was given").copy_from_slice(frame);
            let now = capture.now();
            capture.add(now, Direction::Outbound, len, |to| to.copy_from_slice(frame));
        }
        self.port.commit(len, meta);
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        let sent = self.port.gather(header, payload, meta);
        if let Some(capture) = self.capture.as_mut().filter(|_| sent) {
            let len = header.len() + payload.iter().map(|p| p.len).sum::<usize>();
            let now = capture.now();
            capture.add(now, Direction::Outbound, len, |to| copy_parts(to, header, payload));
        }
        sent
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if let Some(capture) = &self.capture {
            capture.hand_over();
        }
        self.port.flush()
    }
}

impl<P: Waitable> Waitable for Captured<P> {
    fn poll_fds(&self, set: &mut WaitSet) {
        self.port.poll_fds(set);
    }

    fn prepare_wait(&mut self) -> bool {
        self.port.prepare_wait()
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
    }
}
