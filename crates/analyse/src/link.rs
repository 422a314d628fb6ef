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
use baton_coalesce::{Frame, Link, Network, Tags};
use baton_wire::eth::ether_type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// True if frames of this link type can be read.
pub fn is_known(link: u16) -> bool {
    use link_type::*;
    matches!(link, NULL | ETHERNET | RAW_BSD | RAW_OPENBSD | RAW | LOOP | LINUX_SLL | IPV4 | IPV6 | LINUX_SLL2)
}

/// Frames of link types that cannot be read, by link type.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnknownLinks(BTreeMap<u16, u64>);

impl UnknownLinks {
    /// Notes a frame's link type, if it cannot be read.
    #[inline]
    pub fn note(&mut self, link: u16) {
        if !is_known(link) {
            self.add(link, 1);
        }
    }

    /// Adds what another has noted.
    pub fn merge(&mut self, other: &UnknownLinks) {
        other.iter().for_each(|(link, frames)| self.add(link, frames));
    }

    #[cold]
    fn add(&mut self, link: u16, frames: u64) {
        // A capture has few link types; a hostile one must not grow a table.
        if self.0.len() < 64 || self.0.contains_key(&link) {
            *self.0.entry(link).or_default() += frames;
        }
    }

    /// Link types, each with its frames.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        self.0.iter().map(|(link, frames)| (*link, *frames))
    }

    /// One sentence for each link type.
    pub fn cautions(&self) -> impl Iterator<Item = String> {
        self.iter().map(|(link, frames)| {
            let name = link_type::name(link).map_or(String::new(), |name| format!(" ({name})"));
            format!("{frames} frames of link type {link}{name}, which cannot be read, count as not_ip")
        })
    }
}

/// Bits that formats reserve above the link type, where they are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedBits {
    /// Headers of captures, or of interfaces in them, that have some.
    pub headers: u64,
    /// All of them, as bits of a word whose lower half is the link type.
    pub bits: u32,
}

impl ReservedBits {
    /// Notes those of one header.
    pub fn note(&mut self, bits: u32) {
        self.merge(ReservedBits { headers: 1, bits });
    }

    /// Adds what another has noted.
    pub fn merge(&mut self, other: ReservedBits) {
        self.headers += other.headers;
        self.bits |= other.bits;
    }

    /// A sentence, if there are any.
    pub fn caution(&self) -> Option<String> {
        let ReservedBits { headers, bits } = self;
        (*headers > 0).then(|| {
            format!(
                "reserved link-type bits are set: {bits:#010x}, in {headers} headers of captures or interfaces; they \
                 are not read"
            )
        })
    }
}

/// Bytes that a frame may be longer than its IP packet: padding, a trailer, a frame check sequence.
const TRAILER_MAX: u32 = 256;

/// The length of a frame on the wire, in bytes. If it was cut and its record claims more than its IP header allows,
/// it is what the header says; if it has none, no more than the largest frame.
#[inline]
pub fn wire_len(frame: &Frame<'_>) -> u32 {
    if frame.wire_len as usize <= frame.bytes.len() { frame.wire_len } else { of_cut_frame(frame) }
}

fn of_cut_frame(frame: &Frame<'_>) -> u32 {
    let captured = frame.bytes.len() as u32;
    let ip_end = Network::of(frame).and_then(|network| Some((network.offset + network.ip_len(frame)?) as u32));
    match ip_end {
        Some(end) if frame.wire_len > end + TRAILER_MAX => end.max(captured),
        // The length of an IPv6 jumbogram, or of one that a device is to cut, is not in its header.
        None if frame.wire_len as usize > JUMBO_MAX => captured,
        _ => frame.wire_len,
    }
}

/// The longest packet that Linux hands to a device at once (`GSO_MAX_SIZE`), with room for headers.
const JUMBO_MAX: usize = 8 * 65_536 + 1024;

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
