//! Web clients whose connections have the lifetimes of CH figure 4, packet by packet.
//!
//! Half of the connections send less than a tenth of the packets, and the longest tenth sends more than
//! 45 %. The distributions are chosen so, and a test of the experiment checks it. The number of clients is
//! constant: a new connection begins when one ends.
//!
//! A client asks for a file, which comes in bursts of a congestion window: twice as much each round
//! trip, up to 64 KB. Then it asks for the next ([`Pacing`]).

use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One burst of packets of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Burst {
    /// When, in nanoseconds; bursts come in the order of their times.
    pub at_ns: u64,
    /// Which connection; each has a number of its own.
    pub connection: u32,
    /// The number of packets; 0 if the connection only ends.
    pub packets: u32,
    /// True for the last one of the connection.
    pub ends: bool,
}

/// When a client asks for its next file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pacing {
    /// At once, as the clients of CH §4 replay a trace.
    Closed,
    /// After reading, 4 s on average for a page of some files; the server ends a connection that was
    /// idle for 15 s, as CH §4 does.
    Reading,
    /// Each connection lasts a minute, whatever it carries, as one that a program keeps for a session: the
    /// longest tenth of the connections has a tenth of the places and its share of the packets, which is
    /// what CH §5.2 takes an oracle to reach.
    Sessions,
}

/// A workload of CH Table 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// W: the World Cup's site. Small files.
    WorldCup,
    /// I: IBM's site. Small files and some large ones.
    Ibm,
    /// D: SPECweb99, 30 % of the answers dynamic and small.
    SpecWebDynamic,
    /// S: SPECweb99's four classes of files, of 0.1, 1, 10 and 100 KB times 1 to 9.
    SpecWeb,
}

/// Round trip, including the server's queue, in nanoseconds. CH W: 2,048 clients and 23,031 requests a
/// second.
const ROUND_NS: u64 = 90_000_000;
/// Packets of 1,448 bytes that fit into 64 KB.
const WINDOW_MOST: u32 = 45;
/// CH §4: the server closes a connection that was idle this long.
const IDLE_NS: u64 = 15_000_000_000;
const READING_NS: f64 = 4e9;
const SESSION_NS: u64 = 60_000_000_000;

impl Files {
    fn packets(self, rng: &mut Rng) -> u32 {
        let kb = match self {
            Files::WorldCup => lognormal(rng, 2.0, 1.1).min(400.0),
            Files::Ibm => lognormal(rng, 1.6, 1.4).min(2_000.0),
            Files::SpecWebDynamic if rng.f64() < 0.3 => 3.0,
            Files::SpecWebDynamic | Files::SpecWeb => {
                let class = rng.f64();
                let unit = match class {
                    _ if class < 0.35 => 0.1,
                    _ if class < 0.85 => 1.0,
                    _ if class < 0.99 => 10.0,
                    _ => 100.0,
                };
                unit * rng.u32(1..=9) as f64
            }
        };
        (kb * 1024.0 / 1448.0).ceil().max(1.0) as u32
    }

    /// Requests of a connection: heavy-tailed for the traces. Of SPECweb99's connections 30 % have one,
    /// and the others 5 to 15.
    fn requests(self, rng: &mut Rng) -> u32 {
        match self {
            Files::WorldCup | Files::Ibm => (1.0 / rng.f64().max(1e-9).powf(1.0 / 1.15)).min(3_000.0) as u32,
            Files::SpecWebDynamic | Files::SpecWeb if rng.f64() < 0.3 => 1,
            Files::SpecWebDynamic | Files::SpecWeb => rng.u32(5..=15),
        }
    }
}

fn lognormal(rng: &mut Rng, median: f64, sigma: f64) -> f64 {
    let (a, b) = (rng.f64().max(1e-12), rng.f64());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    median * (sigma * normal).exp()
}

struct Client {
    connection: u32,
    window: u32,
    of_file: u32,
    requests: u32,
    /// Time from one request to the next, if the connection has a length of its own.
    spread_ns: u64,
}

/// The bursts of `clients` clients, without end.
pub struct Clients {
    files: Files,
    pacing: Pacing,
    rng: Rng,
    clients: Vec<Client>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    connections: u32,
}

impl Clients {
    /// Clients that begin within the first seconds; equal seeds give equal bursts.
    pub fn new(files: Files, pacing: Pacing, clients: usize, seed: u64) -> Clients {
        let mut rng = Rng::with_seed(seed);
        let within = if pacing == Pacing::Sessions { SESSION_NS } else { 2_000_000_000 };
        let next = (0..clients).map(|at| Reverse((rng.u64(0..within), at))).collect();
        let mut new = Clients { files, pacing, rng, clients: Vec::new(), next, connections: 0 };
        for _ in 0..clients {
            let client = new.connect();
            new.clients.push(client);
        }
        new
    }

    fn connect(&mut self) -> Client {
        self.connections += 1;
        let requests = self.files.requests(&mut self.rng);
        let of_file = self.files.packets(&mut self.rng);
        Client {
            connection: self.connections,
            window: 3,
            of_file,
            requests,
            spread_ns: SESSION_NS / u64::from(requests),
        }
    }
}

impl Iterator for Clients {
    type Item = Burst;

    fn next(&mut self) -> Option<Burst> {
        let Reverse((at_ns, at)) = self.next.pop()?;
        let client = &mut self.clients[at];
        let connection = client.connection;
        if client.requests == 0 {
            self.clients[at] = self.connect();
            self.next.push(Reverse((at_ns + ROUND_NS, at)));
            return Some(Burst { at_ns, connection, packets: 0, ends: true });
        }
        let packets = client.of_file.min(client.window);
        client.of_file -= packets;
        client.window = (client.window + packets).min(WINDOW_MOST);
        let mut wait = ROUND_NS / 2 + self.rng.u64(0..ROUND_NS);
        let mut ends = false;
        if client.of_file == 0 {
            client.requests -= 1;
            client.of_file = self.files.packets(&mut self.rng);
            match self.pacing {
                Pacing::Closed => ends = client.requests == 0,
                Pacing::Reading if client.requests == 0 => wait += IDLE_NS,
                Pacing::Sessions if client.requests == 0 => wait = self.rng.u64(0..=client.spread_ns),
                // A page has some five files.
                Pacing::Reading if self.rng.u32(0..5) == 0 => {
                    wait += (-self.rng.f64().max(1e-9).ln() * READING_NS).min(IDLE_NS as f64) as u64;
                }
                Pacing::Reading => {}
                Pacing::Sessions => wait = self.rng.u64(0..=2 * client.spread_ns),
            }
        }
        if ends {
            self.clients[at] = self.connect();
        }
        self.next.push(Reverse((at_ns + wait, at)));
        Some(Burst { at_ns, connection, packets, ends })
    }
}
