//! A connection's one direction, as the key under which a run is kept.

use baton_wire::eth::VlanTag;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Up to four VLAN tags in one number, so that they compare in one step: the
/// innermost in the lowest 32 bits, each its TPID and its TCI. A TPID is not 0, so
/// neither is a tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Tags(u128);

impl Tags {
    /// No tag.
    pub const NONE: Tags = Tags(0);

    /// The most tags that are kept.
    pub const MAX: usize = 4;

    /// These tags with one more inside them; `None` if there are four already.
    #[inline]
    pub const fn with(self, tag: VlanTag) -> Option<Tags> {
        if self.0 >> 96 != 0 {
            return None;
        }
        Some(Tags(self.0 << 32 | (tag.tpid as u128) << 16 | tag.tci as u128))
    }

    /// The tags, the outermost first.
    pub fn iter(self) -> impl Iterator<Item = VlanTag> {
        let parts = [96, 64, 32, 0].map(|at| (self.0 >> at) as u32);
        let tag = |part: u32| VlanTag { tpid: (part >> 16) as u16, tci: part as u16 };
        parts.into_iter().filter(|part| *part != 0).map(tag)
    }
}

impl core::fmt::Debug for Tags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One direction of a connection.
///
/// Unlike an [`Addr`](baton_wire::addr::Addr), it tells an IPv4 packet from an IPv6
/// packet between IPv4-mapped addresses: such packets are odd, but no reason for a
/// bypass.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Flow {
    src: u128,
    dst: u128,
    tags: Tags,
    ports: u32,
    v6: bool,
}

impl Flow {
    /// An IPv4 flow, from the bytes of its addresses in network order; `ports` has the source
    /// port in its upper half.
    #[inline]
    pub const fn v4(src: [u8; 4], dst: [u8; 4], ports: u32, tags: Tags) -> Flow {
        let (src, dst) = (u32::from_be_bytes(src) as u128, u32::from_be_bytes(dst) as u128);
        Flow { src, dst, tags, ports, v6: false }
    }

    /// An IPv6 flow, also from bytes in network order.
    #[inline]
    pub const fn v6(src: [u8; 16], dst: [u8; 16], ports: u32, tags: Tags) -> Flow {
        let (src, dst) = (u128::from_be_bytes(src), u128::from_be_bytes(dst));
        Flow { src, dst, tags, ports, v6: true }
    }

    #[inline]
    pub(crate) const fn with_ports(self, ports: u32) -> Flow {
        Flow { ports, ..self }
    }

    /// True for IPv6.
    #[inline]
    pub const fn is_v6(&self) -> bool {
        self.v6
    }

    /// Source address.
    pub const fn src(&self) -> IpAddr {
        self.ip(self.src)
    }

    /// Destination address.
    pub const fn dst(&self) -> IpAddr {
        self.ip(self.dst)
    }

    /// Source port.
    #[inline]
    pub const fn src_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// Destination port.
    #[inline]
    pub const fn dst_port(&self) -> u16 {
        self.ports as u16
    }

    /// VLAN tags.
    #[inline]
    pub const fn tags(&self) -> Tags {
        self.tags
    }

    /// The other direction of the same connection.
    pub const fn reversed(&self) -> Flow {
        Flow { src: self.dst, dst: self.src, ports: self.ports.rotate_left(16), ..*self }
    }

    const fn ip(&self, bits: u128) -> IpAddr {
        if self.v6 { IpAddr::V6(Ipv6Addr::from_bits(bits)) } else { IpAddr::V4(Ipv4Addr::from_bits(bits as u32)) }
    }

    /// A hash, well mixed in its upper bits. Only speed depends on it, and the work that a
    /// collision makes is bounded by the size of the cache.
    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        const fn fold(bits: u128) -> u64 {
            (bits >> 64) as u64 ^ bits as u64
        }
        let addresses = fold(self.src).rotate_left(32) ^ fold(self.dst);
        let rest = (self.ports as u64) << 32 ^ fold(self.tags.0);
        let mixed = (addresses ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ mixed >> 32 ^ rest).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
    }
}
