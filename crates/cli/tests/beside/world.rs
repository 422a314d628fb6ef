//! The machines of a cell: one whose connections may move, its peer and, in some situations, a
//! router between them.
//!
//! ```text
//!   ours  wire 10.68.0.1 ------------------------- wire 10.68.0.2  peer
//!         other 10.72.0.1 ----------------------- other 10.72.0.2
//!
//!   ours  wire 10.68.0.1 -- wire 10.68.0.2  router  far 10.69.0.1 -- wire 10.69.0.2  peer
//! ```

use crate::counting::{Counting, Group};
use crate::factors::{Cell, Engine, Family, Life, Situation};
use crate::half::{Half, MARK, program};
use baton_client::Service;
use baton_ipc::message::Entry;
use baton_testkit::{Netns, Running, build_beside, run, veth, wait_for};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the listening program listens.
pub const PORT: &str = "9000";

/// `baton`, with its library in the same directory.
pub fn baton() -> &'static Path {
    static BATON: OnceLock<PathBuf> = OnceLock::new();
    BATON.get_or_init(|| {
        let baton = PathBuf::from(env!("CARGO_BIN_EXE_baton"));
        build_beside(&baton, "baton-shim", env!("CARGO_MANIFEST_DIR"));
        baton
    })
}

/// Two network namespaces, the wire between them, and Baton's service. Fields are dropped in order.
pub struct World {
    service: Option<Running>,
    pub counting: Vec<Counting>,
    pub cell: Cell,
    pub ours: Netns,
    pub peer: Netns,
    pub router: Option<Netns>,
    pub group: Option<Group>,
    home: tempfile::TempDir,
}

/// An address of each family, built from the parts that differ.
pub fn address(family: Family, net: u8, host: u8) -> String {
    match family {
        Family::V4 => format!("10.{net}.0.{host}"),
        Family::V6 => format!("fd{net}::{host}"),
    }
}

impl World {
    /// The machines and their wires; no service yet.
    pub fn new(cell: Cell) -> World {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let between = cell.situation == Situation::Masquerade;
        let with_group = cell.situation == Situation::CgroupProgram;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let world = World {
            service: None,
            counting: Vec::new(),
            cell,
            ours: Netns::new("beside"),
            peer: Netns::new("besidepeer"),
            router: between.then(|| Netns::new("besiderouter")),
            group: with_group.then(|| Group::new(&format!("baton-beside-{}-{number}", std::process::id()))),
            home: tempfile::tempdir().unwrap(),
        };
        match &world.router {
            None => {
                world.wire((&world.ours, "wire", 1), (&world.peer, "wire", 2), 68);
                world.wire((&world.ours, "other", 1), (&world.peer, "other", 2), 72);
            }
            Some(router) => {
                world.wire((&world.ours, "wire", 1), (router, "wire", 2), 68);
                world.wire((router, "far", 1), (&world.peer, "wire", 2), 69);
                world.ours.run(&format!("ip route add default via {}", world.address(68, 2)));
            }
        }
        world
    }

    pub fn address(&self, net: u8, host: u8) -> String {
        address(self.cell.family, net, host)
    }

    /// Its length of prefix when it stands alone.
    pub fn host(&self, net: u8, host: u8) -> String {
        let len = if self.cell.family == Family::V4 { 32 } else { 128 };
        format!("{}/{len}", self.address(net, host))
    }

    pub fn on_link(&self, net: u8, host: u8) -> String {
        match self.cell.family {
            Family::V4 => format!("{}/24", self.address(net, host)),
            Family::V6 => format!("{}/64 nodad", self.address(net, host)),
        }
    }

    fn wire(&self, a: (&Netns, &str, u8), b: (&Netns, &str, u8), net: u8) {
        veth(a.0, a.1, b.0, b.1);
        for (side, device, host) in [a, b] {
            side.run(&format!("ip address add {} dev {device}", self.on_link(net, host)));
            // How soon a peer retransmits differs between congestion controls and is not under test.
            let settings = "net.ipv4.tcp_congestion_control=reno net.ipv4.conf.all.rp_filter=0 net.ipv4.ip_forward=1 \
                            net.ipv6.conf.all.forwarding=1";
            side.run(&format!("sysctl -q -w {settings} net.ipv4.conf.{device}.rp_filter=0"));
            if self.cell.engine == Engine::ServiceXdp && !std::ptr::eq(side, &self.ours) {
                // Over AF_XDP, a checksum that a veth omitted looks like damage.
                side.run(&format!("ethtool -K {device} tx off"));
            }
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn directory(&self) -> &Path {
        self.home.path()
    }

    /// Adds rules to our machine, in the syntax of `nft`.
    pub fn rules(&self, namespace: &Netns, text: &str) {
        let file = self.file("rules");
        fs::write(&file, text).unwrap();
        run(namespace.command("nft").arg("-f").arg(&file));
    }

    pub fn start_service(&mut self) {
        let steer = if self.cell.engine == Engine::ServiceXdp { "xdp" } else { "tc" };
        let mut command = Command::new(baton());
        command.args(["service", "--interface", "wire", "--steer", steer]);
        if self.router.is_none() {
            command.args(["--interface", "other"]);
        }
        command.arg("--socket").arg(self.file("socket")).env(MARK, self.directory());
        command.stdin(Stdio::null()).stderr(File::create(self.file("service")).unwrap());
        // This does not use `ip netns exec`, which hides the BPF file system.
        self.service = Some(self.ours.enter(|| Running::start(&mut command)));
        wait_for("the service", || Service::connect(self.file("socket")).is_ok());
    }

    pub fn socket(&self) -> PathBuf {
        self.file("socket")
    }

    /// The connection, as the service reports it.
    pub fn entry(&self) -> Option<Entry> {
        let service = Service::connect(self.socket()).ok()?;
        service.list().ok()?.pop()
    }

    /// Our end, under `baton run` if there is a service.
    pub fn our_half(&self, words: [&str; 4]) -> Half {
        let mut line: Vec<String> = Vec::new();
        if let Some(group) = &self.group {
            let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.path().display());
            line.extend(["sh", "-c", &enter, "sh"].map(str::to_owned));
        }
        if self.service.is_some() {
            let engine = if self.cell.engine == Engine::DirectTc { "direct" } else { "service" };
            let policy = match self.cell.life {
                Life::Stays => "never",
                Life::HomeByBulk => "until bulk",
                _ => "fcfs",
            };
            let baton = [baton().to_str().unwrap(), "run", "--explain", "--socket", self.socket().to_str().unwrap()]
                .map(str::to_owned);
            line.extend(baton);
            line.extend(["--engine", engine, "--policy", policy, "--"].map(str::to_owned));
        }
        line.push(program().to_str().unwrap().to_owned());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).env(MARK, self.directory());
        command.stderr(File::create(self.file("said")).unwrap());
        self.ours.enter(move || Half::start("our end", command, words))
    }

    /// Starts the peer's end, which always runs without Baton.
    pub fn peer_half(&self, words: [&str; 4]) -> Half {
        self.peer.enter(|| Half::start("the peer's end", Command::new(program()), words))
    }

    /// Why the connection stayed in the kernel or came back, as `--explain` prints it at the end.
    pub fn reasons(&self) -> Vec<String> {
        let said = fs::read_to_string(self.file("said")).unwrap_or_default();
        let reason = |line: &str| line.split_once(" the kernel: ").map(|(_, reason)| reason.to_owned());
        said.lines().filter_map(reason).collect()
    }

    /// Everything our end and the service printed, to diagnose a failure.
    pub fn words(&self) -> String {
        let read = |name| fs::read_to_string(self.file(name)).unwrap_or_default();
        [read("said"), read("service")].concat().lines().map(|line| format!("\n    {line}")).collect()
    }
}
