//! The set of sequence ranges received ahead of `rcv_nxt`.
//!
//! ```text
//!            rcv_nxt
//!   ------------|    [=====)      [==)  [==========)
//!    received   |     range 0      1         2          sorted, never touching
//! ```
//!
//! It is bounded: one range more than `N` is refused, and its bytes count as not received. All
//! positions of a set lie within 2^31 of each other, as a receive window guarantees. The set
//! lies inline; its owner boxes it when the first segment comes out of order, so that a
//! connection in order has none.

use baton_wire::seq::Seq;

/// Result of [`Ranges::insert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All of it had been received before, in the range that is given back; or
    /// the range was empty.
    Duplicate {
        /// First sequence number of the range that holds it.
        start: Seq,
        /// Just past that range.
        end: Seq,
    },
    /// Some of it is new: the range that holds it now (the first SACK block,
    /// RFC 2018 §4).
    Added {
        /// Bytes that had not been received before.
        new_bytes: u32,
        /// First sequence number of the range.
        start: Seq,
        /// Just past it.
        end: Seq,
    },
    /// There are as many ranges as the set holds; nothing changed.
    Full,
}

/// Up to `N` ranges. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Ranges<const N: usize = 64> {
    ranges: [(Seq, Seq); N],
    len: usize,
}

impl<const N: usize> Default for Ranges<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ranges<N> {
    /// The empty set.
    pub const fn new() -> Ranges<N> {
        Ranges { ranges: [(Seq(0), Seq(0)); N], len: 0 }
    }

    /// The ranges as `[start, end)`, in order.
    #[inline]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.ranges[..self.len]
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all ranges.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// True if no byte of `[start, end)` has been received.
    #[inline]
    pub fn is_new(&self, start: Seq, end: Seq) -> bool {
        !self.as_slice().iter().any(|range| range.0.before(end) && start.before(range.1))
    }

    /// The parts of `[start, end)` that have not been received, in order.
    pub fn gaps(&self, start: Seq, end: Seq, mut gap: impl FnMut(Seq, Seq)) {
        let mut told = start;
        for &(from, to) in self.as_slice() {
            if to.before_eq(told) {
                continue;
            }
            if !from.before(end) {
                break;
            }
            if told.before(from) {
                gap(told, from);
            }
            told = told.latest(to);
        }
        if told.before(end) {
            gap(told, end);
        }
    }

    /// Adds `[start, end)` and tells `new` each part of it that had not been
    /// received before, in order. Nothing is told if the outcome is `Full`.
    pub fn insert(&mut self, start: Seq, end: Seq, new: impl FnMut(Seq, Seq)) -> Outcome {
        self.insert_within(N, start, end, new)
    }

    /// As [`Ranges::insert`] into a set that holds only `limit` ranges.
    pub fn insert_within(&mut self, limit: usize, start: Seq, end: Seq, mut new: impl FnMut(Seq, Seq)) -> Outcome {
        if !start.before(end) {
            return Outcome::Duplicate { start, end };
        }
        // ranges[first..last] are those that overlap or touch the new one.
        let ranges = self.as_slice();
        let first = ranges.partition_point(|range| range.1.before(start));
        let last = first + ranges[first..].partition_point(|range| range.0.before_eq(end));
        if first == last && self.len >= limit.min(N) {
            return Outcome::Full;
        }
        let mut new_bytes = 0u32;
        let mut told = start;
        let (mut merged_start, mut merged_end) = (start, end);
        for &(from, to) in &ranges[first..last] {
            if told.before(from) {
                new(told, from);
                new_bytes = new_bytes.wrapping_add(from.since(told) as u32);
            }
            told = told.latest(to);
            merged_start = merged_start.earliest(from);
            merged_end = merged_end.latest(to);
        }
        if told.before(end) {
            new(told, end);
            new_bytes = new_bytes.wrapping_add(end.since(told) as u32);
        }
        let (start, end) = (merged_start, merged_end);
        self.replace(first, last, (start, end));
        if new_bytes == 0 { Outcome::Duplicate { start, end } } else { Outcome::Added { new_bytes, start, end } }
    }

    /// Puts `range` in the place of `ranges[first..last]`.
    fn replace(&mut self, first: usize, last: usize, range: (Seq, Seq)) {
        self.ranges.copy_within(last..self.len, first + 1);
        self.len = self.len + 1 - (last - first);
        self.ranges[first] = range;
    }

    /// Everything before `rcv_nxt` has been received: forgets ranges that this
    /// covers or reaches, and returns the `rcv_nxt` that they lead to.
    pub fn advance(&mut self, mut rcv_nxt: Seq) -> Seq {
        let mut gone = 0;
        for &(start, end) in self.as_slice() {
            if start.after(rcv_nxt) {
                break;
            }
            rcv_nxt = rcv_nxt.latest(end);
            gone += 1;
        }
        self.ranges.copy_within(gone..self.len, 0);
        self.len -= gone;
        rcv_nxt
    }
}
