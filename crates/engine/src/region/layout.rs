//! The picture of a region, and the words that it is made of.
//!
//! One region belongs to one consumer. Every word in it is an atomic, so that reading one while
//! the other side writes it is defined; each word's comment says which side writes it. Offsets
//! and sizes come from a [`Layout`] that each side keeps in its own memory: the header is only
//! read to open a region that another process made.
//!
//! ```text
//!  0          header: sizes, then ring indices and sleep flags, a line each
//!  1152       doorbell ring    qps rounded up to 2^n   x  4 bytes   consumer -> engine
//!             request ring     requests (2^n)          x 64 bytes   consumer -> engine
//!             completion ring  2 qps + requests, 2^n   x 16 bytes   engine -> consumer
//!             queue pairs      qps x (128 + 32 x depth) bytes
//!  4096-align data area        data_bytes: registered memory, offsets count from here
//! ```
//!
//! A queue pair with `queue_depth` 4 is four cache lines:
//!
//! ```text
//!  engine's line    rcv_done snd_done snd_sent urgent | events state error ports | token listener
//!  consumer's line  snd_tail rcv_limit | sq_tail rq_tail rung rcv_read | identity (engine, once)
//!  send queue       depth x { offset u64, len u32, unused u32 }
//!  receive queue    depth x the same
//! ```
//!
//! # Why the completion ring cannot overflow
//! For a consumer that keeps to the protocol, at any moment the ring holds at most
//! * one *Ready* a queue pair: the `QUEUED` bit of `events` is set by the engine
//!   with the completion and cleared by the consumer only when it takes it out;
//! * one *Opened*, *Accepted* or *Adopted* a queue pair: the next one for the same index
//!   needs a *Close* from the consumer, who learns of the pair by the first;
//! * one answer for each *answered* request (`Request::answered`): the consumer
//!   has at most `requests` of them under way. (An *Opened* that answers a
//!   request is counted here as well, which errs on the safe side.)
//!
//! So `2 * qps + requests` entries suffice. A consumer that breaks the protocol can fill the
//! ring; the engine then counts the dropped completions and goes on.

use core::mem::{offset_of, size_of};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of a region: "BATONREG" read as a little-endian number.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"BATONREG");

/// Version of the layout in this file.
pub(super) const VERSION: u32 = 1;

/// Most queue pairs in a region.
pub const MAX_QPS: u32 = 1 << 22;

/// Deepest send or receive queue.
pub const MAX_QUEUE_DEPTH: u32 = 1 << 10;

/// Most entries in the request ring.
pub const MAX_REQUESTS: u32 = 1 << 16;

/// Largest data area in bytes (1 TiB).
pub const MAX_DATA_BYTES: u64 = 1 << 40;

const PAGE: usize = 4096;

/// Sizes of a region, as its maker chooses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Queue pairs, 1 to [`MAX_QPS`].
    pub qps: u32,
    /// Extents in each send and each receive queue: a power of two, 2 to
    /// [`MAX_QUEUE_DEPTH`].
    pub queue_depth: u32,
    /// Entries of the request ring: a power of two, 1 to [`MAX_REQUESTS`].
    pub requests: u32,
    /// Bytes of registered memory, up to [`MAX_DATA_BYTES`].
    pub data_bytes: u64,
}

/// An invalid layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// `qps` is 0 or more than [`MAX_QPS`].
    #[error("a region holds 1 to {MAX_QPS} queue pairs, not {0}")]
    Qps(u32),
    /// `queue_depth` is not a power of two from 2 to [`MAX_QUEUE_DEPTH`].
    #[error("a queue's depth is a power of two from 2 to {MAX_QUEUE_DEPTH}, not {0}")]
    QueueDepth(u32),
    /// `requests` is not a power of two up to [`MAX_REQUESTS`].
    #[error("the request ring has a power of two up to {MAX_REQUESTS} of entries, not {0}")]
    Requests(u32),
    /// The data area is too large for this layout or this machine's addresses.
    #[error("a data area of {0} bytes is too large")]
    DataBytes(u64),
    /// The memory is smaller than the layout, or not aligned to a cache line.
    #[error("the memory given does not hold the region")]
    Memory,
    /// The memory to open does not start with a region's header.
    #[error("not a region, or of another version")]
    Header,
}

/// Offsets of all parts: computed from a [`Layout`], trusted from then on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) layout: Layout,
    pub(super) doorbells: u32,
    pub(super) completions: u32,
    pub(super) doorbell_ring: usize,
    pub(super) request_ring: usize,
    pub(super) completion_ring: usize,
    pub(super) qp_array: usize,
    pub(super) qp_size: usize,
    pub(super) data: usize,
    pub(super) total: usize,
}

impl Layout {
    /// Bytes of memory that a region of this layout takes.
    ///
    /// # Errors
    /// [`LayoutError`] names the size that is out of range.
    pub fn bytes(&self) -> Result<usize, LayoutError> {
        Ok(self.geometry()?.total)
    }

    /// Entries of the completion ring.
    ///
    /// # Errors
    /// [`LayoutError`] names the size that is out of range.
    pub fn completions(&self) -> Result<u32, LayoutError> {
        Ok(self.geometry()?.completions)
    }

    pub(super) fn geometry(&self) -> Result<Geometry, LayoutError> {
        let Layout { qps, queue_depth, requests, data_bytes } = *self;
        if qps == 0 || qps > MAX_QPS {
            return Err(LayoutError::Qps(qps));
        }
        if !(2..=MAX_QUEUE_DEPTH).contains(&queue_depth) || !queue_depth.is_power_of_two() {
            return Err(LayoutError::QueueDepth(queue_depth));
        }
        if !requests.is_power_of_two() || requests > MAX_REQUESTS {
            return Err(LayoutError::Requests(requests));
        }
        let doorbells = qps.next_power_of_two();
        let completions = (2 * qps + requests).next_power_of_two();
        let qp_size = size_of::<QpWords>() + 2 * queue_depth as usize * size_of::<ExtentWords>();
        let doorbell_ring = size_of::<Header>();
        let request_ring = (doorbell_ring + doorbells as usize * size_of::<AtomicU32>()).next_multiple_of(64);
        let completion_ring = request_ring + requests as usize * size_of::<RequestWords>();
        let qp_array = (completion_ring + completions as usize * size_of::<CompletionWords>()).next_multiple_of(64);
        let too_large = LayoutError::DataBytes(data_bytes);
        if data_bytes > MAX_DATA_BYTES {
            return Err(too_large);
        }
        let data = (qps as usize)
            .checked_mul(qp_size)
            .and_then(|bytes| bytes.checked_add(qp_array))
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .ok_or(too_large)?;
        let total = usize::try_from(data_bytes)
            .ok()
            .and_then(|bytes| bytes.checked_add(data))
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .filter(|&end| isize::try_from(end).is_ok())
            .ok_or(too_large)?;
        Ok(Geometry {
            layout: *self,
            doorbells,
            completions,
            doorbell_ring,
            request_ring,
            completion_ring,
            qp_array,
            qp_size,
            data,
            total,
        })
    }
}

/// A word alone on its pair of cache lines (adjacent lines are fetched together).
#[repr(C, align(128))]
pub(super) struct Line {
    pub(super) word: AtomicU32,
}

/// Start of a region.
#[repr(C)]
pub(super) struct Header {
    pub(super) sizes: Sizes,
    /// Written by the consumer.
    pub(super) doorbell_tail: Line,
    /// Written by the engine.
    pub(super) doorbell_head: Line,
    /// Written by the consumer.
    pub(super) request_tail: Line,
    /// Written by the engine.
    pub(super) request_head: Line,
    /// Written by the engine.
    pub(super) completion_tail: Line,
    /// Written by the consumer.
    pub(super) completion_head: Line,
    /// 1 while the engine sleeps; cleared by the side that is going to wake it.
    pub(super) engine_asleep: Line,
    /// 1 while the consumer sleeps; cleared by the side that is going to wake it.
    pub(super) consumer_asleep: Line,
}

/// A region's layout, as its maker wrote it down.
#[repr(C, align(128))]
pub(super) struct Sizes {
    pub(super) magic: AtomicU64,
    pub(super) data_bytes: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) qps: AtomicU32,
    pub(super) queue_depth: AtomicU32,
    pub(super) requests: AtomicU32,
}

impl Sizes {
    /// Each size read once, and put into a layout that is still to be checked.
    pub(super) fn read(&self) -> Result<Layout, LayoutError> {
        if self.magic.load(SeqCst) != MAGIC || self.version.load(Relaxed) != VERSION {
            return Err(LayoutError::Header);
        }
        Ok(Layout {
            qps: self.qps.load(Relaxed),
            queue_depth: self.queue_depth.load(Relaxed),
            requests: self.requests.load(Relaxed),
            data_bytes: self.data_bytes.load(Relaxed),
        })
    }
}

/// An entry of the request ring; see `request.rs` for the words.
pub(super) type RequestWords = [AtomicU64; 8];

/// An entry of the completion ring; see `request.rs` for the words.
pub(super) type CompletionWords = [AtomicU64; 2];

/// The fixed part of a queue pair.
#[repr(C)]
pub(super) struct QpWords {
    // The engine's line.
    /// Stream bytes delivered in order since the start.
    pub(super) rcv_done: AtomicU64,
    /// Stream bytes acknowledged by the peer; their buffers are free.
    pub(super) snd_done: AtomicU64,
    /// Stream bytes sent at least once.
    pub(super) snd_sent: AtomicU64,
    /// Stream position just past the urgent data announced last.
    pub(super) urgent: AtomicU64,
    /// Event bits: or-ed in by the engine, taken out by the consumer.
    pub(super) events: AtomicU32,
    /// The engine's connection state.
    pub(super) state: AtomicU32,
    /// Why the connection failed: an errno, 0 if it did not.
    pub(super) error: AtomicU32,
    /// Local port in the upper half, remote port in the lower.
    pub(super) ports: AtomicU32,
    /// Token of the request that opened the pair.
    pub(super) token: AtomicU64,
    /// The listener that a passively opened connection came from.
    pub(super) listener: AtomicU32,
    unused: AtomicU32,
    // The consumer's line.
    /// Stream bytes posted to send.
    pub(super) snd_tail: AtomicU64,
    /// Stream position up to which posted receive buffers reach.
    pub(super) rcv_limit: AtomicU64,
    /// Send extents posted since the start, modulo 2^32.
    pub(super) sq_tail: AtomicU32,
    /// Receive extents posted since the start, modulo 2^32.
    pub(super) rq_tail: AtomicU32,
    /// 1 from the doorbell's ringing by the consumer to its taking by the engine.
    pub(super) rung: AtomicU32,
    /// Low half of the stream position up to which received bytes were read.
    pub(super) rcv_read: AtomicU32,
    /// Local address, then remote, high half first; written once by the engine.
    pub(super) addresses: [AtomicU64; 4],
}

/// One extent of a send or receive queue; written by the consumer.
#[repr(C)]
pub(super) struct ExtentWords {
    pub(super) offset: AtomicU64,
    pub(super) len: AtomicU32,
    unused: AtomicU32,
}

const _: () = {
    assert!(size_of::<Header>() == 1152);
    assert!(offset_of!(Header, consumer_asleep) == 1024);
    assert!(size_of::<QpWords>() == 128);
    assert!(offset_of!(QpWords, snd_tail) == 64);
    assert!(size_of::<ExtentWords>() == 16);
    assert!(size_of::<RequestWords>() == 64);
};
