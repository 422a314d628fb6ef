//! TCP segments that lie in a tunnel: a coalescer in front of its end does not see them.
//!
//! | tunnel | how it is known |
//! | --- | --- |
//! | `mpls` | ethertypes 0x8847 and 0x8848 (RFC 3032) |
//! | `pppoe` | ethertype 0x8864 (RFC 2516) |
//! | `ipip` | IP protocols 4 and 41 (RFC 2003, RFC 4213) |
//! | `gre` | IP protocol 47 (RFC 2784, RFC 2890) |
//! | `vxlan` | UDP to port 4789 (RFC 7348) |
//! | `geneve` | UDP to port 6081 (RFC 8926) |
//!
//! One tunnel is looked into, not one within another.

use crate::link::network;
use crate::read::Frame;
use baton_wire::eth::ether_type;

const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE: u16 = 0x8864;
/// Ethernet within GRE or Geneve.
const BRIDGED: u16 = 0x6558;
const UDP_HEADER: usize = 8;
const ETHERNET_HEADER: usize = 14;

/// Bytes, read from a place on.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn from(self, at: usize) -> Option<Bytes<'a>> {
        self.0.get(at..).map(Bytes)
    }

    fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn half(self, at: usize) -> Option<u16> {
        self.0.get(at..)?.first_chunk().map(|&half| u16::from_be_bytes(half))
    }
}

/// The tunnel that a frame's TCP segment lies in.
#[cold]
pub fn around_tcp(frame: &Frame<'_>) -> Option<&'static str> {
    let (kind, at) = network(frame)?;
    let packet = Bytes(frame.data).from(at)?;
    let (name, inner) = match kind {
        Some(MPLS | MPLS_MULTICAST) => ("mpls", behind_labels(packet)?),
        Some(PPPOE) => ("pppoe", of_ppp(packet)?),
        Some(ether_type::IPV4 | ether_type::IPV6) | None => in_ip(packet)?,
        Some(_) => return None,
    };
    is_tcp(inner).then_some(name)
}

fn behind_labels(mut packet: Bytes<'_>) -> Option<Bytes<'_>> {
    // The last label has the lowest bit of its third byte set.
    while packet.byte(2)? & 1 == 0 {
        packet = packet.from(4)?;
    }
    packet.from(4)
}

fn of_ppp(packet: Bytes<'_>) -> Option<Bytes<'_>> {
    matches!(packet.half(6)?, 0x0021 | 0x0057).then(|| packet.from(8))?
}

fn in_ip(packet: Bytes<'_>) -> Option<(&'static str, Bytes<'_>)> {
    let (protocol, payload) = ip(packet)?;
    match protocol {
        4 | 41 => Some(("ipip", payload)),
        47 => {
            let flags = payload.half(0)?;
            // Checksum, key and sequence number have four bytes each.
            let options = [0x8000, 0x2000, 0x1000].iter().filter(|bit| flags & **bit != 0).count();
            Some(("gre", of_type(payload.half(2)?, payload.from(4 + 4 * options)?)?))
        }
        17 => match payload.half(2)? {
            4789 => Some(("vxlan", of_type(BRIDGED, payload.from(UDP_HEADER + 8)?)?)),
            6081 => {
                let header = payload.from(UDP_HEADER)?;
                let options = 4 * usize::from(header.byte(0)? & 0x3f);
                Some(("geneve", of_type(header.half(2)?, header.from(8 + options)?)?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The IP packet in what a tunnel says is of this type.
fn of_type(kind: u16, bytes: Bytes<'_>) -> Option<Bytes<'_>> {
    match kind {
        ether_type::IPV4 | ether_type::IPV6 => Some(bytes),
        BRIDGED => bytes.from(ETHERNET_HEADER),
        _ => None,
    }
}

/// Protocol and payload of an IP packet that is no later fragment.
fn ip(packet: Bytes<'_>) -> Option<(u8, Bytes<'_>)> {
    let first = packet.byte(0)?;
    match first >> 4 {
        4 if packet.half(6)? & 0x1fff == 0 => Some((packet.byte(9)?, packet.from(4 * usize::from(first & 15))?)),
        6 => Some((packet.byte(6)?, packet.from(40)?)),
        _ => None,
    }
}

fn is_tcp(packet: Bytes<'_>) -> bool {
    ip(packet).is_some_and(|(protocol, _)| protocol == 6)
}
