//! Data that arrived ahead of its turn: ranges already placed behind a gap, and
//! payload that is parked until it may be placed.
//!
//! ```text
//!      rcv_nxt        range            range              right_edge
//!  -------|------------[####]---[######]----------------------|----
//!   placed     gap                              parked: known, not placed
//! ```
//!
//! Both lists are bounded, and boxed only while there is something to hold.

use crate::command::{MAX_RANGES, PLACE_RANGES};
use crate::segment::ParkId;
use baton_wire::seq::Seq;
use baton_wire::tcp::SackBlocks;

/// Payloads held of one connection. Beyond this the one farthest ahead is
/// dropped, so that what comes next is never lost to what comes later.
pub(crate) const MAX_PARKED: usize = 12;

/// Payload that waits in the reassembly area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parked {
    pub id: ParkId,
    /// Sequence number of the first byte of the parked payload.
    pub seq: Seq,
    /// First byte that may be placed (what lies before was old on arrival).
    pub start: Seq,
    /// Just past the last byte that may be placed.
    pub end: Seq,
}

/// Ranges placed beyond RCV.NXT, and parked payload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    /// Disjoint, none touching another, the most recently changed first
    /// (RFC 2018 §4).
    ranges: Vec<(Seq, Seq)>,
    parked: Vec<Parked>,
}

impl Reassembly {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.parked.is_empty()
    }

    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Notes `[start, end)` as placed, joined with what it overlaps or touches.
    pub fn add_range(&mut self, mut start: Seq, mut end: Seq) {
        self.ranges.retain(|&(s, e)| {
            let joined = s.before_eq(end) && e.after_eq(start);
            if joined {
                start = start.earliest(s);
                end = end.latest(e);
            }
            !joined
        });
        // The Streamer has no more, and so none of its is ever forgotten here.
        self.ranges.truncate(MAX_RANGES - 1);
        self.ranges.insert(0, (start, end));
    }

    /// `rcv_nxt` after it has passed over every range that it reaches.
    pub fn advance(&mut self, mut rcv_nxt: Seq) -> Seq {
        loop {
            let mut moved = false;
            self.ranges.retain(|&(s, e)| {
                if s.after(rcv_nxt) {
                    return true;
                }
                if e.after(rcv_nxt) {
                    rcv_nxt = e;
                    moved = true;
                }
                false
            });
            if !moved {
                return rcv_nxt;
            }
        }
    }

    /// The lowest part of `[start, end)` that lies in a range.
    pub fn overlap(&self, start: Seq, end: Seq) -> Option<(Seq, Seq)> {
        let parts = self.ranges.iter().map(|&(s, e)| (s.latest(start), e.earliest(end)));
        parts.filter(|(s, e)| s.before(*e)).reduce(|low, part| if part.0.before(low.0) { part } else { low })
    }

    /// SACK blocks: `dsack` first (RFC 2883 §4), then the ranges, the most
    /// recent first, `most` in all.
    pub fn sack_blocks(&self, blocks: &mut SackBlocks, most: usize) {
        for &(start, end) in &self.ranges {
            if blocks.len() >= most || !blocks.push(start, end) {
                return;
            }
        }
    }

    /// Holds `parked`; gives back the farthest if there are too many.
    pub fn park(&mut self, parked: Parked) -> Option<ParkId> {
        self.parked.push(parked);
        if self.parked.len() <= MAX_PARKED {
            return None;
        }
        let farthest = (0..self.parked.len())
            .reduce(|best, i| if self.parked[i].start.after(self.parked[best].start) { i } else { best })?;
        Some(self.parked.remove(farthest).id)
    }

    /// Holds what is left of a payload that was taken out.
    pub fn put_back(&mut self, parked: Parked) {
        self.parked.push(parked);
    }

    /// True if one parked payload has all of `[start, end)`.
    pub fn holds(&self, start: Seq, end: Seq) -> bool {
        self.parked.iter().any(|p| p.start.before_eq(start) && p.end.after_eq(end))
    }

    /// How far parked payloads reach from `seq` on without a gap.
    pub fn held_from(&self, mut seq: Seq) -> Seq {
        while let Some(next) = self.parked.iter().find(|p| p.start.before_eq(seq) && p.end.after(seq)) {
            seq = next.end;
        }
        seq
    }

    /// Takes out a parked payload that now starts before `limit`, the lowest first,
    /// so that what is in order is placed before what is not. With many ranges, what
    /// is not must wait: the Streamer may have no place for one more.
    pub fn take_before(&mut self, limit: Seq, rcv_nxt: Seq) -> Option<Parked> {
        let lowest = (0..self.parked.len())
            .reduce(|best, i| if self.parked[i].start.before(self.parked[best].start) { i } else { best })?;
        let start = self.parked[lowest].start;
        let due = start.before_eq(rcv_nxt) || self.ranges.len() < PLACE_RANGES;
        (due && start.before(limit)).then(|| self.parked.remove(lowest))
    }

    /// Takes out any parked payload.
    pub fn take_any(&mut self) -> Option<ParkId> {
        self.parked.pop().map(|parked| parked.id)
    }

    pub fn parked(&self) -> usize {
        self.parked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(r: &Reassembly, most: usize) -> Vec<(u32, u32)> {
        let mut blocks = SackBlocks::new();
        r.sack_blocks(&mut blocks, most);
        blocks.as_slice().iter().map(|&(s, e)| (s.0, e.0)).collect()
    }

    #[test]
    fn the_most_recent_range_comes_first() {
        let mut r = Reassembly::default();
        r.add_range(Seq(100), Seq(200));
        r.add_range(Seq(300), Seq(400));
        r.add_range(Seq(500), Seq(600));
        assert_eq!(blocks(&r, 3), [(500, 600), (300, 400), (100, 200)]);
        r.add_range(Seq(200), Seq(250));
        assert_eq!(blocks(&r, 3), [(100, 250), (500, 600), (300, 400)]);
        assert_eq!(blocks(&r, 2), [(100, 250), (500, 600)]);
    }

    #[test]
    fn parked_is_bounded_and_comes_out_lowest_first() {
        let mut r = Reassembly::default();
        for i in 0..MAX_PARKED as u32 {
            let seq = Seq(1000 - i * 10);
            assert_eq!(r.park(Parked { id: ParkId(i), seq, start: seq, end: seq + 10 }), None);
        }
        let seq = Seq(2000);
        assert_eq!(r.park(Parked { id: ParkId(99), seq, start: seq, end: seq + 10 }), Some(ParkId(99)));
        let seq = Seq(100);
        assert_eq!(r.park(Parked { id: ParkId(99), seq, start: seq, end: seq + 10 }), Some(ParkId(0)));
        assert_eq!(r.take_before(Seq(500), Seq(0)).map(|p| p.id), Some(ParkId(99)));
        assert_eq!(r.take_before(Seq(1000), Seq(0)).map(|p| p.id), Some(ParkId(MAX_PARKED as u32 - 1)));
        assert_eq!(r.take_before(Seq(500), Seq(0)), None);
    }

    proptest! {
        /// Against a set of single bytes, on both sides of the wrap.
        #[test]
        fn ranges_are_the_set_of_bytes(adds in prop::collection::vec((0u32..200, 1u32..20), 1..40), from in 0u32..200) {
            let base = Seq(u32::MAX - 100);
            let mut r = Reassembly::default();
            let mut bytes = [false; 256];
            for (start, len) in adds {
                r.add_range(base + start, base + start + len);
                bytes[start as usize..(start + len) as usize].fill(true);
            }
            for (i, &byte) in bytes.iter().enumerate() {
                let at = base + i as u32;
                prop_assert_eq!(byte, r.ranges.iter().any(|&(s, e)| at.within(s, e)));
            }
            let runs = (0..256).filter(|&i| bytes[i] && (i == 0 || !bytes[i - 1])).count();
            prop_assert_eq!(r.ranges.len(), runs, "ranges that touch are one");
            let mut expected = from as usize;
            while bytes[expected] { expected += 1; }
            prop_assert_eq!(r.advance(base + from), base + expected as u32);
        }
    }
}
