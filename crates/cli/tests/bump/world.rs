//! Three namespaces in a row, and a bump in the last.
//!
//! ```text
//!   sender [wire] --- [left] faults [right] --- [wire] host, bump, [bump0]
//! ```

use crate::faults::{Faults, FaultyWire};
use baton_testkit::{Netns, Running, output, run, veth, wait_for};
use rustix::process::Signal;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

pub const SENDER: &str = "10.66.0.1";
pub const HOST: &str = "10.66.0.2";
pub const SENDER6: &str = "fd66::1";
pub const HOST6: &str = "fd66::2";

/// Bytes that each program transfers.
pub fn bytes() -> u64 {
    let wanted = std::env::var("BATON_BUMP_BYTES").ok();
    wanted.map_or(48 << 20, |text| text.parse().expect("BATON_BUMP_BYTES is a number"))
}

pub struct World {
    // Dropped first, because it holds devices of the namespace in the next field.
    _faulty: FaultyWire,
    pub sender: Netns,
    pub host: Netns,
    _between: Netns,
    pub home: tempfile::TempDir,
}

impl World {
    /// Turns off offloads, so that the sender sends single segments and the receiver merges none.
    pub fn new(faults: Faults) -> World {
        let (sender, between, host) = (Netns::new("bumpsend"), Netns::new("bumpwire"), Netns::new("bumphost"));
        veth(&sender, "wire", &between, "left");
        veth(&host, "wire", &between, "right");
        for (netns, v4, v6) in [(&sender, SENDER, SENDER6), (&host, HOST, HOST6)] {
            netns.run(&format!("ip addr add {v4}/24 dev wire"));
            netns.run(&format!("ip addr add {v6}/64 dev wire nodad"));
            netns.run("ethtool -K wire gro off tso off gso off");
        }
        let faulty = FaultyWire::start(&between, faults, 1);
        let world = World { _faulty: faulty, sender, host, _between: between, home: tempfile::tempdir().unwrap() };
        wait_for("a link-local address", || !world.host.run("ip -6 addr show dev wire").contains("tentative"));
        world
    }

    /// A file of `len` bytes that do not repeat, and its digest.
    pub fn file(&self, name: &str, len: u64) -> (PathBuf, String) {
        let path = self.home.path().join(name);
        let mut random = fastrand::Rng::with_seed(len);
        let bytes: Vec<u8> =
            std::iter::repeat_with(|| random.u64(..).to_ne_bytes()).take(len as usize / 8).flatten().collect();
        fs::write(&path, &bytes).unwrap();
        // The directory is private, and nginx's workers run as another user.
        run(Command::new("chmod").arg("-R").arg("a+rX").arg(self.home.path()));
        (path, digest(&bytes))
    }

    /// Number of resets that both kernels sent, and of connections that a reset ended.
    pub fn resets(&self) -> [u64; 2] {
        let of = |name| [&self.sender, &self.host].map(|netns| tcp_counter(netns, name)).iter().sum();
        [of("OutRsts"), of("EstabResets")]
    }

    /// Describes the host's devices and routes.
    pub fn state(&self) -> String {
        ["ip -o link", "ip -o addr", "ip route show table all", "ip -6 route show table all"]
            .map(|line| {
                // Device indexes and ages change between two calls.
                let text = self.host.run(line);
                text.lines()
                    .filter(|line| !line.contains("bump"))
                    .map(|line| line.trim_end().to_owned() + "\n")
                    .collect::<String>()
            })
            .concat()
    }

    pub fn devices(&self) -> Vec<String> {
        let text = self.host.run("ip -o link");
        text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.to_owned())).collect()
    }
}

fn tcp_counter(netns: &Netns, name: &str) -> u64 {
    let text = netns.run("cat /proc/net/snmp");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|n| n == name).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn digest_of(path: &Path) -> String {
    digest(&fs::read(path).unwrap())
}

/// A running bump.
pub struct Bump {
    pub running: Running,
    stdout: BufReader<ChildStdout>,
}

impl Bump {
    /// Starts a bump on the host's wire. Frames pass when this returns.
    #[track_caller]
    pub fn start(netns: &Netns, more: &str) -> Bump {
        let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
        command.args(["bump", "--wire", "wire", "--host", "bump0", "--json"]).args(more.split_whitespace());
        let mut running = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let mut stdout = BufReader::new(running.child().stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.contains("\"ready\""), "{line:?}");
        Bump { running, stdout }
    }

    /// Open descriptors, and resident memory in KiB.
    pub fn uses(&mut self) -> (usize, u64) {
        let pid = self.running.child().id();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        (descriptors, resident.trim().trim_end_matches(" kB").parse().unwrap())
    }

    /// Ends it as Ctrl-C would, and returns its counters.
    pub fn end(mut self) -> serde_json::Value {
        self.running.signal(Signal::TERM);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.running.child().wait().unwrap().success(), "{rest}");
        serde_json::from_str(&rest).unwrap_or_else(|e| panic!("{e}: {rest}"))
    }
}

/// Starts nginx in a namespace. It serves a directory on port 80 over both IP versions.
pub fn nginx(netns: &Netns, home: &Path, root: &Path) -> Running {
    let (home, root) = (home.display(), root.display());
    let config = format!(
        "user root; daemon off; master_process off; pid \"{home}/pid\"; error_log stderr; events {{}} http {{ access_log off; \
         client_body_temp_path \"{home}\"; proxy_temp_path \"{home}\"; fastcgi_temp_path \"{home}\"; \
         uwsgi_temp_path \"{home}\"; scgi_temp_path \"{home}\"; \
         server {{ listen 80; listen [::]:80; root \"{root}\"; }} }}"
    );
    let file = format!("{home}/nginx.conf");
    fs::write(&file, config).unwrap();
    let running =
        Running::start(netns.command("nginx").args(["-c", &file]).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("nginx", || netns.run("ss -ltn").contains(":80 "));
    running
}

/// Fetches a URL to a file.
#[track_caller]
pub fn curl(netns: &Netns, url: &str, to: &Path) {
    let mut command = netns.command("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--globoff", "--noproxy", "*", "--max-time", "600", "--output"])
        .arg(to)
        .arg(url);
    let out = output(&mut command);
    assert!(out.status.success(), "{url}: {}", String::from_utf8_lossy(&out.stderr));
}
