//! Header prediction in the Streamer (LA §3.2): the next segment of a run.
//!
//! Within a burst, a frame whose headers are those of the segment before it but
//! for the sequence number is the next piece of the same run. Its connection,
//! its flags, its acknowledgment and its timestamps were validated with its
//! predecessor's, and nothing was decided in between: orders are carried out
//! between bursts. What is left is to place it and to lengthen the run.

use super::context::Flow;
use super::place::{copy_in, received_in_order, sums_right};
use super::{ConnId, Streamer};
use crate::event::SegmentEvent;
use crate::frame_io::RxFrame;
use baton_wire::packet::Packet;
use baton_wire::predict::HeaderPrediction;

/// What the next frame of a burst may be.
pub(super) struct Prediction {
    conn: ConnId,
    header: HeaderPrediction,
    payload_offset: usize,
    payload_len: u32,
}

impl Streamer {
    /// Predicts the next frame from one that became, or joined, the run at hand.
    #[inline]
    pub(super) fn predict(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet) {
        self.prediction = None;
        // A run of two is the sign of more; making a prediction costs half a parse.
        let whole = self
            .run
            .as_ref()
            .is_some_and(|run| run.conn == conn && run.count >= 2 && continues(run, packet.payload_len));
        if whole && self.config.header_prediction && frame.meta.gso_size == 0 && self.capabilities.ethernet {
            self.prediction = HeaderPrediction::new(frame.data, packet).map(|header| Prediction {
                conn,
                header,
                payload_offset: usize::from(packet.payload_offset),
                payload_len: packet.payload_len,
            });
        }
    }

    /// Takes a frame that is as predicted; false if it is to go the long way.
    #[inline]
    pub(super) fn take_predicted(&mut self, frame: &RxFrame<'_>) -> bool {
        let Streamer { prediction: Some(prediction), run: Some(run), flows, consumers, counters, .. } = self else {
            return false;
        };
        let Some(hit) = prediction.header.matches(frame.data) else { return false };
        let flow = &mut flows[prediction.conn.0];
        let len = prediction.payload_len;
        let next = hit.seq == flow.rx.rcv_nxt && hit.seq == run.seq + run.len;
        if !next || !is_open(flow, hit.seq + len) || !continues(run, len) || frame.meta.gso_size != 0 {
            return false;
        }
        let Some(Some(slot)) = consumers.get(usize::from(flow.consumer)) else { return false };
        let payload = &frame.data[prediction.payload_offset..prediction.payload_offset + len as usize];
        let summed = !frame.meta.checksum_verified;
        // Without room it goes the long way, which parks it.
        let Some(sum) = copy_in(flow, &slot.region, 0, payload, summed) else { return false };
        counters.rx_frames += 1;
        counters.rx_bytes += frame.data.len() as u64;
        counters.rx_segments += 1;
        if summed && !sums_right(hit.header_sum, sum) {
            counters.drop_tcp_checksum += 1;
            return true;
        }
        received_in_order(flow, hit.seq + len);
        counters.rx_fast += 1;
        counters.rx_predicted += 1;
        counters.rx_placed_bytes += u64::from(len);
        run.lengthen(len, flow.rx.rcv_nxt, flow.posted_edge(), hit.push);
        flow.rx.posted_told = run.posted;
        true
    }
}

/// Nothing is missing and the promised window reaches to `end`.
#[inline]
fn is_open(flow: &Flow, end: baton_wire::seq::Seq) -> bool {
    flow.rx.ranges.is_none() && end.before_eq(flow.rx.right_edge)
}

/// True if the run is of whole segments of `len` bytes and may grow by one.
#[inline]
fn continues(run: &SegmentEvent, len: u32) -> bool {
    u32::from(run.size) == len && run.len == len * u32::from(run.count) && run.count < u16::MAX
}
