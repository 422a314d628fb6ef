//! Single messages, with their time in every layer.

use crate::{Direction, Layer};

/// The most layers of a way that add up to the whole.
pub const PARTS: usize = 8;

/// The most exemplars of a way of a connection.
pub const KEPT: usize = 8;

/// The size of an exemplar in memory, in words of 64 bits.
pub(crate) const WORDS_EACH: usize = 3 + PARTS;

/// The size of the memory of the exemplars of a way, in words of 64 bits: three of its own, and 3 with the
/// parts for each exemplar.
pub const KEPT_WORDS: usize = 3 + KEPT * WORDS_EACH;

/// A message with its time in each layer of its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exemplar {
    /// To the wire, or from it.
    pub direction: Direction,
    /// The time at which it began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub begun: u64,
    /// Nanoseconds until its end.
    pub whole: u64,
    /// The TCP sequence number behind its last byte.
    pub end: u32,
    /// Nanoseconds in the layers of its way, in their order; 0 in one that was not seen apart.
    parts: [u64; PARTS],
}

impl Exemplar {
    /// A message with the nanoseconds that it spent in the layers of its way, in their order.
    pub fn new(direction: Direction, begun: u64, whole: u64, end: u32, parts: [u64; PARTS]) -> Exemplar {
        Exemplar { direction, begun, whole, end, parts }
    }

    /// As it lies in memory.
    pub(crate) fn words(&self) -> [u64; WORDS_EACH] {
        let mut words = [0; WORDS_EACH];
        words[..3].copy_from_slice(&[self.begun, self.whole, self.end.into()]);
        words[3..].copy_from_slice(&self.parts);
        words
    }

    /// Reads the exemplars of a way from a copy of the memory that BPF programs and engines write (`struct slowest`
    /// in `bpf/programs/latency.h`), slowest first. `None` if one was being written.
    pub fn of_words(direction: Direction, words: &[u64; KEPT_WORDS]) -> Option<Vec<Exemplar>> {
        if !words[0].is_multiple_of(2) {
            return None;
        }
        let each = words[3..].chunks_exact(WORDS_EACH).filter(|words| words[0] > 0);
        let mut all: Vec<Exemplar> = each
            .map(|words| {
                let parts = std::array::from_fn(|at| words[3 + at]);
                Exemplar::new(direction, words[0], words[1], words[2] as u32, parts)
            })
            .collect();
        all.sort_by_key(|exemplar| std::cmp::Reverse(exemplar.whole));
        Some(all)
    }

    /// The layers in which it was seen, in the order of its way, with the nanoseconds in each.
    pub fn layers(&self) -> impl Iterator<Item = (Layer, u64)> {
        let of_way = Layer::ALL.into_iter().filter(|layer| layer.direction() == self.direction);
        of_way.zip(self.parts).filter(|(layer, ns)| layer.is_part() && *ns > 0)
    }

    /// Nanoseconds that are in none of its layers. Another process may have written any numbers.
    pub fn between(&self) -> u64 {
        self.layers().fold(self.whole, |left, (_, ns)| left.saturating_sub(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(exemplars: &[(u64, [u64; PARTS])]) -> [u64; KEPT_WORDS] {
        let mut words = [0; KEPT_WORDS];
        for ((whole, parts), to) in exemplars.iter().zip(words[3..].chunks_exact_mut(WORDS_EACH)) {
            to[..3].copy_from_slice(&[1, *whole, u64::from(u32::MAX)]);
            to[3..].copy_from_slice(parts);
        }
        words
    }

    #[test]
    fn the_slowest_is_first_and_its_layers_have_names() {
        let sent = words(&[(100, [10, 20, 30, 0, 40, 0, 0, 0]), (300, [300, 0, 0, 0, 0, 0, 0, 0])]);
        let all = Exemplar::of_words(Direction::Transmit, &sent).unwrap();
        assert_eq!(
            all.iter().map(|it| (it.whole, it.end, it.between())).collect::<Vec<_>>(),
            [(300, u32::MAX, 0), (100, u32::MAX, 0)]
        );
        let layers: Vec<_> = all[1].layers().collect();
        let expected = [(Layer::Write, 10), (Layer::SendQueue, 20), (Layer::Segment, 30), (Layer::Output, 40)];
        assert_eq!(layers, expected);
        let got = words(&[(100, [1, 2, 3, 4, 5, 6, 7, 8])]);
        let all = Exemplar::of_words(Direction::Receive, &got).unwrap();
        let layers: Vec<_> = all[0].layers().collect();
        assert_eq!((layers[0], layers[7]), ((Layer::ReceiveDevice, 1), (Layer::Read, 8)));
        assert_eq!(all[0].between(), 100 - 36);
        let any = words(&[(100, [u64::MAX; PARTS])]);
        assert_eq!(Exemplar::of_words(Direction::Receive, &any).unwrap()[0].between(), 0);
    }

    #[test]
    fn one_that_is_being_written_is_not_read() {
        let mut half = words(&[(100, [0; PARTS])]);
        half[0] = 3;
        assert_eq!(Exemplar::of_words(Direction::Receive, &half), None);
    }
}
