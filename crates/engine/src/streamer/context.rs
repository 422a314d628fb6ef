//! The Streamer's copy of a connection: what it needs to place, to send and to
//! validate, and nothing else. Two cache lines a direction.
//!
//! Stream positions count bytes since the start of the stream in 64 bits;
//! sequence numbers are their shadow on the wire. Each direction keeps one pair
//! that fixes the relation (`rcv_nxt` with `rcv_pos`, `snd_una` with `una_pos`).
//!
//! ```text
//!   receive:  rcv_pos            rq_limit                 right_edge
//!     ...delivered|--placed in or out of order--|--parked only--|
//!   send:     una_pos        nxt_pos     limit       tail_pos
//!     ...acked  |---in flight---|---may go---|---waits---|
//! ```

use crate::options::IpFields;
use crate::ranges::Ranges;
use crate::region::Extent;
use baton_tcp::command::MAX_RANGES;
use baton_wire::addr::Tuple;
use baton_wire::seq::{Seq, Window, WindowScale};

/// A place in a queue of extents: the extent that covers a stream position, and
/// which one comes next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Stream position of the extent's first byte.
    pub start: u64,
    /// The extent; of length 0 before the first one was read.
    pub extent: Extent,
    /// Queue index of the extent that follows.
    pub next: u32,
}

impl Cursor {
    /// Stream position just past the extent.
    #[inline]
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.extent.len())
    }

    /// Before the extent at index `next`, which begins at `start`.
    fn before(next: u32, start: u64) -> Cursor {
        Cursor { start, extent: Extent::default(), next }
    }

    /// Steps forward until the extent covers `pos`. `read` reads the extent at
    /// an index and `tail` is the queue's; false if `pos` lies past what is
    /// posted. Each step uses up one posted extent, so it ends.
    #[inline]
    pub fn seek(&mut self, pos: u64, tail: u32, read: impl Fn(u32) -> Option<Extent>) -> bool {
        while pos >= self.end() {
            if self.next == tail {
                return false;
            }
            let Some(extent) = read(self.next) else { return false };
            self.start = self.end();
            self.extent = extent;
            self.next = self.next.wrapping_add(1);
        }
        true
    }
}

/// Bits of [`Flow::bits`].
pub mod bits {
    use baton_tcp::manner::Manner;

    /// The consumer let go of the connection: its queue pair goes back with it.
    pub const ABANDONED: u32 = 1 << 0;
    /// Sequence numbers are synchronised: the fast path is open.
    pub const SYNCHRONIZED: u32 = 1 << 1;
    /// Both sides use timestamps.
    pub const TIMESTAMPS: u32 = 1 << 2;
    /// ECN was agreed on.
    pub const ECN: u32 = 1 << 3;
    /// A queue pair is attached.
    pub const ATTACHED: u32 = 1 << 4;
    /// On the list of connections that received in this burst.
    pub const TOUCHED: u32 = 1 << 5;
    /// On the list of connections that may transmit.
    pub const ACTIVE: u32 = 1 << 6;
    /// A FIN is to follow the last posted byte.
    pub const FIN_WANTED: u32 = 1 << 7;
    /// The FIN went out at least once.
    pub const FIN_SENT: u32 = 1 << 8;
    /// The peer's FIN was reached.
    pub const FIN_RECEIVED: u32 = 1 << 9;
    /// Nagle's algorithm is off.
    pub const NODELAY: u32 = 1 << 10;
    /// Only full segments leave.
    pub const CORK: u32 = 1 << 11;
    /// ECE goes on what is sent.
    pub const ECE: u32 = 1 << 12;
    /// CWR goes on the next new data segment.
    pub const CWR: u32 = 1 << 13;
    /// The TCE was told that data waits and nothing can go.
    pub const BLOCKED_TOLD: u32 = 1 << 14;
    /// The consumer was told that a buffer is wanted.
    pub const WANT_TOLD: u32 = 1 << 15;
    /// Adopted, but the consumer has not posted yet what the connection brought along, which
    /// reaches to `tail_pos` and `rcv_pos`. Not `ATTACHED` yet.
    pub const FILLING: u32 = 1 << 16;
    /// Moving to another stack: nothing is sent, and nothing arrives, because the tuple is out
    /// of the flow table.
    pub const SUSPENDED: u32 = 1 << 17;
    /// About to leave: nothing new is sent.
    pub const QUIET: u32 = 1 << 18;
    /// Queued data leaves although the connection is corked, until nothing is queued.
    pub const PUSH: u32 = 1 << 19;
    /// The driver was told that urgent data is left to another stack.
    pub const URGENT_TOLD: u32 = 1 << 20;
    /// The points of its messages are recorded, or of some of them.
    pub const WATCHED: u32 = 1 << 21;
    /// Segments without a checksum are accepted: we granted it, or were granted it.
    pub const ACCEPTS_UNSUMMED: u32 = 1 << 22;
    /// Segments are sent without a checksum.
    pub const SENDS_UNSUMMED: u32 = 1 << 23;
    /// The points of every message are recorded, not of some only.
    pub const WATCHED_WHOLLY: u32 = 1 << 24;
    /// A message is, or may be, on its way out whose points are recorded.
    pub const MARKED_OUT: u32 = 1 << 25;
    /// A message is on its way in whose points are recorded.
    pub const MARKED_IN: u32 = 1 << 26;

    /// Those that the TCE's [`Manner`] names.
    pub(in super::super) const MANNER: u32 = NODELAY | CORK | ECE | CWR;

    const _: () = {
        let first = NODELAY.trailing_zeros();
        assert!((Manner::NODELAY.bits() as u32) << first == NODELAY && (Manner::CORK.bits() as u32) << first == CORK);
        assert!((Manner::ECE.bits() as u32) << first == ECE && (Manner::CWR.bits() as u32) << first == CWR);
    };

    /// The bits of what is in `manner`, of [`MANNER`].
    #[inline]
    pub(in super::super) fn of_manner(manner: Manner) -> u32 {
        u32::from(manner.bits()) << NODELAY.trailing_zeros() & MANNER
    }
}

/// Receive half: first cache line validates and places, the second names.
#[derive(Debug)]
#[repr(C)]
pub struct Receive {
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Right edge promised to the peer; never moves back.
    pub right_edge: Seq,
    /// Peer's last TSval, echoed on everything sent.
    pub ts_recent: u32,
    /// How far the TCE knows that posted buffers reach.
    pub posted_told: Seq,
    /// Stream position of `rcv_nxt`.
    pub rcv_pos: u64,
    /// Stream position up to which buffers are posted.
    pub rq_limit: u64,
    /// Where `rcv_pos` lies in the receive queue.
    pub cursor: Cursor,
    /// Out-of-order bytes already placed; `None` while there are none.
    pub ranges: Option<Box<Ranges<MAX_RANGES>>>,
    /// Tail of the receive queue as last read.
    pub rq_tail: u32,
    /// Payload parked for this connection, in bytes.
    pub parked_bytes: u32,
    /// The connection's addresses and ports.
    pub tuple: Tuple,
}

/// Transmit half.
#[derive(Debug)]
#[repr(C)]
pub struct Transmit {
    /// Oldest unacknowledged sequence number, as the TCE last said.
    pub snd_una: Seq,
    /// Next sequence number to send for the first time.
    pub snd_nxt: Seq,
    /// End of the last segment sent that was smaller than the MSS (Linux: `snd_sml`).
    pub snd_sml: Seq,
    /// New data may go up to here.
    pub limit: Seq,
    /// Largest window the peer ever offered, bytes.
    pub max_wnd: u32,
    /// Stream position of `snd_una`. Once our FIN is acknowledged it is `tail_pos` plus 1.
    pub una_pos: u64,
    /// Stream position up to which the consumer posted.
    pub tail_pos: u64,
    /// Where `una_pos` lies in the send queue: retransmission starts here.
    pub una_cursor: Cursor,
    /// Where `snd_nxt` lies in the send queue.
    pub nxt_cursor: Cursor,
    /// Tail of the send queue as last read.
    pub sq_tail: u32,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// Next hop: index of the link header.
    pub hop: u16,
}

/// The Streamer's context of one connection.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Flow {
    /// Receive half.
    pub rx: Receive,
    /// Transmit half.
    pub tx: Transmit,
    /// Queue pair at the consumer; before there is one, that of the listener that the
    /// connection came to.
    pub qp: u32,
    /// Added to the millisecond clock for our TSval.
    pub ts_offset: u32,
    /// Last.ACK.sent (RFC 7323 §4.3).
    pub last_ack: Seq,
    /// See [`bits`].
    pub bits: u32,
    /// Number of the consumer's region.
    pub consumer: u16,
    /// Shift for windows that we send.
    pub rcv_wscale: WindowScale,
    /// The fields that it puts into its segments' IP headers.
    pub ip: IpFields,
}

const _: () = assert!(size_of::<Flow>() == 256, "two cache lines a direction");

impl Default for Receive {
    fn default() -> Receive {
        Receive {
            rcv_nxt: Seq(0),
            right_edge: Seq(0),
            ts_recent: 0,
            posted_told: Seq(0),
            rcv_pos: 0,
            rq_limit: 0,
            cursor: Cursor::default(),
            ranges: None,
            rq_tail: 0,
            parked_bytes: 0,
            tuple: Tuple::default(),
        }
    }
}

impl Default for Transmit {
    fn default() -> Transmit {
        Transmit {
            snd_una: Seq(0),
            snd_nxt: Seq(0),
            snd_sml: Seq(0),
            limit: Seq(0),
            max_wnd: 0,
            una_pos: 0,
            tail_pos: 0,
            una_cursor: Cursor::default(),
            nxt_cursor: Cursor::default(),
            sq_tail: 0,
            mss: 0,
            hop: 0,
        }
    }
}

impl Default for Flow {
    fn default() -> Flow {
        Flow {
            rx: Receive::default(),
            tx: Transmit::default(),
            bits: 0,
            rcv_wscale: WindowScale::default(),
            ip: IpFields::default(),
            consumer: 0,
            qp: u32::MAX,
            ts_offset: 0,
            last_ack: Seq(0),
        }
    }
}

/// How far an order's TS.Recent may lag behind the fast path's, in the peer's ticks: 4 hours of
/// milliseconds, 16 s of microseconds. If it lags further, the TCE found the old value outdated
/// (RFC 7323 §5.5).
const TS_LAG: u32 = 1 << 24;

impl Flow {
    /// Notes the TSval of a fast-path segment, which is not before TS.Recent. The reply may
    /// leave before the TCE hears of the segment. If only the TCE chose the echo, the peer
    /// would count its own silence before this segment as round trip, and its timeout would
    /// double each time.
    #[inline]
    pub fn on_timestamp(&mut self, seq: Seq, ts_val: u32) {
        if seq.before_eq(self.last_ack) {
            self.rx.ts_recent = ts_val;
        }
    }

    /// Takes the TCE's value, which may lag behind the fast path.
    #[inline]
    pub fn on_ordered_timestamp(&mut self, ts_recent: u32) {
        if self.rx.ts_recent.wrapping_sub(ts_recent) > TS_LAG {
            self.rx.ts_recent = ts_recent;
        }
    }

    /// True if all of `mask` is set.
    #[inline]
    pub fn has(&self, mask: u32) -> bool {
        self.bits & mask == mask
    }

    /// Stream position of a sequence number that we may send.
    #[inline]
    pub fn snd_pos(&self, seq: Seq) -> u64 {
        self.tx.una_pos.wrapping_add_signed(i64::from(seq.since(self.tx.snd_una)))
    }

    /// Posted bytes that were never sent.
    #[inline]
    pub fn queued(&self) -> u64 {
        self.tx.tail_pos.saturating_sub(self.snd_pos(self.tx.snd_nxt))
    }

    /// True while a segment smaller than the MSS is not acknowledged (Linux:
    /// `tcp_minshall_check`).
    #[inline]
    pub fn small_in_flight(&self) -> bool {
        self.tx.snd_sml.after(self.tx.snd_una) && !self.tx.snd_sml.after(self.tx.snd_nxt)
    }

    /// Forgets every posted extent, so that the next one of each queue begins where its stream
    /// stands. Returns false, and forgets nothing, while a byte may still need one (parked,
    /// beyond a gap, or not acknowledged), or while the peer sees a closed window: then it
    /// sends nothing that would ask for a buffer again.
    pub fn unpost(&mut self) -> bool {
        let open = self.has(bits::SYNCHRONIZED | bits::ATTACHED) && self.bits & (bits::TOUCHED | bits::SUSPENDED) == 0;
        let received = self.rx.ranges.is_none() && self.rx.parked_bytes == 0;
        let promised = self.rx.right_edge.since(self.rx.rcv_nxt).max(0) as u32;
        let invited = self.has(bits::FIN_RECEIVED) || self.rcv_wscale.field(Window(promised)) > 0;
        if !(open && received && invited && self.tx.una_pos >= self.tx.tail_pos) {
            return false;
        }
        self.rx.cursor = Cursor::before(self.rx.rq_tail, self.rx.rcv_pos);
        self.rx.rq_limit = self.rx.rcv_pos;
        self.rx.posted_told = self.rx.rcv_nxt;
        self.bits &= !bits::WANT_TOLD;
        let sent = Cursor::before(self.tx.sq_tail, self.tx.tail_pos);
        (self.tx.una_cursor, self.tx.nxt_cursor) = (sent, sent);
        true
    }

    /// Just past the last posted receive byte, as a sequence number.
    #[inline]
    pub fn posted_edge(&self) -> Seq {
        let ahead = self.rx.rq_limit.saturating_sub(self.rx.rcv_pos).min(1 << 30);
        self.rx.rcv_nxt + ahead as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ahead_of_the_tce_echoes_the_timestamp_of_what_it_acknowledges() {
        let mut flow = Flow { last_ack: Seq(1000), ..Flow::default() };
        flow.rx.ts_recent = 100;
        flow.on_timestamp(Seq(1000), 300);
        assert_eq!(flow.rx.ts_recent, 300);
        // The TCE's value from an earlier segment comes late and takes nothing back.
        flow.on_ordered_timestamp(200);
        assert_eq!(flow.rx.ts_recent, 300);
        // The earliest segment that is not acknowledged counts (RFC 7323 §4.2).
        flow.on_timestamp(Seq(1001), 400);
        assert_eq!(flow.rx.ts_recent, 300);
        flow.on_ordered_timestamp(500);
        assert_eq!(flow.rx.ts_recent, 500);
        // After weeks of silence the peer's clock may have come round.
        flow.on_ordered_timestamp(500u32.wrapping_sub(1 << 30));
        assert_eq!(flow.rx.ts_recent, 500u32.wrapping_sub(1 << 30));
    }
}
