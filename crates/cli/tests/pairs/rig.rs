//! A service that joins both ends, two programs, and a connection between them.

use crate::load::{Load, UNREAD};
use crate::matrix::LOADS;
use crate::program::VARIABLE;
use crate::venue::Venue;
use crate::words::{Answer, Count, MARK, Order};
use baton_client::{Service, Tally};
use baton_ipc::message::{Destination, Selector};
use baton_policy::rules::{Policy, Rule};
use baton_testkit::{LONG, Netns, Running, build_beside, run, wait_for};
use baton_wire::addr::Tuple;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How the programs hand their connections over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// `baton run` does it for them.
    Run,
    /// They do it themselves.
    Api,
}

/// Bytes of a direction between two moves, at least.
const BYTES: u64 = 10_000;
/// The kernel's buffers: least, default and largest. A connection is joined with at most an area of unsent bytes.
const BUFFERS: &str = "4096 65536 65536";
/// For how long a program stands still while its connection is about to be joined.
const STILL: Duration = Duration::from_millis(2);

/// `baton`, with its library in the same directory.
fn baton() -> &'static Path {
    static BATON: OnceLock<PathBuf> = OnceLock::new();
    BATON.get_or_init(|| {
        let baton = PathBuf::from(env!("CARGO_BIN_EXE_baton"));
        build_beside(&baton, "baton-shim", env!("CARGO_MANIFEST_DIR"));
        baton
    })
}

struct Program {
    running: Running,
    answers: Receiver<Answer>,
}

impl Program {
    fn start(mut command: Command) -> Program {
        let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let lines = BufReader::new(running.child().stdout.take().expect("it was piped")).lines();
        let (tell, answers) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some(text) = line.strip_prefix(MARK) else { continue };
                if tell.send(serde_json::from_str(text).expect("an answer")).is_err() {
                    return;
                }
            }
        });
        Program { running, answers }
    }

    fn tell(&mut self, order: Order) {
        let text = serde_json::to_string(&order).unwrap() + "\n";
        self.running.child().stdin.as_ref().expect("it was piped").write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn hear(&mut self) -> Answer {
        self.answers.recv_timeout(LONG).expect("the program answers; what it said is above")
    }

    #[track_caller]
    fn ask(&mut self, order: Order) -> Answer {
        self.tell(order);
        self.hear()
    }
}

/// Everything of a venue. The first fields end first.
pub struct Rig {
    /// The program that listens, and the one that connects.
    programs: [Program; 2],
    /// The process that has the connection's end in the first program.
    listener: Pid,
    listens: SocketAddr,
    admin: Service,
    _service: Running,
    directory: tempfile::TempDir,
    venue: Venue,
}

impl Rig {
    #[track_caller]
    pub fn start(venue: Venue, by: By) -> Rig {
        for (namespace, buffers) in venue.namespaces.iter().flat_map(|it| [(it, "tcp_rmem"), (it, "tcp_wmem")]) {
            let setting = format!("net.ipv4.{buffers}={BUFFERS}");
            run(namespace.command("sysctl").args(["-q", "-w", &setting]));
        }
        let directory = tempfile::tempdir().unwrap();
        let (socket, config) = (directory.path().join("socket"), directory.path().join("baton.toml"));
        fs::write(&config, "[pair]\nusers = \"same-user\"\n").unwrap();
        let mut command = Command::new(baton());
        command.args(["service", "--socket"]).arg(&socket).arg("--config").arg(config);
        match venue.interface {
            Some(interface) => command.args(["--steer", "tc", "--interface", interface]),
            None => command.arg("--no-interface"),
        };
        command.stdin(Stdio::null()).stderr(File::create(directory.path().join("log")).unwrap());
        let service = venue.first().enter(|| Running::start(&mut command));
        wait_for("the service", || Service::connect(&socket).is_ok());
        let admin = Service::connect(&socket).unwrap();
        let start = |namespace: &Netns| namespace.enter(|| Program::start(program(by, &socket)));
        let mut programs = [start(venue.first()), start(venue.last())];
        let Answer::Listening(listens, pid) = programs[0].ask(Order::Listen(venue.listens.parse().unwrap())) else {
            panic!("it listens first")
        };
        let listener = Pid::from_raw(pid).expect("a process");
        Rig { programs, listener, listens, admin, _service: service, directory, venue }
    }

    /// The number of resets that the venue's kernels have sent.
    pub fn resets(&self) -> u64 {
        let of = |namespace: &Netns| {
            let text = namespace.run("cat /proc/net/snmp");
            let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
            let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
            let place = names.split(' ').position(|name| name == "OutRsts").unwrap();
            values.split(' ').nth(place).unwrap().parse::<u64>().unwrap()
        };
        self.venue.namespaces.iter().map(of).sum()
    }

    /// A new connection with a load, whose ends are joined.
    #[track_caller]
    pub fn line(&mut self, load: Load) -> Line<'_> {
        let at = LOADS.iter().position(|known| *known == load).expect("a load of this matrix");
        let asked = SocketAddr::new(self.venue.asked.parse().unwrap(), self.listens.port());
        let Answer::Begun(end) = self.programs[1].ask(Order::Connect(asked, at)) else { panic!("it connects") };
        assert!(matches!(self.programs[0].ask(Order::Accept(at)), Answer::Begun(_)));
        let tuples = [Tuple::new(end, asked), Tuple::new(self.listens, end)];
        let line = Line { rig: self, load, tuples, closed: false };
        wait_for("both ends are joined", || line.place() == ["pair"; 2]);
        for program in &mut line.rig.programs {
            assert!(matches!(program.ask(Order::Go), Answer::Counted(_)));
        }
        line
    }

    /// A connection that is joined, until the program that connects is killed; another takes its place.
    #[track_caller]
    pub fn caller_is_killed(&mut self, by: By) {
        let line = self.line(Load::Idle);
        let caller = line.rig.admin.list().unwrap().into_iter().find(|entry| entry.tuple == line.tuples[0]);
        let caller = Pid::from_raw(caller.expect("it is known").program.pid as i32).expect("a process");
        kill_process(caller, Signal::KILL).unwrap();
        let socket = self.directory.path().join("socket");
        self.programs[1] = self.venue.last().enter(|| Program::start(program(by, &socket)));
        let ended = self.programs[0].ask(Order::Finish(0));
        assert!(matches!(ended, Answer::Finished), "{ended:?}");
        wait_for("the service has nothing of it", || self.admin.list().unwrap().is_empty());
    }

    /// The number of links' memory files that processes of the venue have mapped or open.
    pub fn link_files(&self) -> usize {
        let pids = self.venue.namespaces.iter().map(|it| run(Command::new("ip").args(["netns", "pids", it.name()])));
        let pids: Vec<String> = pids.flat_map(|pids| pids.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let files = |pid: &String| {
            // A process may have ended since.
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
            let is_link = |name: &str| name.contains("memfd:baton-pair");
            maps.lines().filter(|line| is_link(line)).count()
                + open.filter(|path| path.to_str().is_some_and(is_link)).count()
        };
        pids.iter().map(files).sum()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.listener, signal).unwrap();
        let state = if signal == Signal::STOP { ["T"; 2] } else { ["S", "R"] };
        let status = format!("/proc/{}/stat", self.listener.as_raw_nonzero());
        wait_for("the program's stop", || {
            let stat = fs::read_to_string(&status).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| state.contains(&rest.trim().split(' ').next().unwrap_or("")))
        });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            eprintln!("the service's last words:");
            log.lines().rev().take(20).collect::<Vec<_>>().iter().rev().for_each(|line| eprintln!("{line}"));
            eprintln!("its connections: {:?}", self.admin.list());
        }
    }
}

/// A program's command: this binary once more.
fn program(by: By, socket: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = match by {
        By::Api => Command::new(&own),
        By::Run => {
            let mut run = Command::new(baton());
            run.args(["run", "--pair", "same-user", "--policy", "fcfs", "--socket"]).arg(socket).arg("--").arg(&own);
            run
        }
    };
    command.args(["the_programs_process", "--exact", "--nocapture", "--quiet"]);
    command.env(VARIABLE, if by == By::Api { socket.as_os_str() } else { "".as_ref() });
    command
}

/// A connection with its load.
pub struct Line<'r> {
    rig: &'r mut Rig,
    load: Load,
    /// Both ends. Moves name the first, of the program that connects.
    tuples: [Tuple; 2],
    /// An end has closed.
    closed: bool,
}

impl Line<'_> {
    /// Where both ends are, as far as the service knows them.
    fn place(&self) -> [String; 2] {
        let entries = self.rig.admin.list().unwrap();
        self.tuples.map(|tuple| {
            let found = entries.iter().find(|entry| entry.tuple == tuple);
            found.map_or("unknown".to_owned(), |entry| entry.place.clone())
        })
    }

    /// Has both ends joined, naming one. An end that has closed stays in the kernel.
    #[track_caller]
    pub fn join(&mut self) {
        let begun = Instant::now();
        loop {
            let tally = if self.load == Load::Stopped {
                self.join_while_stopped()
            } else {
                self.rig.admin.handoff(Selector::Tuple(self.tuples[0])).unwrap()
            };
            if self.closed {
                assert_eq!((tally.count, tally.failed), (1, 1), "half of a connection is not joined");
                return assert_eq!(self.place(), ["kernel"; 2]);
            }
            if tally.failed == 0 {
                return;
            }
            // With much under way it is refused.
            assert!(begun.elapsed() < LONG, "{:?} is not joined: {:?}", self.load, self.rig.admin.list());
        }
    }

    fn join_while_stopped(&self) -> Tally {
        let (admin, which) = (&self.rig.admin, Selector::Tuple(self.tuples[0]));
        self.rig.signal(Signal::STOP);
        thread::scope(|scope| {
            let asked = scope.spawn(move || admin.handoff(which).unwrap());
            thread::sleep(STILL);
            self.rig.signal(Signal::CONT);
            asked.join().unwrap()
        })
    }

    /// Brings both ends home, naming one.
    #[track_caller]
    pub fn home(&mut self) {
        let stops = self.load == Load::Stopped;
        if stops {
            self.rig.signal(Signal::STOP);
        }
        let tally = self.rig.admin.bring_home(Selector::Tuple(self.tuples[0])).unwrap();
        assert_eq!(tally.failed, 0, "{:?}", self.load);
        assert_eq!(self.place(), ["kernel"; 2], "{:?}", self.load);
        if stops {
            self.rig.signal(Signal::CONT);
        }
    }

    /// Hands the end of the program that listens, which is in the kernel, over to an engine. The other end stays.
    #[track_caller]
    pub fn visit_engine(&mut self) {
        self.hand_over_to(Destination::Engine, ["kernel", "engine"]);
    }

    /// Brings that end home.
    #[track_caller]
    pub fn leave_engine(&mut self) {
        let tally = self.rig.admin.bring_home(Selector::Tuple(self.tuples[1])).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 0), "{:?}", self.load);
        assert_eq!(self.place(), ["kernel"; 2], "{:?}", self.load);
    }

    /// Has both ends joined, naming the one that was in an engine.
    #[track_caller]
    pub fn join_again(&mut self) {
        self.hand_over_to(Destination::Pair, ["pair"; 2]);
    }

    #[track_caller]
    fn hand_over_to(&self, to: Destination, places: [&str; 2]) {
        let (admin, begun) = (&self.rig.admin, Instant::now());
        // With much under way it is refused, or takes a while longer.
        while self.place() != places {
            admin.handoff_to(Selector::Tuple(self.tuples[1]), to).unwrap();
            assert!(begun.elapsed() < LONG, "{:?} does not go to {to:?}: {:?}", self.load, admin.list());
        }
    }

    /// Gives the service a policy with this rule for all connections.
    #[track_caller]
    pub fn rule(&self, rule: Rule) {
        self.rig.admin.reload(Some(&Policy::of(rule))).unwrap();
    }

    /// Checks where the end of the program that connects is, and that of the other.
    #[track_caller]
    pub fn is_at(&self, places: [&str; 2]) {
        assert_eq!(self.place(), places, "{:?}", self.load);
    }

    /// No engine can have an end: both stay in the kernel.
    #[track_caller]
    pub fn goes_to_no_engine(&mut self) {
        let tally = self.rig.admin.handoff_to(Selector::Tuple(self.tuples[1]), Destination::Engine).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 1));
        assert_eq!(self.place(), ["kernel"; 2]);
    }

    #[track_caller]
    fn counts(&mut self) -> [Count; 2] {
        // The program that connects is ours in the load's words.
        [1, 0].map(|at| match self.rig.programs[at].ask(Order::Count) {
            Answer::Counted(count) => count,
            other => panic!("{:?}: {other:?}", self.load),
        })
    }

    /// Waits until more bytes have arrived in each direction that carries data. A reader that is slower than the
    /// writer has the writer wait, too.
    #[track_caller]
    pub fn go_on(&mut self) {
        let [ours, peers] = self.counts();
        let mut flows = self.load.flows();
        if self.closed {
            flows[usize::from(self.load.closes() == Some(false))] = false;
        }
        let bytes = if self.load == Load::RequestResponse { 300 } else { BYTES };
        let goals =
            [(peers.read, flows[0]), (ours.read, flows[1])].map(|(read, flows)| read + u64::from(flows) * bytes);
        let full = ours.full + u64::from(self.load == Load::Full);
        let unread = if self.load == Load::Unread { UNREAD } else { 0 };
        let begun = Instant::now();
        loop {
            let [ours, peers] = self.counts();
            if peers.read >= goals[0] && ours.read >= goals[1] && ours.full >= full && peers.written >= unread {
                return;
            }
            assert!(
                begun.elapsed() < LONG,
                "{:?} makes no progress at {:?}: ours {ours:?}, the peer's {peers:?}",
                self.load,
                self.place()
            );
        }
    }

    /// The middle of the test: the end that is to close does so.
    pub fn halfway(&mut self) {
        for program in &mut self.rig.programs {
            assert!(matches!(program.ask(Order::Halfway), Answer::Closed));
        }
        self.closed = self.load.closes().is_some();
    }

    /// Everything that was written is read, both ends close, and both see the end.
    #[track_caller]
    pub fn finish(self) {
        let written = [0, 1].map(|at| match self.rig.programs[at].ask(Order::Hush) {
            Answer::Counted(count) => count.written,
            other => panic!("{:?}: {other:?}", self.load),
        });
        self.rig.programs[0].tell(Order::Finish(written[1]));
        self.rig.programs[1].tell(Order::Finish(written[0]));
        for program in &mut self.rig.programs {
            let answer = program.hear();
            assert!(matches!(answer, Answer::Finished), "{:?}: {answer:?}", self.load);
        }
        let admin = &self.rig.admin;
        wait_for("the service has nothing of it", || admin.list().unwrap().is_empty());
    }
}
