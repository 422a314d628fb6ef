//! Wires between client and server, with services at their far ends.

use super::generate::{generate, tce_share};
use super::site::Site;
use crate::report::{Run, Side, Wire};
use crate::world::World;
use crate::world::serve::Server;
use crate::world::wire::{configure, veth};
use baton_apps::signal::Stop;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

/// A wire that has been set up, with services at its far end.
pub struct Link {
    /// Its description in the report.
    pub wire: Wire,
    /// The services' addresses: IPv4, then IPv6 if this machine has it.
    pub addrs: Vec<IpAddr>,
    /// The server process; the kernel's wires share one.
    pub server: Rc<RefCell<Server>>,
    /// Number of downloads that fit into a run; 0 while unknown.
    pub downloads: usize,
    /// True after a failure; the wire is not used any more.
    pub broken: bool,
}

/// A wire to be made.
struct Plan {
    id: &'static str,
    name: &'static str,
    about: &'static str,
    kind: Kind,
    baseline: Option<&'static str>,
}

/// The devices of a wire.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A veth pair with the kernel at both ends.
    Kernel { offloads: bool },
    /// A TAP device with Baton behind it.
    Tap { vnet: bool },
    /// A veth pair with Baton on an AF_XDP socket at one end.
    Xdp,
}

/// The wires in the order of display. The index of a wire is its subnet.
const PLANS: [Plan; 5] = [
    Plan {
        id: "veth",
        name: "kernel, offloads",
        about: "veth pair, MTU 1500: segments of up to 64 KB pass unsplit and without checksums.",
        kind: Kind::Kernel { offloads: true },
        baseline: None,
    },
    Plan {
        id: "tap",
        name: "Baton, TAP offloads",
        about: "TAP device with virtio header, MTU 1500: segments of up to 64 KB pass unsplit and without checksums.",
        kind: Kind::Tap { vnet: true },
        baseline: Some("veth"),
    },
    Plan {
        id: "veth-plain",
        name: "kernel, no offloads",
        about: "veth pair, MTU 1500, all offloads off: every segment is a frame with a checksum in software.",
        kind: Kind::Kernel { offloads: false },
        baseline: None,
    },
    Plan {
        id: "tap-plain",
        name: "Baton, TAP",
        about: "TAP device without virtio header, MTU 1500: every segment is a frame with a checksum in software.",
        kind: Kind::Tap { vnet: false },
        baseline: Some("veth-plain"),
    },
    Plan {
        id: "xdp",
        name: "Baton, AF_XDP",
        about: "veth pair, MTU 1500, all offloads off, with an AF_XDP socket at Baton's end.",
        kind: Kind::Xdp,
        baseline: Some("veth-plain"),
    },
];

/// Addresses of a host on a wire's subnet: IPv4, then IPv6 if this machine has it.
fn addrs(subnet: u8, host: u8) -> Vec<IpAddr> {
    let v4 = Ipv4Addr::new(10, 77, subnet, host).into();
    let v6 = Ipv6Addr::new(0xfd77, subnet.into(), 0, 0, 0, 0, 0, host.into()).into();
    if has_ipv6() { vec![v4, v6] } else { vec![v4] }
}

/// The same addresses with prefix lengths.
fn cidrs(subnet: u8, host: u8) -> Vec<String> {
    addrs(subnet, host).iter().map(|addr| format!("{addr}/{}", if addr.is_ipv4() { 24 } else { 64 })).collect()
}

fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}

/// Makes all wires that this machine allows, and starts their servers. The second value lists the wires
/// that could not be made, with the reasons.
///
/// # Errors
/// If not even the kernel's own wires can be made.
pub fn links(world: &World, site: &Site, stop: &Stop) -> anyhow::Result<(Vec<Link>, Vec<String>)> {
    let services = [format!("--service=http={}", site.dir().display())];
    let (mut links, mut not_shown) = (Vec::new(), Vec::new());
    if !has_ipv6() {
        not_shown.push("IPv6: not enabled in this kernel".to_owned());
    }
    for (plan, subnet) in PLANS.iter().zip(0..) {
        if let Kind::Kernel { offloads } = plan.kind {
            veth(world, &plan.device(), offloads)?;
            configure(&world.server, &plan.device(), &cidrs(subnet, 2))?;
            configure(&world.client, &plan.device(), &cidrs(subnet, 1))?;
        }
    }
    let kernel = Rc::new(RefCell::new(Server::start(&world.server, KERNEL, &services, stop)?));
    for (plan, subnet) in PLANS.iter().zip(0..) {
        let started = match plan.kind {
            Kind::Kernel { .. } => Ok((KERNEL.to_owned(), kernel.clone())),
            _ => baton(world, plan, subnet, &services, stop),
        };
        match started {
            Ok((stack, server)) => links.push(plan.link(subnet, &stack, server)),
            Err(_) if stop.requested() => anyhow::bail!("interrupted"),
            Err(error) => not_shown.push(format!("{}: {error:#}", plan.name)),
        }
    }
    Ok((links, not_shown))
}

/// The options of `baton serve` for the kernel's stack.
const KERNEL: &str = "--port kernel";

/// Makes a wire with Baton at its far end and starts Baton there.
fn baton(
    world: &World,
    plan: &Plan,
    subnet: u8,
    options: &[String],
    stop: &Stop,
) -> anyhow::Result<(String, Rc<RefCell<Server>>)> {
    let device = plan.device();
    let port = match plan.kind {
        Kind::Tap { vnet: true } => format!("tap:{device}"),
        Kind::Tap { vnet: false } => format!("tap:{device},novnet"),
        _ => format!("xdp:{device}"),
    };
    let stack = cidrs(subnet, 2)
        .iter()
        .fold(format!("--port {port} --cc reno"), |stack, cidr| format!("{stack} --addr {cidr}"));
    if plan.kind == Kind::Xdp {
        veth(world, &device, false)?;
        world.server.ip(&format!("link set {device} up"))?;
    }
    let server = Server::start(&world.server, &stack, options, stop)?;
    if plan.kind != Kind::Xdp {
        // The kernel's end of the TAP device moves to the client; Baton's descriptor stays open here.
        world.server.ip(&format!("link set {device} netns {}", world.client.name()))?;
    }
    configure(&world.client, &device, &cidrs(subnet, 1))?;
    Ok((stack, Rc::new(RefCell::new(server))))
}

impl Plan {
    /// Name of the devices at both ends.
    fn device(&self) -> String {
        format!("bt-{}", self.id)
    }

    fn link(&self, subnet: u8, stack: &str, server: Rc<RefCell<Server>>) -> Link {
        let command =
            format!("baton serve {stack} --service echo --service discard --service chargen --service http=DIR");
        Link {
            wire: Wire {
                id: self.id.to_owned(),
                side: if matches!(self.kind, Kind::Kernel { .. }) { Side::Kernel } else { Side::Baton },
                name: self.name.to_owned(),
                about: self.about.to_owned(),
                baseline: self.baseline.map(str::to_owned),
                command,
            },
            addrs: addrs(subnet, 2),
            server,
            downloads: 0,
            broken: false,
        }
    }
}

/// A bulk load of one message size over a TAP device.
pub struct TapRun {
    /// True with a virtio header: segments of up to 64 KB pass unsplit.
    pub offloads: bool,
    /// The client's load: send or receive.
    pub load: baton_apps::load::Kind,
    /// Bytes per write at both ends.
    pub message_bytes: usize,
    /// Length of the measured interval.
    pub length: Duration,
}

/// Runs the load against a server started for it.
///
/// # Errors
/// If the device cannot be made, the server cannot be started, or the load fails.
pub fn tap_run(world: &World, run: &TapRun, stop: &Stop) -> anyhow::Result<Run> {
    let plan = PLANS.iter().find(|plan| plan.kind == Kind::Tap { vnet: run.offloads }).expect("the plans have both");
    let options = [format!("--message={}", run.message_bytes)];
    let (_, server) = baton(world, plan, 100, &options, stop)?;
    let before = server.borrow_mut().stats(stop)?.engine;
    let arguments = [
        format!("--size={}", run.message_bytes),
        format!("--seconds={}", run.length.as_secs_f64()),
        format!("--warmup={}", (run.length / 4).as_secs_f64()),
    ];
    let outcome = generate(world, addrs(100, 2)[0], run.load, &arguments, stop)?;
    let after = server.borrow_mut().stats(stop)?.engine;
    Ok(Run { tce: tce_share(before.as_ref(), after.as_ref()), ..Run::from(outcome) })
}
