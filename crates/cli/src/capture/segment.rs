//! IP packets with a TCP segment each, made for what a pair carried.
//!
//! Sequence numbers are those that the connection would have had. There are no options: a pair has no round trip
//! to stamp, and loses nothing to acknowledge selectively. A segment is as long as the IP header can say, like one
//! that a device cuts or has joined.

use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::header::{self, Header, fill_checksum};
use baton_wire::tcp::{Flags, PROTOCOL_TCP};
use baton_wire::{ipv4, ipv6};
use std::net::IpAddr;

/// The most payload of a segment in bytes: what IPv4's total length leaves (RFC 791 §3.1).
pub const MOST: usize = u16::MAX as usize - ipv4::HEADER_LEN - header::HEADER_LEN;
const TTL: u8 = 64;

/// The addresses and numbers of both ends, that of the link's first side first.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The tuple of the first end.
    pub tuple: Tuple,
    /// The sequence number of each end's first byte.
    pub seqs: [Seq; 2],
    /// The scale of each end's windows.
    pub scales: [WindowScale; 2],
    /// The bytes that each end lets be unread.
    pub windows: [Window; 2],
}

/// A segment of one end. Positions count bytes since the pair began.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The end that sends it.
    pub from: usize,
    /// The position of its first byte.
    pub at: u64,
    /// The position up to which its sender has read, and one more once it knows of the other's end.
    pub read: u64,
    /// ACK is added.
    pub flags: Flags,
}

impl Numbers {
    fn ends(&self, from: usize) -> [(Addr, u16); 2] {
        let Tuple { local, remote, local_port, remote_port } = self.tuple;
        let (first, second) = ((local, local_port), (remote, remote_port));
        if from == 0 { [first, second] } else { [second, first] }
    }

    fn ip_header_len(&self) -> usize {
        if self.tuple.local.is_v4() && self.tuple.remote.is_v4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
    }

    /// Length of the packet with this much payload, at most [`MOST`].
    pub fn packet_len(&self, payload: usize) -> usize {
        self.ip_header_len() + header::HEADER_LEN + payload
    }

    /// Writes the packet into `out`, which is as long as it.
    pub fn write(&self, segment: &Segment, payload: &[u8], out: &mut [u8]) {
        let Segment { from, at, read, flags } = *segment;
        let [(src, src_port), (dst, dst_port)] = self.ends(from);
        let header = Header {
            src_port,
            dst_port,
            seq: self.seqs[from] + at as u32,
            ack: self.seqs[1 - from] + read as u32,
            flags: Flags(flags.0 | Flags::ACK.0),
            window: self.scales[from].field(self.windows[from]),
            checksum: 0,
            urgent: 0,
        };
        let (ip, tcp) = out.split_at_mut(self.ip_header_len());
        let written = match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                ipv4::Header::atomic(TTL, PROTOCOL_TCP, src, dst).write(&[], tcp.len(), ip)
            }
            (src, dst) => {
                let v6 = |ip: IpAddr| if let IpAddr::V6(ip) = ip { ip } else { Addr::from(ip).octets().into() };
                let (src, dst) = (v6(src), v6(dst));
                let (hop_limit, next_header) = (TTL, PROTOCOL_TCP);
                ipv6::Header { traffic_class: 0, flow_label: 0, next_header, hop_limit, src, dst }.write(tcp.len(), ip)
            }
        };
        debug_assert!(written.is_ok(), "the room is the packet's");
        let written = header.write(&[], tcp);
        debug_assert!(written.is_ok(), "the room is the packet's");
        tcp[header::HEADER_LEN..].copy_from_slice(payload);
        let summed = fill_checksum(tcp, src, dst);
        debug_assert!(summed.is_ok(), "there is a header");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_wire::packet::{Checks, Link, Packet};

    /// Everything is checked, the checksums as well.
    const CHECKS: Checks = Checks { ip_checksum: true, whole: true };

    fn numbers(local: &str, remote: &str) -> Numbers {
        Numbers {
            tuple: Tuple::new(local.parse().unwrap(), remote.parse().unwrap()),
            seqs: [Seq(u32::MAX - 5), Seq(1000)],
            scales: [WindowScale::new(7), WindowScale::new(0)],
            windows: [Window(256 << 10); 2],
        }
    }

    #[test]
    fn packets_of_both_ends_are_whole_and_have_their_numbers() {
        for (local, remote) in [("127.0.0.1:7000", "127.0.0.2:4000"), ("[::1]:7000", "[2001:db8::2]:4000")] {
            let numbers = numbers(local, remote);
            for (from, payload) in [(0, vec![7; MOST]), (1, b"odd".to_vec()), (0, Vec::new())] {
                let mut out = vec![0xff; numbers.packet_len(payload.len())];
                let flags = if payload.is_empty() { Flags::FIN } else { Flags::PSH };
                numbers.write(&Segment { from, at: 1 << 33 | 10, read: 4, flags }, &payload, &mut out);
                let packet = Packet::parse_with(&out, Link::Ip, CHECKS).unwrap();
                let [(src, src_port), (dst, dst_port)] = numbers.ends(from);
                assert_eq!((packet.src, packet.src_port, packet.dst, packet.dst_port), (src, src_port, dst, dst_port));
                let (seq, ack) = if from == 0 { (4, 1004) } else { (1010, u32::MAX - 1) };
                assert_eq!((packet.seq.0, packet.ack.0, packet.payload_len as usize), (seq, ack, payload.len()));
                assert_eq!(&out[out.len() - payload.len()..], payload);
                let tcp = &out[numbers.ip_header_len()..];
                let pseudo = baton_wire::checksum::pseudo(src, dst, PROTOCOL_TCP, tcp.len() as u32);
                assert_eq!(baton_wire::checksum::finish(pseudo + baton_wire::checksum::sum(tcp)), 0);
                let segment = header::Segment::parse(tcp).unwrap().header;
                assert_eq!(segment.flags, Flags(flags.0 | Flags::ACK.0));
                assert_eq!(segment.window, if from == 0 { 2048 } else { u16::MAX });
            }
        }
    }
}
