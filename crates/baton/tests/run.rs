//! `baton run`: real programs under it, between two namespaces.

use baton_testkit::{Netns, Running, need_program, need_root, output, run, veth};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// `baton`, with its library beside it.
fn baton() -> &'static Path {
    static BATON: OnceLock<PathBuf> = OnceLock::new();
    BATON.get_or_init(|| {
        let baton = PathBuf::from(env!("CARGO_BIN_EXE_baton"));
        let target = baton.ancestors().nth(2).expect("target/debug/baton");
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let words = ["build", "--locked", "--package", "baton-shim", "--lib", "--profile", "test", "--quiet"];
        run(Command::new(cargo).current_dir(env!("CARGO_MANIFEST_DIR")).args(words).arg("--target-dir").arg(target));
        baton
    })
}

/// Two namespaces with a wire, and a directory.
struct World {
    ours: Netns,
    peer: Netns,
    home: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let (ours, peer) = (Netns::new("run"), Netns::new("runpeer"));
        veth(&ours, "wire", &peer, "wire");
        ours.run("ip addr add 10.67.0.1/24 dev wire");
        peer.run("ip addr add 10.67.0.2/24 dev wire");
        World { ours, peer, home: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A program under `baton run --explain`, with a service of its own.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(baton());
        command.args(["run", "--explain", "--interface", "wire", "--steer", "tc", "--"]).args(words);
        command.current_dir(self.home.path());
        command
    }

    /// The same, in the background: what it says at its end is in a file.
    fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        let said = fs::File::create(self.file("said")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        // Not by `ip netns exec`, which hides the BPF file system.
        self.ours.enter(|| Running::start(&mut command))
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.ours.enter(|| output(&mut command))
    }

    /// Waits until somebody listens there.
    fn listens(&self, port: u16) {
        let begun = Instant::now();
        while !listens(&self.ours, port) {
            assert!(begun.elapsed() < LONG, "nobody listens: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.file("said")).unwrap()
    }

    /// Ends a program, and gives what `baton run` says of it.
    fn end(&self, mut running: Running) -> Account {
        running.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        while running.child().try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LONG, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        Account::of(&self.said())
    }
}

/// What was explained: connections that moved, and of how many; all that was said.
struct Account {
    moved: u64,
    all: u64,
    said: String,
}

impl Account {
    fn of(said: &str) -> Account {
        let line =
            said.lines().find_map(|line| line.strip_prefix("baton: ").filter(|line| line.contains(" moved to ")));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("no account: {said}")).split(' ').collect();
        Account { moved: words[0].parse().unwrap(), all: words[2].parse().unwrap(), said: said.to_owned() }
    }

    /// All of them moved, at least so many.
    #[track_caller]
    fn all_moved(&self, at_least: u64) {
        assert!(self.moved == self.all && self.moved >= at_least, "{}", self.said);
    }
}

/// True once somebody listens; seen without a connection, which would be counted.
fn listens(namespace: &Netns, port: u16) -> bool {
    !namespace.run(&format!("ss -Hltn sport = :{port}")).trim().is_empty()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file of content that is nowhere like itself.
fn content(path: &Path, len: usize) -> String {
    let mut random = fastrand::Rng::with_seed(len as u64);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    fs::write(path, &bytes).unwrap();
    digest(&bytes)
}

fn curl(namespace: &Netns, url: &str) -> String {
    let mut command = namespace.command("curl");
    let out = output(command.args(["--silent", "--fail", "--max-time", "60", url]));
    assert!(out.status.success(), "{url}: {}", out.status);
    digest(&out.stdout)
}

#[test]
fn nginx_serves_from_several_workers() {
    need_root!();
    for program in ["clang", "nginx", "curl"] {
        need_program!(program);
    }
    let world = World::new();
    let sum = content(&world.file("file"), 3_000_000);
    let home = world.home.path().display();
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {home};"));
    let text = format!(
        "user root; worker_processes 2; daemon off; pid {home}/pid; error_log {home}/log;\n\
         events {{ }}\nhttp {{ sendfile on; tcp_nopush on; access_log off; {}\n\
         server {{ listen 8000; root {home}; }} }}",
        temporary.concat()
    );
    fs::write(world.file("nginx.conf"), text).unwrap();
    let configuration = world.file("nginx.conf");
    let nginx = world.start(&["nginx", "-p", "/", "-c", configuration.to_str().unwrap()]);
    world.listens(8000);
    for _ in 0..4 {
        assert_eq!(curl(&world.peer, "http://10.67.0.1:8000/file"), sum);
    }
    world.end(nginx).all_moved(4);
}

#[test]
fn a_client_fetches_what_a_server_sends() {
    need_root!();
    for program in ["clang", "curl", "python3"] {
        need_program!(program);
    }
    let world = World::new();
    let sum = content(&world.file("file"), 1_000_000);
    let python = world.start(&["python3", "-m", "http.server", "8000"]);
    world.listens(8000);
    for _ in 0..2 {
        assert_eq!(curl(&world.peer, "http://10.67.0.1:8000/file"), sum);
    }
    world.end(python).all_moved(2);
    let mut serve = world.peer.command("python3");
    serve.args(["-m", "http.server", "8001"]).current_dir(world.home.path());
    let _server = Running::start(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    let begun = Instant::now();
    while !listens(&world.peer, 8001) {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(20));
    }
    let out = world.run(&["curl", "--silent", "--fail", "--max-time", "60", "http://10.67.0.2:8001/file"]);
    assert_eq!(digest(&out.stdout), sum);
    Account::of(&String::from_utf8_lossy(&out.stderr)).all_moved(1);
}

#[test]
fn redis_answers_many_connections() {
    need_root!();
    for program in ["clang", "redis-server", "redis-benchmark"] {
        need_program!(program);
    }
    let world = World::new();
    let words = ["redis-server", "--port", "7000", "--protected-mode", "no", "--save", "", "--bind", "10.67.0.1"];
    let redis = world.start(&words);
    world.listens(7000);
    let mut benchmark = world.peer.command("redis-benchmark");
    let words = ["-h", "10.67.0.1", "-p", "7000", "-t", "set,get", "-n", "5000", "-c", "20", "-d", "100", "--csv"];
    let told = run(benchmark.args(words));
    assert!(told.contains("\"SET\"") && told.contains("\"GET\""), "{told}");
    world.end(redis).all_moved(40);
}

/// Runs a shell's line; its exit status and what was said.
fn shell(world: &World, line: &str) -> (std::process::ExitStatus, String) {
    let out = world.run(&["sh", "-c", line]);
    (out.status, String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn it_ends_as_the_program_does() {
    need_root!();
    need_program!("clang");
    let world = World::new();
    let (status, said) = shell(&world, "exit 7");
    assert_eq!(status.code(), Some(7), "{said}");
    assert_eq!(Account::of(&said).all, 0);
    assert_eq!(shell(&world, "kill -9 $$").0.signal(), Some(9));
    // What a program leaves behind is waited for.
    let (status, _) = shell(&world, "(sleep 0.3; touch late) & exit 3");
    assert_eq!(status.code(), Some(3));
    assert!(world.file("late").exists());
    // A signal goes to the program.
    let mut running = world.start(&["sh", "-c", "trap 'exit 9' TERM; touch began; while :; do sleep 0.01; done"]);
    let begun = Instant::now();
    while !world.file("began").exists() {
        assert!(begun.elapsed() < LONG, "{}", world.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.child().wait().unwrap().code(), Some(9));
}

#[test]
fn what_cannot_be_loaded_into_is_said_before_it_starts() {
    need_program!("cc");
    let home = tempfile::tempdir().unwrap();
    let (source, program) = (home.path().join("static.c"), home.path().join("static"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    run(Command::new("cc").arg("-static").arg("-o").args([&program, &source]));
    let refused = |words: &[&OsStr]| {
        let out = output(Command::new(baton()).arg("run").args(words));
        assert_eq!(out.status.code(), Some(2));
        String::from_utf8(out.stderr).unwrap()
    };
    let said = refused(&[OsStr::new("--"), program.as_os_str()]);
    assert!(said.contains("is linked statically") && said.lines().count() == 1, "{said}");
    let said = refused(&[OsStr::new("no-such-program-here")]);
    assert!(said.contains("there is no program"), "{said}");
    let said = refused(&["--policy", "sometimes", "--", "true"].map(OsStr::new));
    assert!(said.contains("'sometimes' is no rule"), "{said}");
    let said = refused(&["--ports", "http", "--", "true"].map(OsStr::new));
    assert!(said.contains("'http' are no ports"), "{said}");
}
