//! Where both programs of a pair are.

use baton_testkit::{Netns, veth};

/// Two programs' namespaces, and the address at which one reaches the other. The service is in the first namespace,
/// with the program that listens; the other program is in the last.
pub struct Venue {
    pub namespaces: Vec<Netns>,
    /// The address at which the program listens.
    pub listens: &'static str,
    /// The address at which the other program asks for it.
    pub asked: &'static str,
    /// The interface that the service has an engine for.
    pub interface: Option<&'static str>,
}

/// A row of the matrix: its name, and how the venue is made.
pub type Place = (&'static str, fn() -> Venue);

/// All rows.
pub const PLACES: &[Place] = &[
    ("loopback, IPv4", loopback_v4),
    ("loopback, IPv6", loopback_v6),
    ("two namespaces", two_namespaces),
    ("behind a translated address", translated),
];

fn loopback_v4() -> Venue {
    Venue { namespaces: vec![Netns::new("pairs")], listens: "127.0.0.1", asked: "127.0.0.1", interface: None }
}

fn loopback_v6() -> Venue {
    Venue { namespaces: vec![Netns::new("pairs")], listens: "::1", asked: "::1", interface: None }
}

fn two_namespaces() -> Venue {
    let namespaces = vec![Netns::new("pairs"), Netns::new("pairs")];
    veth(&namespaces[0], "wire", &namespaces[1], "wire");
    for (namespace, last) in namespaces.iter().zip([2, 3]) {
        namespace.run(&format!("ip addr add 10.70.0.{last}/24 dev wire"));
    }
    Venue { namespaces, listens: "10.70.0.2", asked: "10.70.0.2", interface: None }
}

/// An engine can have the end of the program that listens.
pub fn with_an_engine() -> Venue {
    Venue { interface: Some("wire"), ..two_namespaces() }
}

/// The namespace of the program that listens translates an address that is published to its own.
fn translated() -> Venue {
    let venue = Venue { asked: "10.75.0.9", ..two_namespaces() };
    venue.last().run("ip route add 10.75.0.0/16 via 10.70.0.2");
    venue.first().run("nft add table ip nat");
    venue.first().run("nft add chain ip nat in { type nat hook prerouting priority -100 ; }");
    venue.first().run("nft add rule ip nat in ip daddr 10.75.0.9 dnat to 10.70.0.2");
    venue
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
