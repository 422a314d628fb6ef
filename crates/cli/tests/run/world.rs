//! Two namespaces with a wire between them, and programs under `baton run` in one.
//!
//! A quiet world has a good wire, and each program has its own service. In a restless world the wire
//! loses, duplicates and reorders frames, and the connections of the single service move back and forth
//! all the time. In a world of restless pairs both ends are in our namespace. `BATON_PROGRAMS_TIMES`
//! multiplies the size of every load.

use crate::restless::Restless;
use crate::rough::Rough;
use baton_client::Service;
use baton_testkit::{Netns, Running, build_beside, output, veth, wait_for};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// `baton`, with its library in the same directory.
pub fn baton() -> &'static Path {
    static BATON: OnceLock<PathBuf> = OnceLock::new();
    BATON.get_or_init(|| {
        let baton = PathBuf::from(env!("CARGO_BIN_EXE_baton"));
        build_beside(&baton, "baton-shim", env!("CARGO_MANIFEST_DIR"));
        baton
    })
}

/// How many times as large as in a quick test a load is.
pub fn times() -> usize {
    let times = std::env::var("BATON_PROGRAMS_TIMES");
    times.map_or(1, |times| times.parse().expect("BATON_PROGRAMS_TIMES is a number"))
}

/// Two namespaces with a wire, and a directory. The first field ends first.
pub struct World {
    restless: Option<Restless>,
    /// The service that programs use; none, and each has its own.
    service: Option<Running>,
    /// Both ends of connections are joined.
    pair: bool,
    /// When connections move; none, as by default.
    pub policy: Option<&'static str>,
    _rough: Option<Rough>,
    /// Where the engine runs.
    engine: &'static str,
    pub ours: Netns,
    pub peer: Netns,
    pub home: tempfile::TempDir,
}

/// Moves that a restless world has to see.
const ENOUGH: u64 = 20;
/// The same, in a world of restless pairs.
const ENOUGH_OF_PAIRS: u64 = 100;

impl World {
    fn new(is_rough: bool) -> World {
        let (ours, peer) = (Netns::new("run"), Netns::new("runpeer"));
        let rough = is_rough.then(|| Rough::new([(&ours, "wire"), (&peer, "wire")]));
        if rough.is_none() {
            veth(&ours, "wire", &peer, "wire");
        }
        ours.run("ip addr add 10.67.0.1/24 dev wire");
        peer.run("ip addr add 10.67.0.2/24 dev wire");
        World {
            restless: None,
            service: None,
            pair: false,
            policy: Some("fcfs"),
            _rough: rough,
            engine: "service",
            ours,
            peer,
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub fn quiet() -> World {
        World::new(false)
    }

    pub fn restless() -> World {
        let mut world = World::new(true);
        let mut command = Command::new(baton());
        command.args(["service", "--interface", "wire", "--steer", "tc", "--socket"]).arg(world.socket());
        command.stdin(Stdio::null()).stderr(fs::File::create(world.file("service")).unwrap());
        world.service = Some(world.ours.enter(|| Running::start(&mut command)));
        wait_for("the service", || Service::connect(world.socket()).is_ok());
        world.restless = Some(Restless::start(&world.socket()));
        world
    }

    /// A service that joins both ends of connections in our namespace.
    pub fn pairs() -> World {
        let mut world = World { pair: true, ..World::new(false) };
        world.service = Some(world.service_for_pairs());
        world
    }

    /// The same, and pairs are made and come home all the time.
    pub fn restless_pairs() -> World {
        let mut world = World::pairs();
        world.restless = Some(Restless::start_for_pairs(&world.socket()));
        world
    }

    /// Starts a service that joins both ends of connections in our namespace.
    pub fn service_for_pairs(&self) -> Running {
        let config = self.file("baton.toml");
        fs::write(&config, "[pair]\nusers = \"same-user\"\n").unwrap();
        let mut command = Command::new(baton());
        command.args(["service", "--no-interface", "--socket"]).arg(self.socket()).arg("--config").arg(config);
        command.stdin(Stdio::null()).stderr(fs::File::create(self.file("service")).unwrap());
        let service = self.ours.enter(|| Running::start(&mut command));
        wait_for("the service", || Service::connect(self.socket()).is_ok());
        service
    }

    /// The same with the engine inside the programs.
    pub fn inside(self) -> World {
        World { engine: "direct", ..self }
    }

    /// Returns the service's lines about connections that it lost.
    pub fn lost(&self) -> String {
        let log = fs::read_to_string(self.file("service")).unwrap();
        log.lines().filter(|line| line.contains(" lost: ")).map(|line| format!("{line}\n")).collect()
    }

    /// Some of a program's connections were joined, and the service lost none; says what share of the bytes went
    /// through pairs.
    #[track_caller]
    pub fn some_joined(&self, account: &Account) {
        let Account { moved, all, bytes, at_home, said } = account;
        assert!(*moved > 0, "{said}");
        assert_eq!(self.lost(), "");
        let share = 100.0 * *bytes as f64 / (bytes + at_home).max(1) as f64;
        print!("{moved} of {all} connections joined, {share:.1} % of {} bytes there", bytes + at_home);
        self.restless.iter().for_each(|restless| print!(", {} moves, {:.0}/s", restless.moves(), restless.rate()));
        println!();
    }

    /// Does this, again and again until connections moved often enough if they do.
    pub fn load(&self, mut work: impl FnMut()) {
        let enough = if self.pair { ENOUGH_OF_PAIRS } else { ENOUGH } * times() as u64;
        work();
        while self.restless.as_ref().is_some_and(|restless| restless.moves() < enough) {
            work();
        }
    }

    /// All of a program's connections moved, at least so many, unless the defaults say which do;
    /// says what share went over the engine.
    #[track_caller]
    pub fn all_moved(&self, account: &Account, at_least: u64) {
        let Account { moved, all, bytes, at_home, said } = account;
        if self.policy.is_some() {
            assert!(moved == all && *moved >= at_least, "{said}");
        }
        let share = 100.0 * *bytes as f64 / (bytes + at_home).max(1) as f64;
        print!("{moved} of {all} connections on the engine, {share:.1} % of {} bytes", bytes + at_home);
        match &self.restless {
            None if self.policy.is_none() => {}
            None => assert_eq!(*at_home, 0, "nothing brings them back: {said}"),
            Some(restless) => print!(", {} moves", restless.moves()),
        }
        println!();
    }

    /// Where that service listens.
    pub fn socket(&self) -> PathBuf {
        self.file("socket")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A program under `baton run --explain`.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(baton());
        command.args(["run", "--explain", "--engine", self.engine]);
        match self.service {
            Some(_) => command.arg("--socket").arg(self.socket()),
            None => command.args(["--interface", "wire", "--steer", "tc"]),
        };
        if self.pair {
            command.args(["--pair", "same-user"]);
        }
        if let Some(policy) = self.policy {
            command.args(["--policy", policy]);
        }
        command.arg("--").args(words);
        command.current_dir(self.home.path());
        command
    }

    /// The same, in the background: what it says at its end is in a file.
    pub fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        let said = fs::File::create(self.file("said")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        // This does not use `ip netns exec`, which hides the BPF file system.
        self.ours.enter(|| Running::start(&mut command))
    }

    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.ours.enter(|| output(&mut command))
    }

    /// Waits until somebody listens there.
    pub fn listens(&self, port: u16) {
        wait_for("who listens", || listens(&self.ours, port));
    }

    pub fn said(&self) -> String {
        fs::read_to_string(self.file("said")).unwrap()
    }

    /// Waits until a program has ended, and gives what `baton run` says of it.
    pub fn wait(&self, mut running: Running) -> Account {
        wait_for("its end", || running.child().try_wait().unwrap().is_some());
        Account::of(&self.said())
    }

    /// Ends a program, and gives what `baton run` says of it.
    pub fn end(&self, mut running: Running) -> Account {
        running.signal(rustix::process::Signal::TERM);
        self.wait(running)
    }
}

/// The explanation of a run: connections that moved, and of how many; the bytes that they carried;
/// all that was said.
pub struct Account {
    pub moved: u64,
    pub all: u64,
    pub bytes: u64,
    /// The bytes that they carried while they were back in the kernel.
    pub at_home: u64,
    pub said: String,
}

impl Account {
    pub fn of(said: &str) -> Account {
        let line =
            said.lines().find_map(|line| line.strip_prefix("baton: ").filter(|line| line.contains(" moved to ")));
        let line = line.unwrap_or_else(|| panic!("no account: {said}"));
        let words: Vec<&str> = line.split(' ').collect();
        let number = |words: &[&str], at: usize| words[at].parse::<u64>().unwrap_or_else(|_| panic!("{words:?}"));
        let home = said.lines().find(|line| line.ends_with("back in the kernel"));
        let home: Vec<&str> = home.iter().flat_map(|line| line.split_whitespace()).collect();
        let at_home = if home.is_empty() { 0 } else { number(&home, 1) + number(&home, 5) };
        let bytes = number(&words, 8) + number(&words, 12);
        Account { moved: number(&words, 0), all: number(&words, 2), bytes, at_home, said: said.to_owned() }
    }
}

/// Returns true if a program listens. This makes no connection, which would be counted.
pub fn listens(namespace: &Netns, port: u16) -> bool {
    !namespace.run(&format!("ss -Hltn sport = :{port}")).trim().is_empty()
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file whose content does not repeat.
pub fn content(path: &Path, len: usize) -> String {
    let mut random = fastrand::Rng::with_seed(len as u64);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    fs::write(path, &bytes).unwrap();
    digest(&bytes)
}

/// The digest of what it downloads.
#[track_caller]
pub fn curl(namespace: &Netns, url: &str) -> String {
    curl_with(namespace, &[], url)
}

/// The same with more words for it.
#[track_caller]
pub fn curl_with(namespace: &Netns, words: &[&str], url: &str) -> String {
    let mut command = namespace.command("curl");
    let out = output(command.args(["--silent", "--show-error", "--fail", "--max-time", "60"]).args(words).arg(url));
    assert!(out.status.success(), "{url}: {}", String::from_utf8_lossy(&out.stderr));
    digest(&out.stdout)
}
