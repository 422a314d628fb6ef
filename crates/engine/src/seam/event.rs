//! Events from the Streamer to the TCE (LC §3.3.1): one entry for each run of segments that it
//! received, one for each burst that it sent, and one for each request of a consumer.
//!
//! An entry is one cache line. Facts that only some segments have (SACK blocks, SYN options,
//! the tuple of an unknown connection) travel in entries of their own *before* the segment's
//! entry, so the plain case stays at one line:
//!
//! ```text
//!   [Segment]                         in-order data, plain ACKs
//!   [Options][Segment]                SACK blocks or SYN options came along
//!   [Tuple][Options][Segment NONE]    a SYN, or a segment to no connection
//!   [Segment][Mark]                   data of a connection that is watched
//! ```

use super::kinds::{Queues, SnapshotHalf};
use crate::options::IpFields;
use baton_tcp::segment::{self, Lengths, ParkId, Placement, SynOptions, Transmitted};
use baton_wire::addr::Tuple;
use baton_wire::packet::Packet;
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};

/// Index of a connection in both halves of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(transparent)]
pub struct ConnId(pub u32);

impl ConnId {
    /// No connection.
    pub const NONE: ConnId = ConnId(u32::MAX);
}

/// Entries that one received frame adds at most.
pub const EVENTS_PER_FRAME: usize = 4;

/// One entry of the event ring.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A segment or run was received.
    Segment(SegmentEvent),
    /// Rare header facts of the [`Event::Segment`] that follows.
    Options {
        /// SACK blocks.
        sack: SackBlocks,
        /// SYN options.
        syn: SynOptions,
        /// Urgent pointer.
        urgent: u16,
    },
    /// Addresses of the [`Event::Segment`] or [`Event::Connect`] that follows.
    Tuple {
        /// Addresses and ports of the connection.
        tuple: Tuple,
        /// Orders that the Streamer had carried out, as its end of the ring counts them: it
        /// cannot know a connection that a later order opened.
        orders_done: usize,
        /// The peer is the next hop: no router is on the way.
        on_link: bool,
    },
    /// The events of a run before this one are those of a watched connection.
    Mark {
        /// Number of the consumer's region.
        consumer: u16,
        /// The connection's slot in the memory of what is watched; `None` if only some of its messages are recorded.
        slot: Option<u16>,
        /// When the run's payload was in place, in nanoseconds of the driver's clock.
        placed: u64,
    },
    /// Bytes went to the port.
    Transmitted {
        /// The connection's number in this engine.
        conn: ConnId,
        /// The range that was sent.
        sent: Transmitted,
    },
    /// The consumer's posted buffers now reach this sequence number.
    Posted {
        /// The connection's number in this engine.
        conn: ConnId,
        /// Just past the last posted byte.
        right_edge: Seq,
    },
    /// The consumer has its buffers back: none is posted.
    Unposted {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// Data waits, the limit lets none of it out, and nothing is in flight.
    Blocked {
        /// The connection's number in this engine.
        conn: ConnId,
        /// Bytes that wait.
        queued: u32,
    },
    /// An ICMP error about a segment of ours (RFC 9293 §3.9.2.2).
    Icmp {
        /// The connection's number in this engine.
        conn: ConnId,
        /// The error reported.
        error: baton_tcp::icmp::IcmpError,
    },
    /// The slot of a released connection is free again: no event of it follows.
    Released {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// A connection reached ESTABLISHED and no queue pair was free for it.
    NoQueuePair {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// A consumer wants a connection; the tuple came before.
    Connect {
        /// Number of the consumer's region.
        consumer: u16,
        /// The queue pair for it.
        qp: u32,
        /// The request's token.
        token: u64,
        /// Next hop of the route, referenced.
        hop: u16,
        /// Option bits of the request.
        options: u64,
    },
    /// The first half of the snapshot for the [`Event::Adopt`] that follows.
    SnapshotHead(SnapshotHalf),
    /// The second half.
    SnapshotTail(SnapshotHalf),
    /// An option of the connection of the [`Event::Adopt`] that follows.
    AdoptOption(baton_tcp::options::SocketOption),
    /// A connection comes from another stack; its tuple, snapshot and options came
    /// before.
    Adopt {
        /// The consumer that will own it.
        consumer: u16,
        /// Its queue pair.
        qp: u32,
        /// The token given with the adoption.
        token: u64,
        /// Next hop of the route, referenced.
        hop: u16,
        /// The fields that it puts into its segments' IP headers.
        ip: IpFields,
        /// The queued bytes that it brings along.
        queues: Queues,
    },
    /// A connection is about to leave: no event of it follows until `Resume`.
    Suspend {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// A suspended connection stays after all.
    Resume {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// A suspended connection has moved to another stack.
    LetGo {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// A consumer wants to listen at the local half of the tuple before.
    Listen {
        /// Number of the consumer's region.
        consumer: u16,
        /// The queue pair for it.
        qp: u32,
        /// The request's token.
        token: u64,
        /// Half-open connections before SYN cookies are used.
        backlog: u32,
        /// Option bits that accepted connections inherit.
        options: u64,
    },
    /// A consumer no longer listens.
    Unlisten {
        /// Number of the consumer's region.
        consumer: u16,
        /// The listener's queue pair.
        qp: u32,
    },
    /// A consumer's request for one of its connections.
    Consumer {
        /// The connection's number in this engine.
        conn: ConnId,
        /// The change requested.
        wish: Wish,
    },
}

/// A consumer's wish for its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// No more data will be posted (RFC 9293 CLOSE).
    Shutdown,
    /// The consumer lets go of the connection.
    Close,
    /// Reset it (RFC 9293 ABORT).
    Abort,
    /// Set an option.
    Option(baton_tcp::options::SocketOption),
    /// Write TCP_INFO into the consumer's data area.
    Info {
        /// The consumer that asks.
        consumer: u16,
        /// The request's token.
        token: u64,
        /// Byte offset in the data area.
        offset: u64,
        /// Space there, in bytes.
        len: u32,
    },
}

const EMPTY: u8 = 0;
const PLACED: u8 = 1;
const PARKED: u8 = 2;

/// Header fields of a received segment or run, and what was done with its payload.
#[derive(Clone, Copy, Debug)]
pub struct SegmentEvent {
    /// Which connection; [`ConnId::NONE`] if no connection has the tuple in the entry before.
    pub conn: ConnId,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// TSval and TSecr, meaningful if `HAS_TS` is set.
    pub ts_val: u32,
    /// See `ts_val`.
    pub ts_ecr: u32,
    /// Payload bytes of the run.
    pub len: u32,
    /// Payload of each segment but the last.
    pub size: u16,
    /// Segments in the run.
    pub count: u16,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND, unscaled.
    pub wnd: u16,
    /// `HAS_TS`, `CE`.
    pub bits: u8,
    /// `EMPTY`, `PLACED` or `PARKED`.
    placement: u8,
    /// `rcv_nxt` after placement, or the park id.
    at: u32,
    /// New bytes placed.
    new_bytes: u32,
    /// How far the consumer's posted buffers reach, unless `UNPLACED` is set.
    pub posted: Seq,
}

impl SegmentEvent {
    /// `bits`: timestamps are present.
    pub const HAS_TS: u8 = 1;
    /// `bits`: Congestion Experienced.
    pub const CE: u8 = 2;
    /// `bits`: an [`Event::Options`] entry came before.
    pub const HAS_OPTIONS: u8 = 4;
    /// `bits`: the Streamer did not know the connection's sequence numbers yet,
    /// so `posted` says nothing.
    pub const UNPLACED: u8 = 8;

    /// Packs the facts of a frame; `posted` is `None` before the Streamer knows the
    /// connection's sequence numbers.
    #[inline]
    pub fn new(
        conn: ConnId,
        packet: &Packet,
        lengths: Lengths,
        placement: Placement,
        posted: Option<Seq>,
        has_options: bool,
    ) -> SegmentEvent {
        let (kind, at, new_bytes) = match placement {
            Placement::Empty => (EMPTY, 0, 0),
            Placement::Placed { rcv_nxt, new_bytes } => (PLACED, rcv_nxt.0, new_bytes),
            Placement::Parked(ParkId(id)) => (PARKED, id, 0),
        };
        let ts = packet.timestamps.unwrap_or_default();
        let bits = if packet.timestamps.is_some() { Self::HAS_TS } else { 0 }
            | if packet.ecn == 3 { Self::CE } else { 0 }
            | if has_options { Self::HAS_OPTIONS } else { 0 }
            | if posted.is_none() { Self::UNPLACED } else { 0 };
        SegmentEvent {
            conn,
            seq: packet.seq,
            ack: packet.ack,
            ts_val: ts.val,
            ts_ecr: ts.ecr,
            len: lengths.len,
            size: lengths.size,
            count: lengths.count,
            flags: packet.flags,
            wnd: packet.window,
            bits,
            placement: kind,
            at,
            new_bytes,
            posted: posted.unwrap_or_default(),
        }
    }

    /// New data in order and nothing else: others may follow in the same run.
    #[inline]
    pub fn is_plain_data(&self) -> bool {
        self.placement == PLACED
            && self.new_bytes == self.len
            && Seq(self.at) == self.seq + self.len
            && self.bits & !Self::HAS_TS == 0
    }

    /// Takes `next` into this run if it continues it: the next bytes, the same
    /// acknowledgment, window and timestamps, and segments of one size, the last
    /// of which alone may be shorter. The run then tells the TCE
    /// exactly what single events would have told it.
    #[inline]
    pub fn join(&mut self, next: &SegmentEvent) -> bool {
        let follows = next.conn == self.conn
            && next.seq == self.seq + self.len
            && next.ack == self.ack
            && next.wnd == self.wnd
            && next.bits == self.bits
            && next.ts_val == self.ts_val
            && next.ts_ecr == self.ts_ecr
            && next.is_plain_data();
        let size = u32::from(self.size);
        let even =
            self.len == size * u32::from(self.count) && (next.size == self.size || next.count == 1 && next.len <= size);
        if !follows || !even || self.count > u16::MAX - next.count {
            return false;
        }
        self.len += next.len;
        self.count += next.count;
        self.new_bytes += next.new_bytes;
        self.at = next.at;
        self.posted = next.posted;
        self.flags |= next.flags;
        true
    }

    /// The first segment of a run that continues what was placed before it, and the rest.
    pub fn split_first(&self) -> Option<(SegmentEvent, SegmentEvent)> {
        let whole = self.placement == PLACED && self.new_bytes == self.len && Seq(self.at) == self.seq + self.len;
        if !whole || self.count < 2 {
            return None;
        }
        let size = u32::from(self.size);
        let first = SegmentEvent { len: size, count: 1, at: (self.seq + size).0, new_bytes: size, ..*self };
        let rest = SegmentEvent {
            seq: self.seq + size,
            len: self.len - size,
            count: self.count - 1,
            new_bytes: self.len - size,
            ..*self
        };
        Some((first, rest))
    }

    /// One more segment of `len` bytes, in every other respect like the last.
    #[inline]
    pub fn lengthen(&mut self, len: u32, rcv_nxt: Seq, posted: Seq, push: bool) {
        self.len += len;
        self.count += 1;
        self.new_bytes += len;
        self.at = rcv_nxt.0;
        self.posted = posted;
        if push {
            self.flags |= Flags::PSH;
        }
    }

    /// The Streamer's treatment of the payload.
    #[inline]
    pub fn placement(&self) -> Placement {
        match self.placement {
            EMPTY => Placement::Empty,
            PLACED => Placement::Placed { rcv_nxt: Seq(self.at), new_bytes: self.new_bytes },
            _ => Placement::Parked(ParkId(self.at)),
        }
    }

    /// The segment, with the rare facts from the entry before, if there is one.
    #[inline]
    pub fn segment(&self, sack: SackBlocks, syn: SynOptions, urgent: u16) -> segment::Segment {
        segment::Segment {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            wnd: self.wnd,
            urgent,
            lengths: Lengths { len: self.len, size: self.size, count: self.count },
            timestamps: (self.bits & Self::HAS_TS != 0).then_some(Timestamps { val: self.ts_val, ecr: self.ts_ecr }),
            sack,
            syn,
            ce: self.bits & Self::CE != 0,
        }
    }
}

const _: () = assert!(size_of::<Event>() <= 64, "an event is one cache line");
