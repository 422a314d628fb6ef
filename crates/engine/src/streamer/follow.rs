//! The segments of a run behind its first (RA §3, LA §3.2).
//!
//! The first segment of a run takes the long path: its connection is looked up, its flags,
//! acknowledgment and timestamp are validated, and it begins an event. Later segments that
//! differ only in their bytes need none of this, because nothing is decided in between: orders
//! are carried out between bursts. Each is placed and lengthens the event. A segment that
//! differs otherwise takes the long path too and begins an event of its own, so the TCE hears
//! of every acknowledgment, window and timestamp.

use super::context::{Flow, bits};
use super::place::{copy_next, keep_next, received_in_order, sums_right};
use super::{ConnId, Streamer};
use crate::frame_io::RxFrame;
use crate::seam::event::SegmentEvent;
use baton_wire::packet::Packet;
use baton_wire::predict::Predicted;
use baton_wire::tcp::Flags;

impl Streamer {
    /// Takes the next segment of the current run; false if it has to take the long path.
    /// `packet` holds its headers, except for predicted fields.
    #[inline]
    pub(super) fn follow(
        &mut self,
        conn: ConnId,
        frame: &RxFrame<'_>,
        packet: &Packet,
        predicted: Option<Predicted>,
    ) -> bool {
        let Streamer { run: Some(run), flows, consumers, counters, posted, .. } = self else { return false };
        let flow = &mut flows[conn.0];
        let (seq, push) = match predicted {
            Some(hit) => (hit.seq, hit.push),
            None => (packet.seq, packet.flags.contains(Flags::PSH)),
        };
        let len = packet.payload_len;
        let next = run.conn == conn && seq == flow.rx.rcv_nxt && seq == run.seq + run.len;
        if !next || !is_open(flow, seq + len) || !run.continues(len) || !run.agrees(packet) {
            return false;
        }
        let Some(Some(slot)) = consumers.get(usize::from(flow.consumer)) else { return false };
        let trusted = flow.trusts(frame, packet);
        let unsummed = trusted && !frame.meta.checksum_verified;
        if flow.has(bits::SENDS_UNSUMMED) && !unsummed {
            // The peer's segments have checksums again, which the long path notes.
            return false;
        }
        // The sum is computed even if the port vouches for it: that way a segment of a run
        // costs 105 ns, otherwise 130 (`benches/runs`). Without space the segment takes the
        // long path, which parks it.
        let payload = packet.payload(frame.data);
        let Some(sum) = copy_next(flow, &slot.region, conn, payload, true, posted) else { return false };
        counters.rx_segments += 1;
        if !trusted && !sums_right(predicted.map_or_else(|| packet.header_sum(frame.data), |hit| hit.header_sum), sum) {
            self.count_corrupt(conn, frame, packet);
            return true;
        }
        keep_next(flow, conn, len, posted);
        received_in_order(flow, seq + len);
        counters.rx_fast += 1;
        counters.rx_unsummed += u64::from(unsummed);
        counters.rx_predicted += u64::from(predicted.is_some());
        counters.rx_placed_bytes += u64::from(len);
        run.lengthen(len, flow.rx.rcv_nxt, flow.posted_edge(), push);
        flow.rx.posted_told = run.posted;
        true
    }
}

/// Nothing is missing and the promised window reaches to `end`.
#[inline]
fn is_open(flow: &Flow, end: baton_wire::seq::Seq) -> bool {
    flow.rx.ranges.is_none() && end.before_eq(flow.rx.right_edge)
}

impl SegmentEvent {
    /// True if the run is of whole segments, none shorter than `len` bytes, and may grow
    /// by one.
    #[inline]
    fn continues(&self, len: u32) -> bool {
        let size = u32::from(self.size);
        len <= size && self.len == size * u32::from(self.count) && self.count < u16::MAX
    }

    /// True if a segment of the same flags says the same of acknowledgment, window and time.
    #[inline]
    fn agrees(&self, packet: &Packet) -> bool {
        let timestamps = match packet.timestamps {
            Some(ts) => self.bits & Self::HAS_TS != 0 && (ts.val, ts.ecr) == (self.ts_val, self.ts_ecr),
            None => self.bits & Self::HAS_TS == 0,
        };
        packet.ack == self.ack && packet.window == self.wnd && timestamps
    }
}
