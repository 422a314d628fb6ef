//! An engine that receives, and senders that are nothing but numbers.

use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::frame_io::{
    BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
use baton_engine::region::{Completion, ConsumerRegion, EngineRegion, Layout, Queue, Region, Request};
use baton_tcp::config::Acks;
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::header::{Header, fill_checksum};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, Route, Template};
use std::time::Duration;

/// Payload of a full segment, with timestamps.
pub const MSS: u32 = 1448;
/// Where the senders' sequence numbers begin.
const ISS: u32 = 1000;
/// Posted receive buffer of each connection; all share the memory.
const RING: u32 = 4 << 20;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Nanoseconds that a poll is said to take.
const TICK: u64 = 1_000;

/// What arrives, and where it has got to.
#[derive(Default)]
struct Wire {
    frames: Vec<Vec<u8>>,
    taken: usize,
    /// Frames up to here are there to be taken.
    until: usize,
    kept: Option<Vec<Vec<u8>>>,
    slot: Vec<u8>,
    vouched: bool,
}

/// One sender's numbers.
#[derive(Clone, Copy)]
struct Sender {
    /// Next sequence number of ours that it expects.
    ack: u32,
    seq: u32,
}

/// See the file's head.
pub struct Rig {
    engine: Engine,
    consumer: ConsumerRegion,
    wire: Wire,
    senders: Vec<Sender>,
    /// Laps of the ring posted, and bytes read, by queue pair.
    read: Vec<(u32, u64)>,
    now: u64,
    received: u64,
}

impl Rig {
    /// So many connections, all open, with room for `RING` bytes each. `vouched`: the port
    /// has verified checksums.
    pub fn new(connections: u32, limit: u16, acks: Acks, vouched: bool) -> Rig {
        let addresses = vec!["10.0.0.2/8".parse().expect("an address")];
        let mut config = EngineConfig::new(InterfaceConfig::ethernet(MAC, addresses), [7; 32]);
        config.max_connections = connections + 64;
        (config.coalesce, config.tcp.acks) = (limit, acks);
        let wire = Wire { vouched, ..Wire::default() };
        let mut engine = Engine::new(&config, wire.capabilities());
        let layout = Layout { qps: connections + 64, queue_depth: 4, requests: 64, data_bytes: u64::from(RING) };
        let region = Region::heap(layout).expect("a region");
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        let consumer = ConsumerRegion::new(region);
        let listen = Request::Listen { token: 1, local: Addr::v4([0; 4]), local_port: 80, backlog: 4096, options: 1 };
        consumer.request(&listen).expect("room in the request ring");
        let senders = vec![Sender { ack: 0, seq: ISS + 1 }; connections as usize];
        let read = vec![(0, 0); connections as usize + 64];
        let mut rig = Rig { engine, consumer, wire, senders, read, now: 1_000_000_000, received: 0 };
        rig.open();
        rig
    }

    fn poll(&mut self) {
        self.now += TICK;
        self.engine.poll(Instant(self.now), &mut self.wire, || 0).expect("the wire holds");
    }

    fn exchange(&mut self, frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.wire.until = frames.len();
        (self.wire.frames, self.wire.taken, self.wire.kept) = (frames, 0, Some(Vec::new()));
        self.poll();
        self.poll();
        self.wire.kept.take().unwrap_or_default()
    }

    fn open(&mut self) {
        self.exchange(Vec::new());
        let all: Vec<u32> = (0..self.senders.len() as u32).collect();
        for batch in all.chunks(64) {
            let answers = self.exchange(batch.iter().map(|n| syn(*n)).collect());
            let answers = answers.iter().map(|answer| Packet::parse(answer, Link::Ethernet).expect("a segment"));
            // Others are told of their windows.
            let syn_acks: Vec<Packet> = answers.filter(|answer| answer.flags.contains(Flags::SYN)).collect();
            assert_eq!(syn_acks.len(), batch.len(), "a SYN-ACK for each SYN");
            for answer in &syn_acks {
                self.senders[index_of(answer)].ack = answer.seq.0.wrapping_add(1);
            }
            let acks = batch.iter().map(|n| self.frame(*n, 0, 1)).collect();
            self.exchange(acks);
            self.take_completions();
        }
        // Past the quick ACKs of a connection's start.
        for _ in 0..24 {
            let connections = self.senders.len() as u32;
            self.receive((0..connections).map(|n| (n, 2)), 64);
        }
    }

    /// The next `segments` segments of a sender, as frames with `len` bytes of payload.
    fn frame(&mut self, n: u32, len: u32, tick: u32) -> Vec<u8> {
        let sender = &mut self.senders[n as usize];
        let frame = segment(n, sender.seq, sender.ack, len, tick);
        sender.seq = sender.seq.wrapping_add(len);
        frame
    }

    /// Receives so many segments of each connection named, `burst` frames at a time; the
    /// time that the engine took.
    pub fn receive(&mut self, turns: impl Iterator<Item = (u32, u32)>, burst: usize) -> Duration {
        let tick = (self.now / 1_000_000) as u32;
        let mut frames = Vec::new();
        for (n, segments) in turns {
            frames.extend((0..segments).map(|_| self.frame(n, MSS, tick)));
        }
        let end = self.received + frames.len() as u64 * u64::from(MSS);
        (self.wire.frames, self.wire.taken, self.wire.until) = (frames, 0, 0);
        let mut took = Duration::ZERO;
        while self.wire.taken < self.wire.frames.len() {
            self.wire.until = self.wire.frames.len().min(self.wire.taken + burst);
            let start = std::time::Instant::now();
            while self.wire.taken < self.wire.until {
                self.poll();
            }
            took += start.elapsed();
        }
        self.poll();
        self.take_completions();
        assert_eq!(self.received, end, "all arrived");
        took
    }

    /// Reads all that arrived, and posts as much again.
    fn take_completions(&mut self) {
        while let Some(completion) = self.consumer.poll_completion() {
            let qp = match completion {
                Completion::Accepted { qp, .. } | Completion::Ready { qp, .. } => qp,
                _ => continue,
            };
            let view = self.consumer.qp(qp);
            let (laps, read) = &mut self.read[qp as usize];
            let done = view.rcv_done();
            self.received += done - std::mem::replace(read, done);
            let limit = done + u64::from(RING);
            while u64::from(*laps) * u64::from(RING) < limit {
                let extent = self.consumer.extent(0, RING).expect("the data area");
                view.post(Queue::Receive, *laps, 1, extent).expect("two laps at a time");
                *laps += 1;
            }
            view.set_rcv_limit(limit);
            self.consumer.ring_doorbell(qp);
        }
        self.poll();
    }
}

impl Rig {
    /// What the engine did so far: frames received, frames handled as part of another's
    /// run, and ACKs sent.
    pub fn counts(&mut self) -> [u64; 3] {
        let counters = self.engine.streamer().counters();
        [counters.rx_frames, counters.rx_coalesced, counters.tx_acks]
    }
}

fn port_of(n: u32) -> u16 {
    (10_000 + n) as u16
}

fn index_of(answer: &Packet) -> usize {
    usize::from(answer.dst_port) - 10_000
}

fn template(n: u32) -> Template {
    let mut link = [0; 14];
    link[..6].copy_from_slice(&MAC);
    link[6..12].copy_from_slice(&PEER_MAC);
    link[12..].copy_from_slice(&[8, 0]);
    let (src, dst) = (Addr::v4([10, 0, 0, 1]), Addr::v4(SERVER));
    let route =
        Route { link: &link, src, dst, src_port: port_of(n), dst_port: 80, ttl: 64, traffic_class: 0, flow_label: 0 };
    Template::new(&route).expect("an Ethernet header")
}

fn segment(n: u32, seq: u32, ack: u32, len: u32, tick: u32) -> Vec<u8> {
    let payload = vec![n as u8; len as usize];
    let emit = Emit {
        seq: Seq(seq),
        ack: Seq(ack),
        flags: Flags::ACK,
        window: 1024,
        urgent: 0,
        ts: Some(Timestamps { val: tick, ecr: 0 }),
        sack: &SackBlocks::EMPTY,
        payload_len: len,
        payload_sum: Some(checksum::sum(&payload)),
        ip_id: 0,
        ecn: 0,
    };
    let mut frame = vec![0; 66 + len as usize];
    let headers = template(n).emit(&mut frame, &emit);
    frame[headers..].copy_from_slice(&payload);
    frame
}

fn syn(n: u32) -> Vec<u8> {
    let timestamps = TcpOption::Timestamps(Timestamps { val: 1, ecr: 0 });
    let options = [TcpOption::Mss(1460), TcpOption::SackPermitted, timestamps, TcpOption::WindowScale(7)];
    let (seq, flags) = (Seq(ISS), Flags::SYN);
    let header = Header { src_port: port_of(n), dst_port: 80, seq, flags, window: 65_535, ..Header::default() };
    let mut tcp = [0; 60];
    let len = header.write(&options, &mut tcp).expect("room for all options");
    // A data segment's headers, with the length and TCP header of a SYN.
    let mut frame = segment(n, 0, 0, len as u32 - 32, 1);
    frame[34..].copy_from_slice(&tcp[..len]);
    fill_checksum(&mut frame[34..], Addr::v4([10, 0, 0, 1]), Addr::v4(SERVER)).expect("a TCP header");
    frame
}

impl FrameIo for Wire {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, ethernet: true, tx_checksum: false, tx_gso_max: 0, tx_gather: false }
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let end = self.until.min(self.taken + limit);
        let meta = RxMeta { checksum_verified: self.vouched, gso_size: 0 };
        for burst in self.frames[self.taken..end].chunks(BURST) {
            let burst: arrayvec::ArrayVec<RxFrame<'_>, BURST> =
                burst.iter().map(|data| RxFrame { data, meta }).collect();
            sink.burst(&burst);
        }
        Ok(end - std::mem::replace(&mut self.taken, end))
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.slot.len() < len {
            self.slot.resize(len, 0);
        }
        Some(&mut self.slot[..len])
    }

    fn commit(&mut self, len: usize, _meta: TxMeta) {
        if let Some(kept) = &mut self.kept {
            kept.push(self.slot[..len].to_vec());
        }
    }

    fn gather(&mut self, _header: &[u8], _payload: &[PayloadPart], _meta: TxMeta) -> bool {
        unreachable!("this port does not gather")
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}
