//! One AF_XDP socket: one queue of an interface, with its packet memory and rings.
//!
//! A frame longer than a chunk comes and goes as several descriptors, all but the
//! last marked. Received, it is put together in a side buffer; sent, it lies in one
//! piece in a transmit unit of several chunks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use baton_engine::frame_io::{BURST, FrameSink, RxFrame, RxMeta};

use super::ring_unsafe::{ConsumerRing, ProducerRing};
use super::umem_unsafe::Umem;
use crate::sys::xsk;

/// Time in which a queue that was just let go of becomes free.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// How a socket is laid out.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Bytes a chunk: 2048 or 4096.
    pub chunk: u32,
    /// Chunks to receive into, and entries of the receive ring; a power of two.
    pub rx_chunks: u32,
    /// Frames that can wait to be sent.
    pub tx_frames: u32,
    /// Longest frame, in bytes.
    pub frame_max: u32,
}

impl Layout {
    /// Chunks of the longest frame.
    fn unit_chunks(&self) -> u32 {
        self.frame_max.div_ceil(self.chunk)
    }

    fn unit_len(&self) -> u64 {
        u64::from(self.unit_chunks()) * u64::from(self.chunk)
    }

    fn tx_start(&self) -> u64 {
        u64::from(self.rx_chunks) * u64::from(self.chunk)
    }

    fn bytes(&self) -> usize {
        (self.tx_start() + u64::from(self.tx_frames) * self.unit_len()) as usize
    }

    /// Entries of the fill ring. The kernel publishes what it has received before it
    /// publishes that it took the chunks (`xsk_flush` in `net/xdp/xsk.c`): seen from
    /// here, a chunk can come back while it still stands in the ring.
    fn fill_ring(&self) -> u32 {
        2 * self.rx_chunks
    }

    /// Entries of transmit and completion ring: every chunk may be in them.
    fn tx_ring(&self) -> u32 {
        (self.tx_frames * self.unit_chunks()).next_power_of_two()
    }
}

/// A bound socket.
pub struct Socket {
    // Closed first: then nothing refers to the memory any more.
    fd: OwnedFd,
    fill: ProducerRing<u64>,
    rx: ConsumerRing<libc::xdp_desc>,
    tx: ProducerRing<libc::xdp_desc>,
    completion: ConsumerRing<u64>,
    umem: Umem,
    layout: Layout,
    /// Transmit units that are free, by number; the last used is reused first.
    free_units: Vec<u32>,
    /// Chunks of each unit that have not come back.
    unit_pending: Vec<u8>,
    /// The unit that was given as a slot last.
    slot: Option<u32>,
    /// Frames committed and not flushed.
    unflushed: bool,
    /// Pieces of a frame that is not complete, or was just put together.
    joined: Vec<u8>,
    /// Frames longer than the longest.
    pub rx_too_long: u64,
}

/// A step of opening a socket that failed.
pub struct StepError {
    /// The step that failed, as a phrase.
    pub what: &'static str,
    /// The operating system's answer.
    pub source: io::Error,
}

fn at(what: &'static str) -> impl FnOnce(io::Error) -> StepError {
    move |source| StepError { what, source }
}

impl Socket {
    /// Opens a socket and binds it to a queue; `flags` are `XDP_COPY`, ….
    ///
    /// # Errors
    /// The step that failed.
    pub fn open(interface: u32, queue: u32, flags: u16, layout: Layout) -> Result<Self, StepError> {
        let owned = xsk::socket().map_err(at("making a socket"))?;
        let fd = owned.as_fd();
        let umem = Umem::new(layout.bytes()).map_err(at("making packet memory"))?;
        umem.register(fd, layout.chunk).map_err(at("registering packet memory"))?;
        let tx_ring = layout.tx_ring();
        for (ring, len) in [
            (libc::XDP_UMEM_FILL_RING, layout.fill_ring()),
            (libc::XDP_UMEM_COMPLETION_RING, tx_ring),
            (libc::XDP_RX_RING, layout.rx_chunks),
            (libc::XDP_TX_RING, tx_ring),
        ] {
            xsk::set_ring_len(fd, ring, len).map_err(at("sizing rings"))?;
        }
        let offsets = xsk::ring_offsets(fd).map_err(at("finding the rings"))?;
        let map = at;
        let fill = ProducerRing::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, layout.fill_ring())
            .map_err(map("mapping rings"))?;
        let completion = ConsumerRing::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, tx_ring)
            .map_err(map("mapping rings"))?;
        let rx = ConsumerRing::map(fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, layout.rx_chunks)
            .map_err(map("mapping rings"))?;
        let tx = ProducerRing::map(fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, tx_ring)
            .map_err(map("mapping rings"))?;
        let mut socket = Self {
            fill,
            rx,
            tx,
            completion,
            umem,
            layout,
            free_units: (0..layout.tx_frames).rev().collect(),
            unit_pending: vec![0; layout.tx_frames as usize],
            slot: None,
            unflushed: false,
            joined: Vec::with_capacity(layout.frame_max as usize),
            rx_too_long: 0,
            fd: owned,
        };
        for chunk in 0..layout.rx_chunks {
            let pushed = socket.fill.push(u64::from(chunk) * u64::from(layout.chunk));
            assert!(pushed, "the fill ring holds every receive chunk twice");
        }
        socket.fill.publish();
        bind(socket.fd.as_fd(), interface, queue, flags).map_err(at("binding to the queue"))?;
        Ok(socket)
    }

    /// Whether the kernel gave zero-copy mode.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        xsk::is_zero_copy(self.fd.as_fd())
    }

    /// Hands up to `limit` frames, at most a burst, to `sink`; how many there were.
    pub fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> usize {
        let wanted = BURST.min(limit) as u32;
        let count = self.rx.waiting(wanted).min(wanted);
        if count == 0 {
            return 0;
        }
        let mut frames = ArrayVec::<RxFrame<'_>, BURST>::new();
        let mut split = false;
        for i in 0..count {
            let desc = self.rx.entry(i);
            split |= desc.options & libc::XDP_PKT_CONTD != 0;
            frames.push(RxFrame { data: self.umem.bytes(desc.addr, desc.len), meta: RxMeta::default() });
        }
        let frames_in_burst = if split || !self.joined.is_empty() {
            drop(frames);
            self.receive_split(count, sink)
        } else {
            sink.burst(&frames);
            count as usize
        };
        for i in 0..count {
            // The chunk of a descriptor: the frame may start behind some headroom.
            let chunk = self.rx.entry(i).addr / u64::from(self.layout.chunk) * u64::from(self.layout.chunk);
            let pushed = self.fill.push(chunk);
            assert!(pushed, "the fill ring holds every receive chunk twice");
        }
        self.rx.release(count);
        self.fill.publish();
        frames_in_burst
    }

    /// Hands over frames of which some are in pieces, one by one.
    fn receive_split<S: FrameSink>(&mut self, count: u32, sink: &mut S) -> usize {
        let mut frames = 0;
        for i in 0..count {
            let desc = self.rx.entry(i);
            let piece = self.umem.bytes(desc.addr, desc.len);
            // One byte too many stays, as the mark of a frame that is too long.
            let room = (self.layout.frame_max as usize + 1).saturating_sub(self.joined.len());
            self.joined.extend_from_slice(&piece[..piece.len().min(room)]);
            if desc.options & libc::XDP_PKT_CONTD != 0 {
                continue;
            }
            if self.joined.len() > self.layout.frame_max as usize {
                self.rx_too_long += 1;
            } else {
                sink.burst(&[RxFrame { data: &self.joined, meta: RxMeta::default() }]);
                frames += 1;
            }
            self.joined.clear();
        }
        frames
    }

    /// The number of frames that wait, read anew.
    pub fn waiting(&mut self) -> u32 {
        self.rx.waiting(u32::MAX)
    }

    /// The most frames that can wait.
    pub fn ring(&self) -> u32 {
        self.layout.rx_chunks
    }

    /// Whether frames wait.
    pub fn has_waiting(&mut self) -> bool {
        self.rx.waiting(1) != 0
    }

    /// Room for a frame of `len` bytes.
    pub fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.slot.is_none() {
            if self.free_units.is_empty() {
                self.reap();
            }
            self.slot = self.free_units.pop();
        }
        let at = self.layout.tx_start() + u64::from(self.slot?) * self.layout.unit_len();
        assert!(len <= self.layout.frame_max as usize, "a frame longer than the port takes");
        Some(self.umem.bytes_mut(at, len))
    }

    /// Puts the slot's first `len` bytes into the transmit ring.
    pub fn commit(&mut self, len: usize) {
        let unit = self.slot.take().expect("a slot is given before it is committed");
        let start = self.layout.tx_start() + u64::from(unit) * self.layout.unit_len();
        let (len, chunk) = (len as u32, self.layout.chunk);
        let pieces = len.div_ceil(chunk).max(1);
        for i in 0..pieces {
            let offset = i * chunk;
            let desc = libc::xdp_desc {
                addr: start + u64::from(offset),
                len: chunk.min(len - offset),
                options: if i + 1 < pieces { libc::XDP_PKT_CONTD } else { 0 },
            };
            let pushed = self.tx.push(desc);
            assert!(pushed, "the transmit ring holds every transmit chunk");
        }
        self.unit_pending[unit as usize] = pieces as u8;
        self.unflushed = true;
    }

    /// Takes back what the kernel has sent.
    fn reap(&mut self) {
        let count = self.completion.waiting(u32::MAX);
        for i in 0..count {
            let unit = (self.completion.entry(i) - self.layout.tx_start()) / self.layout.unit_len();
            let pending = &mut self.unit_pending[unit as usize];
            *pending -= 1;
            if *pending == 0 {
                self.free_units.push(unit as u32);
            }
        }
        self.completion.release(count);
    }

    /// Hands committed frames to the kernel, and chunks to receive into where it
    /// asks to be told of them.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.unflushed {
            self.unflushed = false;
            self.tx.publish();
        }
        if self.fill.needs_wakeup() {
            transient(xsk::kick_receive(self.fd.as_fd()))?;
        }
        // In copy mode a call sends a few dozen frames; stop when one sends none.
        let mut left = self.tx.pending();
        while left != 0 && self.tx.needs_wakeup() {
            transient(xsk::kick_transmit(self.fd.as_fd()))?;
            let now = self.tx.pending();
            if now == left {
                break;
            }
            left = now;
        }
        self.reap();
        Ok(())
    }

    /// The error that the kernel has noted, such as that the interface is gone.
    pub fn take_error(&self) -> io::Result<()> {
        xsk::take_error(self.fd.as_fd())
    }

    /// Frames that the kernel dropped at this socket, by reason.
    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        xsk::statistics(self.fd.as_fd())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds to the queue. The kernel lets go of a queue some time after the last socket
/// on it was closed (`xp_put_pool` leaves it to a work queue): who starts again at once
/// waits for that.
fn bind(fd: BorrowedFd<'_>, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let patience = Instant::now() + BUSY_FOR;
    loop {
        match xsk::bind(fd, interface, queue, flags) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// Takes answers that only mean *later* as none: no memory, busy, interrupted, or
/// the link is down.
fn transient(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) => match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => Ok(()),
            _ => Err(e),
        },
        ok => ok,
    }
}
