//! Link types of captures, and how a coalescer is to read their frames.
//!
//! | type (tcpdump.org/linktypes.html) | header |
//! | --- | --- |
//! | 1 Ethernet | 14 bytes, VLAN tags |
//! | 0 null, 108 loop | 4 bytes: address family, in the capturing machine's byte order, or big endian |
//! | 12, 14, 101 raw | none |
//! | 228 IPv4, 229 IPv6 | none, and of the one version |
//! | 113 Linux cooked | 16 bytes, the ethertype in the last two; VLAN tags |
//! | 276 Linux cooked v2 | 20 bytes, the ethertype in the first two; VLAN tags |
//!
//! Other link types are unknown: their frames are `not_ip`.

use crate::link_type;
use crate::read;
use baton_coalesce::{Frame, Link, Tags};
use baton_wire::eth::ether_type;

/// True if frames of this link type can be read.
pub fn is_known(link: u16) -> bool {
    use link_type::*;
    matches!(link, NULL | ETHERNET | RAW_BSD | RAW_OPENBSD | RAW | LOOP | LINUX_SLL | IPV4 | IPV6 | LINUX_SLL2)
}

/// A captured frame, as a coalescer takes it.
#[inline]
pub fn frame<'a>(frame: &read::Frame<'a>) -> Frame<'a> {
    let link = match frame.link {
        link_type::ETHERNET => Link::Ethernet,
        link_type::RAW | link_type::RAW_BSD | link_type::RAW_OPENBSD => Link::Ip,
        other => behind_header(other, frame.data),
    };
    Frame { bytes: frame.data, wire_len: frame.wire_len, link, vouched: false }
}

/// Reads the header of a link type that is neither Ethernet nor raw IP.
#[cold]
fn behind_header(link: u16, bytes: &[u8]) -> Link {
    let half = |at: usize| bytes.get(at..)?.first_chunk().map(|&half| u16::from_be_bytes(half));
    let (len, ether_type) = match link {
        link_type::IPV4 => (0, Some(ether_type::IPV4)),
        link_type::IPV6 => (0, Some(ether_type::IPV6)),
        link_type::NULL | link_type::LOOP => (4, bytes.first_chunk().and_then(|&family| of_family(link, family))),
        link_type::LINUX_SLL => (16, half(14)),
        link_type::LINUX_SLL2 => (20, half(0)),
        _ => (0, None),
    };
    // A truncated header announces nothing.
    let ether_type = ether_type.filter(|_| bytes.len() >= usize::from(len)).unwrap_or(0);
    Link::Read { ether_type, offset: len, tags: Tags::NONE }
}

/// The ethertype for an address family. IPv6 has a different number on each system.
fn of_family(link: u16, family: [u8; 4]) -> Option<u16> {
    let of = |family| match family {
        2 => Some(ether_type::IPV4),
        // Linux 10, OpenBSD and NetBSD 24, FreeBSD 28, Darwin 30.
        10 | 24 | 28 | 30 => Some(ether_type::IPV6),
        _ => None,
    };
    let big = of(u32::from_be_bytes(family));
    if link == link_type::LOOP { big } else { big.or_else(|| of(u32::from_le_bytes(family))) }
}
