//! The arguments that choose a TCP stack, shared by `serve` and `get`.

use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::net::Net;
use baton_apps::net::engine::EngineNet;
use baton_apps::net::kernel::KernelNet;
use baton_consumer::consumer::ConsumerConfig;
use baton_engine::endpoint::Cidr;
use baton_engine::tuning::EngineTuning;
use baton_port::capture::wall_clock_ns;
use baton_port::{AnyPort, Capture, Captured, Faults, Faulty, OpenError, PortSpec};
use baton_socket::host::HostConfig;
use baton_tcp::config::{Acks, Congestion};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

/// Default limit of connections open at once on kernel sockets.
const KERNEL_CONNECTIONS: u32 = 65_536;

/// Queue pairs reserved for listeners, which use one each.
const LISTENERS: u32 = 64;

/// Range of `--coalesce`.
const COALESCE: RangeInclusive<i64> = *EngineTuning::COALESCE.start() as i64..=*EngineTuning::COALESCE.end() as i64;

/// Entries of an engine's table for each open connection: connections that are half-open or in
/// TIME-WAIT need entries too.
const ENTRIES_PER_CONNECTION: u32 = 2;

/// The stack to run on, and its addresses and options.
#[derive(clap::Args, Debug)]
pub struct StackArgs {
    /// Device that carries the frames: tap:NAME[,novnet][,nomerge] or
    /// xdp:IFACE[,generic][,copy|,zerocopy][,queues=N]; or 'kernel' for the kernel's own sockets, or
    /// unix:PATH for a Unix domain socket
    #[arg(long, value_name = "PORT")]
    pub port: StackSpec,

    /// Address of the engine with its prefix length; repeat it for several. With --port kernel, the
    /// address to listen on
    #[arg(long = "addr", value_name = "ADDR/LEN", value_parser = parse_cidr)]
    pub addrs: Vec<Cidr>,

    /// Gateway to other networks; give it once for IPv4 and once for IPv6
    #[arg(long = "gateway", value_name = "ADDR")]
    pub gateways: Vec<IpAddr>,

    /// Threads of the engine: 1 runs both halves in turn, 2 gives each half its own
    #[arg(long, default_value_t = 1, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub threads: u8,

    /// Capture every frame to this file, or to a pipe that Wireshark reads
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<String>,

    /// For tests: lose, duplicate, reorder and corrupt frames in both directions, as in
    /// loss=0.01,reorder=0.01,dup=0.01,corrupt=0.001,seed=7
    #[arg(long, value_name = "SHARES", hide = true)]
    pub faults: Option<Faults>,

    /// Most connections open at once [default: 2048 on an engine]; a higher limit leaves each
    /// connection a smaller share of the stream memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: Option<u32>,

    /// Congestion control of new connections
    #[arg(long, value_enum, default_value_t = CongestionArg::Cubic)]
    pub cc: CongestionArg,

    /// Most segments that arrive together and are handled as one; 1 turns coalescing off
    #[arg(long, default_value_t = EngineTuning::default().coalesce, value_name = "N", value_parser = clap::value_parser!(u16).range(COALESCE))]
    pub coalesce: u16,

    /// How often coalesced segments are acknowledged
    #[arg(long, value_enum, default_value_t = AcksArg::PerRun)]
    pub acks: AcksArg,

    /// The check that finds damage to segments: TCP's checksum, or that of the link. The latter takes a
    /// peer on the same link that is an engine with the same choice, and a port that leaves checksums
    /// to the engine; all else has checksums
    #[arg(long, value_enum, default_value_t = IntegrityArg::Checksum)]
    pub integrity: IntegrityArg,
}

/// A stack, as `--port` names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StackSpec {
    /// The kernel's TCP.
    Kernel,
    /// A Unix domain socket at this path.
    Unix(PathBuf),
    /// Baton's engine on a port.
    Baton(PortSpec),
}

impl FromStr for StackSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<StackSpec, String> {
        match (text, text.strip_prefix("unix:")) {
            ("kernel", _) => Ok(StackSpec::Kernel),
            (_, Some(path)) => Ok(StackSpec::Unix(path.into())),
            _ => text.parse().map(StackSpec::Baton).map_err(|error: baton_port::any::SpecError| error.to_string()),
        }
    }
}

/// `--cc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum CongestionArg {
    /// NewReno (RFC 5681, RFC 6582)
    Reno,
    /// CUBIC (RFC 9438)
    Cubic,
}

/// `--acks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum AcksArg {
    /// One ACK for all of them
    PerRun,
    /// One ACK for every second segment, as without coalescing
    EverySecond,
}

/// `--integrity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum IntegrityArg {
    /// TCP's checksum (RFC 9293 §3.1)
    Checksum,
    /// The link's own check, such as Ethernet's
    Link,
}

/// Parses `ADDR/LEN`. An address without a length is a network of one host.
fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let lone = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => Some(format!("{text}/32")),
        Ok(IpAddr::V6(_)) => Some(format!("{text}/128")),
        Err(_) => None,
    };
    lone.as_deref().unwrap_or(text).parse().map_err(|error: baton_engine::endpoint::CidrError| error.to_string())
}

impl StackArgs {
    /// Opens the stack.
    ///
    /// # Errors
    /// A usage error with its remedy if the options or the machine do not allow it.
    pub fn open(&self) -> anyhow::Result<Box<dyn Net>> {
        match &self.port {
            StackSpec::Kernel | StackSpec::Unix(_) => {
                if !self.gateways.is_empty() || self.pcap.is_some() || self.faults.is_some() {
                    let what = "--gateway, --pcap and --faults need an engine";
                    return Err(usage(what, "remove them, or choose a port other than kernel"));
                }
                let connections = self.connections.unwrap_or(KERNEL_CONNECTIONS) as usize;
                let net = match &self.port {
                    StackSpec::Unix(path) => KernelNet::over_unix(connections, path.clone()),
                    _ => KernelNet::new(connections),
                };
                Ok(Box::new(net.context("cannot make an epoll instance")?))
            }
            StackSpec::Baton(spec) => self.open_engine(spec),
        }
    }

    fn open_engine(&self, spec: &PortSpec) -> anyhow::Result<Box<dyn Net>> {
        if self.addrs.is_empty() {
            return Err(usage("an engine needs an address of its own", "give one, as in --addr 10.77.0.2/24"));
        }
        let mut port = AnyPort::open(spec).map_err(open_error)?;
        let mut config = HostConfig::new(self.addrs[0]);
        if let Some(connections) = self.connections {
            config.consumer = ConsumerConfig::for_connections(connections + LISTENERS);
            let entries = connections.saturating_mul(ENTRIES_PER_CONNECTION);
            config.engine.max_connections = config.engine.max_connections.max(entries);
        }
        config.engine.tcp.congestion = match self.cc {
            CongestionArg::Reno => Congestion::Reno,
            CongestionArg::Cubic => Congestion::Cubic,
        };
        config.engine.coalesce = self.coalesce;
        config.engine.tcp.acks = match self.acks {
            AcksArg::PerRun => Acks::PerRun,
            AcksArg::EverySecond => Acks::EverySecond,
        };
        config.engine.tcp.unsummed = self.integrity == IntegrityArg::Link;
        let interface = &mut config.engine.interface;
        interface.addresses.clone_from(&self.addrs);
        for gateway in &self.gateways {
            let place = if gateway.is_ipv4() { &mut interface.gateway_v4 } else { &mut interface.gateway_v6 };
            if place.replace((*gateway).into()).is_some() {
                return Err(usage("two gateways for one IP version", "give at most one for IPv4 and one for IPv6"));
            }
        }
        if let Some(mac) = port.required_link_address() {
            interface.mac = mac;
        }
        for cidr in &self.addrs {
            port.add_address(cidr.addr.ip()).context("cannot direct an address to the port")?;
        }
        let capture = self.pcap.as_deref().map(|path| {
            Capture::create(path, wall_clock_ns)
                .map_err(|error| usage(format!("cannot write {path}: {error}"), "name another file with --pcap"))
        });
        let port = Captured::new(port, &spec.to_string(), capture.transpose()?);
        let port = Faulty::new(port, self.faults);
        Ok(Box::new(EngineNet::new(&config, port, self.threads == 2).context("cannot make an engine")?))
    }

    /// The command that the user still has to run before the kernel can reach a TAP device.
    pub fn hint(&self) -> Option<String> {
        let StackSpec::Baton(PortSpec::Tap { name, .. }) = &self.port else { return None };
        let cidr = self.addrs.first()?;
        Some(format!(
            "give the kernel's end an address in the same network: ip addr add ADDRESS/{} dev {name}; ip link set {name} up",
            cidr.prefix
        ))
    }

    /// Where a service that listens on `addr` is, for people.
    pub fn place(&self, addr: SocketAddr) -> String {
        match &self.port {
            StackSpec::Unix(path) => path.display().to_string(),
            _ => addr.to_string(),
        }
    }

    /// The addresses to listen on. An engine listens on all of its addresses.
    pub fn local_addrs(&self) -> Vec<IpAddr> {
        let any = vec![Ipv6Addr::UNSPECIFIED.into()];
        match (&self.port, self.addrs.as_slice()) {
            (StackSpec::Baton(_) | StackSpec::Unix(_), _) | (StackSpec::Kernel, []) => any,
            (StackSpec::Kernel, addrs) => addrs.iter().map(|cidr| cidr.addr.ip()).collect(),
        }
    }
}

/// Turns an error of opening a port into a usage error.
fn open_error(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::NotPermitted { device, remedy } => usage(format!("{device}: not permitted"), remedy),
        OpenError::Busy { device, remedy } => usage(format!("{device}: in use by another program"), remedy),
        OpenError::Missing { device, remedy } => usage(format!("{device}: not found"), remedy),
        OpenError::Unsuitable { device, what, remedy } => usage(format!("{device}: {what}"), remedy),
        error => usage(error.to_string(), "run 'baton doctor' to see what this machine supports"),
    }
}

/// Turns an error of listening into a usage error with its remedy.
pub fn listen_error(addr: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let what = format!("cannot listen on {addr}: {error}");
    match error.kind() {
        AddrInUse => {
            usage(what, "choose another port with --listen, or end the program that uses it (ss -ltnp shows it)")
        }
        PermissionDenied => usage(what, "choose a port above 1023 with --listen, or run as root"),
        AddrNotAvailable => usage(what, "give --addr an address of this machine (ip addr)"),
        _ => usage(what, "check --addr and --listen"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_prefix() {
        for (text, full) in [("10.77.0.2/24", "10.77.0.2/24"), ("::1", "::1/128"), ("10.0.0.1", "10.0.0.1/32")] {
            assert_eq!(parse_cidr(text).map(|cidr| cidr.to_string()), Ok(full.to_owned()));
        }
        for bad in ["", "10.77.0/24", "10.77.0.2/33", "10.77.0.2/", "::1/129", "10.77.0.2/-1"] {
            assert!(parse_cidr(bad).is_err(), "{bad}");
        }
    }
}
