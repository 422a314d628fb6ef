//! The ways of serving: where the engine runs, and how frames reach it.
//!
//! Each [`Way`] has its own wire and its own servers ([`super::place`]). The client is always the same
//! program on the kernel's stack ([`super::client`]), so only the far end differs.

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
}

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
    /// The kind of steering that the wire is set up for. With [`Steer::Xdp`] an XDP program disables its
    /// offloads even if nothing is steered.
    pub steer: Steer,
    /// Id of the kernel's way over the same frames.
    pub baseline: Option<&'static str>,
}

/// Every way; each kernel way stands before the ways that are compared with it.
pub const WAYS: [Way; 8] = [
    Way { id: "kernel", name: "kernel", placement: Placement::Kernel, steer: Steer::Tc, baseline: None },
    // Differs from "kernel" only in that it has another wire and other servers.
    Way {
        id: "again",
        name: "kernel, again",
        placement: Placement::Kernel,
        steer: Steer::Tc,
        baseline: Some("kernel"),
    },
    Way {
        id: "unmoved",
        name: "kernel, under baton run",
        placement: Placement::Unmoved,
        steer: Steer::Tc,
        baseline: Some("kernel"),
    },
    Way {
        id: "service-tc",
        name: "Baton service, tc",
        placement: Placement::Service,
        steer: Steer::Tc,
        baseline: Some("kernel"),
    },
    Way {
        id: "direct-tc",
        name: "Baton direct, tc",
        placement: Placement::Direct,
        steer: Steer::Tc,
        baseline: Some("kernel"),
    },
    Way {
        id: "run",
        name: "Baton by default, tc",
        placement: Placement::Chosen,
        steer: Steer::Tc,
        baseline: Some("kernel"),
    },
    Way {
        id: "kernel-xdp",
        name: "kernel, 1 segment per frame",
        placement: Placement::Kernel,
        steer: Steer::Xdp,
        baseline: None,
    },
    Way {
        id: "service-xdp",
        name: "Baton service, xdp",
        placement: Placement::Service,
        steer: Steer::Xdp,
        baseline: Some("kernel-xdp"),
    },
];

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
    /// The way with this id.
    pub fn of(id: &str) -> Option<Way> {
        WAYS.into_iter().find(|way| way.id == id)
    }

    /// Returns true if connections run on an engine.
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
        match self.placement {
            Placement::Kernel => String::new(),
            Placement::Unmoved => "baton run --policy never -- ".to_owned(),
            Placement::Service => format!("baton run --engine service --policy fcfs --steer {} -- ", self.steer.word()),
            Placement::Direct => format!("baton run --engine direct --policy fcfs --steer {} -- ", self.steer.word()),
            Placement::Chosen => format!("baton run --steer {} -- ", self.steer.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_compared_with_a_kernel_over_the_same_frames() {
        for way in WAYS {
            let baseline = way.baseline.map(|id| Way::of(id).expect("it is one of them"));
            assert!(baseline.is_some() || way.placement == Placement::Kernel, "{}", way.id);
            let fits = |base: Way| (base.steer, base.placement, base.baseline) == (way.steer, Placement::Kernel, None);
            assert!(baseline.is_none_or(fits), "{}", way.id);
        }
    }
}
