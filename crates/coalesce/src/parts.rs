//! Each segment of a run, for code that goes on to handle the run as one: its frame, its
//! length, acknowledgment and PSH.

use crate::coalescer::Sink;
use crate::frame::Segment;
use crate::profile::Limits;
use crate::run::Run;
use crate::verdict::{Cause, Reason};
use baton_wire::seq::Seq;

/// One segment of a run: facts that the run as a whole does not have and an endpoint needs (RA
/// §3.4: congestion control counts acknowledgments, ACK generation counts segments).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<H> {
    /// The caller's handle of its frame.
    pub frame: H,
    /// Offset of its payload in the frame, in bytes.
    pub payload_offset: u32,
    /// Length of its payload in bytes.
    pub len: u32,
    /// Its acknowledgment number.
    pub ack: Seq,
    /// It has PSH.
    pub push: bool,
}

/// The receiver of a coalescer's output, for one whose runs are kept in [`Parts`].
pub trait Output<H> {
    /// A frame goes on alone, unchanged.
    fn frame(&mut self, frame: H, reason: Reason);

    /// A run goes on; `parts` has one entry or more.
    fn run(&mut self, run: &Run, parts: &[Part<H>], cause: Cause);
}

/// The segments of the runs that are held, by slot.
#[derive(Clone, Debug)]
pub struct Parts<H> {
    lists: Box<[Vec<Part<H>>]>,
}

impl<H> Parts<H> {
    /// Space for this many segments of a run is allocated at the start. A longer run, possible
    /// only with a larger buffer and no other limit, makes its list grow.
    pub const RESERVED: u32 = 8192;

    /// Parts for a coalescer with these limits.
    pub fn new(limits: &Limits) -> Parts<H> {
        let room = limits.most_segments().min(Self::RESERVED) as usize;
        Parts { lists: (0..limits.cache.get()).map(|_| Vec::with_capacity(room)).collect() }
    }

    /// The sink that keeps segments here and gives whole runs to `out`.
    #[inline]
    pub fn to<'a, O: Output<H>>(&'a mut self, out: &'a mut O) -> Collector<'a, H, O> {
        Collector { parts: self, out }
    }
}

/// A sink made of [`Parts`] and an [`Output`].
#[derive(Debug)]
pub struct Collector<'a, H, O> {
    parts: &'a mut Parts<H>,
    out: &'a mut O,
}

impl<H, O: Output<H>> Collector<'_, H, O> {
    #[inline]
    fn keep(&mut self, slot: u32, segment: &Segment, frame: H) {
        self.parts.lists[slot as usize].push(Part {
            frame,
            payload_offset: segment.payload_offset() as u32,
            len: segment.payload_len,
            ack: segment.ack,
            push: segment.push,
        });
    }
}

impl<H, O: Output<H>> Sink<H> for Collector<'_, H, O> {
    #[inline]
    fn pass(&mut self, frame: H, reason: Reason) {
        self.out.frame(frame, reason);
    }

    #[inline]
    fn start(&mut self, slot: u32, segment: &Segment, frame: H) {
        self.keep(slot, segment, frame);
    }

    #[inline]
    fn append(&mut self, slot: u32, segment: &Segment, frame: H) {
        self.keep(slot, segment, frame);
    }

    #[inline]
    fn flush(&mut self, slot: u32, run: &Run, cause: Cause, _: u64) {
        let list = &mut self.parts.lists[slot as usize];
        self.out.run(run, list, cause);
        list.clear();
    }
}
