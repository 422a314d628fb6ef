//! Two kernels and a wire, a service next to ours, and connections between them whose ends on our
//! side move.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../kernel/tests/common/mod.rs"]
pub mod kernels;

use baton_client::{Place, Service, Stream};
use baton_ipc::channel::Channel;
use baton_ipc::order::RunAs;
use baton_ipc::placement::Placement;
use baton_kernel::steer::Kind;
use baton_port::link;
use baton_service::broker::{Broker, Config, Interface, PairUsers};
use baton_service::checkpoints::Checkpoints;
use baton_service::engine;
use baton_service::guardian::Guardian;
use baton_testkit::Running;
use kernels::{LONG, Ramp, Wire};
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const ENGINE: &str = "BATON_TEST_ENGINE";
const BROKER: &str = "BATON_TEST_BROKER";
const GUARDIAN: &str = "BATON_TEST_GUARDIAN";
const FIRST: &str = "BATON_TEST_FIRST";
const PROGRAM: &str = "BATON_TEST_PROGRAM";

/// The name of the socket of a service that joins both ends of connections.
pub const PAIRS: &str = "pairs.sock";

/// The command that starts this test binary in another role. The binary has a test with that name.
fn command(name: &str, variable: &str, value: &str) -> Vec<OsString> {
    let own = std::env::current_exe().unwrap();
    let words = [name, "--exact", "--nocapture", "--quiet"];
    // The variables that this process was started with must not reach the child.
    let others = [ENGINE, BROKER, GUARDIAN, FIRST].into_iter().flat_map(|other| ["-u", other]);
    // The child's output does not belong in that of the tests.
    let silent = ["sh", "-c", "exec \"$@\" > /dev/null", "sh"];
    let command = silent.into_iter().chain(["env"]).chain(others).map(OsString::from);
    let command = command.chain([format!("{variable}={value}").into(), own.into()]);
    command.chain(words.map(OsString::from)).collect()
}

/// The command that starts this test binary as an engine. The binary has a test
/// `the_engines_process`, which calls [`be_the_engine`].
pub fn engine_command() -> Vec<OsString> {
    command("the_engines_process", ENGINE, "1")
}

fn standard_input() -> OwnedFd {
    std::io::stdin().as_fd().try_clone_to_owned().unwrap()
}

/// Runs an engine, if this process was started for that.
pub fn be_the_engine() {
    if std::env::var_os(ENGINE).is_some() {
        engine::run(standard_input()).unwrap();
    }
}

/// Runs a broker for the socket that the variable names, if this process was started for that.
pub fn be_the_broker() {
    if let Some(socket) = std::env::var_os(BROKER) {
        let words = command("the_guardians_process", GUARDIAN, socket.to_str().unwrap());
        let checkpoints = Checkpoints::open(standard_input(), words).unwrap();
        let broker = Broker::start(config(Path::new(&socket)), checkpoints).unwrap();
        broker.run().unwrap();
        std::process::exit(0);
    }
}

/// Runs a guardian, the first one or one for a broker that has lost its own, if this process was
/// started for that.
pub fn be_the_guardian() {
    if let Some(socket) = std::env::var_os(GUARDIAN) {
        let words = command("the_brokers_process", BROKER, socket.to_str().unwrap());
        let first = std::env::var_os(FIRST).is_some();
        let guardian = if first { Guardian::start(words).unwrap() } else { Guardian::of(words, standard_input()) };
        let code = guardian.run(|| false).unwrap();
        std::process::exit(code.into());
    }
}

/// The arguments of a program, if this process was started as one: the number of bytes to write,
/// the service's socket, and the socket to hand over.
pub fn programs_part() -> Option<(u64, String, OwnedFd)> {
    let words = std::env::var(PROGRAM).ok()?;
    let (len, socket) = words.split_once(' ').unwrap();
    Some((len.parse().unwrap(), socket.to_owned(), standard_input()))
}

/// These are not tests: the tests of a file start them as processes of a guarded service.
#[allow(unused_macros, reason = "each test binary uses its part")]
macro_rules! processes {
    () => {
        #[test]
        fn the_engines_process() {
            crate::common::be_the_engine();
        }

        #[test]
        fn the_brokers_process() {
            crate::common::be_the_broker();
        }

        #[test]
        fn the_guardians_process() {
            crate::common::be_the_guardian();
        }
    };
}
#[allow(unused_imports, reason = "each test binary uses its part")]
pub(crate) use processes;

fn config(socket: &Path) -> Config {
    let interface = Interface { name: "wire".into(), kind: Kind::Tc };
    let mut config = Config::new(socket.to_owned(), vec![interface], engine_command());
    config.engine_user = Some(RunAs { uid: 65_534, gid: 65_534 });
    // Other tests have ends on this machine that are to stay in the kernel.
    config.pair = if socket.ends_with(PAIRS) { PairUsers::Same } else { PairUsers::Never };
    config
}

/// The role of a process in a service that runs in processes of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Broker,
    Guardian,
}

/// A running service.
pub struct World<'w> {
    pub wire: &'w Wire,
    pub socket: &'w Path,
    /// The process id of the first engine.
    pub engine: u32,
}

impl World<'_> {
    /// Runs `f` with everything set up, then stops the service in an orderly way.
    pub fn enter(f: impl FnOnce(&World<'_>)) {
        World::enter_with(|_| {}, f);
    }

    /// The same, with an IPv4 connection that is in the engine.
    pub fn with_line(f: impl FnOnce(&World<'_>, &Service, Line)) {
        World::enter(|world| {
            let (service, mut line) = (world.service(), world.line(false));
            line.adopt(&service);
            f(world, &service, line);
        });
    }

    /// The same, with a modified configuration.
    pub fn enter_with(configure: impl FnOnce(&mut Config) + Send, f: impl FnOnce(&World<'_>)) {
        World::enter_on(&a_wire(), configure, f);
    }

    /// The same, with a wire of the caller's.
    pub fn enter_on(wire: &Wire, configure: impl FnOnce(&mut Config) + Send, f: impl FnOnce(&World<'_>)) {
        let directory = Directory::new();
        let socket = &*directory.0.join("service.sock");
        thread::scope(|scope| {
            let (tell, hear) = mpsc::channel();
            let broker = scope.spawn(move || {
                wire.ours.enter(move || {
                    let mut config = config(socket);
                    configure(&mut config);
                    let broker = Broker::start(config, Checkpoints::none()).unwrap();
                    tell.send((broker.stopper(), broker.engines()[0].unwrap())).unwrap();
                    broker.run().unwrap();
                });
            });
            let (stopper, engine) = hear.recv().expect("the service starts");
            // A panic stops the service too.
            let stop = Stop(stopper);
            f(&World { wire, socket, engine });
            drop(stop);
            broker.join().unwrap();
        });
    }

    /// The same, with broker and guardian in processes of their own.
    pub fn enter_guarded(f: impl FnOnce(&World<'_>)) {
        World::enter_guarded_at("service.sock", f);
    }

    /// The same, with a socket of this name.
    pub fn enter_guarded_at(name: &str, f: impl FnOnce(&World<'_>)) {
        let (wire, directory) = (&a_wire(), Directory::new());
        let socket = &*directory.0.join(name);
        let mut words = command("the_guardians_process", GUARDIAN, socket.to_str().unwrap());
        let name = socket.as_os_str().as_encoded_bytes();
        let variable = words.iter().position(|word| word.as_encoded_bytes().ends_with(name));
        words.insert(variable.unwrap(), format!("{FIRST}=1").into());
        let mut start = Command::new(&words[0]);
        start.args(&words[1..]);
        let mut guardian = wire.ours.enter(|| Running::start(&mut start));
        let begun = Instant::now();
        while Service::connect(socket).is_err() {
            assert!(begun.elapsed() < LONG, "the service does not start");
            thread::sleep(Duration::from_millis(10));
        }
        // A panic ends the service too.
        let end = End(socket);
        f(&World { wire, socket, engine: 0 });
        drop(end);
        let _ = guardian.child().wait();
    }

    /// The process in a role, unless it is this one. If it was killed, waits for its successor.
    #[track_caller]
    pub fn process(&self, role: Role) -> u32 {
        self.process_but(role, None)
    }

    /// The process in a role, unless it is the given one.
    #[track_caller]
    pub fn process_but(&self, role: Role, not: Option<u32>) -> u32 {
        let begun = Instant::now();
        loop {
            if let Some(pid) = self.look_for(role).filter(|pid| Some(*pid) != not) {
                return pid;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "there is no {role:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn look_for(&self, role: Role) -> Option<u32> {
        let variable = if role == Role::Broker { BROKER } else { GUARDIAN };
        let wanted = format!("{variable}={}", self.socket.display());
        let of = |entry: std::fs::DirEntry| {
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes()).then_some(pid)
        };
        std::fs::read_dir("/proc").unwrap().flatten().find_map(of)
    }

    pub fn service(&self) -> Service {
        Service::connect(self.socket).unwrap()
    }

    /// A connection to the service for a program that runs its engine itself.
    pub fn direct(&self) -> Service {
        Service::connect_as(self.socket, Placement::Direct).unwrap()
    }

    /// The number of engines' devices in our namespace. The interface's own engine has one.
    pub fn devices(&self) -> usize {
        self.wire.ours.run("ip -o link").lines().filter(|line| line.contains(": baton")).count()
    }

    /// The two ends of a connection, both blocking.
    pub fn pair(&self) -> (OwnedFd, TcpStream) {
        let (ours, peer) = self.wire.connect(false);
        ours.set_nonblocking(false).unwrap();
        peer.set_nonblocking(false).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (ours.into(), peer)
    }

    /// Starts this test binary as a program that hands `socket` over to the service and writes
    /// `bytes` bytes. The binary's `test` begins with [`programs_part`]. Returns the program and
    /// its output.
    pub fn program(
        &self,
        test: &str,
        socket: OwnedFd,
        len: u64,
        change: &dyn Fn(&mut Command),
    ) -> (Running, impl Iterator<Item = String> + use<>) {
        let mut command = Command::new("/proc/self/exe");
        command.args([test, "--exact", "--nocapture", "--quiet"]);
        command.env(PROGRAM, format!("{len} {}", self.socket.display()));
        command.stdin(socket).stdout(Stdio::piped());
        change(&mut command);
        let mut running = self.wire.ours.enter(|| Running::start(&mut command));
        let lines = BufReader::new(running.child().stdout.take().unwrap()).lines();
        (running, lines.map_while(Result::ok))
    }

    /// A channel to the service for a program that does not use the library.
    pub fn channel(&self) -> Channel {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(self.socket).unwrap()).unwrap();
        Channel::new(socket)
    }

    pub fn line(&self, ipv6: bool) -> Line {
        let (ours, peer) = self.wire.connect(ipv6);
        set_tcp_nodelay(&ours, true).unwrap();
        set_tcp_nodelay(&peer, true).unwrap();
        Line { at: At::Kernel(ours), peer, out: Ramp::default(), back: Ramp::default() }
    }
}

/// Two kernels and a wire that works with both kinds of steering.
fn a_wire() -> Wire {
    let wire = Wire::new(&[]);
    // AF_XDP cannot tell a checksum that a veth left out from damage.
    wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
    wire
}

struct End<'a>(&'a Path);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let stopped = Service::connect(self.0).and_then(|service| service.stop());
        if !thread::panicking() {
            stopped.unwrap();
        }
    }
}

struct Stop(baton_service::broker::Stopper);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A directory that is removed when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("baton-service-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        // Other users may look for the socket in it.
        rustix::fs::chmod(&path, 0o755.into()).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where our end of a connection is.
pub enum At {
    Kernel(TcpStream),
    Service(Stream),
    Moving,
}

/// A connection that carries a ramp in both directions.
pub struct Line {
    pub at: At,
    pub peer: TcpStream,
    pub out: Ramp,
    pub back: Ramp,
}

/// Returns true if so much is under way that more might exceed what an engine takes over: a
/// direction that waits for a retransmission would fill the kernel's buffers, which hold megabytes.
fn is_crowded(ramp: &Ramp) -> bool {
    ramp.written - ramp.read > 500_000
}

impl Line {
    #[track_caller]
    pub fn adopt(&mut self, service: &Service) {
        let At::Kernel(stream) = std::mem::replace(&mut self.at, At::Moving) else { panic!("the connection is away") };
        let stream = service.adopt(stream.into()).unwrap_or_else(|refused| panic!("{refused}"));
        stream.set_nonblocking(true);
        self.at = At::Service(stream);
    }

    #[track_caller]
    pub fn restore(&mut self) {
        let At::Service(stream) = std::mem::replace(&mut self.at, At::Moving) else {
            panic!("the connection is in the kernel")
        };
        let fd = stream.restore().unwrap_or_else(|(_, error)| panic!("{error}"));
        self.at = At::Kernel(fd.into());
    }

    #[track_caller]
    pub fn place(&self) -> Place {
        let At::Service(stream) = &self.at else { panic!("no stream") };
        stream.place()
    }

    /// One round: writes and reads as much as fits, in both directions.
    #[track_caller]
    pub fn turn(&mut self, len: usize) {
        let bytes = Ramp::bytes(self.out.written, if is_crowded(&self.out) { 0 } else { len });
        let written = match &mut self.at {
            At::Kernel(stream) => stream.write(&bytes),
            At::Service(stream) => stream.write(&bytes),
            At::Moving => unreachable!(),
        };
        match written {
            Ok(count) => self.out.written += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("writing after {} bytes: {error}", self.out.written),
        }
        if !is_crowded(&self.back) {
            self.back.write(&self.peer, len);
        }
        self.read();
    }

    #[track_caller]
    pub fn read(&mut self) -> [bool; 2] {
        let peer_ended = self.out.read(&self.peer).is_none();
        let mut bytes = vec![0; 1 << 16];
        let read = match &mut self.at {
            At::Kernel(stream) => stream.read(&mut bytes),
            At::Service(stream) => stream.read(&mut bytes),
            At::Moving => unreachable!(),
        };
        match read {
            Ok(count) => {
                let right = Ramp::bytes(self.back.read, count);
                assert!(bytes[..count] == right, "{count} bytes at {} differ", self.back.read);
                self.back.read += count as u64;
                assert!(self.back.read <= self.back.written, "more was read than written");
                [count == 0, peer_ended]
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => [false, peer_ended],
            Err(error) => panic!("reading after {} bytes: {error}", self.back.read),
        }
    }

    /// Runs rounds until `bytes` more have arrived in both directions.
    #[track_caller]
    pub fn go_on(&mut self, bytes: u64) {
        let goals = [self.out.read + bytes, self.back.read + bytes];
        let begun = Instant::now();
        while self.out.read < goals[0] || self.back.read < goals[1] {
            self.turn(30_000);
            assert!(
                begun.elapsed() < LONG,
                "no progress: out {} of {}, back {} of {}",
                self.out.read,
                self.out.written,
                self.back.read,
                self.back.written
            );
        }
    }

    /// Reads everything that was written.
    #[track_caller]
    pub fn come_to_rest(&mut self) {
        let begun = Instant::now();
        while self.out.read < self.out.written || self.back.read < self.back.written {
            self.read();
            assert!(begun.elapsed() < LONG, "not everything arrives: {:?} {:?}", self.out, self.back);
        }
    }

    /// Reads everything that was written; then the peer closes, then our side, and both see the
    /// end. This order leaves no connection in TIME-WAIT here, which could happen for a minute if
    /// both sides closed at once.
    #[track_caller]
    pub fn finish(mut self) {
        let (mut shut, begun) = ([false; 2], Instant::now());
        let mut ended = [false; 2];
        while ended != [true; 2] {
            let [ours, peers] = self.read();
            ended = [ended[0] | ours, ended[1] | peers];
            if !shut[1] && self.out.read == self.out.written && self.back.read == self.back.written {
                shut[1] = true;
                self.peer.shutdown(std::net::Shutdown::Write).unwrap();
            }
            if !shut[0] && ended[0] {
                shut[0] = true;
                match &self.at {
                    At::Kernel(stream) => stream.shutdown(std::net::Shutdown::Write).unwrap(),
                    At::Service(stream) => stream.shutdown().unwrap(),
                    At::Moving => unreachable!(),
                }
            }
            assert!(begun.elapsed() < LONG, "the connection does not end: {ended:?}");
        }
        assert_eq!((self.out.read, self.back.read), (self.out.written, self.back.written));
    }
}
