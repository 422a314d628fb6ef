//! Future events, in order of virtual time.
//!
//! Things planned for the same moment happen in the order in which they were
//! planned, so a run depends on its seed alone.

use baton_tcp::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Planned events of type `T`.
#[derive(Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<Planned<T>>>,
    planned: u64,
}

#[derive(Debug)]
struct Planned<T> {
    at: Instant,
    number: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<T> Agenda<T> {
    /// Plans `what` for the moment `at`.
    pub fn plan(&mut self, at: Instant, what: T) {
        self.planned += 1;
        self.heap.push(Reverse(Planned { at, number: self.planned, what }));
    }

    /// Takes what happens next.
    pub fn pop(&mut self) -> Option<(Instant, T)> {
        self.heap.pop().map(|Reverse(planned)| (planned.at, planned.what))
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(planned)| planned.at)
    }

    /// How much is planned.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if nothing is planned.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Planned<T> {}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Planned<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_orders_and_planning_breaks_ties() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            agenda.plan(Instant(at), what);
        }
        assert_eq!(agenda.next_at(), Some(Instant(1)));
        let order: String = std::iter::from_fn(|| agenda.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
        assert!(agenda.is_empty());
    }
}
