//! A host on an in-memory wire, with peers that the test plays.

use baton_consumer::consumer::{Conn, SocketEvent};
use baton_engine::frame_io::{FrameIo, FrameSink, RxFrame, TxMeta};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks};
use baton_wire::template::{Emit, Route, emit_once};
use std::net::{IpAddr, SocketAddr};

/// The host's addresses. It uses the first one by default.
pub const OURS: &str = "10.0.0.2";
pub const ALSO_OURS: &str = "10.0.0.3";
/// The peers' address.
pub const THEIRS: &str = "10.0.0.9";

/// Payload of a full segment to a peer that names no MSS (RFC 9293 §3.7.1).
pub const MSS: usize = 536;

const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A TCP segment that the host sent.
pub struct Seen {
    pub packet: Packet,
    pub payload: Vec<u8>,
}

/// The other end of the wire, and the frames that arrived there.
pub struct FarEnd {
    wire: MemoryPort,
    /// The host's link address.
    mac: [u8; 6],
    pub seen: Vec<Seen>,
}

/// A host driven by the test, and its far end.
pub struct Lab {
    pub host: Host<MemoryPort>,
    pub far: FarEnd,
    now: u64,
}

/// The peer of one connection.
#[derive(Clone, Copy)]
pub struct Peer {
    host: Addr,
    host_port: u16,
    port: u16,
    pub snd_nxt: Seq,
    pub rcv_nxt: Seq,
    pub window: u16,
}

pub fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

pub fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Keeps every frame.
struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|frame| frame.data.to_vec()));
    }
}

impl FarEnd {
    pub fn new(wire: MemoryPort, mac: [u8; 6]) -> FarEnd {
        FarEnd { wire, mac, seen: Vec::new() }
    }

    /// Receives the host's frames, and answers those that need an immediate answer.
    pub fn receive(&mut self) {
        let mut frames = Frames(Vec::new());
        self.wire.receive(64, &mut frames).unwrap();
        for frame in frames.0 {
            self.take(&frame);
        }
    }

    fn take(&mut self, frame: &[u8]) {
        if frame[12..14] == [8, 6] {
            // An ARP request: the lab answers for all peers.
            let mut reply = [&frame[6..12], &PEER_MAC, &frame[12..20], &[0, 2]].concat();
            reply.extend([&PEER_MAC, &frame[38..42], &frame[22..32]].concat());
            self.put(&reply);
        } else if let Ok(packet) = Packet::parse(frame, Link::Ethernet) {
            self.seen.push(Seen { packet, payload: packet.payload(frame).to_vec() });
        }
    }

    fn put(&mut self, frame: &[u8]) {
        self.wire.slot(frame.len()).unwrap().copy_from_slice(frame);
        self.wire.commit(frame.len(), TxMeta::default());
        self.wire.flush().unwrap();
    }

    /// Sends a segment from a peer, without advancing its sequence numbers.
    pub fn send(&mut self, peer: &Peer, flags: Flags, payload: &[u8]) {
        let link = [&self.mac[..], &PEER_MAC, &[8, 0]].concat();
        let route = Route {
            link: &link,
            src: addr(THEIRS),
            dst: peer.host,
            src_port: peer.port,
            dst_port: peer.host_port,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        let segment = Emit {
            seq: peer.snd_nxt,
            ack: peer.rcv_nxt,
            flags,
            window: peer.window,
            urgent: 0,
            ts: None,
            sack: &SackBlocks::new(),
            payload_len: payload.len() as u32,
            payload_sum: Some(baton_wire::checksum::sum(payload)),
            ip_id: 1,
            ecn: 0,
        };
        let mut frame = vec![0; 128];
        let len = emit_once(&route, &mut frame, &segment).unwrap();
        frame.truncate(len);
        frame.extend_from_slice(payload);
        self.put(&frame);
    }

    /// Waits for the next segment of a host that other threads drive.
    pub fn wait(&mut self) -> Packet {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.seen.is_empty() {
            assert!(std::time::Instant::now() < end, "no segment within a minute");
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.receive();
        }
        self.seen.remove(0).packet
    }

    /// Answers the host's SYN with a SYN-ACK. Returns the peer that did so.
    pub fn accept(&mut self, syn: &Packet) -> Peer {
        let (host, host_port, port) = (syn.src, syn.src_port, syn.dst_port);
        let mut peer = Peer { host, host_port, port, snd_nxt: Seq(5000), rcv_nxt: syn.seq + 1, window: 65_535 };
        self.send(&peer, Flags::SYN | Flags::ACK, &[]);
        peer.snd_nxt += 1;
        peer
    }

    /// Sends an ICMP error of `kind` and `code` for a segment of the host.
    pub fn send_icmp(&mut self, kind: u8, code: u8, about: &Packet) {
        let mut ip = vec![0x45, 0, 0, 56, 0, 1, 0, 0, 64, 1, 0, 0];
        let octets = |addr: Addr| match addr.ip() {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(_) => unreachable!("the lab is IPv4"),
        };
        ip.extend([octets(addr(THEIRS)), octets(about.src)].concat());
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum);
        let mut icmp = vec![kind, code, 0, 0, 0, 0, 0, 0];
        icmp.extend([0x45, 0, 0, 40, 0, 1, 0, 0, 63, 6, 0, 0]);
        icmp.extend([octets(about.src), octets(about.dst)].concat());
        icmp.extend([about.src_port.to_be_bytes(), about.dst_port.to_be_bytes()].concat());
        icmp.extend(about.seq.0.to_be_bytes());
        let sum = internet_checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum);
        let frame = [&self.mac[..], &PEER_MAC, &[8, 0], &ip, &icmp].concat();
        self.put(&frame);
    }
}

impl Lab {
    pub fn new() -> Lab {
        Lab::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut HostConfig)) -> Lab {
        Lab::on(MemoryOptions::default(), change)
    }

    /// Makes a lab on a wire with these options.
    pub fn on(options: MemoryOptions, change: impl FnOnce(&mut HostConfig)) -> Lab {
        let (port, wire) = MemoryPort::pair(options);
        let mut config = HostConfig::new(format!("{OURS}/24").parse().unwrap());
        config.engine.interface.addresses.push(format!("{ALSO_OURS}/24").parse().unwrap());
        config.consumer.stream_buffer = 64 << 10;
        change(&mut config);
        let far = FarEnd::new(wire, config.engine.interface.mac);
        Lab { host: Host::new(&config, port).unwrap(), far, now: 0 }
    }

    /// Advances the lab by `count` milliseconds.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.now += 1_000_000;
            self.host.poll(Instant(self.now)).unwrap();
            self.far.receive();
        }
    }

    /// Returns all segments since the last call.
    pub fn drain(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.far.seen)
    }

    /// Returns the next segment, which must exist.
    pub fn next(&mut self) -> Seen {
        assert!(!self.far.seen.is_empty(), "the host sent a segment");
        self.far.seen.remove(0)
    }

    /// Like [`FarEnd::send`].
    pub fn send(&mut self, peer: &Peer, flags: Flags, payload: &[u8]) {
        self.far.send(peer, flags, payload);
    }

    /// Makes a peer for a port of the host.
    pub fn peer(&self, host: &str, host_port: u16, port: u16) -> Peer {
        Peer { host: addr(host), host_port, port, snd_nxt: Seq(5000), rcv_nxt: Seq(0), window: 65_535 }
    }

    /// Listens, which must succeed.
    pub fn listen(&mut self, ip: &str, port: u16) {
        self.host.listen(at(ip, port), 16).unwrap();
        self.steps(2);
        assert!(matches!(self.host.next_event(), Some(SocketEvent::Listening { .. })), "listening at {ip}:{port}");
    }

    /// Sends this peer's SYN and takes the host's SYN-ACK.
    pub fn syn(&mut self, peer: &mut Peer) {
        self.send(peer, Flags::SYN, &[]);
        peer.snd_nxt += 1;
        self.steps(2);
        let answer = self.next().packet;
        assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, peer.snd_nxt));
        peer.rcv_nxt = answer.seq + 1;
    }

    /// Sends the last segment of the handshake. Returns the connection that this completes.
    pub fn complete(&mut self, peer: &Peer) -> Conn {
        self.send(peer, Flags::ACK, &[]);
        self.steps(2);
        while let Some(event) = self.host.next_event() {
            if let SocketEvent::Accepted { conn, .. } = event {
                return conn;
            }
        }
        panic!("no connection");
    }

    /// Opens a connection from the host, with these option bits.
    pub fn connect(&mut self, port: u16, local: Option<SocketAddr>, options: u64) -> (Peer, Conn) {
        self.host.connect_with(at(THEIRS, port), local, options).unwrap();
        self.steps(3);
        let mut opening = None;
        while let Some(event) = self.host.next_event() {
            if let SocketEvent::Opening { conn, .. } = event {
                opening = Some(conn);
            }
        }
        let conn = opening.expect("a connection under way");
        let syn = self.next().packet;
        assert_eq!(syn.flags, Flags::SYN);
        let peer = self.far.accept(&syn);
        self.steps(2);
        assert!(self.host.stream(conn).unwrap().is_established());
        self.far.seen.push(Seen { packet: syn, payload: Vec::new() });
        (peer, conn)
    }
}

/// The checksum of RFC 1071, in wire order.
fn internet_checksum(bytes: &[u8]) -> [u8; 2] {
    (!baton_wire::checksum::fold(baton_wire::checksum::sum(bytes))).to_be_bytes()
}
