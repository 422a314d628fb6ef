//! From a frame to the facts of an eligible segment, or the reason for a bypass.
//!
//! Headers are looked at once, front to back, in the order of [`Reason`]. The checks of a
//! normal data segment run straight through; everything else is in cold functions.
//!
//! [`baton_wire::packet`] checks other things in another order: it looks for what an endpoint
//! may act upon, while this has to judge any frame, even a truncated one.

use crate::extensions;
use crate::flow::{Flow, Tags};
use crate::frame::{Checksums, Class, Frame, Link, Segment};
use crate::verdict::Reason;
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::eth::{VlanTag, ether_type};
use baton_wire::ipv6;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::seq::Seq;
use baton_wire::tcp::options::{OptionsIter, TIMESTAMPS_WORD, TcpOption};
use baton_wire::tcp::{Flags, Timestamps};

/// Reserved bits and flags of a TCP header, but for PSH.
const FLAGS_BUT_PSH: u16 = 0x0fff & !Flags::PSH.0;

/// Fields of an IP header that concern the TCP segment behind it.
struct Ip<'a> {
    frame: &'a Frame<'a>,
    /// The frame from the IP header on, as far as it was captured.
    packet: &'a [u8],
    ip_offset: usize,
    /// Addresses and tags; the ports are still 0.
    flow: Flow,
    /// IP header with options and extensions, in bytes.
    header_len: usize,
    /// Header and payload, in bytes, by the IP header.
    total_len: usize,
    traffic_class: u8,
    ttl: u8,
    fragment: bool,
    options: bool,
}

const fn bypass(reason: Reason) -> Class {
    Class::Bypass { reason, flow: None }
}

/// Looks at a frame's headers.
#[inline]
pub fn classify(frame: &Frame<'_>, checksums: Checksums) -> Class {
    match frame.link {
        Link::Ethernet => match frame.bytes.first_chunk::<14>() {
            Some(header) => match u16::from_be_bytes([header[12], header[13]]) {
                ether_type::IPV4 => ipv4(frame, 14, Tags::NONE, checksums),
                other => not_plain_ipv4(frame, other, 14, Tags::NONE, checksums),
            },
            None => bypass(Reason::NotIp),
        },
        Link::Ip => match frame.bytes.first().map(|byte| byte >> 4) {
            Some(4) => ipv4(frame, 0, Tags::NONE, checksums),
            Some(6) => ipv6(frame, 0, Tags::NONE, checksums),
            _ => bypass(Reason::NotIp),
        },
        Link::Read { ether_type, offset, tags } => {
            if frame.bytes.len() < usize::from(offset) {
                return bypass(Reason::NotIp);
            }
            not_plain_ipv4(frame, ether_type, usize::from(offset), tags, checksums)
        }
    }
}

/// By its ethertype; behind VLAN tags, where it is that of one.
fn not_plain_ipv4(frame: &Frame<'_>, mut kind: u16, mut at: usize, mut tags: Tags, checksums: Checksums) -> Class {
    while VlanTag::is_tpid(kind) {
        let rest = frame.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let Some(&[tci_0, tci_1, kind_0, kind_1]) = rest else { return bypass(Reason::NotIp) };
        let tag = VlanTag { tpid: kind, tci: u16::from_be_bytes([tci_0, tci_1]) };
        let Some(more) = tags.with(tag) else { return bypass(Reason::NotIp) };
        (tags, kind, at) = (more, u16::from_be_bytes([kind_0, kind_1]), at + 4);
    }
    match kind {
        ether_type::IPV4 => ipv4(frame, at, tags, checksums),
        ether_type::IPV6 => ipv6(frame, at, tags, checksums),
        _ => bypass(Reason::NotIp),
    }
}

#[inline(always)]
fn ipv4(frame: &Frame<'_>, at: usize, tags: Tags, checksums: Checksums) -> Class {
    let packet = frame.bytes.get(at..).unwrap_or_default();
    let Some(header) = packet.first_chunk::<20>() else { return bypass(Reason::Malformed) };
    let header_len = usize::from(header[0] & 0xf) * 4;
    if header[0] >> 4 != 4 || header_len < 20 || packet.len() < header_len {
        return bypass(Reason::Malformed);
    }
    let total_len = match u16::from_be_bytes([header[2], header[3]]) {
        0 => (frame.wire_len as usize).saturating_sub(at),
        len => usize::from(len),
    };
    if total_len < header_len {
        return bypass(Reason::Malformed);
    }
    if header[9] != PROTOCOL_TCP {
        return bypass(Reason::NotTcp);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    // Past the first fragment there is no TCP header to look at.
    if fragment & 0x1fff != 0 {
        return bypass(Reason::Fragment);
    }
    let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    let ip = Ip {
        frame,
        packet,
        ip_offset: at,
        flow: Flow::v4(address(12), address(16), 0, tags),
        header_len,
        total_len,
        traffic_class: header[1],
        ttl: header[8],
        fragment: fragment != 0,
        options: header_len != 20,
    };
    tcp(&ip, checksums)
}

#[inline(always)]
fn ipv6(frame: &Frame<'_>, at: usize, tags: Tags, checksums: Checksums) -> Class {
    let packet = frame.bytes.get(at..).unwrap_or_default();
    let Some((header, rest)) = packet.split_first_chunk::<{ ipv6::HEADER_LEN }>() else {
        return bypass(Reason::Malformed);
    };
    if header[0] >> 4 != 6 {
        return bypass(Reason::Malformed);
    }
    let payload_len = match u16::from_be_bytes([header[4], header[5]]) {
        0 => (frame.wire_len as usize).saturating_sub(at + ipv6::HEADER_LEN),
        len => usize::from(len),
    };
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        bytes
    };
    let mut ip = Ip {
        frame,
        packet,
        ip_offset: at,
        flow: Flow::v6(address(8), address(24), 0, tags),
        header_len: ipv6::HEADER_LEN,
        total_len: ipv6::HEADER_LEN + payload_len,
        traffic_class: header[0] << 4 | header[1] >> 4,
        ttl: header[7],
        fragment: false,
        options: false,
    };
    if header[6] != PROTOCOL_TCP {
        let data = &rest[..payload_len.min(rest.len())];
        if let Some(class) = behind_extensions(&mut ip, header[6], data) {
            return class;
        }
    }
    tcp(&ip, checksums)
}

/// Goes on to the TCP header behind extension headers, or says why there is none.
#[cold]
fn behind_extensions(ip: &mut Ip<'_>, next: u8, data: &[u8]) -> Option<Class> {
    let Some(found) = extensions::walk(next, data) else { return Some(bypass(Reason::Malformed)) };
    if found.protocol != PROTOCOL_TCP {
        return Some(bypass(Reason::NotTcp));
    }
    if found.later {
        return Some(bypass(Reason::Fragment));
    }
    ip.header_len += found.len;
    ip.fragment = found.fragment;
    ip.options = true;
    None
}

#[inline(always)]
fn tcp(ip: &Ip<'_>, checksums: Checksums) -> Class {
    let segment_len = ip.total_len - ip.header_len;
    let rest = ip.packet.get(ip.header_len..).unwrap_or_default();
    let captured = &rest[..segment_len.min(rest.len())];
    let Some(header) = captured.first_chunk::<20>() else { return bypass(Reason::Malformed) };
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < 20 {
        return bypass(Reason::Malformed);
    }
    let Some(options) = captured.get(20..header_len) else { return bypass(Reason::Malformed) };
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let flow = ip.flow.with_ports(word(0));
    let known = |reason| Class::Bypass { reason, flow: Some(flow) };
    if ip.fragment {
        return known(Reason::Fragment);
    }
    if ip.options {
        return known(Reason::IpOptions);
    }
    if half(12) & FLAGS_BUT_PSH != Flags::ACK.0 {
        return known(Reason::Flags);
    }
    let Some(timestamps) = timestamps_only(options) else { return known(Reason::TcpOptions) };
    let payload_len = segment_len - header_len;
    if payload_len == 0 {
        return known(Reason::NoPayload);
    }
    if checksums == Checksums::Verify && !is_right(ip, captured, segment_len) {
        return known(Reason::Checksum);
    }
    Class::Data(Segment {
        flow,
        seq: Seq(word(4)),
        ack: Seq(word(8)),
        payload_len: payload_len as u32,
        timestamps,
        window: half(14),
        push: half(12) & Flags::PSH.0 != 0,
        traffic_class: ip.traffic_class,
        ttl: ip.ttl,
        ip_offset: ip.ip_offset as u32,
        ip_header_len: ip.header_len as u8,
        tcp_header_len: header_len as u8,
    })
}

/// The timestamps in a list of options, if it has no others and is whole.
#[inline(always)]
fn timestamps_only(options: &[u8]) -> Option<Option<Timestamps>> {
    if options.is_empty() {
        return Some(None);
    }
    match options.as_chunks::<4>() {
        (&[first, val, ecr], _) if u32::from_be_bytes(first) == TIMESTAMPS_WORD => {
            Some(Some(Timestamps { val: u32::from_be_bytes(val), ecr: u32::from_be_bytes(ecr) }))
        }
        _ => other_options(options),
    }
}

#[cold]
fn other_options(options: &[u8]) -> Option<Option<Timestamps>> {
    let mut timestamps = None;
    for option in OptionsIter::new(options) {
        match option {
            Ok(TcpOption::Timestamps(found)) => timestamps = Some(found),
            _ => return None,
        }
    }
    Some(timestamps)
}

/// True if the checksums are right. A truncated segment cannot be shown to be right.
fn is_right(ip: &Ip<'_>, captured: &[u8], segment_len: usize) -> bool {
    if !ip.flow.is_v6() && checksum::rfc1071(&ip.packet[..ip.header_len]) != 0xffff {
        return false;
    }
    if ip.frame.vouched {
        return true;
    }
    // The 0xffff of an IPv4-mapped address counts as 0 in this arithmetic.
    let (src, dst) = (Addr::from(ip.flow.src()), Addr::from(ip.flow.dst()));
    let pseudo = checksum::pseudo(src, dst, PROTOCOL_TCP, segment_len as u32);
    captured.len() == segment_len && checksum::fold(pseudo + checksum::sum(captured)) == 0xffff
}
