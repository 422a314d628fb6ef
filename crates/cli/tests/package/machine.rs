//! A machine whose root is a clean Debian, with a wire to a server, and the package on it.

use crate::root::Root;
use baton_testkit::{Netns, Running, c, output, run, veth, wait_for};
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Mounts the kernel's file systems below a root (`$0`) and enters it. The command has a mount
/// namespace of its own, and the mounts end with it.
const ENTER: &str = "\
set -e
mount --make-rprivate /
mount --types proc proc \"$0/proc\"
mount --rbind /sys \"$0/sys\"
mount --rbind /dev \"$0/dev\"
mount --types tmpfs tmpfs \"$0/run\"
exec chroot \"$0\" \"$@\"
";

/// Size of the download, in bytes.
const BYTES: usize = 300_000;

pub struct Machine {
    _server: Running,
    ours: Netns,
    _peer: Netns,
    root: Root,
}

impl Machine {
    /// A machine that reaches a server over a wire.
    pub fn new(root: Root) -> Machine {
        let (ours, peer) = (Netns::new("package"), Netns::new("packagepeer"));
        veth(&ours, "wire", &peer, "wire");
        ours.run("ip addr add 10.68.0.1/24 dev wire");
        peer.run("ip addr add 10.68.0.2/24 dev wire");
        let served = root.path.with_file_name("served");
        fs::create_dir(&served).unwrap();
        fs::write(served.join("file"), pattern()).unwrap();
        let mut server = peer.command(env!("CARGO_BIN_EXE_baton"));
        server.args(["serve", "--port", "kernel", "--addr", "10.68.0.2", "--listen", "8080", "http"]).arg(&served);
        let server = Running::start(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        peer.enter(|| wait_for("the server", || TcpStream::connect("10.68.0.2:8080").is_ok()));
        Machine { _server: server, ours, _peer: peer, root }
    }

    /// Every file on it, as far as no package manager keeps it.
    pub fn contents(&self) -> BTreeSet<String> {
        self.root.contents()
    }

    /// A command on it, with its words.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.ours.command("unshare");
        command.args(["--mount", "sh", "-c", ENTER]).arg(&self.root.path).args(words);
        // Cargo's variables for this test are of no use there.
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a command, which must succeed, and gives all that it said.
    fn run(&self, words: &[&str]) -> String {
        let out = output(&mut self.command(words));
        let said = said(&out);
        assert!(out.status.success(), "{words:?}: {}\n{said}", out.status);
        said
    }

    pub fn install(&self, package: &Path) {
        let place = self.root.path.join("srv/baton.deb");
        fs::copy(package, &place).unwrap();
        self.run(&["dpkg", "--install", "/srv/baton.deb"]);
        fs::remove_file(place).unwrap();
        let version = self.run(&["baton", "--version"]);
        assert_eq!(version.trim(), concat!("baton ", env!("CARGO_PKG_VERSION")));
    }

    /// `baton doctor` there finds in this kernel what it finds here.
    pub fn doctor_finds_the_same(&self) {
        let there = output(&mut self.command(&["baton", "doctor"]));
        let here = output(self.ours.command(env!("CARGO_BIN_EXE_baton")).arg("doctor"));
        let said = said(&there);
        assert_eq!(there.status.code(), here.status.code(), "{said}");
        assert!(said.contains("yes") && !said.contains("panicked"), "{said}");
    }

    /// The configuration is a whole one, with a user that the package has made.
    pub fn the_service_takes_its_configuration(&self) {
        let words = ["baton", "service", "--config", "/etc/baton/baton.toml", "--interface", "wire", "--check-config"];
        self.run(&words);
        let configuration = fs::read_to_string(self.root.path.join("etc/baton/baton.toml")).unwrap();
        assert!(configuration.contains("\nuser = \"baton\"\n"), "{configuration}");
        self.run(&["getent", "passwd", "baton"]);
    }

    /// A program that knows nothing of Baton has its connection on the engine.
    pub fn a_download_moves(&self) {
        let mut words = vec!["baton", "run", "--explain", "--require", "--policy", "fcfs", "--steer", "tc"];
        words.extend(["--", "curl", "--silent", "--show-error", "--fail", "--output", "/srv/file"]);
        words.push("http://10.68.0.2:8080/file");
        let said = self.run(&words);
        assert!(said.contains("1 of 1 connections moved to the engine"), "{said}");
        let file = self.root.path.join("srv/file");
        assert!(fs::read(&file).unwrap() == pattern(), "the file arrives as it was sent");
        fs::remove_file(file).unwrap();
    }

    /// A C program is built as the documentation says, and finds the library.
    pub fn a_c_program_runs(&self) {
        let directory = self.root.path.join("srv");
        fs::copy(c::root().join("examples/echo.c"), directory.join("echo.c")).unwrap();
        let build = "gcc /srv/echo.c $(pkg-config --cflags --libs libbaton) -o /srv/echo";
        self.run(&["sh", "-c", build]);
        assert_eq!(self.run(&["/srv/echo"]).trim(), "OK");
        let told = run(Command::new("readelf").args(["--wide", "--dynamic"]).arg(directory.join("echo")));
        assert!(told.contains("Shared library: [libbaton.so.0]"), "{told}");
        for file in ["echo", "echo.c"] {
            fs::remove_file(directory.join(file)).unwrap();
        }
    }

    pub fn purge(&self) {
        self.run(&["dpkg", "--purge", "baton"]);
        assert!(!output(&mut self.command(&["getent", "passwd", "baton"])).status.success(), "the user is there yet");
    }
}

/// Both outputs of a program.
fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// The bytes of the download: each follows from its place.
fn pattern() -> Vec<u8> {
    (0..BYTES).map(|place| (place % 251) as u8).collect()
}
