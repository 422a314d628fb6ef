//! A million connections on one engine: what they cost in memory while idle, and
//! what a request on one of them costs beside the only connection of another
//! engine.
//!
//! Peers are simulated by their frames (`peers`), made before the clock runs. A
//! request is 64 bytes in and 64 bytes out: a segment received, placed, decided
//! on and told to its consumer, and the answer posted, sent and remembered until
//! the next request acknowledges it. Requests jump from connection to connection,
//! so nothing of the next one is in the cache. Before anything is measured every
//! connection has had a request, so that each further one acknowledges an answer.
//! The tables are backed by large pages where the system grants them to who asks,
//! as a driver of this engine (`baton_socket`'s `Host`) does.
//!
//! `cargo bench -p baton-engine --bench million`

mod large_pages_unsafe;
mod peers;

use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::region::{Completion, ConsumerRegion, EngineRegion, Events, Layout, Queue, Region, Request};
use baton_engine::streamer::Flow;
use baton_tcp::time::Instant;
use baton_testkit::rounds::{Effort, Rounds};
use baton_wire::addr::Addr;
use peers::{Peers, SIZE, Wire};
use std::cell::RefCell;
use std::time::Duration;

/// Requests between two looks at the clock.
const BATCH: usize = 4096;
/// Nanoseconds that a poll is said to take.
const TICK: u64 = 1_000;
/// Rounds of a measurement: before as many requests, one at a time, are over, no
/// answer that waits to be acknowledged times out.
const ROUNDS: usize = 41;
/// Stream bytes that fit into the buffers that all connections share.
const BUFFER: u32 = 1 << 30;

/// An engine, its consumer, and the far ends of its connections.
struct World {
    engine: Engine,
    consumer: ConsumerRegion,
    wire: Wire,
    peers: Peers,
    connections: u32,
    /// Where the walk over the connections stands.
    at: u32,
    now: u64,
    /// Requests answered.
    answered: u64,
}

/// Memory of this process that is resident, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

impl World {
    fn new(connections: u32) -> World {
        let addresses = vec!["10.0.0.2/8".parse().expect("an address")];
        let interface = InterfaceConfig::ethernet([2, 0, 0, 0, 0, 2], addresses);
        let mut config = EngineConfig::new(interface, [7; 32]);
        config.max_connections = connections + 64;
        let wire = Wire::default();
        let mut engine = Engine::new(&config, baton_engine::frame_io::FrameIo::capabilities(&wire));
        let layout = Layout { qps: connections + 64, queue_depth: 2, requests: 64, data_bytes: u64::from(BUFFER) };
        let region = Region::heap(layout).expect("a region");
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        engine.tables().into_iter().chain([region.words_span()]).for_each(large_pages_unsafe::advise);
        let consumer = ConsumerRegion::new(region);
        let listen = Request::Listen { token: 1, local: Addr::v4([0; 4]), local_port: 80, backlog: 4096, options: 1 };
        consumer.request(&listen).expect("room in the request ring");
        let peers = Peers::new(connections);
        World { engine, consumer, wire, peers, connections, at: 0, now: 1_000_000_000, answered: 0 }
    }

    fn poll(&mut self) {
        self.now += TICK;
        self.engine.poll(Instant(self.now), &mut self.wire, || 0).expect("the wire holds");
    }

    /// Hands frames over and returns what was sent upon them.
    fn exchange(&mut self, frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.wire.ready = frames.len();
        (self.wire.frames, self.wire.taken, self.wire.kept) = (frames, 0, Some(Vec::new()));
        self.poll();
        self.poll();
        self.wire.kept.take().unwrap_or_default()
    }

    /// Opens all connections.
    fn open(&mut self) {
        self.exchange(Vec::new());
        let mut accepted = 0;
        for first in (0..self.connections).step_by(64) {
            let batch = first..self.connections.min(first + 64);
            let syns = batch.clone().map(|index| self.peers.syn(index)).collect();
            let answers = self.exchange(syns);
            assert_eq!(answers.len(), batch.len(), "a SYN-ACK for each SYN");
            let acks = batch.zip(&answers).map(|(index, answer)| self.peers.ack(index, answer)).collect();
            self.exchange(acks);
            while let Some(completion) = self.consumer.poll_completion() {
                accepted += u32::from(matches!(completion, Completion::Accepted { .. }));
            }
        }
        assert_eq!(accepted, self.connections);
    }

    /// Posts buffers of all connections: the same memory for all of them, since
    /// only its length matters here.
    fn post(&mut self) {
        for qp in 0..self.connections + 1 {
            let view = self.consumer.qp(qp);
            let extent = self.consumer.extent(0, BUFFER).expect("the data area");
            for queue in [Queue::Receive, Queue::Send] {
                view.post(queue, 0, 0, extent).expect("an empty queue");
            }
            view.set_rcv_limit(u64::from(BUFFER));
            self.consumer.ring_doorbell(qp);
            if qp % 64 == 0 {
                self.poll();
                self.poll();
            }
        }
        self.exchange(Vec::new());
        while self.consumer.poll_completion().is_some() {}
    }

    /// Answers a batch of requests that come `burst` at a time; the time it took.
    fn requests(&mut self, burst: usize) -> Duration {
        let mut frames = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            // No factor of a million: all connections have their turn.
            self.at = (self.at + 618_033) % self.connections;
            frames.push(self.peers.request(self.at));
        }
        (self.wire.frames, self.wire.taken, self.wire.ready) = (frames, 0, 0);
        let end = self.answered + BATCH as u64;
        let start = std::time::Instant::now();
        while self.answered < end {
            assert!(self.wire.taken < BATCH, "every request is answered at once");
            self.wire.ready = BATCH.min(self.wire.taken + burst);
            self.poll();
            self.answer();
            // Answers go before the next requests come, which acknowledge them.
            let now = Instant(self.now);
            self.engine.streamer().poll_transmit(now, &mut self.wire).expect("the wire holds");
            self.engine.tce().poll(now);
        }
        start.elapsed()
    }

    /// Sends back as much as was received.
    fn answer(&mut self) {
        while let Some(completion) = self.consumer.poll_completion() {
            let Completion::Ready { qp, events } = completion else { continue };
            if events.contains(Events::RECV) {
                let view = self.consumer.qp(qp);
                view.set_snd_tail(view.rcv_done());
                self.consumer.ring_doorbell(qp);
                self.answered += 1;
            }
        }
    }
}

fn main() {
    let effort = Effort::asked();
    let many = effort.pick(1_000_000, 6_400);
    let mut worlds = [1, 64, many].map(World::new);
    let before = resident();
    for world in &mut worlds {
        world.open();
    }
    let idle = resident() - before;
    println!(
        "{many} idle connections: {:.1} MiB, {} bytes each",
        idle as f64 / f64::from(1 << 20),
        idle / u64::from(many)
    );
    println!(
        "  {} in the Streamer, {} in the TCE, {} in the queue pair, the rest in tables and rings",
        size_of::<Flow>(),
        baton_engine::tce::CONTEXT_BYTES,
        128 + 2 * 32
    );
    for world in &mut worlds {
        world.post();
        // From here on each request acknowledges an answer.
        for _ in 0..world.connections.div_ceil(BATCH as u32) + 1 {
            world.requests(world.connections.min(64) as usize);
        }
    }
    let [one, some, million] = worlds.map(RefCell::new);
    for (title, burst, base) in [("one at a time", 1, &one), ("64 at a time", 64, &some)] {
        let mut set = Rounds::new(&format!("request of {SIZE} bytes and its answer, {title}"), BATCH);
        set.add_timed(format!("{} connections", base.borrow().connections), || base.borrow_mut().requests(burst));
        set.add_timed(format!("{many} connections"), || million.borrow_mut().requests(burst));
        set.run(effort.rounds(ROUNDS));
        set.report();
    }
    for world in [one, some, million] {
        let again = world.into_inner().engine.streamer().counters().tx_retransmitted_bytes;
        assert_eq!(again, 0, "no peer was slow to acknowledge");
    }
}
