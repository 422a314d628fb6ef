//! The cost of measuring latency: an echo of 64 bytes between two kernels over a veth pair, not watched,
//! beside a watched connection, and watched.
//!
//! In each round every state carries the same number of round trips over a connection of its own, in an order
//! that rotates. CPU time is that of this process, in which both ends are, softirqs in its threads included.
//! Figures are medians, ratios medians of the rounds' ratios to the first state. The first state comes twice:
//! the difference is noise.

use baton_kernel::latency::{SLOTS, Wanted, Watch, sights};
use baton_testkit::rounds::{Effort, OUT_VARIABLE};
use baton_testkit::{Netns, need_program, need_root, veth};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Instant;

/// Bytes each way.
const MESSAGE: usize = 64;
/// The rounds that count, and the round trips of each state in a round.
const ROUNDS: usize = 41;
const TRIPS: usize = 5000;
/// Those before, which warm up a new connection.
const WARM: usize = 200;

const STATES: [&str; 5] = ["not watched", "not watched again", "another is watched", "watched", "all are watched"];

/// The result of a state in a round.
#[derive(Clone, Copy)]
struct Figures {
    p50_ns: f64,
    p99_ns: f64,
    /// CPU time for each round trip, of both ends.
    cpu_ns: f64,
}

/// Takes one of the figures.
type Figure = fn(&Figures) -> f64;

const FIGURES: [(&str, Figure); 3] =
    [("p50", |it| it.p50_ns), ("p99", |it| it.p99_ns), ("CPU of both ends", |it| it.cpu_ns)];

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Round trips over a new connection; for some states somebody watches. Both ends of the connection are
/// watched if the state says so.
fn run(listener: &TcpListener, state: &str, trips: usize) -> Figures {
    let port = listener.local_addr().unwrap().port();
    let wanted = match state {
        "another is watched" => Some(Wanted::Port(1)),
        "watched" => Some(Wanted::Port(port)),
        "all are watched" => Some(Wanted::All),
        _ => None,
    };
    let mut watch = wanted.map(|wanted| Watch::start(&wanted, SLOTS).unwrap());
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    [&near, &far].iter().for_each(|stream| stream.set_nodelay(true).unwrap());
    let figures = thread::scope(|scope| {
        scope.spawn(move || {
            let mut message = [0; MESSAGE];
            while far.read_exact(&mut message).is_ok() {
                far.write_all(&message).unwrap();
            }
        });
        let mut message = [1; MESSAGE];
        let mut trip = || {
            let start = Instant::now();
            near.write_all(&message).unwrap();
            near.read_exact(&mut message).unwrap();
            start.elapsed().as_nanos() as f64
        };
        (0..WARM).for_each(|_| _ = trip());
        let before = cpu_ns();
        let mut times: Vec<f64> = (0..trips).map(|_| trip()).collect();
        let cpu_ns = (cpu_ns() - before) / trips as f64;
        times.sort_by(f64::total_cmp);
        drop(near);
        let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
        Figures { p50_ns: at(0.5), p99_ns: at(0.99), cpu_ns }
    });
    if let (Some(watch), "watched" | "all are watched") = (&mut watch, state) {
        let reading = watch.read().unwrap();
        let sent: u64 = reading.connections.iter().map(|it| it.table.layer(baton_latency::Layer::Transmit).count).sum();
        assert!(sent as usize >= trips, "{state}: {sent} messages were seen");
    }
    figures
}

/// The first, second and third quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn main() {
    need_root!();
    need_program!("ip");
    let (ours, peer) = (Netns::new("ours"), Netns::new("peer"));
    veth(&ours, "wire", &peer, "wire");
    ours.run("ip addr add 10.69.0.1/24 dev wire");
    peer.run("ip addr add 10.69.0.2/24 dev wire");
    let (rounds, trips) = Effort::asked().pick((ROUNDS, TRIPS), (1, 200));
    let listener = peer.enter(|| TcpListener::bind("10.69.0.2:0").unwrap());
    let mut runs: [Vec<Figures>; STATES.len()] = Default::default();
    ours.enter(|| {
        for round in 0..=rounds {
            for turn in 0..STATES.len() {
                let at = (round + turn) % STATES.len();
                let figures = run(&listener, STATES[at], trips);
                if round > 0 {
                    runs[at].push(figures);
                }
            }
        }
    });
    let by: Vec<String> = sights().unwrap().iter().map(|it| format!("{}: {:?}", it.way.name(), it.by)).collect();
    println!("\n  echo of {MESSAGE} bytes, {rounds} rounds of {trips}; {}", by.join(", "));
    let mut rows = Vec::new();
    for (name, of) in FIGURES {
        for (state, run) in STATES.iter().zip(&runs) {
            let [q1, median, q3] = quartiles(run.iter().map(of).collect());
            let [r1, ratio, r3] = quartiles(run.iter().zip(&runs[0]).map(|(a, b)| of(a) / of(b)).collect());
            println!("  {name:<18}{state:<22}{median:>8.0} ns  ({q1:.0}–{q3:.0})  ratio {ratio:.3} ({r1:.3}–{r3:.3})");
            let all: Vec<f64> = run.iter().map(of).collect();
            rows.push(json!({ "figure": name, "state": state, "median_ns": median, "ratio": ratio, "runs_ns": all }));
        }
    }
    if let Some(directory) = std::env::var_os(OUT_VARIABLE) {
        let path = Path::new(&directory).join("latency.json");
        fs::write(path, format!("{:#}\n", json!({ "message": MESSAGE, "seen": by, "measured": rows }))).unwrap();
    }
}
