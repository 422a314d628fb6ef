//! A million connections on one engine: their memory while idle, and the cost of a request on
//! one of them compared with the only connection of another engine.
//!
//! Peers are simulated by their frames (`peers`), made before the clock runs. A
//! request is 64 bytes in and 64 bytes out: a segment received, placed, decided
//! on and told to its consumer, and the answer posted, sent and remembered until
//! the next request acknowledges it. Requests jump from connection to connection,
//! so nothing of the next one is in the cache. Before anything is measured every
//! connection has had a request, so that each further one acknowledges an answer.
//!
//! `cargo bench -p baton-engine --bench million`

#[path = "../peers/mod.rs"]
mod peers;

use baton_engine::region::{Completion, Events, Layout, Queue};
use baton_engine::streamer::Flow;
use baton_tcp::time::Instant;
use baton_testkit::rounds::{Effort, Rounds};
use peers::{FIRST, Peer, Server, Wire};
use std::cell::RefCell;
use std::time::Duration;

/// Bytes of a request and of its answer.
const SIZE: u32 = 64;
/// Requests between two looks at the clock.
const BATCH: usize = 4096;
/// Rounds of a measurement: within this many requests, one at a time, no answer that waits for
/// its acknowledgment times out.
const ROUNDS: usize = 41;
/// Stream bytes that fit into the buffers that all connections share.
const BUFFER: u32 = 1 << 30;

/// A peer's state of its connection.
#[derive(Clone, Copy)]
struct Sender {
    /// Our first sequence number.
    first: u32,
    /// Requests sent.
    requests: u32,
}

/// An engine, its consumer, and the far ends of its connections.
struct World {
    server: Server,
    senders: Vec<Sender>,
    connections: u32,
    /// Where the walk over the connections stands.
    at: u32,
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
        let layout = Layout { qps: connections + 64, queue_depth: 2, requests: 64, data_bytes: u64::from(BUFFER) };
        let server = Server::new(layout, Wire::new(false), |_| {});
        // Their memory is touched before it is looked at.
        let senders = vec![Sender { first: 1, requests: 0 }; connections as usize];
        World { server, senders, connections, at: 0, answered: 0 }
    }

    /// Opens all connections.
    fn open(&mut self) {
        let mut accepted = 0;
        for first in (0..self.connections).step_by(64) {
            let peers: Vec<Peer> = (first..self.connections.min(first + 64)).map(Peer).collect();
            for (peer, next) in peers.iter().zip(self.server.open(&peers)) {
                self.senders[peer.0 as usize].first = next;
            }
            while let Some(completion) = self.server.consumer.poll_completion() {
                accepted += u32::from(matches!(completion, Completion::Accepted { .. }));
            }
        }
        assert_eq!(accepted, self.connections);
    }

    /// Posts buffers of all connections: the same memory for all of them, since
    /// only its length matters here.
    fn post(&mut self) {
        for qp in 0..self.connections + 1 {
            let view = self.server.consumer.qp(qp);
            let extent = self.server.consumer.extent(0, BUFFER).expect("the data area");
            for queue in [Queue::Receive, Queue::Send] {
                view.post(queue, 0, 0, extent).expect("an empty queue");
            }
            view.set_rcv_limit(u64::from(BUFFER));
            self.server.consumer.ring_doorbell(qp);
            if qp % 64 == 0 {
                self.server.poll();
                self.server.poll();
            }
        }
        self.server.exchange(Vec::new());
        while self.server.consumer.poll_completion().is_some() {}
    }

    /// Answers a batch of requests that come `burst` at a time; the time it took.
    fn requests(&mut self, burst: usize) -> Duration {
        let mut frames = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            // No factor of a million: all connections have their turn.
            self.at = (self.at + 618_033) % self.connections;
            frames.push(self.request(self.at));
        }
        self.server.wire.bring(frames);
        let end = self.answered + BATCH as u64;
        let start = std::time::Instant::now();
        while self.answered < end {
            assert!(self.server.wire.allow(burst), "every request is answered at once");
            self.server.receive();
            self.answer();
            // Answers go before the next requests come, which acknowledge them.
            let Server { engine, wire, now, .. } = &mut self.server;
            engine.streamer().poll_transmit(Instant(*now), wire).expect("the wire holds");
            engine.tce().poll(Instant(*now));
        }
        start.elapsed()
    }

    /// The next request of a connection, which acknowledges all answers before.
    fn request(&mut self, index: u32) -> Vec<u8> {
        let Sender { first, requests } = &mut self.senders[index as usize];
        let done = *requests * SIZE;
        *requests += 1;
        Peer(index).segment(FIRST.wrapping_add(done), first.wrapping_add(done), 1, &[7; SIZE as usize])
    }

    /// Sends back as much as was received.
    fn answer(&mut self) {
        let consumer = &mut self.server.consumer;
        while let Some(completion) = consumer.poll_completion() {
            let Completion::Ready { qp, events } = completion else { continue };
            if events.contains(Events::RECV) {
                let view = consumer.qp(qp);
                view.set_snd_tail(view.rcv_done());
                consumer.ring_doorbell(qp);
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
        let again = world.into_inner().server.engine.streamer().counters().tx_retransmitted_bytes;
        assert_eq!(again, 0, "no peer was slow to acknowledge");
    }
}
