//! Two namespaces, a wire, a service, programs, and their peers.

use crate::census::{self, Growth, Kernel, Process};
use crate::peers::Peers;
use crate::program::{TURN, VARIABLE, answer_in, sorted};
use crate::witness::Witness;
use crate::words::{Answer, Order, Report, Start, monotonic_ns};
use baton_client::Service;
use baton_ipc::message::Selector;
use baton_port::link;
use baton_testkit::{LONG, Netns, Running, veth, wait_for};
use rustix::process::{Pid, Resource, Rlimit, Signal, getpriority_process, getrlimit, kill_process, setrlimit};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The environment variable that marks every process of the service.
const WORD: &str = "BATON_KILLS_SERVICE";

/// The roles of the process that was started, and of those that replace it.
pub const GUARDIAN: [&str; 2] = ["service", "guardian"];

/// Slack for memory: the broker keeps what a connection brought along until its next check, five
/// times per second, and 1,000 connections move at once here.
const REST: Duration = Duration::from_millis(300);

/// Lines of the service's log that a failure shows.
const LAST_LINES: usize = 20;

/// Makes the allocator return freed memory at once, so that a process's size shows what it uses.
const FRUGAL: [(&str, &str); 2] = [("MALLOC_MMAP_THRESHOLD_", "8192"), ("MALLOC_TRIM_THRESHOLD_", "0")];

/// The size of a test.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    pub connections: usize,
    /// How frames reach the engine.
    pub steer: &'static str,
    /// The users whose programs' connections the service joins, as its configuration says it.
    pub pair: &'static str,
    pub seed: u64,
}

impl Plan {
    /// Reads the environment; `rounds` is the default number of rounds.
    pub fn of(rounds: usize) -> Plan {
        Plan::sized(rounds, 1000)
    }

    /// The same with pairs, and a default for their number.
    pub fn of_pairs(rounds: usize, pairs: usize) -> Plan {
        Plan { pair: "same-user", ..Plan::sized(rounds, pairs) }
    }

    fn sized(rounds: usize, connections: usize) -> Plan {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let plan = Plan {
            rounds: number("BATON_KILLS_ROUNDS").map_or(rounds, |rounds| rounds as usize),
            connections: number("BATON_KILLS_CONNECTIONS").map_or(connections, |connections| connections as usize),
            steer: if std::env::var("BATON_KILLS_STEER").is_ok_and(|kind| kind == "xdp") { "xdp" } else { "tc" },
            pair: "never",
            seed: number("BATON_KILLS_SEED").unwrap_or_else(|| fastrand::u64(..)),
        };
        println!("{} rounds, {} connections, seed {}", plan.rounds, plan.connections, plan.seed);
        plan
    }

    /// True if frames reach the engine by AF_XDP.
    pub fn over_xdp(self) -> Plan {
        Plan { steer: "xdp", ..self }
    }
}

/// A program that runs.
pub struct Program {
    running: Running,
    answers: Receiver<Answer>,
    pub addresses: Vec<SocketAddr>,
}

impl Program {
    pub fn pid(&mut self) -> u32 {
        self.running.child().id()
    }

    pub fn tell(&mut self, order: &Order) {
        let text = serde_json::to_string(order).unwrap() + "\n";
        let mut stdin = self.running.child().stdin.as_ref().expect("it was piped");
        stdin.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    pub fn hear(&mut self) -> Answer {
        self.answers.recv_timeout(LONG * 2).expect("the program answers; what it said is above")
    }

    #[track_caller]
    pub fn report(&mut self) -> Report {
        self.tell(&Order::Report);
        let Answer::Report(report) = self.hear() else { panic!("no report") };
        report
    }
}

/// Namespaces, wire, service, programs and peers. Dropping it ends and removes them all.
pub struct Rig {
    pub plan: Plan,
    pub random: fastrand::Rng,
    pub programs: BTreeMap<usize, Program>,
    pub peers: Peers,
    pub growth: Growth,
    pub witness: Witness,
    next: usize,
    service: Running,
    listeners: [TcpListener; 2],
    before: Kernel,
    directory: tempfile::TempDir,
    peer: Netns,
    ours: Netns,
    /// Allows one rig at a time, since each counts objects of the whole system.
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    pub fn start(plan: Plan) -> Rig {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let (ours, peer) = (Netns::new("ours"), Netns::new("peer"));
        veth(&ours, "wire", &peer, "wire");
        if plan.steer == "xdp" {
            // Over AF_XDP, a checksum that a veth omitted looks like damage.
            peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
        }
        for (side, last) in [(&ours, 1), (&peer, 2)] {
            side.run(&format!("ip addr add 10.66.0.{last}/24 dev wire"));
            side.run(&format!("ip addr add fd66::{last}/64 dev wire nodad"));
            // The peer's congestion control determines how soon it retransmits. With BBR, the
            // default of some systems, this takes seconds.
            side.run("sysctl -q -w net.ipv4.tcp_congestion_control=reno");
        }
        // A window or queue larger than a stream buffer needs a large buffer, and there are fewer
        // of those than connections. Such refusals are not under test here.
        for limit in ["net.ipv4.tcp_rmem=4096 131072 200000", "net.ipv4.tcp_wmem=4096 65536 200000"] {
            baton_testkit::run(ours.command("sysctl").args(["-q", "-w", limit]));
        }
        let listen = |address: &str| peer.enter(|| TcpListener::bind(address).unwrap());
        let listeners = [listen("10.66.0.2:1001"), listen("[fd66::2]:1001")];
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        let before = Kernel::now([&ours, &peer]);
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        // An engine that dies has connections, however busy the machine is.
        let config = directory.path().join("baton.toml");
        let text = format!("[engine]\nload = \"off\"\n[pair]\nusers = \"{}\"\n", plan.pair);
        fs::write(&config, text).unwrap();
        let service = ours.enter(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
            command.args(["service", "--interface", "wire", "--steer", plan.steer, "--socket"]);
            command.arg(directory.path().join("socket")).env(WORD, directory.path());
            command.arg("--config").arg(config);
            Running::start(command.envs(FRUGAL).stderr(log))
        });
        let rig = Rig {
            plan,
            random: fastrand::Rng::with_seed(plan.seed),
            programs: BTreeMap::new(),
            peers: Peers::start(plan.seed),
            growth: Growth::default(),
            witness: Witness::start(),
            next: 0,
            service,
            listeners,
            before,
            directory,
            peer,
            ours,
            _alone: alone,
        };
        rig.admin();
        rig
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn sides(&self) -> [&Netns; 2] {
        [&self.ours, &self.peer]
    }

    /// Connects to the service as an administrator, and waits for the service if necessary.
    #[track_caller]
    pub fn admin(&self) -> Service {
        let mut service = None;
        wait_for("the service", || {
            service = Service::connect(self.socket()).ok();
            service.is_some()
        });
        service.expect("it was waited for")
    }

    /// Starts a program with this many connections, which move to the engine if the flag is true.
    pub fn start_program(&mut self, lines: usize, adopt: bool, roles: bool) -> usize {
        let peers = [0, 1].map(|at| self.listeners[at].local_addr().unwrap());
        let service = adopt.then(|| self.socket());
        let start = Start { service, peers, far: false, ledger: None, lines, roles, seed: self.random.u64(..) };
        let mut program = self.spawn(&start);
        let streams = self.accept(lines);
        let Answer::Connected(addresses) = program.hear() else { panic!("it connects first") };
        self.next += 1;
        self.peers.add(self.next, sorted(&addresses, streams), roles);
        program.addresses = addresses;
        assert!(matches!(program.hear(), Answer::Adopted));
        self.programs.insert(self.next, program);
        self.next
    }

    fn spawn(&self, start: &Start) -> Program {
        let mut running = self.ours.enter(|| {
            let mut command = Command::new("/proc/self/exe");
            command.args(["the_programs_process", "--exact", "--nocapture", "--quiet"]);
            command.env(VARIABLE, serde_json::to_string(start).unwrap());
            Running::start(command.envs(FRUGAL).stdin(Stdio::piped()).stdout(Stdio::piped()))
        });
        let answers = listen_to(running.child());
        Program { running, answers, addresses: Vec::new() }
    }

    /// Starts two programs with this many connections between them, over this machine's own addresses. Returns the
    /// numbers of the one that connects, and of the far one.
    pub fn start_two(&mut self, lines: usize, adopt: bool, roles: bool) -> [usize; 2] {
        let own = ["127.0.0.1:0", "[::1]:0"].map(|address| address.parse().unwrap());
        let service = adopt.then(|| self.socket());
        let numbers = [self.next + 1, self.next + 2];
        let start = |rig: &mut Rig, far: bool, peers: [SocketAddr; 2]| {
            let ledger = Some(rig.ledger(numbers[usize::from(far)]));
            let start = Start { service: service.clone(), peers, far, ledger, lines, roles, seed: rig.random.u64(..) };
            rig.spawn(&start)
        };
        let mut far = start(self, true, own);
        let Answer::Listening(listeners) = far.hear() else { panic!("it listens first") };
        let mut near = start(self, false, listeners);
        for (program, number) in [(&mut near, numbers[0]), (&mut far, numbers[1])] {
            let Answer::Connected(addresses) = program.hear() else { panic!("program {number} connects first") };
            program.addresses = addresses;
        }
        for (mut program, number) in [(near, numbers[0]), (far, numbers[1])] {
            assert!(matches!(program.hear(), Answer::Adopted));
            self.programs.insert(number, program);
        }
        self.next += 2;
        numbers
    }

    /// Where a program with a far end writes down what it has written.
    fn ledger(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("ledger-{number}"))
    }

    /// The bytes that a program, which may have been killed since, had written to each connection.
    pub fn written(&self, number: usize, lines: usize) -> Vec<u64> {
        let ledger = fs::read(self.ledger(number)).unwrap();
        let written = ledger.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        // The last connections may not have been written to.
        written.chain(std::iter::repeat(0)).take(lines).collect()
    }

    fn accept(&self, lines: usize) -> Vec<TcpStream> {
        let mut streams = Vec::new();
        wait_for("a program's connections", || {
            for listener in &self.listeners {
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => streams.push(stream),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            streams.len() == lines
        });
        streams
    }

    /// Processes of the service, by role.
    pub fn processes(&self) -> Vec<Process> {
        census::processes(&format!("{WORD}={}", self.directory.path().display()))
    }

    /// The process of one of these roles.
    #[track_caller]
    pub fn process(&self, roles: &[&str]) -> Process {
        let mut found = None;
        wait_for(roles[0], || {
            found = self.processes().into_iter().find(|process| roles.contains(&process.role.as_str()));
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// The process of one of these roles, started before the programs.
    #[track_caller]
    pub fn first(&self, roles: &[&str]) -> u32 {
        let pid = self.process(roles).pid;
        let nice = getpriority_process(Pid::from_raw(pid as i32)).expect("it runs");
        assert!(nice < getpriority_process(None).unwrap(), "{roles:?}: {nice}");
        pid
    }

    /// Moves every connection to the engine, and waits until all have arrived.
    #[track_caller]
    pub fn all_in_engine(&mut self) {
        for program in self.programs.values_mut() {
            program.tell(&Order::Adopt);
            assert!(matches!(program.hear(), Answer::Adopted));
        }
        let admin = self.admin();
        let begun = Instant::now();
        loop {
            admin.handoff(Selector::All).unwrap();
            let mut last = admin.list().unwrap();
            let known = last.len();
            last.retain(|entry| entry.place != "engine");
            if known == self.plan.connections && last.is_empty() {
                return;
            }
            assert!(begun.elapsed() < LONG, "{known} are known, not in the engine are {last:?}");
            // A connection with much unread data is refused until its program has read it.
            sleep(2 * TURN);
        }
    }

    /// Waits until there is an engine, by moving one connection to it.
    #[track_caller]
    pub fn an_engine(&self) {
        let admin = self.admin();
        wait_for("an engine", || {
            let entries = admin.list().unwrap();
            let tuple = entries.iter().find(|entry| entry.place == "kernel").map(|entry| entry.tuple);
            let tally = tuple.map(|tuple| admin.handoff(Selector::Tuple(tuple)).unwrap());
            tally.is_some_and(|tally| tally.failed < tally.count) || entries.iter().any(|entry| entry.place == "engine")
        });
    }

    pub fn moves(&mut self, on: bool) {
        self.programs.values_mut().for_each(|program| program.tell(&Order::Moves(on)));
    }

    /// Sleeps for a random time, so that the next step comes at a random moment.
    pub fn random_moment(&mut self, most_ms: u64) {
        sleep(Duration::from_micros(self.random.u64(..most_ms * 1000)));
    }

    /// Makes programs and peers record the progress after `happen`. With `home`, they also expect
    /// every connection to return to the kernel.
    pub fn watch(&mut self, home: bool, happen: impl FnOnce()) {
        self.witness.mark();
        let since_ns = monotonic_ns();
        self.programs.values_mut().for_each(|program| program.tell(&Order::Watch { since_ns, home }));
        happen();
        self.peers.watch(monotonic_ns());
    }

    /// Samples the resources of the service's processes and of the programs, once they are at rest.
    ///
    /// Broker and guardian hold a descriptor of each connection that the service knows. Their number
    /// differs between rounds, so only the other resources are compared.
    pub fn look(&mut self) {
        sleep(REST);
        // The first sample and the last are compared.
        let kernel = if self.growth.knows_kernel() { Kernel::now } else { Kernel::at_rest }(self.sides());
        self.growth.look_at_kernel(&kernel);
        let admin = self.admin();
        let known = admin.list().unwrap().len() as u64;
        for Process { pid, role } in self.processes() {
            let mut holds = census::holds(pid);
            if role == "broker" || GUARDIAN.contains(&role.as_str()) {
                holds.descriptors = holds.descriptors.saturating_sub(known);
            }
            self.growth.look(&role, holds);
        }
        for (number, program) in &mut self.programs {
            self.growth.look(&format!("program {}", number % 2), census::holds(program.pid()));
        }
    }

    /// Number of resets that either kernel has sent.
    pub fn resets(&self) -> u64 {
        self.sides().map(|side| side.enter(resets)).iter().sum()
    }

    /// Checks that every byte arrives and that every connection closes in order.
    #[track_caller]
    pub fn finish_programs(&mut self) {
        for (number, mut program) in std::mem::take(&mut self.programs) {
            program.tell(&Order::Hush);
            let Answer::Hushed(written) = program.hear() else { panic!("it is asked to write no more") };
            program.tell(&Order::Finish(self.peers.hush(number)));
            self.peers.finish(number, &written);
            assert!(matches!(program.hear(), Answer::Finished));
        }
    }

    /// Ends the service in order, and checks that nothing of it is left.
    #[track_caller]
    pub fn finish(mut self) {
        let kernel = Kernel::at_rest(self.sides());
        self.growth.look_at_kernel(&kernel);
        self.finish_programs();
        let guardian = self.process(&GUARDIAN).pid;
        kill_process(Pid::from_raw(guardian as i32).expect("a process"), Signal::TERM).unwrap();
        wait_for("the service's end", || self.processes().is_empty());
        let status = self.service.child().wait().unwrap();
        assert!(status.success() || guardian != self.service.child().id(), "{status}");
        assert!(!self.socket().exists());
        self.before.assert_nothing_more(self.sides());
        self.growth.assert_none();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if thread::panicking() {
            // The ends of the connections are no failures of their own.
            self.peers.stop();
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let skip = log.lines().count().saturating_sub(LAST_LINES);
            eprintln!("the service's last words:");
            log.lines().skip(skip).for_each(|line| eprintln!("{line}"));
            let entries = Service::connect(self.socket()).and_then(|service| service.list()).unwrap_or_default();
            let mut places = BTreeMap::<_, u64>::new();
            entries.into_iter().for_each(|entry| *places.entry((entry.place, entry.why)).or_default() += 1);
            eprintln!("where its connections are, and why: {places:?}");
        }
        self.programs.clear();
    }
}

pub fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).expect("a process"), Signal::KILL).expect("it runs");
}

/// Receives a program's answers, and prints its other output.
fn listen_to(child: &mut Child) -> Receiver<Answer> {
    let (tell, hear) = channel();
    let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    thread::spawn(move || {
        for answer in lines.map_while(Result::ok).filter_map(|line| answer_in(&line)) {
            if tell.send(answer).is_err() {
                return;
            }
        }
    });
    hear
}

/// Resets sent in this thread's namespace (`/proc/net/snmp`).
fn resets() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "OutRsts").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}
