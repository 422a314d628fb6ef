//! Two ports in memory, and frames to put into them.
#![allow(dead_code, reason = "each test file uses a part")]

use baton_bump::{Bump, Options};
use baton_coalesce::{Limits, Profile};
use baton_port::PortError;
use baton_port::vnet::{NEEDS_CSUM, Vnet, VnetFrame, VnetIo, VnetSink};
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::{Checks, Link, PROTOCOL_TCP, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::Acks;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, MAX_HEADERS, Route, emit_once};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

/// A frame and its virtio header.
pub type Sent = (Vnet, Vec<u8>);

/// One end: what is put into `inbox` arrives, what is sent lies in `sent`.
#[derive(Default)]
pub struct Memory {
    pub inbox: VecDeque<Sent>,
    pub sent: Vec<Sent>,
    /// Frames that are taken before the port is full; `None` for no end.
    pub room: Option<usize>,
    /// Frames in a burst at most; 0 for all.
    pub burst: usize,
}

impl VnetIo for Memory {
    fn receive<S: VnetSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let burst = if self.burst == 0 { usize::MAX } else { self.burst };
        let count = limit.min(burst).min(self.inbox.len());
        let taken: Vec<Sent> = self.inbox.drain(..count).collect();
        let frames: Vec<VnetFrame<'_>> = taken.iter().map(|(vnet, data)| VnetFrame { data, vnet: *vnet }).collect();
        if count > 0 {
            sink.burst(&frames);
        }
        Ok(count)
    }

    fn send(&mut self, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool {
        match &mut self.room {
            Some(0) => return false,
            Some(room) => *room -= 1,
            None => {}
        }
        self.sent.push((vnet, pieces.iter().flat_map(|piece| piece.iter().copied()).collect()));
        true
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

pub type Rig = Bump<Memory, Memory>;

/// A bump with RA's rules and this limit, ACKs expanded.
pub fn rig(limit: u32) -> Rig {
    let segments = NonZeroU32::new(limit);
    let limits = Limits { segments, cache: NonZeroU32::new(64).unwrap(), ..Limits::of(Profile::Ra) };
    Bump::new(Memory::default(), Memory::default(), Options { limits, acks: Acks::EverySecond, bare: false })
}

/// A segment of the connection whose sender has port `port`.
#[derive(Clone)]
pub struct Seg {
    pub port: u16,
    pub v6: bool,
    pub vlan: Option<u16>,
    pub to_host: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub ts: Option<u32>,
    pub payload: Vec<u8>,
}

impl Seg {
    /// Data towards the host.
    pub fn data(port: u16, seq: u32, payload: &[u8]) -> Seg {
        Seg {
            port,
            v6: false,
            vlan: None,
            to_host: true,
            seq,
            ack: 5000,
            flags: Flags::ACK,
            ts: Some(7),
            payload: payload.into(),
        }
    }

    /// An ACK of the host.
    pub fn ack(port: u16, ack: u32) -> Seg {
        Seg { to_host: false, seq: 5000, ack, ..Seg::data(port, 0, &[]) }
    }

    /// The frame, with its checksum complete.
    pub fn frame(&self) -> Vec<u8> {
        let (peer, host) = if self.v6 {
            (Addr::from(Ipv6Addr::from([0xfd; 16])), Addr::from(Ipv6Addr::from([0xfe; 16])))
        } else {
            (Addr::from(Ipv4Addr::new(10, 0, 0, 1)), Addr::from(Ipv4Addr::new(10, 0, 0, 2)))
        };
        let (src, dst) = if self.to_host { (peer, host) } else { (host, peer) };
        let (src_port, dst_port) = if self.to_host { (self.port, 80) } else { (80, self.port) };
        let mut link = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(id) = self.vlan {
            link.extend([0x81, 0]);
            link.extend(id.to_be_bytes());
        }
        link.extend([0, 0]);
        let route = Route { link: &link, src, dst, src_port, dst_port, ttl: 64, traffic_class: 0, flow_label: 0 };
        let mut out = vec![0; MAX_HEADERS];
        let emit = Emit {
            seq: Seq(self.seq),
            ack: Seq(self.ack),
            flags: self.flags,
            window: 500,
            urgent: 0,
            ts: self.ts.map(|val| Timestamps { val, ecr: 1 }),
            sack: &SackBlocks::default(),
            payload_len: self.payload.len() as u32,
            payload_sum: Some(checksum::sum(&self.payload)),
            ip_id: 1,
            ecn: 0,
        };
        let len = emit_once(&route, &mut out, &emit).unwrap();
        out.truncate(len);
        out.extend(&self.payload);
        out
    }

    /// The frame as it arrives from a wire: nothing is known of it.
    pub fn sent(&self) -> Sent {
        (Vnet::default(), self.frame())
    }
}

/// Parses a frame; panics unless its lengths and the IPv4 checksum are right.
pub fn parse(frame: &[u8]) -> Packet {
    Packet::parse_with(frame, Link::Ethernet, Checks::ALL).unwrap_or_else(|e| panic!("{e:?}: {frame:x?}"))
}

/// Panics unless the TCP checksum is right, or is left out as the virtio header says.
pub fn assert_checksum((vnet, frame): &Sent) {
    let packet = parse(frame);
    let at = usize::from(packet.tcp_offset);
    let segment = &frame[at..usize::from(packet.payload_offset) + packet.payload_len as usize];
    let pseudo = checksum::pseudo(packet.src, packet.dst, PROTOCOL_TCP, segment.len() as u32);
    if vnet.flags & NEEDS_CSUM != 0 {
        assert_eq!((usize::from(vnet.checksum_start), vnet.checksum_offset), (at, 16));
        assert_eq!(u16::from_be_bytes([segment[16], segment[17]]), checksum::fold(pseudo), "the pseudo header's sum");
    } else {
        let sum = checksum::fold(pseudo + u32::from(checksum::rfc1071(segment)));
        assert_eq!(sum, 0xffff, "a complete checksum");
    }
}

/// The payload of a frame.
pub fn payload(frame: &[u8]) -> &[u8] {
    let packet = parse(frame);
    &frame[usize::from(packet.payload_offset)..][..packet.payload_len as usize]
}
