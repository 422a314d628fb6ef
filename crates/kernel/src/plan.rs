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
    /// Set if both its ends are on this machine, and go where no frame has to follow: nothing is steered.
    pub between: Option<Between>,
}

/// A connection whose other end may be on this machine, too: where it is, and how it is called on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    /// The number of its socket's network namespace (`SO_NETNS_COOKIE`); 0 for the service's own.
    pub net: u64,
    /// Its other end is in that namespace, too.
    pub stays: bool,
    /// Its name behind the translation in that namespace, if there is one.
    pub outside: Tuple,
    /// That name behind the translation in the service's namespace.
    pub beyond: Tuple,
    /// Conntrack's entry in the service's namespace, which forwards its packets.
    pub passed: Option<Tracked>,
}

impl Plan {
    /// The connection's addresses and ports.
    pub fn tuple(&self) -> Tuple {
        self.query.tuple
    }

    /// The number of its socket's network namespace; 0 for the service's own.
    pub fn net(&self) -> u64 {
        self.between.map_or(0, |between| between.net)
    }

    /// All names by which the connection's other end may know it, mirrored. Names may repeat.
    pub fn names(&self) -> [Tuple; 3] {
        let tuple = self.tuple();
        self.between.map_or([tuple; 3], |Between { outside, beyond, .. }| [tuple, outside, beyond])
    }
}
