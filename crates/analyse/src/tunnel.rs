//! TCP segments that lie in a tunnel: a coalescer in front of its end does not see them.
//!
//! | tunnel | how it is known |
//! | --- | --- |
//! | `mpls` | ethertypes 0x8847 and 0x8848 (RFC 3032), IP behind the labels |
//! | `pppoe` | ethertype 0x8864 (RFC 2516) |
//! | `ipip` | IP protocols 4 and 41 (RFC 2003, RFC 4213) |
//! | `gre` | IP protocol 47 (RFC 2784, RFC 2890) |
//! | `vxlan` | UDP to port 4789 (RFC 7348) |
//! | `geneve` | UDP to port 6081 (RFC 8926) |
//!
//! Up to four tunnels within one another are looked into, and of a fragmented outer packet the first fragment. The
//! number of a virtual network (VNI, GRE key, label) does not tell flows apart, as it would in a device: two
//! networks with the same addresses and ports at a time look like one flow.

use baton_coalesce::{Frame, Ip, Link, Network, Tags};
use baton_wire::eth::ether_type;
use baton_wire::packet::PROTOCOL_TCP;

/// Tunnels within one another that are looked into.
const DEPTH: usize = 4;
/// Labels of MPLS that are passed.
const LABELS: usize = 16;

/// The kinds of tunnels, by name.
pub const KINDS: [&str; 6] = ["mpls", "pppoe", "ipip", "gre", "vxlan", "geneve"];

const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE: u16 = 0x8864;
/// Ethernet within GRE or Geneve.
const BRIDGED: u16 = 0x6558;

const UDP: u8 = 17;
const GRE: u8 = 47;
const IPV4_WITHIN: u8 = 4;
const IPV6_WITHIN: u8 = 41;

const ETHERNET_HEADER: usize = 14;
const UDP_HEADER: usize = 8;
const VXLAN_HEADER: usize = 8;
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;

/// An ethertype, and where its packet begins in the frame.
type Packet = (u16, usize);

/// False for most packets that are no tunnel's: each frame that is not TCP is asked, and in many captures most are of
/// QUIC.
#[inline]
pub fn may_begin(frame: &Frame<'_>) -> bool {
    let Ok(ip) = Ip::of(frame) else { return true };
    match ip.protocol() {
        UDP => {
            let port = ip.payload_offset().and_then(|at| Bytes(frame.bytes).half(at + 2));
            matches!(port, Some(VXLAN_PORT | GENEVE_PORT))
        }
        protocol => matches!(protocol, GRE | IPV4_WITHIN | IPV6_WITHIN),
    }
}

/// The tunnel that a frame's TCP segment lies in, the outermost of several, and the frame as a coalescer behind the
/// end of all has to read it.
pub fn around_tcp(frame: Frame<'_>) -> Option<(&'static str, Frame<'_>)> {
    let (outermost, mut inner) = enter(frame)?;
    for _ in 1..DEPTH {
        if is_tcp(&inner) {
            break;
        }
        inner = enter(inner)?.1;
    }
    is_tcp(&inner).then_some((outermost, inner))
}

fn is_tcp(frame: &Frame<'_>) -> bool {
    Ip::of(frame).is_ok_and(|ip| ip.protocol() == PROTOCOL_TCP && ip.payload_offset().is_some())
}

/// The tunnel that a frame's packet is of, and the frame as it is behind its end.
fn enter(frame: Frame<'_>) -> Option<(&'static str, Frame<'_>)> {
    let network = Network::of(&frame)?;
    let bytes = Bytes(frame.bytes);
    let (tunnel, (ether_type, at)) = match network.ether_type {
        ether_type::IPV4 | ether_type::IPV6 => in_ip(&frame, network)?,
        MPLS | MPLS_MULTICAST => ("mpls", behind_labels(bytes, network.offset)?),
        PPPOE => ("pppoe", of_ppp(bytes, network.offset)?),
        _ => return None,
    };
    let link = Link::Read { ether_type, offset: u16::try_from(at).ok()?, tags: Tags::NONE };
    Some((tunnel, Frame { link, ..frame }))
}

fn in_ip(frame: &Frame<'_>, network: Network) -> Option<(&'static str, Packet)> {
    let ip = Ip::read(frame, network).ok()?;
    let at = ip.payload_offset()?;
    let bytes = Bytes(frame.bytes);
    match ip.protocol() {
        UDP => match bytes.half(at + 2)? {
            VXLAN_PORT => Some(("vxlan", of_type(bytes, BRIDGED, at + UDP_HEADER + VXLAN_HEADER)?)),
            GENEVE_PORT => Some(("geneve", of_geneve(bytes, at + UDP_HEADER)?)),
            _ => None,
        },
        GRE => Some(("gre", of_gre(bytes, at)?)),
        IPV4_WITHIN => Some(("ipip", (ether_type::IPV4, at))),
        IPV6_WITHIN => Some(("ipip", (ether_type::IPV6, at))),
        _ => None,
    }
}

fn behind_labels(bytes: Bytes<'_>, at: usize) -> Option<Packet> {
    // The last label has the lowest bit of its third byte set.
    let mut labels = (at..).step_by(4).take(LABELS);
    let last = labels.find(|label| bytes.byte(label + 2).is_some_and(|byte| byte & 1 == 1))?;
    // No label says what follows.
    match bytes.byte(last + 4)? >> 4 {
        4 => Some((ether_type::IPV4, last + 4)),
        6 => Some((ether_type::IPV6, last + 4)),
        _ => None,
    }
}

fn of_ppp(bytes: Bytes<'_>, at: usize) -> Option<Packet> {
    match bytes.half(at + 6)? {
        0x0021 => Some((ether_type::IPV4, at + 8)),
        0x0057 => Some((ether_type::IPV6, at + 8)),
        _ => None,
    }
}

fn of_gre(bytes: Bytes<'_>, at: usize) -> Option<Packet> {
    let flags = bytes.half(at)?;
    // Version 1 carries PPP (RFC 2637), and a routing field is of no known length (RFC 1701).
    if flags & 0x4007 != 0 {
        return None;
    }
    // Checksum, key and sequence number have four bytes each.
    let options = [0x8000, 0x2000, 0x1000].iter().filter(|bit| flags & **bit != 0).count();
    of_type(bytes, bytes.half(at + 2)?, at + 4 + 4 * options)
}

fn of_geneve(bytes: Bytes<'_>, at: usize) -> Option<Packet> {
    let options = 4 * usize::from(bytes.byte(at)? & 0x3f);
    of_type(bytes, bytes.half(at + 2)?, at + 8 + options)
}

/// The packet in what a tunnel says is of this type.
fn of_type(bytes: Bytes<'_>, kind: u16, at: usize) -> Option<Packet> {
    match kind {
        BRIDGED => Some((bytes.half(at + 12)?, at + ETHERNET_HEADER)),
        _ => Some((kind, at)),
    }
}

/// Bytes of a frame, as far as it was captured.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn half(self, at: usize) -> Option<u16> {
        self.0.get(at..)?.first_chunk().map(|&half| u16::from_be_bytes(half))
    }
}
