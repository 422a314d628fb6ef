//! Where both programs of a pair are.

use baton_testkit::Netns;

/// Two programs' namespaces, and the address at which one reaches the other. The service is in the first namespace,
/// with the program that listens; the other program is in the last.
pub struct Venue {
    pub namespaces: Vec<Netns>,
    /// The address at which the program listens.
    pub listens: &'static str,
}

/// A row of the matrix: its name, and how the venue is made.
pub type Place = (&'static str, fn() -> Venue);

/// All rows.
pub const PLACES: &[Place] = &[("loopback, IPv4", loopback_v4), ("loopback, IPv6", loopback_v6)];

fn loopback_v4() -> Venue {
    Venue { namespaces: vec![Netns::new("pairs")], listens: "127.0.0.1" }
}

fn loopback_v6() -> Venue {
    Venue { namespaces: vec![Netns::new("pairs")], listens: "::1" }
}

impl Venue {
    /// The namespace of the service, and of the program that listens.
    pub fn first(&self) -> &Netns {
        &self.namespaces[0]
    }

    /// The namespace of the program that connects.
    pub fn last(&self) -> &Netns {
        self.namespaces.last().expect("a venue has a namespace")
    }
}
