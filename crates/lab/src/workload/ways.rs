//! The ways of serving: where connections are, and over what client and server reach each other.
//!
//! Each [`Way`] has its own servers ([`super::place`]). Those of [`WAYS`] have wires of their own, and the
//! client is always the same program on the kernel's stack ([`super::client`]), so only the far end
//! differs. Those of [`LOCAL`] have client and server in one namespace, both of which can be under
//! `baton run`.

use serde::{Deserialize, Serialize};

/// Where the servers' connections run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// In the kernel, without Baton.
    Kernel,
    /// In the kernel, under `baton run` with a policy that moves nothing.
    Unmoved,
    /// In the engine of a service.
    Service,
    /// In an engine inside the program.
    Direct,
    /// Where `baton run` puts them by its defaults.
    Chosen,
    /// In memory that client and server share, both of which are under `baton run`.
    Paired,
}

/// The path between client and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// A wire between two namespaces. With [`Steer::Xdp`] an XDP program disables its offloads even if
    /// nothing is steered.
    Wire(Steer),
    /// The loopback interface.
    Loopback,
    /// A Unix domain socket.
    Unix,
    /// A Unix domain socket, with [`AT_ONCE`] requests in each write.
    Pipelined,
}

/// Requests in a write of [`Over::Pipelined`]: the programs' work for a request remains, and what they
/// spend on calls of the kernel is shared by this many.
pub const AT_ONCE: u32 = 256;

/// How frames reach an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steer {
    /// By tc; the interface keeps its offloads.
    Tc,
    /// By AF_XDP; every segment is a frame of its own, for the kernel too.
    Xdp,
}

/// A way of serving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Short identifier.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Where the engine runs.
    pub placement: Placement,
    /// The path between client and server.
    pub over: Over,
    /// Id of the kernel's way over the same frames.
    pub baseline: Option<&'static str>,
}

/// Every way over a wire; each kernel way stands before the ways that are compared with it.
pub const WAYS: [Way; 8] = [
    Way { id: "kernel", name: "kernel", placement: Placement::Kernel, over: Over::Wire(Steer::Tc), baseline: None },
    // Differs from "kernel" only in that it has another wire and other servers.
    Way {
        id: "again",
        name: "kernel, again",
        placement: Placement::Kernel,
        over: Over::Wire(Steer::Tc),
        baseline: Some("kernel"),
    },
    Way {
        id: "unmoved",
        name: "kernel, under baton run",
        placement: Placement::Unmoved,
        over: Over::Wire(Steer::Tc),
        baseline: Some("kernel"),
    },
    Way {
        id: "service-tc",
        name: "Baton service, tc",
        placement: Placement::Service,
        over: Over::Wire(Steer::Tc),
        baseline: Some("kernel"),
    },
    Way {
        id: "direct-tc",
        name: "Baton direct, tc",
        placement: Placement::Direct,
        over: Over::Wire(Steer::Tc),
        baseline: Some("kernel"),
    },
    Way {
        id: "run",
        name: "Baton by default, tc",
        placement: Placement::Chosen,
        over: Over::Wire(Steer::Tc),
        baseline: Some("kernel"),
    },
    Way {
        id: "kernel-xdp",
        name: "kernel, 1 segment per frame",
        placement: Placement::Kernel,
        over: Over::Wire(Steer::Xdp),
        baseline: None,
    },
    Way {
        id: "service-xdp",
        name: "Baton service, xdp",
        placement: Placement::Service,
        over: Over::Wire(Steer::Xdp),
        baseline: Some("kernel-xdp"),
    },
];

/// Every way of two programs of one machine; the kernel's stands before those that are compared with it.
pub const LOCAL: [Way; 5] = [
    Way { id: "kernel", name: "kernel", placement: Placement::Kernel, over: Over::Loopback, baseline: None },
    // Differs from "kernel" only in its address and its servers.
    Way {
        id: "kernel-again",
        name: "kernel, again",
        placement: Placement::Kernel,
        over: Over::Loopback,
        baseline: Some("kernel"),
    },
    Way {
        id: "pair",
        name: "Baton, pairs",
        placement: Placement::Paired,
        over: Over::Loopback,
        baseline: Some("kernel"),
    },
    Way {
        id: "unix",
        name: "Unix domain socket",
        placement: Placement::Kernel,
        over: Over::Unix,
        baseline: Some("kernel"),
    },
    Way {
        id: PIPELINED,
        name: "256 requests at once",
        placement: Placement::Kernel,
        over: Over::Pipelined,
        baseline: Some("kernel"),
    },
];

/// The id of the way that shows what the programs themselves cost.
pub const PIPELINED: &str = "pipelined";

impl Steer {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Steer::Tc => "tc",
            Steer::Xdp => "xdp",
        }
    }
}

impl Way {
    /// The way with this id. Both kernels have one name.
    pub fn of(id: &str) -> Option<Way> {
        Way::all().find(|way| way.id == id)
    }

    /// Every way, those of one machine last.
    pub fn all() -> impl Iterator<Item = Way> {
        WAYS.into_iter().chain(LOCAL.into_iter().skip(1))
    }

    /// The steering of its wire.
    pub fn steer(&self) -> Option<Steer> {
        if let Over::Wire(steer) = self.over { Some(steer) } else { None }
    }

    /// Returns true if connections leave the kernel.
    pub fn moves(&self) -> bool {
        !matches!(self.placement, Placement::Kernel | Placement::Unmoved)
    }

    /// Returns true if it only shows the noise: how far the ratio of two equal ways is from one.
    pub fn is_control(&self) -> bool {
        self.placement == Placement::Kernel && self.baseline.is_some()
    }

    /// Returns true if its engine is a process of its own, which can die without the program.
    pub fn has_engine_process(&self) -> bool {
        self.placement == Placement::Service
    }

    /// The prefix of a server's command line, as a user would type it.
    pub fn prefix(&self) -> String {
        let steer = self.steer().map_or(String::new(), |steer| format!(" --steer {}", steer.word()));
        match self.placement {
            Placement::Kernel => String::new(),
            Placement::Unmoved => "baton run --policy never -- ".to_owned(),
            Placement::Service => format!("baton run --engine service --policy fcfs{steer} -- "),
            Placement::Direct => format!("baton run --engine direct --policy fcfs{steer} -- "),
            Placement::Chosen | Placement::Paired => format!("baton run{steer} -- "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_over_a_wire_is_compared_with_a_kernel_over_the_same_frames() {
        for way in WAYS {
            let baseline = way.baseline.map(|id| Way::of(id).expect("it is one of them"));
            assert!(baseline.is_some() || way.placement == Placement::Kernel, "{}", way.id);
            let fits = |base: Way| (base.over, base.placement, base.baseline) == (way.over, Placement::Kernel, None);
            assert!(baseline.is_none_or(fits), "{}", way.id);
        }
    }

    #[test]
    fn every_way_of_one_machine_is_compared_with_loopback() {
        let [kernel, others @ ..] = LOCAL;
        assert_eq!((kernel.over, kernel.placement, kernel.baseline), (Over::Loopback, Placement::Kernel, None));
        assert!(others.iter().all(|way| way.baseline == Some(kernel.id)));
        assert_eq!(Way::of(kernel.id).map(|way| way.name), Some(kernel.name));
        assert!(LOCAL[4].name.starts_with(&AT_ONCE.to_string()));
    }
}
