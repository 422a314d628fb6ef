//! An engine that receives in bulk, and its senders.

use crate::peers::{FIRST, Peer, Server, Wire};
use baton_engine::engine::EngineConfig;
use baton_engine::region::{Completion, Layout, Queue};
use baton_tcp::config::Acks;
use std::time::Duration;

/// Payload of a full segment, with timestamps.
const MSS: u32 = 1448;
/// Posted receive buffer of each connection; all share the memory.
const RING: u32 = 4 << 20;

/// One sender's numbers.
#[derive(Clone, Copy)]
struct Sender {
    /// Next sequence number of ours that it expects.
    ack: u32,
    seq: u32,
}

/// An engine with a bulk receiver, and its senders.
pub struct Rig {
    server: Server,
    senders: Vec<Sender>,
    /// Laps of the ring posted, and bytes read, by queue pair.
    read: Vec<(u32, u64)>,
    received: u64,
}

impl Rig {
    /// Opens `connections` connections with room for `RING` bytes each. `vouched`: the port
    /// has verified checksums.
    pub fn new(connections: u32, limit: u16, acks: Acks, vouched: bool) -> Rig {
        let layout = Layout { qps: connections + 64, queue_depth: 4, requests: 64, data_bytes: u64::from(RING) };
        let set = |config: &mut EngineConfig| (config.coalesce, config.tcp.acks) = (limit, acks);
        let server = Server::new(layout, Wire::new(vouched), set);
        let read = vec![(0, 0); connections as usize + 64];
        let mut rig = Rig { server, senders: Vec::new(), read, received: 0 };
        let peers: Vec<Peer> = (0..connections).map(Peer).collect();
        for batch in peers.chunks(64) {
            let next = rig.server.open(batch);
            rig.senders.extend(next.into_iter().map(|ack| Sender { ack, seq: FIRST }));
            rig.take_completions();
        }
        // Past the quick ACKs of a connection's start.
        for _ in 0..24 {
            rig.receive((0..connections).map(|n| (n, 2)), 64);
        }
        rig
    }

    /// Receives the given number of segments of each connection in `turns`, `burst` frames at
    /// a time. Returns the time that the engine took.
    pub fn receive(&mut self, turns: impl Iterator<Item = (u32, u32)>, burst: usize) -> Duration {
        let tick = (self.server.now / 1_000_000) as u32;
        let mut frames = Vec::new();
        for (n, segments) in turns {
            let sender = &mut self.senders[n as usize];
            for _ in 0..segments {
                frames.push(Peer(n).segment(sender.seq, sender.ack, tick, &[n as u8; MSS as usize]));
                sender.seq = sender.seq.wrapping_add(MSS);
            }
        }
        let end = self.received + frames.len() as u64 * u64::from(MSS);
        self.server.wire.bring(frames);
        let mut took = Duration::ZERO;
        while self.server.wire.allow(burst) {
            let start = std::time::Instant::now();
            self.server.receive();
            took += start.elapsed();
        }
        self.server.poll();
        self.take_completions();
        assert_eq!(self.received, end, "all arrived");
        took
    }

    /// Reads all that arrived, and posts as much again.
    fn take_completions(&mut self) {
        let consumer = &mut self.server.consumer;
        while let Some(completion) = consumer.poll_completion() {
            let qp = match completion {
                Completion::Accepted { qp, .. } | Completion::Ready { qp, .. } => qp,
                _ => continue,
            };
            let view = consumer.qp(qp);
            let (laps, read) = &mut self.read[qp as usize];
            let done = view.rcv_done();
            self.received += done - std::mem::replace(read, done);
            let limit = done + u64::from(RING);
            while u64::from(*laps) * u64::from(RING) < limit {
                let extent = consumer.extent(0, RING).expect("the data area");
                view.post(Queue::Receive, *laps, 1, extent).expect("two laps at a time");
                *laps += 1;
            }
            view.set_rcv_limit(limit);
            consumer.ring_doorbell(qp);
        }
        self.server.poll();
    }

    /// Counts of the engine so far: frames received, frames handled as part of another's run, and
    /// ACKs sent.
    pub fn counts(&mut self) -> [u64; 3] {
        let counters = self.server.engine.streamer().counters();
        [counters.rx_frames, counters.rx_coalesced, counters.tx_acks]
    }
}
