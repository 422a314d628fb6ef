//! From a frame to the facts of an eligible segment, or the reason for a bypass.
//!
//! Headers are looked at once, front to back, in the order of [`Reason`]. The checks of a
//! normal data segment run straight through; everything else is in cold functions.
//!
//! [`baton_wire::packet`] checks other things in another order: it looks for what an endpoint
//! may act upon, while this has to judge any frame, even a truncated one.

use crate::flow::Tags;
use crate::frame::{Checksums, Class, Frame, Link, Segment};
use crate::ip::{Fragment, Ip};
use crate::verdict::Reason;
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::eth::ether_type;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::seq::Seq;
use baton_wire::tcp::options::{OptionsIter, TIMESTAMPS_WORD, TcpOption};
use baton_wire::tcp::{Flags, Timestamps};

/// Reserved bits and flags of a TCP header, but for PSH.
const FLAGS_BUT_PSH: u16 = 0x0fff & !Flags::PSH.0;

const fn bypass(reason: Reason) -> Class {
    Class::Bypass { reason, flow: None }
}

/// Looks at a frame's headers.
#[inline]
pub fn classify(frame: &Frame<'_>, checksums: Checksums) -> Class {
    // Most frames go straight through: the header's place is known without a search.
    if matches!(frame.link, Link::Ethernet)
        && let Some(header) = frame.bytes.first_chunk::<14>()
        && [header[12], header[13]] == ether_type::IPV4.to_be_bytes()
    {
        return of_ip(Ip::v4(frame, 14, Tags::NONE), checksums);
    }
    of_ip(Ip::of(frame), checksums)
}

#[inline(always)]
fn of_ip(ip: Result<Ip<'_>, Reason>, checksums: Checksums) -> Class {
    match ip {
        Err(reason) => bypass(reason),
        Ok(ip) if ip.protocol != PROTOCOL_TCP => bypass(Reason::NotTcp),
        // There is no TCP header to look at.
        Ok(ip) if ip.fragment == Fragment::Later => bypass(Reason::Fragment),
        Ok(ip) => tcp(&ip, checksums),
    }
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
    if ip.fragment != Fragment::None {
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
        ip_offset: ip.offset as u32,
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
