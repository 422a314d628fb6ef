//! The acknowledgments that a receiver sends for what it gets.
//!
//! It answers every second segment in order, and at once each that is not (RFC 5681 §4.2, Linux
//! `__tcp_ack_snd_check`); PSH is no reason. A receiver behind a coalescer gets runs: one of two segments or
//! more is answered at once, and by one ACK.
//!
//! Its timer is left out: it would answer a last segment that has no second, with and without coalescing.

use baton_wire::seq::Seq;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Acknowledgments of the same segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acks {
    /// For segments as they came.
    pub without: u64,
    /// For the runs that they became.
    pub with: u64,
    /// Frames that a driver makes of these if they are templates (RA §4, [`Unacked`](baton_coalesce::Unacked)): for
    /// every second segment, and the template itself.
    pub expanded: u64,
}

impl AddAssign for Acks {
    fn add_assign(&mut self, other: Acks) {
        self.without += other.without;
        self.with += other.with;
        self.expanded += other.expanded;
    }
}

/// A receiver's knowledge of one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Receiver {
    /// The next sequence number, once a segment has come.
    next: Option<Seq>,
    /// The bytes that have come behind a gap: where they begin and end.
    beyond: Option<(Seq, Seq)>,
    /// A segment, or a run of one, waits for a second.
    waits: bool,
    waits_in_runs: bool,
}

impl Receiver {
    /// Segments that follow each other come, from sequence number `first` to before `end`. Returns how many
    /// acknowledgments they get. Of several gaps only the first is followed; the others count as filled with it. A
    /// template that fills a gap counts as one frame.
    pub fn take(&mut self, first: Seq, end: Seq, segments: u32) -> Acks {
        let in_order = self.next.is_none_or(|next| first == next);
        if in_order && self.beyond.is_none() {
            self.next = Some(end);
            let all = segments + u32::from(self.waits);
            self.waits = all % 2 == 1;
            let answered = segments >= 2 || self.waits_in_runs;
            let expanded = if answered { (segments + u32::from(self.waits_in_runs)).div_ceil(2) } else { 0 };
            self.waits_in_runs = !answered;
            return Acks { without: (all / 2).into(), with: answered.into(), expanded: expanded.into() };
        }
        (self.waits, self.waits_in_runs) = (false, false);
        if in_order {
            let reached = self.beyond.filter(|(begin, _)| !end.before(*begin));
            self.next = Some(reached.map_or(end, |(_, last)| if last.after(end) { last } else { end }));
            self.beyond = self.beyond.filter(|_| reached.is_none());
        } else if self.next.is_some_and(|next| first.after(next)) {
            let (begin, last) = self.beyond.unwrap_or((first, end));
            self.beyond =
                Some((if first.before(begin) { first } else { begin }, if end.after(last) { end } else { last }));
        }
        Acks { without: segments.into(), with: 1, expanded: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(runs: &[(u32, u32)]) -> Acks {
        let (mut receiver, mut sum) = (Receiver::default(), Acks::default());
        for &(first, segments) in runs {
            sum += receiver.take(Seq(first), Seq(first.wrapping_add(segments * 10)), segments);
        }
        sum
    }

    #[test]
    fn every_second_segment_is_answered_however_they_are_joined() {
        let alone: Vec<_> = (0..1000).map(|n| (n * 10, 1)).collect();
        assert_eq!(all(&alone), Acks { without: 500, with: 500, expanded: 500 });
        let fives: Vec<_> = (0..200).map(|n| (n * 50, 5)).collect();
        assert_eq!(all(&fives), Acks { without: 500, with: 200, expanded: 600 });
        assert_eq!(all(&[(0, 1), (10, 4), (50, 1), (60, 1)]), Acks { without: 3, with: 2, expanded: 4 });
        // Around the end of the circle.
        assert_eq!(all(&[(u32::MAX - 9, 1), (0, 1)]), Acks { without: 1, with: 1, expanded: 1 });
    }

    #[test]
    fn what_is_not_in_order_is_answered_at_once() {
        // A gap, what follows it, what fills it, and then in order again.
        assert_eq!(all(&[(0, 2), (30, 3), (60, 1), (20, 1), (70, 2)]), Acks { without: 7, with: 5, expanded: 5 });
        // A gap that is filled in two steps.
        assert_eq!(all(&[(0, 2), (40, 1), (20, 1), (30, 1), (50, 2)]), Acks { without: 5, with: 5, expanded: 5 });
        // Sent again.
        assert_eq!(all(&[(0, 4), (0, 1), (40, 1), (50, 1)]), Acks { without: 4, with: 3, expanded: 4 });
    }
}
