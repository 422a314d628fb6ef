//! The cost of a move: idle connections to another kernel, over a steered veth pair, are handed to
//! the engine and back.
//!
//! ```text
//!   peer's namespace ── veth ── tc ──── Mover, and STANDING connections in its engine
//!                    ── veth ── xdp ─── another one
//!   the same in other namespaces, with stateful rules:
//!                    ── veth ── tc ──── a third, whose connections conntrack tracks
//! ```
//!
//! Each round moves one connection over each of the interfaces away and, after the turns of the
//! others, back. Only the call is timed: from the descriptor to the engine's answer, and from there
//! to a live socket. Between two calls the engine is polled until it is idle. The rate covers whole
//! laps, in which all connections move away and back, with everything that has to happen between
//! two moves.

use baton_kernel::steer::Kind;
use baton_mover::{Connection, Mover, MoverConfig};
use baton_port::{SteeredPort, link};
use baton_testkit::rounds::{Effort, OUT_VARIABLE, Rounds};
use baton_testkit::{Netns, need_program, need_root, veth};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of connections on each interface that are always in the engine.
const STANDING: usize = 100;
/// The number of connections on each interface that move.
const MOVING: usize = 50;
/// The number of rounds, each with one move in each direction on each interface.
const ROUNDS: usize = 5_000;
/// The number of laps on each interface. The first does not count.
const LAPS: usize = 60;
/// Goals: the longest median and the longest 99th percentile of a move, and the least number of
/// moves per second.
const GOALS: (Duration, Duration, f64) = (Duration::from_micros(100), Duration::from_millis(1), 5_000.0);
/// Goal: the most by which the median of a handoff may grow if conntrack has to be told.
const FOR_CONNTRACK: Duration = Duration::from_micros(40);

/// A steered interface, its mover, and connections over it.
struct Subject {
    name: &'static str,
    /// The network namespace in which its mover is used.
    home: File,
    mover: Mover<SteeredPort>,
    moving: Vec<Place>,
    _peers: Vec<TcpStream>,
    next: usize,
}

/// Where a connection is.
enum Place {
    Kernel(OwnedFd),
    Engine(Connection),
    Nowhere,
}

impl Subject {
    /// Creates the subject in our namespace. Its interface has the address `10.67.NET.1`.
    fn new(name: &'static str, kind: Kind, (ours, peer): (&Netns, &Netns), net: u8) -> Subject {
        let home = File::open(Path::new("/run/netns").join(ours.name())).unwrap();
        go_to(&home);
        let device = if kind == Kind::Xdp { "wire-xdp" } else { "wire-tc" };
        let mut mover = Mover::new(MoverConfig::default()).unwrap();
        mover.add_interface(device, kind, |port| port).unwrap();
        let listener = peer.enter(|| TcpListener::bind((format!("10.67.{net}.2"), 0)).unwrap());
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..STANDING + MOVING {
            let (near, far) = connection(&listener);
            ours.push(Place::Kernel(near.into()));
            peers.push(far);
        }
        let mut subject = Subject { name, home, mover, moving: ours, _peers: peers, next: 0 };
        for at in 0..STANDING {
            subject.hand_off(at);
        }
        subject.moving.drain(..STANDING);
        subject
    }

    fn settle(&mut self) {
        go_to(&self.home);
        while self.mover.poll().unwrap() {}
    }

    fn hand_off(&mut self, at: usize) -> Duration {
        self.settle();
        let Place::Kernel(fd) = std::mem::replace(&mut self.moving[at], Place::Nowhere) else {
            panic!("the connection is away")
        };
        let start = Instant::now();
        let name = self.mover.handoff(fd).unwrap_or_else(|stayed| panic!("{}: {stayed}", self.name));
        let took = start.elapsed();
        self.moving[at] = Place::Engine(name);
        took
    }

    fn restore(&mut self, at: usize) -> Duration {
        self.settle();
        let Place::Engine(name) = std::mem::replace(&mut self.moving[at], Place::Nowhere) else {
            panic!("the connection is in the kernel")
        };
        let start = Instant::now();
        let fd = self.mover.restore(name).unwrap_or_else(|aborted| panic!("{}: {aborted}", self.name));
        let took = start.elapsed();
        self.moving[at] = Place::Kernel(fd);
        took
    }

    /// Moves a connection away, and at the next call back. Then comes the next connection.
    fn step(&mut self) -> Duration {
        let at = self.next / 2 % MOVING;
        self.next += 1;
        if self.next % 2 == 1 { self.hand_off(at) } else { self.restore(at) }
    }

    /// Moves all connections away, then all of them back.
    fn lap(&mut self) {
        for at in 0..MOVING {
            self.hand_off(at);
        }
        for at in 0..MOVING {
            self.restore(at);
        }
        self.settle();
    }
}

fn go_to(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// A connection that has carried data in both directions, so that both sides know a round-trip
/// time.
fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    for _ in 0..5 {
        near.write_all(&[1; 100]).unwrap();
        far.read_exact(&mut [0; 100]).unwrap();
        far.write_all(&[2; 100]).unwrap();
        near.read_exact(&mut [0; 100]).unwrap();
    }
    (near, far)
}

/// Two wires between two namespaces, one for each kind.
fn wires(ours: &Netns, peer: &Netns) {
    for (net, device) in [(1, "wire-tc"), (2, "wire-xdp")] {
        veth(ours, device, peer, device);
        ours.run(&format!("ip addr add 10.67.{net}.1/24 dev {device}"));
        peer.run(&format!("ip addr add 10.67.{net}.2/24 dev {device}"));
    }
    // AF_XDP cannot tell a checksum that a veth left out from damage.
    peer.enter(|| link::set_tx_checksum_offload("wire-xdp", false).unwrap());
}

/// The usual stateful rules, so that conntrack tracks every connection.
fn rules(ours: &Netns) {
    ours.run("nft add table inet fw");
    for hook in ["input", "output"] {
        ours.run(&format!("nft add chain inet fw {hook} {{ type filter hook {hook} priority 0 ; }}"));
        ours.run(&format!("nft add rule inet fw {hook} ct state invalid drop"));
        ours.run(&format!("nft add rule inet fw {hook} ct state established,related accept"));
    }
}

/// A percentile of sorted values, by nearest rank.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// Prints a row, and returns it in machine-readable form.
fn row(kind: &str, direction: &str, took: &mut [Duration]) -> Value {
    took.sort();
    let [p50, p99] = [50, 99].map(|percent| percentile(took, percent));
    let most = took[took.len() - 1];
    let met = if p50 <= GOALS.0 && p99 <= GOALS.1 { "met" } else { "missed" };
    println!("  {kind:<7} {direction:<8} {:>9.1} {:>9.1} {:>9.1}  {met}", us(p50), us(p99), us(most));
    json!({
        "kind": kind, "direction": direction, "moves": took.len(),
        "p50_us": us(p50), "p99_us": us(p99), "max_us": us(most),
    })
}

/// The increase of a handoff's median if conntrack has to be told.
fn for_conntrack(rows: &[Value]) -> Value {
    let p50 = |kind: &str| {
        let row = rows
            .iter()
            .find(|row| row["kind"] == kind && row["direction"] == "handoff")
            .expect("this kind was measured");
        row["p50_us"].as_f64().expect("a number")
    };
    let more = p50("tracked") - p50("tc");
    let met = if more <= us(FOR_CONNTRACK) { "met" } else { "missed" };
    println!("  a handoff that conntrack is told of: {more:+.1} µs, {:+.0} at most  {met}", us(FOR_CONNTRACK));
    json!({ "kind": "conntrack", "direction": "handoff", "more_us": more })
}

/// Moves per second over all laps. The kinds take turns.
fn rates(subjects: &[RefCell<Subject>; 3], laps: usize) -> [f64; 3] {
    let mut spent = [Duration::ZERO; 3];
    for lap in 0..=laps {
        for (subject, spent) in subjects.iter().zip(&mut spent) {
            let start = Instant::now();
            subject.borrow_mut().lap();
            if lap > 0 {
                *spent += start.elapsed();
            }
        }
    }
    spent.map(|spent| (laps * 2 * MOVING) as f64 / spent.as_secs_f64())
}

fn measure(plain: (&Netns, &Netns), tracked: (&Netns, &Netns)) {
    let subjects = [("tc", Kind::Tc, plain, 1), ("xdp", Kind::Xdp, plain, 2), ("tracked", Kind::Tc, tracked, 1)]
        .map(|(name, kind, wire, net)| RefCell::new(Subject::new(name, kind, wire, net)));
    let took: [[RefCell<Vec<Duration>>; 2]; 3] = Default::default();
    let mut set = Rounds::new("an idle connection's move", 1);
    for (direction, word) in ["handoff", "restore"].into_iter().enumerate() {
        for (subject, took) in subjects.iter().zip(&took) {
            set.add_timed(format!("{word}, {}", subject.borrow().name), move || {
                let time = subject.borrow_mut().step();
                took[direction].borrow_mut().push(time);
                time
            });
        }
    }
    set.run(Effort::asked().rounds(ROUNDS));
    set.report();
    drop(set);
    let rates = rates(&subjects, Effort::asked().rounds(LAPS));
    println!(
        "\n  a move, {STANDING} other connections in the engine\n  {:<16} {:>9} {:>9} {:>9}  goal",
        "", "p50 µs", "p99 µs", "max µs"
    );
    let mut rows = Vec::new();
    for (subject, took) in subjects.iter().zip(took) {
        let name = subject.borrow().name;
        for (word, took) in ["handoff", "restore"].into_iter().zip(took) {
            rows.push(row(name, word, &mut took.into_inner()));
        }
    }
    rows.push(for_conntrack(&rows));
    for (subject, rate) in subjects.iter().zip(rates) {
        let name = subject.borrow().name;
        let met = if rate >= GOALS.2 { "met" } else { "missed" };
        println!("  {name:<7} {rate:.0} moves a second  {met}");
        rows.push(json!({ "kind": name, "moves_per_second": rate }));
    }
    let goals = json!({ "p50_us": us(GOALS.0), "p99_us": us(GOALS.1), "moves_per_second": GOALS.2 });
    let report = json!({ "standing": STANDING, "moving": MOVING, "goals": goals, "measured": rows });
    if let Some(directory) = std::env::var_os(OUT_VARIABLE) {
        let path = Path::new(&directory).join("moves.json");
        std::fs::write(path, format!("{report:#}\n")).unwrap();
    }
}

fn main() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    let [plain, tracked] = [(); 2].map(|()| (Netns::new("ours"), Netns::new("peer")));
    for (ours, peer) in [&plain, &tracked] {
        wires(ours, peer);
    }
    rules(&tracked.0);
    measure((&plain.0, &plain.1), (&tracked.0, &tracked.1));
}
