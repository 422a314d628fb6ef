//! An engine, its consumer, and far ends that are simulated by their numbers: their frames are
//! stamped from templates, and a wire carries them.
//!
//! The engine's tables are backed by large pages where the system grants them on request, as a
//! driver of this engine (`baton_socket`'s `Host`) does.

mod large_pages_unsafe;

use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::frame_io::{
    Arrival, BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
use baton_engine::region::{ConsumerRegion, EngineRegion, Layout, Region, Request};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::header::{Header, fill_checksum};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, Route, Template};

/// Where the peers' bytes begin.
pub const FIRST: u32 = 1001;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Connections of one peer address.
const AN_ADDRESS: u32 = 50_000;
const FIRST_PORT: u16 = 10_000;
/// Offset of the TCP header.
const TCP: usize = 34;
/// Nanoseconds that a poll takes by the simulated clock.
const TICK: u64 = 1_000;

/// The far end of the connection of this number.
#[derive(Clone, Copy)]
pub struct Peer(pub u32);

impl Peer {
    fn addr(self) -> Addr {
        let [_, b, c, d] = (self.0 / AN_ADDRESS + 0x10000).to_be_bytes();
        Addr::v4([10, b, c, d])
    }

    fn port(self) -> u16 {
        FIRST_PORT + (self.0 % AN_ADDRESS) as u16
    }

    /// A segment with these numbers, at this time of the peer's clock.
    pub fn segment(self, seq: u32, ack: u32, tick: u32, payload: &[u8]) -> Vec<u8> {
        let mut link = [0; 14];
        link[..6].copy_from_slice(&MAC);
        link[6..12].copy_from_slice(&PEER_MAC);
        let (src, dst) = (self.addr(), Addr::v4(SERVER));
        let (src_port, dst_port) = (self.port(), 80);
        let route = Route { link: &link, src, dst, src_port, dst_port, ttl: 64, traffic_class: 0, flow_label: 0 };
        let emit = Emit {
            seq: Seq(seq),
            ack: Seq(ack),
            flags: Flags::ACK,
            window: 1024,
            urgent: 0,
            ts: Some(Timestamps { val: tick, ecr: 0 }),
            sack: &SackBlocks::EMPTY,
            payload_len: payload.len() as u32,
            payload_sum: Some(checksum::sum(payload)),
            ip_id: 0,
            ecn: 0,
        };
        let mut frame = vec![0; TCP + 32 + payload.len()];
        let headers = Template::new(&route).expect("an Ethernet header").emit(&mut frame, &emit);
        frame[headers..].copy_from_slice(payload);
        frame
    }

    fn syn(self) -> Vec<u8> {
        let timestamps = TcpOption::Timestamps(Timestamps { val: 1, ecr: 0 });
        let options = [TcpOption::Mss(1460), TcpOption::SackPermitted, timestamps, TcpOption::WindowScale(7)];
        let (src_port, seq, flags) = (self.port(), Seq(FIRST - 1), Flags::SYN);
        let header = Header { src_port, dst_port: 80, seq, flags, window: 65_535, ..Header::default() };
        let mut tcp = [0; 60];
        let len = header.write(&options, &mut tcp).expect("room for all options");
        // A data segment's headers, with the length and TCP header of a SYN.
        let mut frame = self.segment(0, 0, 1, &vec![0; len - 32]);
        frame[TCP..].copy_from_slice(&tcp[..len]);
        fill_checksum(&mut frame[TCP..], self.addr(), Addr::v4(SERVER)).expect("a TCP header");
        frame
    }
}

/// An engine that listens, driven by hand.
pub struct Server {
    pub engine: Engine,
    pub consumer: ConsumerRegion,
    pub wire: Wire,
    /// The time that the engine is told, in nanoseconds.
    pub now: u64,
}

impl Server {
    /// A server whose consumer's memory has this layout. `configure` makes the last changes to
    /// the engine's settings.
    pub fn new(layout: Layout, wire: Wire, configure: impl FnOnce(&mut EngineConfig)) -> Server {
        let addresses = vec!["10.0.0.2/8".parse().expect("an address")];
        let mut config = EngineConfig::new(InterfaceConfig::ethernet(MAC, addresses), [7; 32]);
        config.max_connections = layout.qps;
        configure(&mut config);
        let mut engine = Engine::new(&config, wire.capabilities());
        let region = Region::heap(layout).expect("a region");
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        engine.tables().into_iter().chain([region.words_span()]).for_each(large_pages_unsafe::advise);
        let consumer = ConsumerRegion::new(region);
        let listen = Request::Listen { token: 1, local: Addr::v4([0; 4]), local_port: 80, backlog: 4096, options: 1 };
        consumer.request(&listen).expect("room in the request ring");
        Server { engine, consumer, wire, now: 1_000_000_000 }
    }

    pub fn poll(&mut self) {
        self.now += TICK;
        self.engine.poll(Instant(self.now), &mut self.wire, || 0).expect("the wire holds");
    }

    /// Polls until all was received that the wire allows.
    pub fn receive(&mut self) {
        while self.wire.taken < self.wire.until {
            self.poll();
        }
    }

    /// Hands frames over and returns the frames sent in answer.
    pub fn exchange(&mut self, frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.wire.bring(frames);
        self.wire.until = self.wire.frames.len();
        self.wire.kept = Some(Vec::new());
        self.poll();
        self.poll();
        self.wire.kept.take().unwrap_or_default()
    }

    /// Opens at most 64 connections; returns the next sequence number that each peer expects.
    pub fn open(&mut self, peers: &[Peer]) -> Vec<u32> {
        self.exchange(Vec::new());
        let answers = self.exchange(peers.iter().map(|peer| peer.syn()).collect());
        let answers = answers.iter().map(|answer| Packet::parse(answer, Link::Ethernet).expect("a segment"));
        // Others are told of their windows.
        let syn_acks: Vec<_> = answers.filter(|answer| answer.flags.contains(Flags::SYN)).collect();
        assert!(syn_acks.iter().map(|answer| answer.dst_port).eq(peers.iter().map(|peer| peer.port())));
        let next: Vec<u32> = syn_acks.iter().map(|answer| answer.seq.0.wrapping_add(1)).collect();
        self.exchange(peers.iter().zip(&next).map(|(peer, ack)| peer.segment(FIRST, *ack, 1, &[])).collect());
        next
    }
}

/// Frames in are taken from a list, frames out are forgotten, or kept.
#[derive(Default)]
pub struct Wire {
    frames: Vec<Vec<u8>>,
    /// Those up to here were received.
    taken: usize,
    /// Those up to here may be.
    until: usize,
    kept: Option<Vec<Vec<u8>>>,
    slot: Vec<u8>,
    vouched: bool,
}

impl Wire {
    /// `vouched`: the port has verified checksums.
    pub fn new(vouched: bool) -> Wire {
        Wire { vouched, ..Wire::default() }
    }

    /// Frames to be received, none of them yet.
    pub fn bring(&mut self, frames: Vec<Vec<u8>>) {
        (self.frames, self.taken, self.until) = (frames, 0, 0);
    }

    /// Lets `burst` more frames be received; false where all were.
    pub fn allow(&mut self, burst: usize) -> bool {
        self.until = self.frames.len().min(self.taken + burst);
        self.taken < self.until
    }
}

impl FrameIo for Wire {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(1500)
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let end = self.until.min(self.taken + limit);
        let meta = RxMeta { checksum_verified: self.vouched, gso_size: 0, arrived: Arrival::default() };
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
