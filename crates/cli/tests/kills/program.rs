//! A program under test: it uses its connections over the service, and obeys the rig.

use crate::lines::{End, Ends};
use crate::words::{Answer, Ended, Order, Report, Role, Start, monotonic_ns};
use baton_client::{Place, Service, Stream};
use baton_testkit::LONG;
use rustix::process::{getpriority_process, setpriority_process};
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The environment variable that makes this test binary run as a program.
pub const VARIABLE: &str = "BATON_KILLS_PROGRAM";
/// Prefix of its answers.
pub const MARK: &str = "@answer ";

/// Shortest time between two turns of all connections.
pub const TURN: Duration = Duration::from_millis(20);
/// Time between two checks whether connections are back in the kernel.
const LOOK: Duration = Duration::from_millis(2);
/// Most bytes that a light connection writes per turn.
pub const LIGHT: usize = 2048;
/// The same for a bulk connection.
pub const BULK: usize = 64 * 1024;

/// Our end of a connection.
enum At {
    Kernel(TcpStream),
    Service(Stream),
    Moving,
}

struct Line {
    at: At,
    ends: Ends,
    /// This is the far end, whose program accepted it.
    far: bool,
    /// The program at the other end is about to be killed, so the connection may end at any moment.
    mortal: bool,
}

#[derive(Default)]
struct Switches {
    load: AtomicBool,
    moves: AtomicBool,
    /// True while the rig wants to know when connections return to the kernel.
    watched: AtomicBool,
    turns: AtomicU64,
}

struct Program {
    service: Option<Service>,
    lines: Vec<Mutex<Line>>,
    switches: Switches,
    ledger: Option<File>,
}

/// Runs the program, and does not return, if this process was started as one.
pub fn be_the_program() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let panicked = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        panicked(info);
        exit(101);
    }));
    let start: Start = serde_json::from_str(&text).unwrap();
    let streams = if start.far { accept(&start) } else { connect(&start) };
    answer(&Answer::Connected(streams.iter().map(|stream| stream.local_addr().unwrap()).collect()));
    let line = |(at, stream): (usize, TcpStream)| {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut ends = Ends::new(Role::of(at, start.roles));
        if start.far && ends.role == Role::Unread {
            ends.write(1000, |bytes| (&stream).write(bytes)).unwrap();
        }
        Mutex::new(Line { at: At::Kernel(stream), ends, far: start.far, mortal: false })
    };
    let program = Arc::new(Program {
        service: start.service.as_ref().map(|path| Service::connect(path).unwrap()),
        lines: streams.into_iter().enumerate().map(line).collect(),
        switches: Switches::default(),
        ledger: start.ledger.as_ref().map(|path| File::create(path).unwrap()),
    });
    program.switches.load.store(true, Ordering::Relaxed);
    for (seed, run) in [(start.seed, Program::load as fn(&Program, u64)), (!start.seed, Program::moves)] {
        let program = program.clone();
        thread::spawn(move || run(&program, seed));
    }
    thread::spawn({
        let program = program.clone();
        move || program.look_home()
    });
    program.adopt_all();
    answer(&Answer::Adopted);
    for order in io::stdin().lock().lines() {
        // The rig has ended.
        let Ok(order) = order else { break };
        program.obey(serde_json::from_str(&order).unwrap());
    }
    exit(0);
}

fn connect(start: &Start) -> Vec<TcpStream> {
    (0..start.lines).map(|at| TcpStream::connect(start.peers[at % 2]).unwrap()).collect()
}

/// Accepts connections in the order in which the other program makes them.
fn accept(start: &Start) -> Vec<TcpStream> {
    let listeners = start.peers.map(|address| TcpListener::bind(address).unwrap());
    answer(&Answer::Listening(listeners.each_ref().map(|listener| listener.local_addr().unwrap())));
    (0..start.lines).map(|at| listeners[at % 2].accept().unwrap().0).collect()
}

/// Prints a line with a single write, so that no output of the test runner interrupts it.
fn answer(answer: &Answer) {
    let text = format!("\n{MARK}{}\n", serde_json::to_string(answer).unwrap());
    io::stdout().write_all(text.as_bytes()).unwrap();
}

impl Program {
    fn lock(&self, at: usize) -> MutexGuard<'_, Line> {
        self.lines[at].lock().unwrap()
    }

    fn adopt_all(&self) {
        let Some(service) = &self.service else { return };
        let begun = Instant::now();
        for at in 0..self.lines.len() {
            while matches!(self.lock(at).at, At::Kernel(_)) {
                let Some(why) = self.lock(at).adopt(service) else { break };
                assert!(begun.elapsed() < LONG, "line {at} is not taken over: {why}");
                // A connection with much unread data is refused; continue to serve it until it fits.
                sleep(2 * TURN);
            }
        }
    }

    /// Repeatedly writes and reads everything that is possible.
    fn load(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut buffer = Vec::new();
        loop {
            let begun = Instant::now();
            let load = self.switches.load.load(Ordering::Relaxed);
            for (at, line) in self.lines.iter().enumerate() {
                // A connection whose lock is held is moving.
                if let Ok(mut line) = line.try_lock() {
                    let before = line.ends.written;
                    line.turn(at, load, &mut random, &mut buffer);
                    if let Some(ledger) = self.ledger.as_ref().filter(|_| line.ends.written > before) {
                        ledger.write_all_at(&line.ends.written.to_ne_bytes(), 8 * at as u64).unwrap();
                    }
                }
            }
            self.switches.turns.fetch_add(1, Ordering::Relaxed);
            sleep(TURN.saturating_sub(begun.elapsed()));
        }
    }

    /// Notes when each connection is back in the kernel. This has its own thread, so that the
    /// measurement does not wait behind the load.
    fn look_home(&self) {
        let usual = getpriority_process(None).unwrap();
        let _ = setpriority_process(None, usual - 10);
        loop {
            if self.switches.watched.load(Ordering::Relaxed) {
                self.lines.iter().filter_map(|line| line.try_lock().ok()).for_each(|mut line| line.look_home());
            }
            sleep(LOOK);
        }
    }

    /// Moves connections back and forth, one after the other.
    fn moves(&self, seed: u64) {
        let Some(service) = &self.service else { return };
        let mut random = fastrand::Rng::with_seed(seed);
        loop {
            if self.switches.moves.load(Ordering::Relaxed) {
                self.lock(random.usize(..self.lines.len())).toggle(service);
            }
            sleep(Duration::from_micros(random.u64(..20_000)));
        }
    }

    fn obey(&self, order: Order) {
        match order {
            Order::Adopt => {
                self.adopt_all();
                answer(&Answer::Adopted);
            }
            Order::Moves(on) => self.switches.moves.store(on, Ordering::Relaxed),
            Order::Watch { since_ns, home } => {
                for at in 0..self.lines.len() {
                    let mut line = self.lock(at);
                    // A moving connection may be about to enter the next engine.
                    let away = home && line.is_in_engine();
                    line.ends.watch.begin(since_ns, away);
                }
                self.switches.watched.store(true, Ordering::Relaxed);
            }
            Order::Report => {
                let report = self.report();
                self.switches.watched.store(false, Ordering::Relaxed);
                answer(&Answer::Report(report));
            }
            Order::Hush => {
                self.switches.load.store(false, Ordering::Relaxed);
                self.switches.moves.store(false, Ordering::Relaxed);
                // After a whole turn, no connection writes any more.
                let turns = self.switches.turns.load(Ordering::Relaxed);
                self.wait("the turns", || self.switches.turns.load(Ordering::Relaxed) > turns + 1);
                answer(&Answer::Hushed((0..self.lines.len()).map(|at| self.lock(at).ends.written).collect()));
            }
            Order::Finish(expected) => self.finish(&expected),
            Order::Mortal => {
                (0..self.lines.len()).for_each(|at| self.lock(at).mortal = true);
                answer(&Answer::Mortal);
            }
            Order::Ends => {
                self.wait("ends", || (0..self.lines.len()).all(|at| self.lock(at).ends.end.is_some()));
                let ended = |at| {
                    let Ends { read, end, .. } = self.lock(at).ends;
                    end.map(|(end, at_ns)| Ended { end, at_ns, read })
                };
                answer(&Answer::Ends((0..self.lines.len()).filter_map(ended).collect()));
            }
        }
    }

    #[track_caller]
    fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < LONG, "{what} never come: {}", self.stuck());
            sleep(Duration::from_millis(2));
        }
    }

    fn report(&self) -> Report {
        self.wait("bytes", || (0..self.lines.len()).all(|at| self.lock(at).ends.watch.goes_on()));
        let mut report = Report::default();
        (0..self.lines.len()).for_each(|at| self.lock(at).ends.watch.tell(&mut report));
        report
    }

    fn finish(&self, expected: &[u64]) {
        self.wait("the peers' bytes", || {
            expected.iter().enumerate().all(|(at, expected)| self.lock(at).ends.read >= *expected)
        });
        for (at, expected) in expected.iter().enumerate() {
            let line = self.lock(at);
            assert_eq!(line.ends.read, *expected, "line {at} got more than was written");
            match &line.at {
                At::Kernel(stream) => stream.shutdown(Shutdown::Write).unwrap(),
                At::Service(stream) => stream.shutdown().unwrap(),
                At::Moving => unreachable!("nobody moves it any more"),
            }
        }
        self.wait("the peers' ends", || (0..expected.len()).all(|at| self.lock(at).ends.end.is_some()));
        answer(&Answer::Finished);
    }

    /// Describes connections that make no progress or have not ended.
    fn stuck(&self) -> String {
        let mut text = String::new();
        for at in 0..self.lines.len() {
            let line = self.lock(at);
            if line.ends.watch.goes_on() && self.switches.load.load(Ordering::Relaxed) {
                continue;
            }
            let (place, address) = match &line.at {
                At::Service(stream) => (format!("{:?}", stream.place()), stream.local_addr().ok()),
                At::Kernel(stream) => ("its own".into(), stream.local_addr().ok()),
                At::Moving => ("moving".into(), None),
            };
            let Ends { role, written, read, end, .. } = line.ends;
            text += &format!("\nline {at} {address:?} {role:?} {place}: written {written}, read {read}, end {end:?}");
            if text.len() > 2000 {
                break;
            }
        }
        text
    }
}

impl Line {
    fn is_home(&self) -> bool {
        match &self.at {
            At::Kernel(_) => true,
            At::Service(stream) => stream.place() == Place::Kernel,
            At::Moving => false,
        }
    }

    fn is_in_engine(&self) -> bool {
        matches!(&self.at, At::Service(stream) if stream.place() == Place::Engine)
    }

    fn look_home(&mut self) {
        if self.ends.watch.awaits_home() && self.is_home() {
            self.ends.watch.on_home();
        }
    }

    /// Hands the connection over. Returns the reason if it stays, for example because there is no
    /// engine at the time.
    fn adopt(&mut self, service: &Service) -> Option<String> {
        let At::Kernel(stream) = std::mem::replace(&mut self.at, At::Moving) else { panic!("it is away") };
        self.ends.watch.on_home();
        match service.adopt(stream.into()) {
            Ok(stream) => {
                stream.set_nonblocking(true);
                self.at = At::Service(stream);
                None
            }
            Err(refused) => {
                let text = refused.to_string();
                let fd = refused.fd.unwrap_or_else(|| panic!("lost with its move: {text}"));
                self.at = At::Kernel(fd.into());
                Some(text)
            }
        }
    }

    /// Moves the connection to the other side.
    fn toggle(&mut self, service: &Service) {
        if self.ends.end.is_some() {
            return;
        }
        match std::mem::replace(&mut self.at, At::Moving) {
            At::Kernel(stream) => {
                self.at = At::Kernel(stream);
                self.adopt(service);
            }
            At::Service(stream) => {
                self.at = match stream.restore() {
                    Ok(fd) => {
                        self.ends.watch.on_home();
                        At::Kernel(fd.into())
                    }
                    // Data that a dead engine left must be read first, or there is no service.
                    Err((stream, _)) => At::Service(stream),
                }
            }
            At::Moving => unreachable!("whoever moves it has the lock"),
        }
    }

    fn turn(&mut self, at: usize, load: bool, random: &mut fastrand::Rng, buffer: &mut Vec<u8>) {
        self.look_home();
        if self.mortal && self.ends.end.is_some() {
            return;
        }
        let Line { at: place, ends, .. } = self;
        let (mut kernel, mut service);
        let io: &mut dyn ReadWrite = match place {
            At::Kernel(stream) => {
                kernel = &*stream;
                &mut kernel
            }
            At::Service(stream) => {
                service = &*stream;
                &mut service
            }
            At::Moving => unreachable!("whoever moves it has the lock"),
        };
        let len = match ends.role {
            Role::Bulk => BULK,
            Role::Drained if self.far => 0,
            Role::Light | Role::Drained => random.usize(1..=LIGHT),
            Role::Unread => 0,
        };
        let reads = ends.role != Role::Unread || self.far || self.mortal;
        // Read first: the kernel reports a reset only once, and a write would consume the report.
        let read = if reads { ends.read(buffer, |buffer| io.read(buffer)) } else { Ok(()) };
        let writes = load && len > 0 && read.is_ok() && !(self.mortal && ends.end.is_some());
        let written = if writes { ends.write(len, |bytes| io.write(bytes)) } else { Ok(()) };
        match read.and(written) {
            Ok(()) => {}
            Err(error) if self.mortal && matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                ends.end.get_or_insert((End::Reset, monotonic_ns()));
            }
            Err(error) => panic!("line {at}, {} written, {} read: {error}", self.ends.written, self.ends.read),
        }
        if !self.mortal {
            assert!(!load || self.ends.end.is_none(), "line {at} has ended: {:?}", self.ends.end);
            assert_ne!(self.ends.end.map(|(end, _)| end), Some(End::Reset));
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Parses the program's answer from a line of its output, if it is one.
pub fn answer_in(line: &str) -> Option<Answer> {
    line.strip_prefix(MARK).map(|text| serde_json::from_str(text).expect("an answer"))
}

/// Finds the far ends of the connections by their local addresses.
pub fn sorted(of: &[SocketAddr], mut streams: Vec<TcpStream>) -> Vec<TcpStream> {
    let place = |stream: &TcpStream| {
        let address = stream.peer_addr().unwrap();
        of.iter().position(|our| *our == address).expect("a line of this program")
    };
    streams.sort_by_cached_key(place);
    streams
}
