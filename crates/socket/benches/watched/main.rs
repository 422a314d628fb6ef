//! The cost of points of time: an echo over a wire in memory, one connection and many, with nothing watched,
//! with one connection watched, with all of them, and with one message in [`ONE_IN`] of all of them, together and
//! each with spans of its own.
//!
//! `cargo bench -p baton-socket --bench watched`. Both hosts stamp both ways, so a round trip of a watched
//! connection has 2 messages of 9 points out and 2 of 8 points in. With `--instructions` it does a fixed
//! number of round trips with nothing watched, for callgrind:
//! `valgrind --tool=callgrind --toggle-collect='*Pair::step*' BINARY --instructions`.

use baton_consumer::clock;
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_latency::{Recorded, WatchMemory};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;
use baton_testkit::rounds::{Effort, Rounds};
use std::hint::black_box;

/// Bytes of a message.
const SIZE: usize = 64;
/// Points of a round trip.
const POINTS: f64 = 34.0;
/// One in so many is recorded of the messages of all.
const ONE_IN: u32 = 128;

struct Pair {
    a: Host<MemoryPort>,
    b: Host<MemoryPort>,
    conns: Vec<(Conn, Conn)>,
    now: u64,
}

/// Connections that are watched.
#[derive(Clone, Copy)]
enum Watched {
    Nothing,
    One,
    All,
    Some,
    SomeOfEach,
}

impl Pair {
    fn new(connections: usize, watched: Watched) -> Pair {
        let (a, b) = MemoryPort::pair(MemoryOptions::default());
        let host = |address: &str, port| Host::new(&HostConfig::new(address.parse().unwrap()), port).unwrap();
        let mut pair = Pair { a: host("10.0.0.1/24", a), b: host("10.0.0.2/24", b), conns: Vec::new(), now: 0 };
        pair.b.listen("10.0.0.2:7".parse().unwrap(), 16).unwrap();
        pair.step();
        for _ in 0..connections {
            let conns = pair.open();
            pair.conns.push(conns);
        }
        let one = pair.conns[connections / 2];
        for (host, one) in [(&mut pair.a, one.0), (&mut pair.b, one.1)] {
            match watched {
                Watched::Nothing => {}
                Watched::One => {
                    host.watch(WatchMemory::heap());
                    host.watch_connection(one).unwrap();
                }
                Watched::All => {
                    host.watch(WatchMemory::heap());
                    host.watch_all().unwrap();
                }
                Watched::Some => {
                    host.watch(WatchMemory::heap());
                    host.watch_some(ONE_IN).unwrap();
                }
                Watched::SomeOfEach => {
                    host.watch(WatchMemory::heap());
                    host.watch_each(ONE_IN).unwrap();
                }
            }
        }
        pair
    }

    // Not inlined: what callgrind counts.
    #[inline(never)]
    fn step(&mut self) {
        self.now += 50_000;
        self.a.poll(Instant(self.now)).unwrap();
        self.b.poll(Instant(self.now)).unwrap();
    }

    fn open(&mut self) -> (Conn, Conn) {
        self.a.connect("10.0.0.2:7".parse().unwrap(), None).unwrap();
        let (mut client, mut server) = (None, None);
        loop {
            self.step();
            while let Some(event) = self.a.next_event() {
                if let SocketEvent::Opening { conn, .. } = event {
                    client = Some(conn);
                }
            }
            while let Some(event) = self.b.next_event() {
                if let SocketEvent::Accepted { conn, .. } = event {
                    server = Some(conn);
                }
            }
            if let (Some(client), Some(server)) = (client, server)
                && self.a.stream(client).unwrap().is_established()
            {
                return (client, server);
            }
        }
    }

    /// One message of each connection there and back.
    fn echo(&mut self) {
        let mut buf = [1; SIZE];
        for (client, _) in &self.conns {
            self.a.write(*client, &buf).unwrap();
        }
        let (mut there, mut back) = (0, 0);
        while back < self.conns.len() {
            self.step();
            while self.b.next_event().is_some() {}
            for (_, server) in &self.conns {
                if there < self.conns.len() && self.b.read(*server, &mut buf).is_ok() {
                    there += 1;
                    self.b.write(*server, &buf).unwrap();
                }
            }
            self.step();
            while self.a.next_event().is_some() {}
            for (client, _) in &self.conns {
                back += usize::from(self.a.read(*client, &mut buf).is_ok());
            }
        }
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--instructions") {
        let mut pair = Pair::new(1, Watched::Nothing);
        (0..20_000).for_each(|_| pair.echo());
        return;
    }
    let effort = Effort::asked();
    points(effort);
    for connections in [1, effort.pick(256, 16)] {
        let [nothing, _, all, _] = round_trips(
            effort,
            connections,
            [
                ("nothing watched", Watched::Nothing),
                ("one watched", Watched::One),
                ("all watched", Watched::All),
                ("one message in 128 of all", Watched::Some),
            ],
        );
        println!("  a point, with all watched: {:.1} ns", (all - nothing) / POINTS);
        // By themselves: each pair more takes room in the caches from the others.
        round_trips(
            effort,
            connections,
            [
                ("nothing watched", Watched::Nothing),
                ("one message in 128 of all", Watched::Some),
                ("one message in 128 of each", Watched::SomeOfEach),
            ],
        );
    }
}

/// Measures round trips with different connections watched, and returns the median nanoseconds of one.
fn round_trips<const N: usize>(effort: Effort, connections: usize, all: [(&str, Watched); N]) -> [f64; N] {
    // Short, so that most rounds are over before another thread has its turn on a busy machine.
    let trips = 256 / connections;
    let mut set = Rounds::new(&format!("a round trip of 64 bytes, {connections} connections"), trips * connections);
    for (name, watched) in all {
        let mut pair = Pair::new(connections, watched);
        set.add(name, move || (0..trips).for_each(|_| pair.echo()));
    }
    set.run(effort.rounds(2001));
    set.report();
    let ns = set.medians();
    std::array::from_fn(|at| ns[at])
}

/// Measures the parts of a point.
fn points(effort: Effort) {
    let memory = WatchMemory::heap();
    memory.give(0, 0, "10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), Recorded::Together);
    let slot = memory.slot(0).unwrap();
    println!("the processor's counter is read: {}", clock::is_by_counter());
    let mut n = 0u64;
    let mut set = Rounds::new("a point", 1000);
    set.add("the clock", || {
        (0..1000).for_each(|_| {
            black_box(clock::monotonic());
        })
    });
    set.add("the system's clock", || {
        (0..1000).for_each(|_| {
            black_box(std::time::Instant::now());
        })
    });
    set.add("a time recorded", || {
        (0..1000).for_each(|_| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            memory.record(slot, baton_latency::Layer::Place, black_box(200 + (n >> 57)));
        });
    });
    set.run(effort.rounds(301));
    set.report();
}
