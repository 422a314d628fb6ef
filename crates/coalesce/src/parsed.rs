//! Classification of a frame that an endpoint has parsed already: one parse serves both.

use crate::flow::{Flow, Tags};
use crate::frame::{Class, Segment};
use crate::verdict::Reason;
use baton_wire::packet::Packet;
use baton_wire::tcp::Flags;

impl Class {
    /// The class that [`classify`](crate::classify) finds for a frame that was parsed to `packet`,
    /// without the TCP checksum: the code that places the payload sums it, and takes a segment
    /// whose sum is wrong out of the run again.
    #[inline]
    pub fn of_packet(packet: &Packet, frame: &[u8]) -> Class {
        let flow = flow_of(packet);
        let known = |reason| Class::Bypass { reason, flow: Some(flow) };
        if packet.ip_options {
            return known(Reason::IpOptions);
        }
        // The reserved bits count as flags, and a packet has only the others.
        let at = usize::from(packet.tcp_offset) + 12;
        let bits = frame.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bits| u16::from_be_bytes(*bits));
        if bits & 0x0fff & !Flags::PSH.0 != Flags::ACK.0 {
            return known(Reason::Flags);
        }
        if !packet.plain_options {
            return known(Reason::TcpOptions);
        }
        if packet.payload_len == 0 {
            return known(Reason::NoPayload);
        }
        Class::Data(Segment {
            flow,
            seq: packet.seq,
            ack: packet.ack,
            payload_len: packet.payload_len,
            timestamps: packet.timestamps,
            window: packet.window,
            push: packet.flags.contains(Flags::PSH),
            traffic_class: packet.traffic_class,
            ttl: packet.ttl,
            ip_offset: u32::from(packet.ip_offset),
            ip_header_len: (packet.tcp_offset - packet.ip_offset) as u8,
            tcp_header_len: (packet.payload_offset - packet.tcp_offset) as u8,
        })
    }
}

/// The direction that a packet belongs to.
#[inline]
fn flow_of(packet: &Packet) -> Flow {
    let mut tags = Tags::NONE;
    for &tag in packet.vlan.as_slice() {
        tags = tags.with(tag).unwrap_or(tags);
    }
    let ports = u32::from(packet.src_port) << 16 | u32::from(packet.dst_port);
    if packet.is_v6() {
        Flow::v6(packet.src.0.to_be_bytes(), packet.dst.0.to_be_bytes(), ports, tags)
    } else {
        // An IPv4 address is the end of its IPv4-mapped one.
        Flow::v4((packet.src.0 as u32).to_be_bytes(), (packet.dst.0 as u32).to_be_bytes(), ports, tags)
    }
}
