//! Two kernels and a wire, a service beside ours, and connections between them whose ends
//! on our side move.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../kernel/tests/common/mod.rs"]
pub mod kernels;

use baton_kernel::steer::Kind;
use baton_port::link;
use baton_service::broker::{Broker, Config, Interface};
use baton_service::checkpoints::Checkpoints;
use baton_service::engine;
use baton_service::guardian::Guardian;
use baton_socket::service::channel::Channel;
use baton_socket::service::{Place, Placement, Service, Stream};
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

/// Words that start this test binary as something else: it has a test of that name.
fn command(name: &str, variable: &str, value: &str) -> Vec<OsString> {
    let own = std::env::current_exe().unwrap();
    let words = [name, "--exact", "--nocapture", "--quiet"];
    // What it was itself started by is no business of its.
    let others = [ENGINE, BROKER, GUARDIAN, FIRST].into_iter().flat_map(|other| ["-u", other]);
    // Nor is the tests' output the place for what it says as one.
    let silent = ["sh", "-c", "exec \"$@\" > /dev/null", "sh"];
    let command = silent.into_iter().chain(["env"]).chain(others).map(OsString::from);
    let command = command.chain([format!("{variable}={value}").into(), own.into()]);
    command.chain(words.map(OsString::from)).collect()
}

/// Words that start this test binary as an engine; it has a test `the_engines_process` that
/// calls [`be_the_engine`].
pub fn engine_command() -> Vec<OsString> {
    command("the_engines_process", ENGINE, "1")
}

fn standard_input() -> OwnedFd {
    std::io::stdin().as_fd().try_clone_to_owned().unwrap()
}

/// An engine, if that is what this process was started for.
pub fn be_the_engine() {
    if std::env::var_os(ENGINE).is_some() {
        engine::run(standard_input()).unwrap();
    }
}

/// A broker of the socket that the variable names, likewise.
pub fn be_the_broker() {
    if let Some(socket) = std::env::var_os(BROKER) {
        let words = command("the_guardians_process", GUARDIAN, socket.to_str().unwrap());
        let checkpoints = Checkpoints::open(standard_input(), words).unwrap();
        let broker = Broker::start(config(Path::new(&socket)), checkpoints).unwrap();
        broker.run().unwrap();
        std::process::exit(0);
    }
}

/// A guardian, the first or of a broker that has lost its own, likewise.
pub fn be_the_guardian() {
    if let Some(socket) = std::env::var_os(GUARDIAN) {
        let words = command("the_brokers_process", BROKER, socket.to_str().unwrap());
        let first = std::env::var_os(FIRST).is_some();
        let guardian = if first { Guardian::start(words).unwrap() } else { Guardian::of(words, standard_input()) };
        let code = guardian.run(|| false).unwrap();
        std::process::exit(code.into());
    }
}

/// The part of a program, if that is what this process was started for: how many bytes it is to
/// write, where the service is, the socket to hand over.
pub fn programs_part() -> Option<(u64, String, OwnedFd)> {
    let words = std::env::var(PROGRAM).ok()?;
    let (len, socket) = words.split_once(' ').unwrap();
    Some((len.parse().unwrap(), socket.to_owned(), standard_input()))
}

/// Not tests: what the tests of a file start as processes of a guarded service.
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
    config.engine_user = Some((65_534, 65_534));
    config
}

/// A process of a service that runs in processes of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Broker,
    Guardian,
}

/// A service that runs.
pub struct World<'w> {
    pub wire: &'w Wire,
    pub socket: &'w Path,
    /// Process id of the first engine.
    pub engine: u32,
}

impl World<'_> {
    /// Runs `f` with everything in place, then stops the service in form.
    pub fn enter(f: impl FnOnce(&World<'_>)) {
        World::enter_with(|_| {}, f);
    }

    /// With a connection by IPv4 that is in the engine.
    pub fn with_line(f: impl FnOnce(&World<'_>, &Service, Line)) {
        World::enter(|world| {
            let (service, mut line) = (world.service(), world.line(false));
            line.adopt(&service);
            f(world, &service, line);
        });
    }

    /// With a configuration of its own.
    pub fn enter_with(configure: impl FnOnce(&mut Config) + Send, f: impl FnOnce(&World<'_>)) {
        World::enter_on(&a_wire(), configure, f);
    }

    /// With a wire that the caller has.
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
            // Stopped also by a panic.
            let stop = Stop(stopper);
            f(&World { wire, socket, engine });
            drop(stop);
            broker.join().unwrap();
        });
    }

    /// The same with broker and guardian in processes of their own.
    pub fn enter_guarded(f: impl FnOnce(&World<'_>)) {
        let (wire, directory) = (&a_wire(), Directory::new());
        let socket = &*directory.0.join("service.sock");
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
        // Ended also by a panic.
        let end = End(socket);
        f(&World { wire, socket, engine: 0 });
        drop(end);
        let _ = guardian.child().wait();
    }

    /// The process that plays a role, if it is not this one. One that was killed is followed by
    /// another, which is waited for.
    #[track_caller]
    pub fn process(&self, role: Role) -> u32 {
        self.process_but(role, None)
    }

    /// The same, but for this one.
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

    /// A program's that drives its engine itself.
    pub fn direct(&self) -> Service {
        Service::connect_as(self.socket, Placement::Direct).unwrap()
    }

    /// Devices of engines in our namespace: the interface's own has one.
    pub fn devices(&self) -> usize {
        self.wire.ours.run("ip -o link").lines().filter(|line| line.contains(": baton")).count()
    }

    /// A connection's two ends, blocking.
    pub fn pair(&self) -> (OwnedFd, TcpStream) {
        let (ours, peer) = self.wire.connect(false);
        ours.set_nonblocking(false).unwrap();
        peer.set_nonblocking(false).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (ours.into(), peer)
    }

    /// Starts this test binary as a program that has the service hand `socket` over and writes
    /// so many bytes: `test` of it, which begins with [`programs_part`]. The program, and what
    /// it says.
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

    /// What a program without the library has.
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

/// Two kernels and a wire, for both kinds of steering.
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

/// A directory that goes away.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("baton-service-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        // Others may look for the socket in it.
        rustix::fs::chmod(&path, 0o755.into()).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Our end of a connection.
pub enum At {
    Kernel(TcpStream),
    Service(Stream),
    Moving,
}

/// A connection with a ramp in both directions.
pub struct Line {
    pub at: At,
    pub peer: TcpStream,
    pub out: Ramp,
    pub back: Ramp,
}

/// True if more under way might be more than an engine takes over: a direction that waits for a
/// retransmission would fill the kernel's buffers, which hold megabytes.
fn is_crowded(ramp: &Ramp) -> bool {
    ramp.written - ramp.read > 500_000
}

impl Line {
    #[track_caller]
    pub fn adopt(&mut self, service: &Service) {
        let At::Kernel(stream) = std::mem::replace(&mut self.at, At::Moving) else { panic!("it is away") };
        let stream = service.adopt(stream.into()).unwrap_or_else(|refused| panic!("{refused}"));
        stream.set_nonblocking(true);
        self.at = At::Service(stream);
    }

    #[track_caller]
    pub fn restore(&mut self) {
        let At::Service(stream) = std::mem::replace(&mut self.at, At::Moving) else { panic!("it is in the kernel") };
        let fd = stream.restore().unwrap_or_else(|(_, error)| panic!("{error}"));
        self.at = At::Kernel(fd.into());
    }

    #[track_caller]
    pub fn place(&self) -> Place {
        let At::Service(stream) = &self.at else { panic!("no stream") };
        stream.place()
    }

    /// One round: as much as fits, both ways.
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
                assert!(bytes[..count] == right, "{count} bytes at {} are not those", self.back.read);
                self.back.read += count as u64;
                assert!(self.back.read <= self.back.written, "more was read than written");
                [count == 0, peer_ended]
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => [false, peer_ended],
            Err(error) => panic!("reading after {} bytes: {error}", self.back.read),
        }
    }

    /// Rounds until `bytes` more have arrived both ways.
    #[track_caller]
    pub fn go_on(&mut self, bytes: u64) {
        let goals = [self.out.read + bytes, self.back.read + bytes];
        let begun = Instant::now();
        while self.out.read < goals[0] || self.back.read < goals[1] {
            self.turn(30_000);
            assert!(
                begun.elapsed() < LONG,
                "it does not go on: out {} of {}, back {} of {}",
                self.out.read,
                self.out.written,
                self.back.read,
                self.back.written
            );
        }
    }

    /// All that was written is read.
    #[track_caller]
    pub fn come_to_rest(&mut self) {
        let begun = Instant::now();
        while self.out.read < self.out.written || self.back.read < self.back.written {
            self.read();
            assert!(begun.elapsed() < LONG, "it does not come to rest: {:?} {:?}", self.out, self.back);
        }
    }

    /// All that was written is read, the peer closes, then ours, both see the end. None is
    /// left in TIME-WAIT here, as some are for a minute if both close at once.
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
            assert!(begun.elapsed() < LONG, "it does not end: {ended:?}");
        }
        assert_eq!((self.out.read, self.back.read), (self.out.written, self.back.written));
    }
}
