//! A wire with the kernel's TCP at one end and Baton's at the other.

use baton_port::{AnyPort, Capture, Captured, Faults, Faulty, PortSpec};
use baton_socket::host::HostConfig;
use baton_socket::stack::{Stack, Threads};
use baton_testkit::{Netns, Running, veth};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Baton's program, built with these tests.
pub const BATON: &str = env!("CARGO_BIN_EXE_baton");
/// Device of the wire, in both namespaces.
pub const DEVICE: &str = "bt0";
/// Smallest MTU of a link that carries IPv6 (RFC 8200 §5).
const IPV6_MTU_MIN: u32 = 1280;

/// The kind of device at Baton's end of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A TAP device with virtio header: frames larger than the MTU, and no checksums.
    TapVnet,
    /// A TAP device without virtio header: one segment per frame.
    Tap,
    /// AF_XDP in the driver of a veth.
    Xdp,
    /// AF_XDP in generic mode, behind the driver.
    XdpGeneric,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::TapVnet => "tap, virtio header",
            Kind::Tap => "tap",
            Kind::Xdp => "xdp, native",
            Kind::XdpGeneric => "xdp, generic",
        })
    }
}

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ip {
    V4,
    V6,
}

impl Ip {
    /// Address of the host with this number, as written in a URL.
    pub fn url_host(self, host: u8) -> String {
        match self {
            Ip::V4 => format!("10.77.0.{host}"),
            Ip::V6 => format!("[fd77::{host}]"),
        }
    }

    /// Address of the host with this number.
    pub fn addr(self, host: u8) -> IpAddr {
        match self {
            Ip::V4 => IpAddr::from([10, 77, 0, host]),
            Ip::V6 => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, u16::from(host)]),
        }
    }
}

/// Number of the kernel's host, and of Baton's.
pub const KERNEL: u8 = 1;
pub const HOST: u8 = 2;

/// Number of captures so far. `BATON_INTEROP_PCAP=DIR` captures the traffic of each Baton command.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// The wire: the kernel has [`KERNEL`]'s addresses in `far`.
pub struct Wire {
    pub kind: Kind,
    pub far: Netns,
    /// Baton's namespace, if it is a different one.
    near: Option<Netns>,
}

impl Wire {
    pub fn new(kind: Kind, mtu: u32) -> Wire {
        let far = Netns::new("interop");
        let near = match kind {
            Kind::TapVnet | Kind::Tap => {
                far.run(&format!("ip tuntap add dev {DEVICE} mode tap"));
                None
            }
            Kind::Xdp | Kind::XdpGeneric => {
                let near = Netns::new("interopnear");
                veth(&far, DEVICE, &near, DEVICE);
                // Frames over AF_XDP must have checksums and hold one segment each.
                far.run(&format!("ethtool -K {DEVICE} tx off tso off gso off gro off"));
                near.run(&format!("ip link set {DEVICE} mtu {mtu}"));
                Some(near)
            }
        };
        far.run(&format!("ip link set {DEVICE} mtu {mtu} up"));
        far.run(&format!("ip addr add {}/24 dev {DEVICE}", Ip::V4.addr(KERNEL)));
        if mtu >= IPV6_MTU_MIN {
            far.run(&format!("ip addr add {}/64 dev {DEVICE} nodad", Ip::V6.addr(KERNEL)));
            far.run(&format!("ip -6 route replace fd77::/64 dev {DEVICE} proto kernel metric 256 congctl cubic"));
        }
        // CUBIC, whatever this machine's default is. It is set per route, since not every
        // namespace may set the default.
        let source = Ip::V4.addr(KERNEL);
        far.run(&format!(
            "ip route replace 10.77.0.0/24 dev {DEVICE} proto kernel scope link src {source} congctl cubic"
        ));
        Wire { kind, far, near }
    }

    /// Where Baton runs.
    pub fn near(&self) -> &Netns {
        self.near.as_ref().unwrap_or(&self.far)
    }

    /// Baton's port, as written on its command line.
    pub fn port(&self) -> String {
        match self.kind {
            Kind::TapVnet => format!("tap:{DEVICE}"),
            Kind::Tap => format!("tap:{DEVICE},novnet"),
            Kind::Xdp => format!("xdp:{DEVICE}"),
            Kind::XdpGeneric => format!("xdp:{DEVICE},generic"),
        }
    }

    /// One of Baton's commands on this wire.
    pub fn baton(&self, subcommand: &str, faults: Option<Faults>) -> Command {
        let mut command = self.near().command(BATON);
        command.args([subcommand, "--port", &self.port(), "--json"]);
        for (ip, len) in [(Ip::V4, 24), (Ip::V6, 64)] {
            command.args(["--addr", &format!("{}/{len}", ip.addr(HOST))]);
        }
        if let Some(faults) = faults {
            command.args(["--faults", &faults.to_string()]);
        }
        if let Ok(dir) = std::env::var("BATON_INTEROP_PCAP") {
            let number = CAPTURES.fetch_add(1, Ordering::Relaxed);
            command.args(["--pcap", &format!("{dir}/{number:03}-{subcommand}.pcapng")]);
        }
        command.stderr(Stdio::piped());
        command
    }

    /// Baton's stack on this wire, in this process.
    pub fn stack(&self, faults: Option<Faults>, threads: Threads) -> Stack {
        let spec: PortSpec = self.port().parse().unwrap();
        let (mut port, mac) = self.near().enter(|| {
            let port = AnyPort::open(&spec).unwrap();
            let mac = port.required_link_address();
            (port, mac)
        });
        let [v4, v6] = [(Ip::V4, 24), (Ip::V6, 64)].map(|(ip, len)| format!("{}/{len}", ip.addr(HOST)));
        let mut config = HostConfig::new(v4.parse().unwrap());
        config.engine.interface.addresses.push(v6.parse().unwrap());
        if let Some(mac) = mac {
            config.engine.interface.mac = mac;
        }
        for ip in [Ip::V4, Ip::V6] {
            port.add_address(ip.addr(HOST)).unwrap();
        }
        let capture: Option<Capture> = None;
        Stack::spawn(&config, Faulty::new(Captured::new(port, "interop", capture), faults), threads).unwrap()
    }
}

/// `baton serve` on a wire: echo, and the files of a directory over HTTP.
pub struct Serve {
    process: Running,
    lines: std::sync::mpsc::Receiver<Value>,
}

impl Serve {
    pub fn start(wire: &Wire, dir: &Path, faults: Option<Faults>, threads: u8) -> Serve {
        let services = ["--service", &format!("http={}", dir.display())];
        Serve::with(wire.baton("serve", faults).args(services).args(["--threads", &threads.to_string()]))
    }

    /// Runs `command` with an echo service.
    pub fn with(command: &mut Command) -> Serve {
        command.args(["--control", "--service", "echo"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::inherit());
        let mut process = Running::start(command);
        let stdout = BufReader::new(process.child().stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap_or(Value::Null)).is_err() {
                    return;
                }
            }
        });
        let mut serve = Serve { process, lines };
        assert_eq!(serve.line()["event"], "ready");
        serve
    }

    fn line(&mut self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(20)).expect("the server answers")
    }

    /// Reads its counters.
    pub fn stats(&mut self) -> Value {
        self.process.child().stdin.as_mut().unwrap().write_all(b"stats\n").unwrap();
        let line = self.line();
        assert_eq!(line["event"], "stats");
        line
    }
}

/// Payload bytes that an engine retransmitted, by its counters.
pub fn retransmitted(stats: &Value) -> u64 {
    counter(stats, "streamer.tx_retransmitted_bytes")
}

/// One of an engine's counters; 0 if it is missing.
pub fn counter(stats: &Value, name: &str) -> u64 {
    stats["engine"]["counters"][name].as_u64().unwrap_or(0)
}

/// Segments that the kernel of this namespace retransmitted.
pub fn kernel_retransmissions(netns: &Netns) -> u64 {
    let text = netns.run("cat /proc/net/snmp");
    let mut rows = text.lines().filter(|line| line.starts_with("Tcp:")).map(|line| line.split_whitespace());
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let pair = names.zip(values).find(|(name, _)| *name == "RetransSegs");
    pair.and_then(|(_, value)| value.parse().ok()).expect("the kernel counts retransmissions")
}
