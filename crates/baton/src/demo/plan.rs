//! The wires of the demo: what joins client and server, and who serves there.

use super::loads::Site;
use super::server::Server;
use super::world::World;
use crate::report::{Side, Wire};
use crate::signal::Stop;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

/// A wire that is up, with services at its far end.
pub struct Link {
    /// How the report names it.
    pub wire: Wire,
    /// The services' addresses, IPv4 and IPv6.
    pub addrs: [IpAddr; 2],
    /// Who serves; the kernel's wires share one.
    pub server: Rc<RefCell<Server>>,
    /// Downloads that fit into a run; 0 while that is not known.
    pub downloads: usize,
}

/// A kernel wire to be made.
struct KernelWire {
    id: &'static str,
    name: &'static str,
    about: &'static str,
    offloads: bool,
}

const KERNEL_WIRES: [KernelWire; 2] = [
    KernelWire {
        id: "veth",
        name: "kernel, offloads",
        about: "veth pair, MTU 1500: segments of up to 64 KB pass whole and checksums are left out.",
        offloads: true,
    },
    KernelWire {
        id: "veth-plain",
        name: "kernel, no offloads",
        about: "veth pair, MTU 1500, all offloads off: every segment is a frame with a checksum in software.",
        offloads: false,
    },
];

/// Subnet number of a wire: its place in the plan.
fn addrs(subnet: u8, host: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 77, subnet, host).into(),
        Ipv6Addr::new(0xfd77, subnet.into(), 0, 0, 0, 0, 0, host.into()).into(),
    ]
}

/// Makes all wires that this machine allows and starts who serves on them; what
/// could not be made, with the reason, is the second part.
///
/// # Errors
/// If not even the kernel's own wires can be made.
pub fn links(world: &World, site: &Site, stop: &Stop) -> anyhow::Result<(Vec<Link>, Vec<String>)> {
    for (subnet, wire) in KERNEL_WIRES.iter().enumerate() {
        veth(world, wire.id, subnet as u8, wire.offloads)?;
    }
    let kernel = Rc::new(RefCell::new(Server::start(&world.server, "--port kernel", site, stop)?));
    let link = |(subnet, wire): (usize, &KernelWire)| Link {
        wire: Wire {
            id: wire.id.to_owned(),
            side: Side::Kernel,
            name: wire.name.to_owned(),
            about: wire.about.to_owned(),
            baseline: None,
            command: "baton serve --port kernel --service echo --service discard --service chargen --service http=DIR"
                .to_owned(),
        },
        addrs: addrs(subnet as u8, 2),
        server: kernel.clone(),
        downloads: 0,
    };
    let links: Vec<Link> = KERNEL_WIRES.iter().enumerate().map(link).collect();
    Ok((links, Vec::new()))
}

/// A veth pair with one end in each namespace, named alike, with addresses.
fn veth(world: &World, name: &str, subnet: u8, offloads: bool) -> anyhow::Result<()> {
    let (client, server) = (&world.client, &world.server);
    client.ip(&format!("link add {name} mtu 1500 type veth peer name {name} mtu 1500 netns {}", server.name()))?;
    for (namespace, host) in [(client, 1), (server, 2)] {
        if !offloads {
            namespace.run(&format!("ethtool -K {name} tx off rx off tso off gso off gro off"))?;
        }
        configure(namespace, name, addrs(subnet, host))?;
    }
    Ok(())
}

/// Gives a device its addresses and brings it up.
fn configure(namespace: &super::world::Namespace, name: &str, addrs: [IpAddr; 2]) -> anyhow::Result<()> {
    namespace.ip(&format!("addr add {}/24 dev {name}", addrs[0]))?;
    namespace.ip(&format!("addr add {}/64 dev {name} nodad", addrs[1]))?;
    namespace.ip(&format!("link set {name} up"))
}
