//! The flight: what was sent and is not acknowledged, as a list of bursts.
//!
//! A burst is what one transmit report covered, not a segment, so bulk data costs
//! one record for dozens of segments. A record is split where a SACK block or a
//! retransmission ends inside it. The list is gapless and ordered; it is the SACK
//! scoreboard too (RFC 6675 §3).
//!
//! ```text
//!   snd_una       end            end                end = snd_nxt
//!      |  burst 0  |   burst 1    |     burst 2      |
//!      |   LOST    |   SACKED     |                  |
//! ```
//!
//! Two records stand inline; more spill to the heap until the flight drains. There
//! are never more than [`MAX_BURSTS`]: see [`Flight::make_room`].

use crate::time::Instant;
use baton_wire::seq::Seq;
use std::collections::VecDeque;

/// Most records of one connection (16 KiB of them).
pub(crate) const MAX_BURSTS: usize = 1024;

/// A flight of this many records need not tell moments apart that are close
/// together: with a quantum of a 64th of the round trip it stays below 128 records
/// however small the bursts are.
const LONG: usize = 64;

/// The receiver reported the bytes as arrived (RFC 2018 §3).
pub(crate) const SACKED: u8 = 1;
/// The bytes are deemed to have left the network undelivered; not in pipe.
pub(crate) const LOST: u8 = 2;
/// The bytes were sent more than once.
pub(crate) const RETRANSMITTED: u8 = 4;

/// Bytes sent together. The first is where the burst before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Burst {
    /// When they were last sent.
    pub sent_at: Instant,
    /// Just past the last byte.
    pub end: Seq,
    /// [`SACKED`], [`LOST`], [`RETRANSMITTED`].
    pub marks: u8,
}

impl Burst {
    pub(crate) fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }
}

/// The list of bursts between `snd_una` and `snd_nxt`.
#[derive(Clone, Debug)]
pub(crate) enum Flight {
    /// Up to two records.
    Inline { bursts: [Burst; 2], len: u8 },
    /// Any number.
    Spilled(VecDeque<Burst>),
}

impl Default for Flight {
    fn default() -> Flight {
        Flight::Inline { bursts: [Burst::default(); 2], len: 0 }
    }
}

impl Flight {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Flight::Inline { len, .. } => usize::from(*len),
            Flight::Spilled(list) => list.len(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<Burst> {
        match self {
            Flight::Inline { bursts, len } => bursts[..usize::from(*len)].get(index).copied(),
            Flight::Spilled(list) => list.get(index).copied(),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Burst> {
        match self {
            Flight::Inline { bursts, len } => bursts[..usize::from(*len)].get_mut(index),
            Flight::Spilled(list) => list.get_mut(index),
        }
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<Burst> {
        self.get(0)
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut Burst> {
        self.get_mut(self.len().wrapping_sub(1))
    }

    /// Each record, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Burst> {
        let (a, b) = match self {
            Flight::Inline { bursts, len } => (&bursts[..usize::from(*len)], &[][..]),
            Flight::Spilled(list) => list.as_slices(),
        };
        a.iter().chain(b)
    }

    /// Each record, oldest first, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Burst> {
        let (a, b) = match self {
            Flight::Inline { bursts, len } => (&mut bursts[..usize::from(*len)], &mut [][..]),
            Flight::Spilled(list) => list.as_mut_slices(),
        };
        a.iter_mut().chain(b)
    }

    /// Adds a burst at the end. One with the marks and the time of the last one
    /// joins it; in a long flight, so does one sent within `quantum` ns of it.
    #[inline]
    pub(crate) fn push(&mut self, burst: Burst, quantum: u64) {
        let long = self.len() >= LONG;
        if let Some(back) = self.back_mut()
            && back.marks == burst.marks
            && (back.sent_at == burst.sent_at || (long && burst.sent_at.since(back.sent_at).0 < quantum))
        {
            back.end = burst.end;
            return;
        }
        match self {
            Flight::Inline { bursts, len } if *len < 2 => {
                bursts[usize::from(*len)] = burst;
                *len += 1;
            }
            _ => {
                let end = self.len();
                self.insert(end, burst);
            }
        }
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) {
        match self {
            Flight::Inline { bursts, len } => {
                bursts[0] = bursts[1];
                *len = len.saturating_sub(1);
            }
            Flight::Spilled(list) => {
                list.pop_front();
                if list.is_empty() {
                    *self = Flight::default();
                }
            }
        }
    }

    /// Puts a record before the one at `index`.
    pub(crate) fn insert(&mut self, index: usize, burst: Burst) {
        if let Flight::Inline { bursts, len } = self {
            let mut list = VecDeque::with_capacity(8);
            list.extend(&bursts[..usize::from(*len)]);
            *self = Flight::Spilled(list);
        }
        if let Flight::Spilled(list) = self {
            list.insert(index, burst);
        }
    }

    /// Cuts the record at `index` in two at `at`, which lies inside it.
    pub(crate) fn split(&mut self, index: usize, at: Seq) {
        if let Some(burst) = self.get_mut(index) {
            let whole = *burst;
            burst.end = at;
            self.insert(index + 1, whole);
        }
    }

    /// Joins the record at `index` with the one before it if both are SACKED: only that mark
    /// still matters. True if so.
    pub(crate) fn join_sacked(&mut self, index: usize) -> bool {
        let Flight::Spilled(list) = self else { return false };
        if index == 0 || index >= list.len() || !list[index].has(SACKED) || !list[index - 1].has(SACKED) {
            return false;
        }
        list[index - 1].end = list[index].end;
        list.remove(index);
        true
    }

    /// True if no record can be added without [`Flight::make_room`].
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= MAX_BURSTS
    }

    /// Coarsens the list when it is full, to at most three quarters: pairs of
    /// neighbours with equal marks become one, with the later time (so that they are
    /// deemed lost later rather than earlier). If that is not enough, SACK and loss
    /// marks of the upper three quarters are forgotten, which RFC 2018 §8 allows:
    /// SACK is advice. Returns true if marks were forgotten.
    pub(crate) fn make_room(&mut self) -> bool {
        self.join_pairs();
        if self.len() <= MAX_BURSTS * 3 / 4 {
            return false;
        }
        for burst in self.iter_mut().skip(MAX_BURSTS / 4) {
            burst.marks = RETRANSMITTED;
        }
        self.join_pairs();
        true
    }

    fn join_pairs(&mut self) {
        let Flight::Spilled(list) = self else { return };
        let mut kept: VecDeque<Burst> = VecDeque::with_capacity(list.len());
        let mut joined = true;
        for burst in list.drain(..) {
            match kept.back_mut() {
                Some(last) if !joined && last.marks == burst.marks => {
                    last.end = burst.end;
                    last.sent_at = last.sent_at.max(burst.sent_at);
                    joined = true;
                }
                _ => {
                    kept.push_back(burst);
                    joined = false;
                }
            }
        }
        *list = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(end: u32, at: u64, marks: u8) -> Burst {
        Burst { sent_at: Instant(at), end: Seq(end), marks }
    }

    #[test]
    fn spills_after_two_and_returns_inline_when_drained() {
        let mut flight = Flight::default();
        for i in 1..=5 {
            flight.push(burst(i * 10, u64::from(i), 0), 0);
        }
        assert!(matches!(flight, Flight::Spilled(_)));
        assert_eq!(flight.iter().map(|b| b.end.0).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
        for left in (0..5).rev() {
            flight.pop_front();
            assert_eq!(flight.len(), left);
        }
        assert!(matches!(flight, Flight::Inline { len: 0, .. }));
    }

    #[test]
    fn bursts_of_one_moment_are_one_record() {
        let mut flight = Flight::default();
        flight.push(burst(10, 1, 0), 0);
        flight.push(burst(20, 1, 0), 0);
        flight.push(burst(30, 2, 0), 0);
        assert_eq!(flight.len(), 2);
        assert_eq!(flight.front(), Some(burst(20, 1, 0)));
    }

    #[test]
    fn a_long_flight_joins_what_was_sent_close_together() {
        let mut flight = Flight::default();
        for i in 0..6_400 {
            flight.push(burst(i + 1, u64::from(i) * 10, 0), 1_000);
        }
        assert!((64..=128).contains(&flight.len()), "{}", flight.len());
        assert_eq!(flight.get(70).map(|b| b.sent_at), Some(Instant(64 * 10 - 10 + 7 * 1_000)));
    }

    #[test]
    fn split_and_join_keep_the_range() {
        let mut flight = Flight::default();
        flight.push(burst(100, 1, 0), 0);
        flight.split(0, Seq(40));
        flight.split(1, Seq(70));
        assert_eq!(flight.iter().map(|b| b.end.0).collect::<Vec<_>>(), [40, 70, 100]);
        for b in flight.iter_mut().skip(1) {
            b.marks |= SACKED;
        }
        assert!(!flight.join_sacked(1) && flight.join_sacked(2));
        assert_eq!(flight.iter().map(|b| b.end.0).collect::<Vec<_>>(), [40, 100]);
    }

    #[test]
    fn making_room_shortens_the_list_even_if_marks_alternate() {
        let mut flight = Flight::default();
        for i in 0..MAX_BURSTS as u32 {
            flight.push(burst((i + 1) * 10, u64::from(i), 0), 0);
        }
        assert!(!flight.make_room() && flight.len() == MAX_BURSTS / 2, "equal marks join and none is forgotten");
        let mut flight = Flight::default();
        for i in 0..MAX_BURSTS as u32 {
            flight.push(burst((i + 1) * 10, u64::from(i), if i % 2 == 0 { SACKED } else { LOST }), 0);
        }
        assert!(flight.is_full() && flight.make_room());
        assert!(flight.len() <= MAX_BURSTS * 3 / 4);
        assert_eq!(flight.back_mut().map(|b| b.end), Some(Seq(MAX_BURSTS as u32 * 10)));
    }
}
