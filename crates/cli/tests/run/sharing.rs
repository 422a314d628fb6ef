//! Several `baton run` at the same time in one network namespace, and the effects on all of them when one
//! of them, or the service that they share, is killed.

use crate::ends::services;
use crate::world::{World, baton, listens};
use baton_testkit::{Running, output, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Keeps talking over so many connections until it is told to end; says what went wrong.
const TALKER: &str = "\
import os, socket, sys, time
name, count, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = [socket.create_connection(('10.67.0.2', port), timeout=20) for _ in range(count)]
turn = 0
def say(line):
    with open(name + '.new', 'w') as file: file.write(line)
    os.rename(name + '.new', name)
while not os.path.exists(name + '.end'):
    turn += 1
    words = (turn % 251).to_bytes(1, 'big') * 3000
    try:
        for each in held: each.sendall(words)
        for each in held:
            got = b''
            while len(got) < len(words):
                more = each.recv(len(words) - len(got))
                if not more: raise EOFError('the end')
                got += more
            assert got == words, 'other bytes'
    except (OSError, EOFError) as error:
        say('failed ' + type(error).__name__)
        sys.exit(1)
    say('turn %d' % turn)
";

const PORT: u16 = 8103;

/// A program that talks under `baton run`; what both say is in files of its name.
struct Talker<'a> {
    world: &'a World,
    name: &'static str,
    running: Running,
}

/// Answers each byte of each connection.
pub fn echo(world: &World) -> Running {
    let code = "\
import selectors, socket
listener = socket.create_server(('10.67.0.2', 8103), backlog=1000)
set = selectors.DefaultSelector()
set.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in set.select():
        if key.fileobj is listener:
            set.register(listener.accept()[0], selectors.EVENT_READ)
        else:
            try: read = key.fileobj.recv(65536)
            except OSError: read = b''
            if read: key.fileobj.sendall(read)
            else: set.unregister(key.fileobj); key.fileobj.close()
";
    let mut python = world.peer.command("python3");
    let running = Running::start(python.args(["-c", code]).stdin(Stdio::null()));
    wait_for("who listens", || listens(&world.peer, PORT));
    running
}

impl<'a> Talker<'a> {
    fn start(world: &'a World, name: &'static str, connections: usize, port: u16) -> Talker<'a> {
        let mut command = world.command(&["python3", "-c", TALKER, name, &connections.to_string(), &port.to_string()]);
        let said = fs::File::create(world.file(&format!("{name}.said"))).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let running = world.ours.enter(|| Running::start(&mut command));
        Talker { world, name, running }
    }

    fn word(&self) -> String {
        fs::read_to_string(self.world.file(self.name)).unwrap_or_default()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.world.file(&format!("{}.said", self.name))).unwrap()
    }

    fn turn(&self) -> u64 {
        self.word().strip_prefix("turn ").map_or(0, |turn| turn.parse().unwrap())
    }

    /// Some more turns than there were.
    #[track_caller]
    fn goes_on(&self) {
        let before = self.turn();
        wait_for("the program's next turns", || {
            assert!(!self.word().starts_with("failed"), "{}: {}; {}", self.name, self.word(), self.said());
            self.turn() > before + 5
        });
    }

    /// Its connections are at the engine.
    #[track_caller]
    fn moved(&self) {
        let Some(socket) = place(self.world).map(|place| place.join("socket")) else { panic!("{}", self.said()) };
        wait_for("a move", || {
            let mut ps = Command::new(baton());
            let out = output(ps.args(["ps", "--socket"]).arg(&socket));
            String::from_utf8_lossy(&out.stdout).lines().any(|line| line.starts_with("engine"))
        });
    }

    fn end(mut self) -> String {
        fs::write(self.world.file(&format!("{}.end", self.name)), "").unwrap();
        wait_for("its end", || self.running.child().try_wait().unwrap().is_some());
        let status = self.running.child().wait().unwrap();
        assert!(status.success(), "{}: {status}: {}; {}", self.name, self.word(), self.said());
        self.said()
    }

    /// `baton run` itself is killed: the program goes on.
    fn kill(&mut self) {
        self.running.signal(Signal::KILL);
        self.running.child().wait().unwrap();
    }
}

/// The directory of the service that is shared.
pub fn place(world: &World) -> Option<PathBuf> {
    let namespace = world.ours.enter(|| fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    Some(PathBuf::from(format!("/run/baton-net-{namespace}"))).filter(|place| place.exists())
}

#[track_caller]
fn nothing_is_left(world: &World) {
    wait_for("the service's end", || services(world).is_empty());
    wait_for("the end of its directory", || place(world).is_none());
    let devices = world.ours.run("cat /proc/net/dev");
    assert!(!devices.contains("baton"), "{devices}");
}

/// Kills all processes of the service at once, and returns them. They are stopped first: the last to
/// be killed could start the others anew.
fn kill_all(world: &World) -> Vec<Pid> {
    let all = processes(world, &["service", "guardian", "broker", "engine"]);
    for signal in [Signal::STOP, Signal::KILL] {
        all.iter().for_each(|pid| kill_process(*pid, signal).unwrap());
    }
    all
}

fn processes(world: &World, roles: &[&str]) -> Vec<Pid> {
    services(world).into_iter().filter(|(_, is)| roles.contains(&is.as_str())).map(|(pid, _)| pid).collect()
}

/// Both moved all; the one that began it ends first.
pub fn two_share_a_service(world: &World) {
    let _echo = echo(world);
    let first = Talker::start(world, "first", 3, PORT);
    first.goes_on();
    let second = Talker::start(world, "second", 4, PORT);
    second.goes_on();
    let third = Talker::start(world, "third", 2, PORT);
    third.goes_on();
    assert_eq!(processes(world, &["broker"]).len(), 1);
    let said = second.said();
    assert!(said.contains("sharing the service of another run"), "{said}");
    let said = first.end();
    assert!(said.contains("3 of 3 connections moved"), "{said}");
    second.goes_on();
    let said = third.end();
    assert!(said.contains("2 of 2 connections moved"), "{said}");
    // A connection opened now moves as well.
    let fourth = Talker::start(world, "fourth", 2, PORT);
    fourth.goes_on();
    assert!(second.end().contains("4 of 4 connections moved"));
    assert!(fourth.end().contains("2 of 2 connections moved"));
    nothing_is_left(world);
}

pub fn one_of_two_is_killed(world: &World) {
    let _echo = echo(world);
    for (killed, other) in [(0, 1), (1, 0)] {
        let mut both: Vec<Talker> = [("first", 3), ("second", 4)]
            .map(|(name, count)| {
                for old in [name.to_owned(), format!("{name}.end")] {
                    let _ = fs::remove_file(world.file(&old));
                }
                let talker = Talker::start(world, name, count, PORT);
                talker.goes_on();
                talker
            })
            .into();
        both[killed].kill();
        both[killed].goes_on();
        both[other].goes_on();
        fs::write(world.file(&format!("{}.end", both[killed].name)), "").unwrap();
        let left = both.remove(other);
        left.goes_on();
        let said = left.end();
        assert!(said.contains(" connections moved to the engine"), "{said}");
        nothing_is_left(world);
    }
}

/// The last that lives is killed: its program goes on in the kernel, and the directory goes.
pub fn all_are_killed(world: &World) {
    let _echo = echo(world);
    let mut both = [("first", 3), ("second", 4)].map(|(name, count)| {
        let talker = Talker::start(world, name, count, PORT);
        talker.goes_on();
        talker
    });
    both.iter_mut().for_each(Talker::kill);
    both.iter().for_each(Talker::goes_on);
    nothing_is_left(world);
    both.iter().for_each(Talker::goes_on);
    both.iter().for_each(|talker| fs::write(world.file(&format!("{}.end", talker.name)), "").unwrap());
}

/// As when a control group is killed: what the engine had ends at both ends, and what comes then moves
/// again.
pub fn the_whole_service_is_killed(world: &World) {
    let _echo = echo(world);
    let listener = world.peer.enter(|| TcpListener::bind("10.67.0.2:8104").unwrap());
    let idle = Talker::start(world, "idle", 1, 8104);
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let busy = Talker::start(world, "busy", 20, PORT);
    busy.goes_on();
    busy.moved();
    // It waits for an answer, and its peer for more.
    peer.read_exact(&mut [0; 3000]).unwrap();
    let killed = Instant::now();
    kill_all(world);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    for talker in [&idle, &busy] {
        wait_for("the program's end", || talker.word().starts_with("failed"));
        assert_eq!(talker.word(), "failed ConnectionResetError", "{}", talker.said());
    }
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    for mut talker in [idle, busy] {
        wait_for("its end", || talker.running.child().try_wait().unwrap().is_some());
    }
    let next = Talker::start(world, "next", 2, PORT);
    next.goes_on();
    assert!(next.end().contains("2 of 2 connections moved"));
    nothing_is_left(world);
}

/// The next broker knows which runs there are: the service goes on for the second, and ends with it.
pub fn a_broker_that_died_is_replaced_for_all(world: &World) {
    let _echo = echo(world);
    let [first, second] = ["first", "second"].map(|name| Talker::start(world, name, 3, PORT));
    first.goes_on();
    second.goes_on();
    let before = processes(world, &["broker"]);
    kill_process(before[0], Signal::KILL).unwrap();
    wait_for("another broker", || {
        let now = processes(world, &["broker"]);
        !now.is_empty() && now != before
    });
    first.goes_on();
    first.end();
    second.goes_on();
    assert_eq!(processes(world, &["broker"]).len(), 1);
    second.end();
    nothing_is_left(world);
}

/// The connections in a program's own engine go on without a service; a run that comes meanwhile does them
/// no harm, and one that comes later has a service again.
pub fn engines_inside_programs_go_on_without_a_service(world: &World) {
    let _echo = echo(world);
    let first = Talker::start(world, "first", 3, PORT);
    first.goes_on();
    kill_all(world);
    first.goes_on();
    let second = Talker::start(world, "second", 2, PORT);
    second.goes_on();
    first.goes_on();
    let said = second.end();
    assert!(
        said.contains("continue in engines inside programs") && said.contains("0 of 2 connections moved"),
        "{said}"
    );
    first.goes_on();
    first.end();
    let third = Talker::start(world, "third", 2, PORT);
    third.goes_on();
    assert!(third.end().contains("2 of 2 connections moved"));
    nothing_is_left(world);
}

/// A run whose service was killed starts another, and what its program opens then moves.
pub fn another_service_is_started(world: &World) {
    let _echo = echo(world);
    let code = "\
import os, socket, time
def talk():
    one = socket.create_connection(('10.67.0.2', 8103), timeout=20)
    for _ in range(20):
        one.sendall(b'x'); assert one.recv(1) == b'x'
    return one
first = talk()
with open('account', 'w') as file: file.write(os.environ['BATON_ACCOUNT'])
open('began', 'w')
while not os.path.exists('end'): time.sleep(0.01)
while not os.path.exists('enough'):
    try: talk().close()
    except OSError: pass
    time.sleep(0.05)
";
    let running = world.start(&["python3", "-c", code]);
    wait_for("the program", || world.file("began").exists());
    let before = kill_all(world);
    assert!(before.len() >= 3, "{before:?}");
    fs::write(world.file("end"), "").unwrap();
    wait_for("another service", || {
        let now = processes(world, &["broker"]);
        !now.is_empty() && now.iter().all(|pid| !before.contains(pid))
    });
    let path = fs::read_to_string(world.file("account")).unwrap();
    let account = || counted(&fs::read(&path).unwrap(), "moved");
    let moved = account();
    wait_for("another move", || account() > moved + 1);
    fs::write(world.file("enough"), "").unwrap();
    let account = world.wait(running);
    assert!(account.moved > 2, "{}", account.said);
    nothing_is_left(world);
}

/// A counter of a run (`crates/cli/src/run/account.rs`).
fn counted(bytes: &[u8], name: &str) -> u64 {
    let is = |entry: &&[u8]| entry[8..].starts_with(name.as_bytes()) && entry[8 + name.len()] == 0;
    let entry = bytes.chunks_exact(64).find(is);
    entry.map_or(0, |entry| u64::from_ne_bytes(entry[..8].try_into().unwrap()))
}

/// A program of a user without access to the service runs in the kernel.
pub fn other_users_stay_in_the_kernel(world: &World) {
    let _echo = echo(world);
    let first = Talker::start(world, "first", 1, PORT);
    first.goes_on();
    let nobody = |words: &[&str]| {
        let mut command = world.ours.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(baton()).args(["run", "--explain"]);
        output(command.args(words))
    };
    let out = nobody(&["--", "sh", "-c", "exit 5"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(5), "{said}");
    assert!(
        said.contains("connections stay in the kernel: no service is running, and only root can start one"),
        "{said}"
    );
    let out = nobody(&["--require", "--", "sh", "-c", "exit 5"]);
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    first.end();
    nothing_is_left(world);
}
