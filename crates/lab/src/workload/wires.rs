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
    let mut kernel: Option<Rc<RefCell<Server>>> = None;
    let (made, mut not_shown) = make(world, stop, |far| {
        if let (true, Some(server)) = (far.is_kernel(), &kernel) {
            return Ok(server.clone());
        }
        let server = Rc::new(RefCell::new(Server::start(&world.server, &far.stack(), &services, stop)?));
        if far.is_kernel() {
            kernel = Some(server.clone());
        }
        Ok(server)
    })?;
    if !has_ipv6() {
        not_shown.insert(0, "IPv6: not enabled in this kernel".to_owned());
    }
    Ok((made.into_iter().map(Made::link).collect(), not_shown))
}

/// The far end of a wire, as a server needs to know it.
pub struct Far {
    /// The device as `baton serve --port` names it; `kernel` for the kernel's own stack.
    pub port: String,
    /// The addresses with their prefix lengths: IPv4, then IPv6 if this machine has it.
    pub cidrs: Vec<String>,
}

impl Far {
    /// True if the kernel's own stack serves there.
    pub fn is_kernel(&self) -> bool {
        self.port == KERNEL
    }

    /// The options of `baton serve` for the stack.
    fn stack(&self) -> String {
        if self.is_kernel() {
            return format!("--port {KERNEL}");
        }
        let stack = format!("--port {} --cc reno", self.port);
        self.cidrs.iter().fold(stack, |stack, cidr| format!("{stack} --addr {cidr}"))
    }
}

/// The name of the kernel's stack among ports.
const KERNEL: &str = "kernel";

/// A wire with a server at its far end.
pub struct Made<S> {
    plan: &'static Plan,
    far: Far,
    /// The server's addresses: IPv4, then IPv6 if this machine has it.
    pub addrs: Vec<IpAddr>,
    /// The handle of its server, as `start` returned it.
    pub server: S,
}

impl<S> Made<S> {
    /// The wire's name.
    pub fn name(&self) -> &'static str {
        self.plan.name
    }
}

/// Makes all wires that this machine allows, with the server at the far end of each that `start` starts.
/// The second value lists the wires that could not be made, with the reasons.
///
/// # Errors
/// If not even the kernel's own wires can be made, or the measurement is asked to end.
pub fn make<S>(
    world: &World,
    stop: &Stop,
    mut start: impl FnMut(&Far) -> anyhow::Result<S>,
) -> anyhow::Result<(Vec<Made<S>>, Vec<String>)> {
    let (mut made, mut missing) = (Vec::new(), Vec::new());
    for (plan, subnet) in PLANS.iter().zip(0..) {
        if let Kind::Kernel { offloads } = plan.kind {
            veth(world, &plan.device(), offloads)?;
            configure(&world.server, &plan.device(), &cidrs(subnet, 2))?;
            configure(&world.client, &plan.device(), &cidrs(subnet, 1))?;
        }
    }
    for (plan, subnet) in PLANS.iter().zip(0..) {
        let far = plan.far(subnet);
        let started = if far.is_kernel() { start(&far) } else { baton(world, plan, subnet, || start(&far)) };
        match started {
            Ok(server) => made.push(Made { plan, far, addrs: addrs(subnet, 2), server }),
            Err(_) if stop.requested() => anyhow::bail!("interrupted"),
            Err(error) if far.is_kernel() => return Err(error),
            Err(error) => missing.push(format!("{}: {error:#}", plan.name)),
        }
    }
    Ok((made, missing))
}

/// Makes a wire with Baton at its far end, where `start` starts it.
fn baton<S>(world: &World, plan: &Plan, subnet: u8, start: impl FnOnce() -> anyhow::Result<S>) -> anyhow::Result<S> {
    let device = plan.device();
    if plan.kind == Kind::Xdp {
        veth(world, &device, false)?;
        world.server.ip(&format!("link set {device} up"))?;
    }
    let server = start()?;
    if plan.kind != Kind::Xdp {
        // The kernel's end of the TAP device moves to the client; Baton's descriptor stays open here.
        world.server.ip(&format!("link set {device} netns {}", world.client.name()))?;
    }
    configure(&world.client, &device, &cidrs(subnet, 1))?;
    Ok(server)
}

impl Plan {
    /// Name of the devices at both ends.
    fn device(&self) -> String {
        format!("bt-{}", self.id)
    }

    /// The far end on a subnet.
    fn far(&self, subnet: u8) -> Far {
        let device = self.device();
        let port = match self.kind {
            Kind::Kernel { .. } => KERNEL.to_owned(),
            Kind::Tap { vnet: true } => format!("tap:{device}"),
            Kind::Tap { vnet: false } => format!("tap:{device},novnet"),
            Kind::Xdp => format!("xdp:{device}"),
        };
        Far { port, cidrs: cidrs(subnet, 2) }
    }
}

impl Made<Rc<RefCell<Server>>> {
    fn link(self) -> Link {
        let Made { plan, far, addrs, server } = self;
        let stack = far.stack();
        let command =
            format!("baton serve {stack} --service echo --service discard --service chargen --service http=DIR");
        Link {
            wire: Wire {
                id: plan.id.to_owned(),
                side: if far.is_kernel() { Side::Kernel } else { Side::Baton },
                name: plan.name.to_owned(),
                about: plan.about.to_owned(),
                baseline: plan.baseline.map(str::to_owned),
                command,
            },
            addrs,
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
    let stack = plan.far(100).stack();
    let mut server = baton(world, plan, 100, || Server::start(&world.server, &stack, &options, stop))?;
    let before = server.stats(stop)?.engine;
    let arguments = [
        format!("--size={}", run.message_bytes),
        format!("--seconds={}", run.length.as_secs_f64()),
        format!("--warmup={}", (run.length / 4).as_secs_f64()),
    ];
    let outcome = generate(world, addrs(100, 2)[0], run.load, &arguments, stop)?;
    let after = server.stats(stop)?.engine;
    Ok(Run { tce: tce_share(before.as_ref(), after.as_ref()), ..Run::from(outcome) })
}
