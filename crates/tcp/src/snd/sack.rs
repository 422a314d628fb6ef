//! SACK blocks onto the scoreboard (RFC 2018 §4, RFC 6675 §3), D-SACK (RFC 2883 §4).

use super::Sender;
use super::ack::{AckInput, Tally};
use super::flight::{LOST, RETRANSMITTED, SACKED};
use super::rack::Delivered;
use crate::time::Instant;
use baton_wire::seq::Seq;
use baton_wire::tcp::SackBlocks;

/// The blocks of one acknowledgment that may be believed.
#[derive(Default)]
pub(super) struct Blocks {
    /// In ascending order.
    list: [(Seq, Seq); SackBlocks::MAX],
    len: usize,
    /// Data that the peer received twice.
    pub dsack: Option<(Seq, Seq)>,
}

impl Blocks {
    fn add(&mut self, start: Seq, end: Seq) {
        let mut at = self.len;
        while at > 0 && start.before(self.list[at - 1].0) {
            self.list[at] = self.list[at - 1];
            at -= 1;
        }
        self.list[at] = (start, end);
        self.len += 1;
    }
}

impl Sender {
    /// Sorts out the blocks: a block must be a range within `snd_una` and `snd_nxt`
    /// (what lies below is old, what lies above is a lie), or a D-SACK.
    pub(super) fn read_blocks(&self, a: &AckInput<'_>) -> Blocks {
        let mut blocks = Blocks::default();
        let given = a.sack.as_slice();
        for (i, &(start, end)) in given.iter().enumerate() {
            if !start.before(end) {
                continue;
            }
            // RFC 2883 §4: the first block, at or below the cumulative ACK or inside
            // the second block.
            let inside_second = given.get(1).is_some_and(|&(s, e)| start.after_eq(s) && end.before_eq(e));
            if i == 0 && (end.before_eq(a.ack) || inside_second) {
                blocks.dsack = (end.before_eq(self.snd_nxt)).then_some((start, end));
            } else if start.after_eq(self.snd_una) && end.before_eq(self.snd_nxt) {
                blocks.add(start, end);
            }
        }
        blocks
    }

    /// Marks what the blocks cover. Data is counted as delivered once.
    pub(super) fn mark_sacked(&mut self, now: Instant, blocks: &Blocks, tally: &mut Tally) {
        let mut index = 0;
        let mut start = self.snd_una;
        for &(from, to) in &blocks.list[..blocks.len] {
            while let Some(burst) = self.flight.get(index) {
                if start.after_eq(to) {
                    break;
                }
                if burst.end.before_eq(from) || burst.has(SACKED) {
                    start = burst.end;
                    index += 1;
                    continue;
                }
                let cuts = u8::from(start.before(from)) + u8::from(burst.end.after(to));
                if cuts > 0 && self.flight.is_full() {
                    // No record to be had: the peer's advice on part of a burst is
                    // not taken (RFC 2018 §8 leaves us free to).
                    start = burst.end;
                    index += 1;
                    continue;
                }
                if start.before(from) {
                    self.flight.split(index, from);
                    start = from;
                    index += 1;
                    continue;
                }
                if burst.end.after(to) {
                    self.flight.split(index, to);
                }
                start = self.mark_one(now, index, start, tally);
                if !self.flight.join_sacked(index) {
                    index += 1;
                }
            }
        }
    }

    /// Marks the record at `index`, which begins at `start`; returns its end.
    fn mark_one(&mut self, now: Instant, index: usize, start: Seq, tally: &mut Tally) -> Seq {
        let Some(burst) = self.flight.get_mut(index) else { return start };
        let before = *burst;
        burst.marks = (burst.marks | SACKED) & !LOST;
        let bytes = before.end.0.wrapping_sub(start.0);
        self.sacked += bytes;
        if before.has(LOST) {
            self.lost -= bytes;
        }
        tally.delivered += bytes;
        tally.newly_sacked += bytes;
        if !before.has(RETRANSMITTED) {
            tally.original += bytes;
        }
        // TSecr tells nothing here: the peer does not echo what is out of order (RFC
        // 7323 §4.3).
        let maybe_first = self.in_frto();
        let delivered = Delivered { burst: before, end: before.end, maybe_first };
        self.rack.on_delivered(now, &delivered, self.rtt.min());
        before.end
    }
}
