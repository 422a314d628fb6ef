//! How a connection will be reached while it is away.

use crate::conntrack::Tracked;
use crate::hops::{Mac, Query, Way};
use baton_wire::addr::Tuple;

/// How a connection will be reached while it is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Everything that its route depends on, including its addresses and ports.
    pub query: Query,
    /// The interface and the next hop.
    pub way: Way,
    /// The next hop's link address, if the kernel knows it.
    pub mac: Option<Mac>,
    /// The number of its engine, as in [`Steering::open_engine`](crate::steer::Steering::open_engine); 0 for the interface's own.
    pub engine: u32,
    /// Conntrack's entry for it, if it is tracked.
    pub tracked: Option<Tracked>,
    /// The number of its control group; 0 if unknown.
    pub cgroup: u64,
    /// Both its ends are on this machine, and go where no frame has to follow: nothing is steered.
    pub between: bool,
}

impl Plan {
    /// The connection's addresses and ports.
    pub fn tuple(&self) -> Tuple {
        self.query.tuple
    }
}
