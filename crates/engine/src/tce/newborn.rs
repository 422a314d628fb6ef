//! Connections that the Streamer may not know of yet.
//!
//! A burst holds a SYN twice, or the ACK of a handshake by cookie and the data
//! behind it: the Streamer reports each as belonging to nothing, since it had not
//! carried out the order to open the connection when it saw them. So with each
//! tuple it says how many orders it had carried out, and what was opened by a
//! later one is looked for here.

use crate::seam::event::ConnId;
use baton_wire::addr::Tuple;
use std::collections::VecDeque;

/// Connections by tuple, in the order of their opening. There are never more than
/// the order ring holds.
#[derive(Default)]
pub(super) struct Newborn {
    opened: VecDeque<(Tuple, ConnId, usize)>,
}

impl Newborn {
    /// `conn` is opened by the order that comes just before position `at`.
    pub fn add(&mut self, tuple: Tuple, conn: ConnId, at: usize) {
        self.opened.push_back((tuple, conn, at));
    }

    /// The Streamer has carried out the orders before position `done`: it knows
    /// the connections that they opened.
    pub fn known_until(&mut self, done: usize) {
        while self.opened.front().is_some_and(|&(_, _, at)| done.wrapping_sub(at) as isize >= 0) {
            self.opened.pop_front();
        }
    }

    /// The connection of this name that the Streamer did not know; the last one.
    pub fn find(&self, tuple: &Tuple) -> Option<ConnId> {
        self.opened.iter().rev().find(|(name, _, _)| name == tuple).map(|&(_, conn, _)| conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_newborn_until_its_order_is_carried_out() {
        let name = |remote_port| Tuple { remote_port, ..Tuple::default() };
        let mut newborn = Newborn::default();
        let start = usize::MAX - 1;
        newborn.add(name(1), ConnId(7), start);
        newborn.add(name(2), ConnId(8), start.wrapping_add(5));
        newborn.known_until(start.wrapping_sub(1));
        assert_eq!(newborn.find(&name(1)), Some(ConnId(7)));
        newborn.known_until(start);
        assert_eq!((newborn.find(&name(1)), newborn.find(&name(2))), (None, Some(ConnId(8))));
        newborn.add(name(2), ConnId(9), start.wrapping_add(9));
        assert_eq!(newborn.find(&name(2)), Some(ConnId(9)), "a name may be used again");
        newborn.known_until(start.wrapping_add(9));
        assert_eq!(newborn.find(&name(2)), None);
    }
}
