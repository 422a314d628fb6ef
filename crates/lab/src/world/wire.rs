//! Makes the devices that connect two namespaces, and configures their addresses.

use super::{Namespace, World};

/// Makes a veth pair with one end in each namespace; both ends have the same name.
///
/// # Errors
/// If the devices cannot be made or configured.
pub fn veth(world: &World, name: &str, offloads: bool) -> anyhow::Result<()> {
    let (client, server) = (&world.client, &world.server);
    client.ip(&format!("link add {name} mtu 1500 type veth peer name {name} mtu 1500 netns {}", server.name()))?;
    for namespace in [client, server] {
        if !offloads {
            namespace.run(&format!("ethtool -K {name} tx off rx off tso off gso off gro off"))?;
        }
    }
    Ok(())
}

/// Gives a device its addresses and brings it up.
///
/// # Errors
/// If the kernel refuses.
pub fn configure(namespace: &Namespace, name: &str, cidrs: &[String]) -> anyhow::Result<()> {
    for cidr in cidrs {
        // Skip duplicate address detection: no other host has the address.
        let nodad = if cidr.contains(':') { "nodad" } else { "" };
        namespace.ip(&format!("addr add {cidr} dev {name} {nodad}"))?;
    }
    namespace.ip(&format!("link set {name} up"))
}
