//! A run: segments that follow each other, seen as one.

use crate::flow::Flow;
use crate::frame::Segment;
use crate::verdict::Cause;
use baton_wire::seq::Seq;
use baton_wire::tcp::Timestamps;

/// The facts of a run as a whole. Each segment's own facts (length, acknowledgment, PSH) are
/// with the [`Sink`](crate::Sink).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first segment, whose headers become the run's.
    pub first: Segment,
    /// Number of segments, 1 or more.
    pub segments: u32,
    /// Bytes of payload.
    pub payload_len: u32,
    /// Acknowledgment number of the last segment.
    pub ack: Seq,
    /// Timestamps of the last segment.
    pub timestamps: Option<Timestamps>,
    /// Window field of the last segment.
    pub window: u16,
    /// The smallest time to live or hop limit.
    pub ttl: u8,
    /// A segment has PSH.
    pub push: bool,
    /// Time of the first segment in nanoseconds.
    pub started_ns: u64,
}

impl Run {
    #[inline]
    pub(crate) const fn new(first: Segment, now_ns: u64) -> Run {
        Run {
            first,
            segments: 1,
            payload_len: first.payload_len,
            ack: first.ack,
            timestamps: first.timestamps,
            window: first.window,
            ttl: first.ttl,
            push: first.push,
            started_ns: now_ns,
        }
    }

    /// Addresses and ports of its connection.
    #[inline]
    pub const fn flow(&self) -> &Flow {
        &self.first.flow
    }

    /// The sequence number after its last byte: what the next segment has to have.
    #[inline]
    pub fn end(&self) -> Seq {
        self.first.seq + self.payload_len
    }

    /// Why a segment of its connection cannot follow, except for its size.
    #[inline]
    pub(crate) fn refuses(&self, segment: &Segment) -> Option<Cause> {
        if segment.seq != self.end() {
            return Some(Cause::Sequence);
        }
        if segment.ack.before(self.ack) {
            return Some(Cause::Acknowledgment);
        }
        let in_order = match (self.timestamps, segment.timestamps) {
            (None, None) => true,
            // RFC 7323 §5.2: timestamps are compared as sequence numbers are.
            (Some(last), Some(next)) => !Seq(next.val).before(Seq(last.val)),
            _ => false,
        };
        if !in_order {
            return Some(Cause::Timestamps);
        }
        (segment.traffic_class != self.first.traffic_class).then_some(Cause::TrafficClass)
    }

    #[inline]
    pub(crate) fn append(&mut self, segment: &Segment) {
        self.segments += 1;
        self.payload_len += segment.payload_len;
        self.ack = segment.ack;
        self.timestamps = segment.timestamps;
        self.window = segment.window;
        self.ttl = self.ttl.min(segment.ttl);
        self.push |= segment.push;
    }
}
