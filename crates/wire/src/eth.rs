//! Ethernet II, with up to two VLAN tags (IEEE 802.1Q, 802.1ad).
//!
//! ```text
//!   destination 6 | source 6 | (TPID 2 | TCI 2) x 0..2 | ethertype 2 | payload
//! ```

use crate::bytes::{be16, bytes6};
use crate::error::{BuildError, ParseError};

/// Length of an untagged header in bytes.
pub const HEADER_LEN: usize = 14;

/// Length of a header with two tags, in bytes.
pub const MAX_HEADER_LEN: usize = HEADER_LEN + 4 * VlanTags::MAX;

/// Ethertypes (IANA, IEEE 802 numbers).
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// Customer VLAN tag (802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// Service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// A VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct VlanTag {
    /// Tag protocol identifier: [`ether_type::VLAN`] or [`ether_type::SERVICE_VLAN`].
    pub tpid: u16,
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// True for an ethertype that announces a tag.
    #[inline]
    pub const fn is_tpid(ether_type: u16) -> bool {
        matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN)
    }

    /// The VLAN identifier, 12 bits.
    #[inline]
    pub const fn vid(self) -> u16 {
        self.tci & 0xfff
    }
}

/// Up to two VLAN tags, the outer one first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct VlanTags {
    tags: [VlanTag; VlanTags::MAX],
    len: u8,
}

impl VlanTags {
    /// The most tags that a frame may have.
    pub const MAX: usize = 2;

    /// No tag.
    pub const NONE: VlanTags = VlanTags { tags: [VlanTag { tpid: 0, tci: 0 }; VlanTags::MAX], len: 0 };

    /// Adds an inner tag; false if there are two already.
    pub fn push(&mut self, tag: VlanTag) -> bool {
        match self.tags.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = tag;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The tags, the outer one first.
    #[inline]
    pub fn as_slice(&self) -> &[VlanTag] {
        &self.tags[..usize::from(self.len)]
    }

    /// Number of tags.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// True for a group address, broadcast included.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The group address of an IPv6 multicast address (RFC 2464 §7).
    pub const fn ipv6_multicast(group: core::net::Ipv6Addr) -> MacAddr {
        let [.., a, b, c, d] = group.octets();
        MacAddr([0x33, 0x33, a, b, c, d])
    }
}

impl core::fmt::Display for MacAddr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl core::fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// An Ethernet II header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// VLAN tags.
    pub vlan: VlanTags,
    /// Ethertype of the payload.
    pub ether_type: u16,
}

impl Header {
    /// Reads the header at the start of `frame` and returns what follows it. An
    /// ethertype below 0x600 is an IEEE 802.3 length, which is the caller's to
    /// notice; a third tag is an unknown ethertype.
    ///
    /// # Errors
    /// [`ParseError::Truncated`].
    pub fn parse(frame: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (header, mut rest) = frame.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let mut vlan = VlanTags::NONE;
        let mut ether_type = be16(header, 12);
        while VlanTag::is_tpid(ether_type) && vlan.len() < VlanTags::MAX {
            let (tag, after) = rest.split_first_chunk::<4>().ok_or(ParseError::Truncated)?;
            vlan.push(VlanTag { tpid: ether_type, tci: be16(tag, 0) });
            ether_type = be16(tag, 2);
            rest = after;
        }
        let (dst, src) = (MacAddr(bytes6(header, 0)), MacAddr(bytes6(header, 6)));
        Ok((Header { dst, src, vlan, ether_type }, rest))
    }

    /// Length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        HEADER_LEN + 4 * self.vlan.len()
    }

    /// Never true: a header has 14 bytes at least.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, BuildError> {
        let len = self.len();
        let out = out.get_mut(..len).ok_or(BuildError::BufferTooSmall)?;
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        let (tags, last) = out[12..].split_at_mut(4 * self.vlan.len());
        for (place, tag) in tags.chunks_exact_mut(4).zip(self.vlan.as_slice()) {
            place[..2].copy_from_slice(&tag.tpid.to_be_bytes());
            place[2..].copy_from_slice(&tag.tci.to_be_bytes());
        }
        last.copy_from_slice(&self.ether_type.to_be_bytes());
        Ok(len)
    }
}
