//! Makes the devices that connect two namespaces, and configures their addresses.

use super::{Namespace, World};
use anyhow::{Context, ensure};

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

/// Gives both ends of a veth pair a queue for each CPU, which takes the frames that this CPU sends. So
/// frames of programs on different CPUs do not wait for each other in the kernel.
///
/// # Errors
/// If the kernel cannot choose queues by CPU (`CONFIG_XPS`).
pub fn queue_for_each_cpu(world: &World, name: &str) -> anyhow::Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for end in [&world.client, &world.server] {
        end.run(&format!("ethtool -L {name} rx {cpus} tx {cpus}"))?;
        for cpu in 0..cpus {
            let line = format!("echo {:x} >/sys/class/net/{name}/queues/tx-{cpu}/xps_cpus", 1_u64 << cpu);
            let status = end.command("sh").args(["-c", &line]).status().context("cannot run sh")?;
            ensure!(status.success(), "'{line}' failed: this kernel does not choose queues by CPU (CONFIG_XPS)");
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
