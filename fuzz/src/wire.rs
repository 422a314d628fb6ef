//! Targets for the parsers of `baton_wire`.
//!
//! Each body parses, walks all it can reach, and checks what must hold of any
//! input: parts lie in order within the frame, what is written back reads the
//! same, and two ways to the same fact agree. Checksums are made right first
//! where a wrong one would end the parse.

use baton_wire::addr::Addr;
use baton_wire::checksum::{self, Kernel, KernelKind};
use baton_wire::packet::{Checks, Link, Packet, Reject};
use baton_wire::quote::QuotedTcp;
use baton_wire::tcp::header::Segment;
use baton_wire::tcp::options::{OptionsIter, TcpOption, write_options};
use baton_wire::{arp, eth, icmpv4, icmpv6, ipv4, ipv6};
use std::net::Ipv6Addr;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[
    ("wire_packet", packet),
    ("wire_eth", ethernet),
    ("wire_arp", arp),
    ("wire_ipv4", ipv4),
    ("wire_ipv6", ipv6),
    ("wire_icmpv4", icmpv4),
    ("wire_icmpv6", icmpv6),
    ("wire_tcp", tcp),
    ("wire_options", options),
    ("wire_checksum", checksum),
];

/// The fast parse, strict and lenient, from both kinds of link; the views must
/// see the same segment.
pub fn packet(frame: &[u8]) {
    for link in [Link::Ethernet, Link::Ip] {
        for (ip_checksum, whole) in [(true, true), (false, true), (true, false), (false, false)] {
            let checks = Checks { ip_checksum, whole };
            let Ok(packet) = Packet::parse_with(frame, link, checks) else { continue };
            // A frame that passes more checks passes fewer, with the same facts.
            let lenient = Checks { ip_checksum: false, whole: false };
            assert_eq!(Packet::parse_with(frame, link, lenient), Ok(packet));
            segment_facts(frame, &packet, whole);
        }
        let strict = Packet::parse(frame, link);
        assert_eq!(strict, Packet::parse_with(frame, link, Checks::ALL));
        if let Ok(packet) = strict {
            agrees_with_views(frame, &packet);
        }
        if link == Link::Ip && strict == Err(Reject::NotIp) {
            assert!(frame.first().is_none_or(|first| !matches!(first >> 4, 4 | 6)));
        }
    }
}

fn segment_facts(frame: &[u8], packet: &Packet, whole: bool) {
    let [ip, tcp, payload] = [packet.ip_offset, packet.tcp_offset, packet.payload_offset].map(usize::from);
    assert!(ip + 20 <= tcp && tcp + 20 <= payload && payload <= frame.len());
    let held = packet.payload(frame).len();
    assert!(held <= packet.payload_len as usize && (!whole || held == packet.payload_len as usize));
    let mut plain = true;
    let mut timestamps = None;
    for option in packet.options(frame) {
        match option {
            Ok(TcpOption::Timestamps(ts)) => timestamps = Some(ts),
            _ => plain = false,
        }
    }
    assert_eq!((packet.plain_options, packet.timestamps), (plain, timestamps));
    assert!(packet.header_sum(frame) <= 0xffff);
    // Another frame than the one parsed gives nonsense, but no panic.
    let other = &frame[..frame.len() / 2];
    let _ = (packet.payload(other), packet.header_sum(other), packet.options(other).count());
}

fn agrees_with_views(frame: &[u8], packet: &Packet) {
    let bytes = &frame[usize::from(packet.ip_offset)..];
    let (src, dst, payload): (Addr, Addr, &[u8]) = if packet.is_v6() {
        let view = ipv6::Datagram::parse(bytes).expect("the fast parse took it");
        (view.header.src.into(), view.header.dst.into(), view.payload)
    } else {
        let view = ipv4::Datagram::parse(bytes).expect("the fast parse took it");
        (view.header.src.into(), view.header.dst.into(), view.payload)
    };
    let segment = Segment::parse(payload).expect("the fast parse took it");
    let header = segment.header;
    assert_eq!((src, dst), (packet.src, packet.dst));
    assert_eq!((header.src_port, header.dst_port), (packet.src_port, packet.dst_port));
    assert_eq!((header.seq, header.ack, header.flags), (packet.seq, packet.ack, packet.flags));
    assert_eq!((header.window, header.urgent), (packet.window, packet.urgent));
    assert_eq!(segment.payload, packet.payload(frame));
    let quoted = QuotedTcp::parse(bytes).expect("a whole packet quotes as well as a part");
    assert_eq!((quoted.src, quoted.dst, quoted.seq), (packet.src, packet.dst, packet.seq));
    let whole = checksum::pseudo(src, dst, 6, payload.len() as u32) + checksum::sum(payload);
    let parts = packet.header_sum(frame) + checksum::sum(packet.payload(frame));
    assert_eq!(checksum::fold(whole), checksum::fold(parts));
}

/// Ethernet headers.
pub fn ethernet(frame: &[u8]) {
    let Ok((header, rest)) = eth::Header::parse(frame) else { return };
    let mut out = [0; eth::MAX_HEADER_LEN];
    let len = header.write(&mut out).expect("the buffer has room for any header");
    assert_eq!(&out[..len], &frame[..frame.len() - rest.len()]);
}

/// ARP packets.
pub fn arp(data: &[u8]) {
    let Ok(packet) = arp::Packet::parse(data) else { return };
    let mut out = [0; arp::LEN];
    packet.write(&mut out).expect("the buffer has room");
    assert_eq!(out, data[..arp::LEN]);
}

/// IPv4 packets and their options.
pub fn ipv4(data: &[u8]) {
    let strict = ipv4::Datagram::parse(data);
    let Ok((view, _)) = ipv4::Datagram::parse_cut(data) else {
        assert!(strict.is_err());
        return;
    };
    assert!(view.options().count() <= ipv4::MAX_OPTIONS);
    let mut out = [0; 60];
    let len = view.header.write(view.options, view.payload.len(), &mut out).expect("what was read can be written");
    let written = [&out[..len], view.payload].concat();
    let again = ipv4::Datagram::parse(&written).expect("what is written can be read");
    assert_eq!(again, view);
    QuotedTcp::parse(data);
}

/// IPv6 packets and their extension headers.
pub fn ipv6(data: &[u8]) {
    let strict = ipv6::Datagram::parse(data);
    let Ok((view, _)) = ipv6::Datagram::parse_cut(data) else {
        assert!(strict.is_err());
        return;
    };
    assert!(view.chain.count <= ipv6::MAX_EXTENSIONS && view.chain.len == view.extensions.len());
    let mut out = [0; ipv6::HEADER_LEN];
    let after = view.extensions.len() + view.payload.len();
    view.header.write(after, &mut out).expect("what was read can be written");
    let written = [&out[..], view.extensions, view.payload].concat();
    assert_eq!(ipv6::Datagram::parse(&written), Ok(view));
    QuotedTcp::parse(data);
}

/// ICMP messages, their checksum made right, and the packets that they quote.
pub fn icmpv4(data: &[u8]) {
    let _ = icmpv4::Message::parse(data);
    let fixed = with_checksum(data, 2, 0);
    let Ok(message) = icmpv4::Message::parse(&fixed) else { return };
    let mut out = vec![0; fixed.len()];
    let len = message.write(&mut out).expect("what was read can be written");
    assert_eq!(icmpv4::Message::parse(&out[..len]), Ok(message));
    QuotedTcp::parse(data.get(8..).unwrap_or_default());
}

/// ICMPv6 messages, their checksum made right.
pub fn icmpv6(data: &[u8]) {
    let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    let _ = icmpv6::Message::parse(data, src, dst);
    let pseudo = checksum::pseudo(src.into(), dst.into(), icmpv6::PROTOCOL, data.len() as u32);
    let fixed = with_checksum(data, 2, pseudo);
    let Ok(message) = icmpv6::Message::parse(&fixed, src, dst) else { return };
    let mut out = vec![0; fixed.len().max(32)];
    let len = message.write(src, dst, &mut out).expect("what was read can be written");
    assert_eq!(icmpv6::Message::parse(&out[..len], src, dst), Ok(message));
    QuotedTcp::parse(data.get(8..).unwrap_or_default());
}

fn with_checksum(data: &[u8], at: usize, pseudo: u32) -> Vec<u8> {
    let mut fixed = data.to_vec();
    if let Some(field) = fixed.get_mut(at..at + 2) {
        field.fill(0);
        let value = checksum::finish(pseudo + checksum::sum(&fixed));
        fixed[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    fixed
}

/// TCP segments.
pub fn tcp(data: &[u8]) {
    let Ok(segment) = Segment::parse(data) else { return };
    assert_eq!(20 + segment.options.len() + segment.payload.len(), data.len());
    options(segment.options);
}

/// Lists of TCP options.
pub fn options(data: &[u8]) {
    let data = &data[..data.len().min(40)];
    let options: Vec<TcpOption<'_>> = OptionsIter::new(data).map_while(Result::ok).collect();
    let mut out = [0; 40];
    // Padding of our own may need more room than the list had.
    let Ok(len) = write_options(&options, &mut out) else { return };
    let again: Vec<TcpOption<'_>> =
        OptionsIter::new(&out[..len]).map(|option| option.expect("what is written is whole")).collect();
    assert_eq!(again, options);
}

/// Checksum kernels: all equal, copies too, and parts combine.
pub fn checksum(data: &[u8]) {
    let reference = u32::from(checksum::rfc1071(data));
    for kernel in KernelKind::ALL.into_iter().filter_map(Kernel::new) {
        assert_eq!(kernel.sum(data), reference);
        let mut copy = vec![0; data.len()];
        assert_eq!(kernel.copy_and_sum(&mut copy, data), reference);
        assert_eq!(copy, data);
    }
    let cut = usize::from(data.first().copied().unwrap_or(0)).min(data.len());
    let (first, second) = data.split_at(cut);
    assert_eq!(checksum::combine(checksum::sum(first), cut, checksum::sum(second)), reference);
}
