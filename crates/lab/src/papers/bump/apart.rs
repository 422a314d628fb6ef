//! Pins sender and receiver to different CPUs, including the kernel's work for each.
//!
//! ```text
//!   CPU 0   baton load, the client's TCP, segmentation, receiving of ACKs
//!   CPU 1   the interface's receive path, baton bump, the server's TCP, baton serve
//! ```
//!
//! Programs stay on the CPU on which they are started. By default, frames of a veth pair are received
//! on the sender's CPU; receive packet steering (RPS) moves them to the receiver's, as the interrupt of
//! an interface would. So each CPU's time belongs to one side.

use crate::world::{Namespace, World};
use anyhow::{Context, bail};

/// The CPU of the sending side.
pub const SENDER: usize = 0;
/// The CPU of the receiving side.
pub const RECEIVER: usize = 1;

/// Makes both ends of a wire receive on the CPU of their side.
pub fn steer(world: &World, device: &str) -> anyhow::Result<()> {
    for (namespace, cpu) in [(&world.client, SENDER), (&world.server, RECEIVER)] {
        steer_end(namespace, device, cpu)?;
    }
    Ok(())
}

fn steer_end(namespace: &Namespace, device: &str, cpu: usize) -> anyhow::Result<()> {
    let line = format!("echo {:x} >/sys/class/net/{device}/queues/rx-0/rps_cpus", 1 << cpu);
    let status = namespace.command("sh").args(["-c", &line]).status().context("cannot run sh")?;
    if !status.success() {
        bail!("'{line}' failed: this kernel has no receive packet steering (CONFIG_RPS)");
    }
    Ok(())
}
