//! Which segments each sender on the wire has yet to see acknowledged: the host's ACKs are
//! expanded by this.
//!
//! ```text
//!   hash of the flow -> set of WAYS places, the one least recently used makes room
//! ```
//!
//! No chains, no allocation after the start. A flow that lost its place has lost its
//! segments' ends: its next ACK goes out as it is, a stretch ACK.

use baton_coalesce::{Flow, Unacked};
use baton_wire::seq::Seq;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Connections remembered at a time.
pub const CONNECTIONS: usize = SETS * WAYS;

const SETS: usize = 256;
const WAYS: usize = 4;

struct Place {
    flow: Option<Flow>,
    /// When it was used last.
    used: u64,
    unacked: Unacked,
}

/// The flows, by the direction in which their data comes.
pub struct Senders {
    places: Box<[Place]>,
    /// The place used last: segments come in bursts.
    last: usize,
    clock: u64,
    hasher: RandomState,
}

impl Senders {
    pub fn new() -> Senders {
        let places = (0..CONNECTIONS).map(|_| Place { flow: None, used: 0, unacked: Unacked::new() }).collect();
        Senders { places, last: 0, clock: 0, hasher: RandomState::new() }
    }

    /// Notes a segment that goes to the host, by the sequence number after its last byte.
    #[inline]
    pub fn on_segment(&mut self, flow: &Flow, end: Seq) {
        let at = self.find(flow).unwrap_or_else(|| self.take(flow));
        self.places[at].unacked.on_segment(end);
    }

    /// The remembered state of a flow.
    #[inline]
    pub fn get(&mut self, flow: &Flow) -> Option<&mut Unacked> {
        self.find(flow).map(|at| &mut self.places[at].unacked)
    }

    /// Forgets a flow: its connection begins or ends.
    pub fn forget(&mut self, flow: &Flow) {
        if let Some(at) = self.find(flow) {
            self.places[at].flow = None;
            self.places[at].used = 0;
        }
    }

    #[inline]
    fn find(&mut self, flow: &Flow) -> Option<usize> {
        let is = |place: &Place| place.flow.as_ref() == Some(flow);
        if !is(&self.places[self.last]) {
            let set = self.set(flow);
            self.last = set + self.places[set..set + WAYS].iter().position(is)?;
        }
        self.clock += 1;
        self.places[self.last].used = self.clock;
        Some(self.last)
    }

    /// A place for a flow that has none.
    fn take(&mut self, flow: &Flow) -> usize {
        let set = self.set(flow);
        let oldest = (set..set + WAYS).min_by_key(|at| self.places[*at].used).unwrap_or(set);
        self.clock += 1;
        self.places[oldest] = Place { flow: Some(*flow), used: self.clock, unacked: Unacked::new() };
        self.last = oldest;
        oldest
    }

    fn set(&self, flow: &Flow) -> usize {
        self.hasher.hash_one(flow) as usize % SETS * WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_coalesce::Tags;
    use baton_wire::tcp::Acks;

    fn flow(number: u32) -> Flow {
        Flow::v4(number.to_be_bytes(), [10, 0, 0, 1], 80, Tags::NONE)
    }

    fn ends(senders: &mut Senders, flow: &Flow, ack: u32) -> Option<usize> {
        let mut count = 0;
        senders.get(flow)?.expand(Seq(ack), Acks::EverySecond, |_| count += 1);
        Some(count)
    }

    #[test]
    fn each_flow_has_its_own_segments() {
        let mut senders = Senders::new();
        for end in [10, 20, 30, 40] {
            senders.on_segment(&flow(1), Seq(end));
            senders.on_segment(&flow(2), Seq(end + 5));
        }
        assert_eq!(ends(&mut senders, &flow(1), 40), Some(2));
        assert_eq!(ends(&mut senders, &flow(2), 25), Some(1));
        assert_eq!(ends(&mut senders, &flow(2), 45), Some(1));
        assert_eq!(ends(&mut senders, &flow(3), 45), None);
        senders.forget(&flow(1));
        assert_eq!(ends(&mut senders, &flow(1), 50), None);
    }

    #[test]
    fn of_too_many_flows_those_used_last_stay() {
        let mut senders = Senders::new();
        for number in 0..4 * CONNECTIONS as u32 {
            senders.on_segment(&flow(number), Seq(1));
            senders.on_segment(&flow(0), Seq(2 * number));
        }
        assert!(senders.get(&flow(0)).is_some());
        assert!(senders.get(&flow(4 * CONNECTIONS as u32 - 1)).is_some());
        let there = (0..4 * CONNECTIONS as u32).filter(|n| senders.get(&flow(*n)).is_some()).count();
        assert!(there <= CONNECTIONS, "{there}");
    }
}
