//! The last events of a broker, numbered. `baton events` asks for them.

use crate::event::Event;
use std::collections::VecDeque;

/// Events that a ring keeps.
pub const RING: usize = 1000;

/// An event with its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// Numbers rise by one from event to event. Another broker of the same service begins at a
    /// higher one.
    pub number: u64,
    /// The event itself.
    pub event: Event,
}

/// The last events, numbered; an old one makes way for a new one.
#[derive(Debug)]
pub struct Ring {
    events: VecDeque<Event>,
    /// Number of the last event.
    last: u64,
}

impl Ring {
    /// An empty ring, whose first event gets the number after this.
    pub const fn after(number: u64) -> Ring {
        Ring { events: VecDeque::new(), last: number }
    }

    /// Keeps an event, and drops the oldest one if there are [`RING`] already.
    pub fn push(&mut self, event: Event) {
        if self.events.len() == RING {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.last += 1;
    }

    /// The last `most` events whose numbers are above `after`, the oldest first.
    pub fn since(&self, after: u64, most: usize) -> impl Iterator<Item = Numbered> + '_ {
        let first = self.last - self.events.len() as u64;
        let skip = after.saturating_sub(first).min(self.events.len() as u64) as usize;
        let skip = skip.max(self.events.len().saturating_sub(most));
        let numbered =
            move |(at, event): (usize, &Event)| Numbered { number: first + at as u64 + 1, event: event.clone() };
        self.events.iter().enumerate().skip(skip).map(numbered)
    }

    /// Number of the last event.
    pub fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Kind, Level};

    fn ring(base: u64, events: usize) -> Ring {
        let mut ring = Ring::after(base);
        for at in 1..=events {
            ring.push(Event::new(Level::Debug, Kind::MOVED).text(at.to_string()));
        }
        ring
    }

    fn numbers(ring: &Ring, after: u64, most: usize) -> Vec<u64> {
        ring.since(after, most).map(|numbered| numbered.number).collect()
    }

    #[test]
    fn it_keeps_the_last_thousand_in_order() {
        let ring = ring(0, RING + 500);
        let all = numbers(&ring, 0, usize::MAX);
        assert_eq!(all, (501..=1500).collect::<Vec<u64>>());
        assert_eq!(ring.since(0, usize::MAX).next().unwrap().event.text, "501");
    }

    #[test]
    fn it_gives_what_is_newer_and_no_more_than_asked_for() {
        let ring = ring(7 << 32, 10);
        let base = 7 << 32;
        assert_eq!(numbers(&ring, base + 8, usize::MAX), [base + 9, base + 10]);
        assert_eq!(numbers(&ring, 0, 3), [base + 8, base + 9, base + 10]);
        assert_eq!(numbers(&ring, base + 10, usize::MAX), []);
        assert_eq!(numbers(&ring, u64::MAX, usize::MAX), [], "nothing is newer than what is to come");
        assert_eq!(ring.last(), base + 10);
    }

    #[test]
    fn an_empty_one_has_nothing() {
        assert_eq!(numbers(&Ring::after(5), 0, 10), []);
    }
}
