//! The cost of steering for connections that do not move: bulk transfers of a kernel over an
//! interface with nothing attached, with steering, and with 10,000 other connections steered.
//!
//! ```text
//!   peer's kernel ── veth ─┬─ our kernel        one pair of devices for each state,
//!                          └─ engine's port     all up at once
//! ```
//!
//! In each round every state carries one transfer in each direction, in an order that reverses from
//! round to round. Figures are medians. CPU time is that of the whole machine. The steered
//! connections have no traffic here: they are entries in the map in which every frame is looked up.
//! An engine's port is open, and nobody polls it.
//!
//! An XDP program disables segmentation offload on a veth pair, whatever it does. The state without
//! attachment and without offloads shows how much of its cost is due to that.

use baton_kernel::steer::{Kind, Options, Steering};
use baton_port::SteeredPort;
use baton_testkit::rounds::{Effort, OUT_VARIABLE};
use baton_testkit::{Netns, need_program, need_root, veth};
use baton_wire::addr::{Addr, Tuple};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Other connections that are steered.
const TUPLES: u32 = 10_000;
/// The size of each write and each read, in bytes.
const MESSAGE: usize = 64 << 10;
/// The last byte of a transfer. All others are 0.
const LAST: u8 = 1;
/// The rounds that count, and the duration of a transfer.
const ROUNDS: usize = 21;
const LENGTH: Duration = Duration::from_millis(250);

/// The state of an interface.
struct State {
    name: &'static str,
    kind: Option<Kind>,
    tuples: u32,
    offloads: bool,
}

const STATES: [State; 6] = [
    State { name: "nothing attached", kind: None, tuples: 0, offloads: true },
    State { name: "tc", kind: Some(Kind::Tc), tuples: 0, offloads: true },
    State { name: "tc, 10,000 steered", kind: Some(Kind::Tc), tuples: TUPLES, offloads: true },
    State { name: "nothing attached, no offloads", kind: None, tuples: 0, offloads: false },
    State { name: "xdp", kind: Some(Kind::Xdp), tuples: 0, offloads: true },
    State { name: "xdp, 10,000 steered", kind: Some(Kind::Xdp), tuples: TUPLES, offloads: true },
];

/// The sender: the peer, then us.
const DIRECTIONS: [&str; 2] = ["in", "out"];

/// The result of a transfer.
#[derive(Clone, Copy, Default)]
struct Figures {
    gbps: f64,
    /// CPU seconds of the machine for each gigabyte.
    cpu: f64,
}

/// An interface in one of the states.
struct Wire {
    /// On the peer's side.
    listener: TcpListener,
    _steering: Option<(Steering, SteeredPort)>,
}

impl Wire {
    /// Creates the interface in our namespace.
    fn new(state: &State, ours: &Netns, peer: &Netns, net: usize) -> Wire {
        let device = format!("wire{net}");
        veth(ours, &device, peer, &device);
        for (side, last) in [(ours, 1), (peer, 2)] {
            side.run(&format!("ip addr add 10.68.{net}.{last}/24 dev {device}"));
            if !state.offloads {
                side.run(&format!("ethtool -K {device} tso off gso off gro off"));
            }
        }
        let steering = state.kind.map(|kind| {
            let mut steering = Steering::attach(&device, kind, Options::default()).unwrap();
            let port = steering.open_port().unwrap();
            steering.set_engine(true).unwrap();
            (0..state.tuples).for_each(|n| steering.insert(steered(n)).unwrap());
            (steering, port)
        });
        let listener = peer.enter(|| TcpListener::bind((format!("10.68.{net}.2"), 0)).unwrap());
        Wire { listener, _steering: steering }
    }

    /// Transfers over a new connection, because the accidental properties of an old one, such as
    /// its windows, would persist in all rounds.
    fn transfer(&self, direction: usize, length: Duration) -> Figures {
        let near = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (far, _) = self.listener.accept().unwrap();
        let (from, to) = if direction == 0 { (&far, &near) } else { (&near, &far) };
        let begun = Instant::now();
        let before = busy_seconds();
        let bytes = thread::scope(|scope| {
            scope.spawn(|| send(from, begun, length));
            receive(to)
        });
        let gigabytes = bytes as f64 / 1e9;
        Figures { gbps: 8.0 * gigabytes / begun.elapsed().as_secs_f64(), cpu: (busy_seconds() - before) / gigabytes }
    }
}

/// Sends for `length`. Only the very last byte differs.
fn send(mut to: &TcpStream, begun: Instant, length: Duration) {
    let mut message = vec![0; MESSAGE];
    while begun.elapsed() < length {
        to.write_all(&message).unwrap();
    }
    message[MESSAGE - 1] = LAST;
    to.write_all(&message).unwrap();
}

/// Receives everything. Returns the number of bytes.
fn receive(mut from: &TcpStream) -> u64 {
    let mut message = vec![0; MESSAGE];
    let mut received = 0;
    loop {
        let count = from.read(&mut message).unwrap();
        received += count as u64;
        if count == 0 || message[count - 1] == LAST {
            return received;
        }
    }
}

/// A connection that nobody has, with addresses of RFC 2544.
fn steered(n: u32) -> Tuple {
    let [_, _, c, d] = n.to_be_bytes();
    Tuple { local: Addr::v4([198, 18, 0, 1]), remote: Addr::v4([198, 19, c, d]), local_port: 80, remote_port: 40_000 }
}

/// The time that all CPUs have worked, in seconds (`proc_stat(5)`; 100 ticks per second).
fn busy_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<f64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    // user, nice, system, irq, softirq
    [0, 1, 2, 5, 6].iter().map(|&field| fields[field]).sum::<f64>() / 100.0
}

/// The first, second and third quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn measure(ours: &Netns, peer: &Netns) {
    let wires: Vec<Wire> = STATES.iter().enumerate().map(|(net, state)| Wire::new(state, ours, peer, net)).collect();
    let (rounds, length) = Effort::asked().pick((ROUNDS, LENGTH), (1, LENGTH / 10));
    let mut runs: Vec<[Vec<Figures>; 2]> = STATES.iter().map(|_| Default::default()).collect();
    for round in 0..=rounds {
        for turn in 0..wires.len() {
            let at = (round + turn) % wires.len();
            for (direction, runs) in runs[at].iter_mut().enumerate() {
                let figures = wires[at].transfer(direction, length);
                if round > 0 {
                    runs.push(figures);
                }
            }
        }
    }
    report(&runs);
}

fn report(runs: &[[Vec<Figures>; 2]]) {
    println!(
        "\n  the kernel's own bulk transfers over a veth pair: medians and quartiles; ratios are medians of the \
         rounds' ratios to nothing attached\n  {:<34}{:>6}{:>14}{:>8}{:>10}{:>14}{:>8}",
        "", "Gb/s", "", "ratio", "CPU s/GB", "", "ratio"
    );
    let mut rows = Vec::new();
    for (direction, word) in DIRECTIONS.into_iter().enumerate() {
        for (state, run) in STATES.iter().zip(runs) {
            let (run, base) = (&run[direction], &runs[0][direction]);
            let of = |figure: fn(&Figures) -> f64| {
                let [_, ratio, _] = quartiles(run.iter().zip(base).map(|(a, b)| figure(a) / figure(b)).collect());
                (quartiles(run.iter().map(figure).collect()), ratio)
            };
            let (gbps, gbps_ratio) = of(|f| f.gbps);
            let (cpu, cpu_ratio) = of(|f| f.cpu);
            let name = format!("{word}, {}", state.name);
            let range = |[from, _, to]: [f64; 3], places| format!("{from:.places$}–{to:.places$}");
            println!(
                "  {name:<34}{:>6.1}{:>14}{gbps_ratio:>8.2}{:>10.3}{:>14}{cpu_ratio:>8.2}",
                gbps[1],
                range(gbps, 1),
                cpu[1],
                range(cpu, 3)
            );
            rows.push(json!({
                "direction": word, "state": state.name, "tuples": state.tuples,
                "gbps": gbps[1], "gbps_ratio": gbps_ratio, "cpu_s_per_gb": cpu[1], "cpu_ratio": cpu_ratio,
                "gbps_runs": run.iter().map(|f| f.gbps).collect::<Vec<_>>(),
                "cpu_runs": run.iter().map(|f| f.cpu).collect::<Vec<_>>(),
            }));
        }
    }
    if let Some(directory) = std::env::var_os(OUT_VARIABLE) {
        let path = Path::new(&directory).join("moves_beside.json");
        fs::write(path, format!("{:#}\n", json!({ "message": MESSAGE, "measured": rows }))).unwrap();
    }
}

fn main() {
    need_root!();
    need_program!("clang");
    need_program!("ethtool");
    let (ours, peer) = (Netns::new("ours"), Netns::new("peer"));
    for side in [&ours, &peer] {
        // A congestion control without pacing, whatever the machine uses.
        side.run("sysctl -q -w net.ipv4.tcp_congestion_control=reno");
    }
    ours.enter(|| measure(&ours, &peer));
}
