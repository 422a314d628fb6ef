//! The agenda: what happens when. Events of the same time happen in the order in which they were planned.
//!
//! Timers lie far ahead, and most of them never matter. They have a heap of their own, so that the events of
//! packets move in a small one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// From here on an event is far ahead, in ns.
const FAR_NS: u64 = 5_000_000;

/// Bits of an entry's key that name the event's place.
const PLACE_BITS: u32 = 24;

/// Events to come.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    near: BinaryHeap<Reverse<(u64, u64)>>,
    far: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    planned: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        let (near, far, events, free) = Default::default();
        Agenda { near, far, events, free, planned: 0 }
    }
}

impl<E> Agenda<E> {
    /// Plans an event for `at`; it is `now`.
    pub(super) fn plan(&mut self, now: u64, at: u64, event: E) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.planned += 1;
        let heap = if at - now >= FAR_NS { &mut self.far } else { &mut self.near };
        heap.push(Reverse((at, self.planned << PLACE_BITS | place as u64)));
    }

    /// Takes the next event, and its time.
    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        // `Reverse` makes the greatest entry the earliest; nothing is less than any entry.
        let heap = if self.near.peek() < self.far.peek() { &mut self.far } else { &mut self.near };
        let Reverse((at, key)) = heap.pop()?;
        let place = (key & ((1 << PLACE_BITS) - 1)) as usize;
        self.free.push(place);
        self.events[place].take().map(|event| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_planning() {
        let mut agenda = Agenda::default();
        let times = [(0, 9_000_000), (0, 3), (0, 3), (4_500_000, 9_000_000), (0, 8_999_999), (4_500_000, 9_000_001)];
        for (number, (now, at)) in times.into_iter().enumerate() {
            agenda.plan(now, at, number);
        }
        let order: Vec<usize> = core::iter::from_fn(|| agenda.pop()).map(|(_, number)| number).collect();
        assert_eq!(order, [1, 2, 4, 0, 3, 5]);
        agenda.plan(0, 1, 9);
        assert_eq!(agenda.pop(), Some((1, 9)));
    }
}
