//! Placing: puts payload at its final position in the consumer's buffers, only over bytes not
//! yet received, copied and summed in one pass (LC §3.3.1, LA §4).
//!
//! ```text
//!   rcv_pos            rq_limit
//!   ---|####....####......|--------      # placed out of order   . not yet received
//!      payload goes where its sequence number says, `ahead` bytes past rcv_nxt
//! ```

use super::context::{Flow, bits};
use super::marks::mark_told;
use super::posted_unsafe::Posted;
use super::{ConnId, Streamer};
use crate::ranges::Outcome;
use crate::region::{EngineRegion, Events};
use baton_tcp::command::{MAX_RANGES, PLACE_RANGES};
use baton_wire::checksum;
use baton_wire::seq::Seq;

/// The most ranges that the fast path makes; the rest are for payload that the TCE places.
pub(super) const FAST_RANGES: usize = MAX_RANGES - PLACE_RANGES;

/// The fate of payload that was to be placed.
pub(super) enum Placing {
    /// It is in place; this many bytes were new.
    Done(u32),
    /// Posted buffers do not reach that far.
    NoBuffer,
    /// The checksum is wrong: nothing counts as received.
    Corrupt,
    /// Too many holes: the out-of-order list is full.
    TooManyRanges,
}

impl Streamer {
    /// Puts payload whose first byte is `seq` at its final position: only over
    /// bytes that were not received yet, and only if that makes no more than `limit` ranges ahead of `rcv_nxt`.
    #[inline]
    pub(super) fn place(
        &mut self,
        conn: ConnId,
        seq: Seq,
        payload: &[u8],
        header_sum: Option<u32>,
        limit: usize,
    ) -> Placing {
        let Streamer { flows, consumers, counters, touched, posted, .. } = self;
        let flow = &mut flows[conn.0];
        let len = payload.len() as u32;
        let ahead = seq.since(flow.rx.rcv_nxt);
        let end = seq + len;
        let untouched = ahead >= 0
            && match &flow.rx.ranges {
                None => true,
                Some(ranges) => ranges.is_new(seq, end),
            };
        if !untouched {
            return self.place_overlapping(conn, seq, payload, header_sum, limit);
        }
        let Some(Some(slot)) = consumers.get(usize::from(flow.consumer)) else { return Placing::NoBuffer };
        let sums = header_sum.is_some();
        let sum = match ahead {
            0 => copy_next(flow, &slot.region, conn, payload, sums, posted),
            _ => copy_in(flow, &slot.region, ahead as u32, payload, sums),
        };
        let Some(sum) = sum else { return Placing::NoBuffer };
        if header_sum.is_some_and(|header| !sums_right(header, sum)) {
            return Placing::Corrupt;
        }
        if ahead > 0 {
            if !note_range(flow, seq, end, limit) {
                return Placing::TooManyRanges;
            }
            counters.rx_out_of_order += 1;
        } else {
            keep_next(flow, conn, len, posted);
            received_in_order(flow, end);
            touch(flow, conn, touched);
        }
        counters.rx_placed_bytes += u64::from(len);
        Placing::Done(len)
    }

    /// The rare case: part of the payload was received before. The checksum is
    /// verified first, then only the new pieces are copied.
    fn place_overlapping(
        &mut self,
        conn: ConnId,
        seq: Seq,
        payload: &[u8],
        header_sum: Option<u32>,
        limit: usize,
    ) -> Placing {
        if header_sum.is_some_and(|header| !sums_right(header, checksum::sum(payload))) {
            return Placing::Corrupt;
        }
        let flow = &self.flows[conn.0];
        let rcv_nxt = flow.rx.rcv_nxt;
        let start = seq.latest(rcv_nxt);
        let end = seq + payload.len() as u32;
        if end.before_eq(rcv_nxt) {
            self.counters.rx_duplicate += 1;
            return Placing::Done(0);
        }
        let mut gaps = std::mem::take(&mut self.gaps);
        gaps.clear();
        match &flow.rx.ranges {
            None => gaps.push((start, end)),
            Some(ranges) => ranges.gaps(start, end, |from, to| gaps.push((from, to))),
        }
        let Streamer { flows, consumers, counters, touched, .. } = self;
        let flow = &mut flows[conn.0];
        let Some(Some(slot)) = consumers.get(usize::from(flow.consumer)) else { return Placing::NoBuffer };
        let mut new_bytes = 0;
        for &(from, to) in &gaps {
            let at = from.since(seq) as usize;
            let len = to.since(from) as usize;
            let ahead = from.since(rcv_nxt) as u32;
            if copy_in(flow, &slot.region, ahead, &payload[at..at + len], false).is_none() {
                return Placing::NoBuffer;
            }
            new_bytes += len as u32;
        }
        if new_bytes == 0 {
            counters.rx_duplicate += 1;
        } else if start == rcv_nxt {
            received_in_order(flow, end);
            touch(flow, conn, touched);
        } else if !note_range(flow, start, end, limit) {
            return Placing::TooManyRanges;
        }
        counters.rx_placed_bytes += u64::from(new_bytes);
        self.gaps = gaps;
        Placing::Done(new_bytes)
    }

    /// Writes one completion for each connection and burst: how far its stream reaches now.
    pub(super) fn publish_received(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.touched);
        for conn in touched.drain(..) {
            let flow = &mut self.flows[conn.0];
            flow.bits &= !bits::TOUCHED;
            if flow.has(bits::MARKED_IN) {
                mark_told(&mut self.marks, conn, flow);
            }
            if flow.has(bits::ATTACHED)
                && let Some(Some(slot)) = self.consumers.get_mut(usize::from(flow.consumer))
            {
                let qp = slot.region.qp(flow.qp);
                // Moved before the consumer may use the slots again; each extent is read once.
                flow.rx.cursor.seek(flow.rx.rcv_pos, flow.rx.rq_tail, |index| qp.rq_extent(index));
                if let Some(record) = self.ledger.as_ref().and_then(|ledger| ledger.record(conn)) {
                    record.set_received(&flow.received());
                    record.set_edge(&flow.received());
                }
                qp.set_rcv_done(flow.rx.rcv_pos);
                qp.raise(Events::RECV);
            }
        }
        self.touched = touched;
    }

    /// Notes that a connection's consumer is owed a completion.
    pub(super) fn touch(&mut self, conn: ConnId) {
        let Streamer { flows, touched, .. } = self;
        touch(&mut flows[conn.0], conn, touched);
    }

    /// Places parked payload as the TCE ordered; true if all of it was placed.
    pub(super) fn place_parked(&mut self, conn: ConnId, seq: Seq, payload: &[u8]) -> bool {
        matches!(self.place(conn, seq, payload, None, MAX_RANGES), Placing::Done(_))
    }
}

/// Copies `payload` to the consumer's buffers, `ahead` bytes past `rcv_nxt`; returns its sum if
/// asked for (else 0), or `None` if the buffers do not reach that far.
#[inline]
pub(super) fn copy_in(flow: &mut Flow, region: &EngineRegion, ahead: u32, payload: &[u8], sum: bool) -> Option<u32> {
    let rx = &mut flow.rx;
    let pos = rx.rcv_pos + u64::from(ahead);
    if pos + payload.len() as u64 > rx.rq_limit {
        return None;
    }
    let qp = region.qp(flow.qp);
    let (tail, read) = (rx.rq_tail, |index| qp.rq_extent(index));
    if !rx.cursor.seek(rx.rcv_pos, tail, read) {
        return None;
    }
    let at = pos - rx.cursor.start;
    if at + payload.len() as u64 <= u64::from(rx.cursor.extent.len()) {
        let place = rx.cursor.extent.part(at as u32, payload.len() as u32);
        if sum {
            return Some(region.copy_in_sum(place, payload));
        }
        region.copy_in(place, payload);
        return Some(0);
    }
    let mut cursor = rx.cursor;
    let (mut done, mut total) = (0, 0);
    while done < payload.len() {
        let at = pos + done as u64;
        if !cursor.seek(at, tail, read) {
            return None;
        }
        let piece = &payload[done..payload.len().min(done + (cursor.end() - at) as usize)];
        let place = cursor.extent.part((at - cursor.start) as u32, piece.len() as u32);
        if sum {
            total = checksum::combine(total, done, region.copy_in_sum(place, piece));
        } else {
            region.copy_in(place, piece);
        }
        done += piece.len();
    }
    Some(total)
}

/// As [`copy_in`], at `rcv_nxt`: what fits into the buffer of a call that waits for it goes there.
#[inline]
pub(super) fn copy_next(
    flow: &mut Flow,
    region: &EngineRegion,
    conn: ConnId,
    payload: &[u8],
    sum: bool,
    posted: &mut Option<Posted>,
) -> Option<u32> {
    match posted {
        Some(posted) if posted.room(conn, flow.rx.rcv_pos) > 0 => copy_posted(flow, region, conn, payload, sum, posted),
        _ => copy_in(flow, region, 0, payload, sum),
    }
}

fn copy_posted(
    flow: &mut Flow,
    region: &EngineRegion,
    conn: ConnId,
    payload: &[u8],
    sum: bool,
    posted: &mut Posted,
) -> Option<u32> {
    let position = flow.rx.rcv_pos;
    // The queue pair's own buffer is what was promised to the peer, even if the bytes go elsewhere.
    if position + payload.len() as u64 > flow.rx.rq_limit {
        return None;
    }
    let (first, rest) = payload.split_at(payload.len().min(posted.room(conn, position)));
    let total = posted.copy(first, sum);
    if rest.is_empty() {
        return Some(total);
    }
    let rest = copy_in(flow, region, first.len() as u32, rest, sum)?;
    Some(if sum { checksum::combine(total, first.len(), rest) } else { 0 })
}

/// The next `len` bytes of a connection are right. To be called before it moves on.
#[inline]
pub(super) fn keep_next(flow: &Flow, conn: ConnId, len: u32, posted: &mut Option<Posted>) {
    if let Some(posted) = posted
        && posted.room(conn, flow.rx.rcv_pos) > 0
    {
        posted.keep(len as usize);
    }
}

/// All bytes before `end` are in place: the stream moves on, over what came out
/// of order before.
#[inline]
pub(super) fn received_in_order(flow: &mut Flow, end: Seq) {
    let rx = &mut flow.rx;
    let mut next = end;
    if let Some(ranges) = &mut rx.ranges {
        next = ranges.advance(end);
        if ranges.is_empty() {
            rx.ranges = None;
        }
    }
    rx.rcv_pos += u64::from(next.since(rx.rcv_nxt) as u32);
    rx.rcv_nxt = next;
}

/// Remembers that the consumer is owed a completion for this burst.
#[inline]
fn touch(flow: &mut Flow, conn: ConnId, touched: &mut Vec<ConnId>) {
    if flow.bits & bits::TOUCHED == 0 {
        flow.bits |= bits::TOUCHED;
        touched.push(conn);
    }
}

fn note_range(flow: &mut Flow, start: Seq, end: Seq, limit: usize) -> bool {
    let ranges = flow.rx.ranges.get_or_insert_with(Box::default);
    !matches!(ranges.insert_within(limit, start, end, |_, _| {}), Outcome::Full)
}

/// True if a segment's header sum and payload sum come to what a right checksum
/// makes of them.
#[inline]
pub(super) fn sums_right(header: u32, payload: u32) -> bool {
    checksum::fold(header + payload) == 0xffff
}
