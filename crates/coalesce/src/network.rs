//! Where the packet of a frame begins, behind its link header and VLAN tags.

use crate::flow::Tags;
use crate::frame::{Frame, Link};
use baton_wire::eth::{VlanTag, ether_type};

/// The packet in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// The ethertype in front of it.
    pub ether_type: u16,
    /// Where it begins, in bytes from the start of the frame, and not past its end.
    pub offset: usize,
    /// The VLAN tags before it.
    pub tags: Tags,
}

impl Network {
    /// Finds the packet of a frame; `None` if the frame ends before it, has more tags than [`Tags::MAX`], or
    /// should begin with an IP header and does not.
    #[inline]
    pub fn of(frame: &Frame<'_>) -> Option<Network> {
        let (ether_type, offset, tags) = match frame.link {
            Link::Ethernet => {
                let header = frame.bytes.first_chunk::<14>()?;
                (u16::from_be_bytes([header[12], header[13]]), 14, Tags::NONE)
            }
            Link::Ip => match frame.bytes.first()? >> 4 {
                4 => (ether_type::IPV4, 0, Tags::NONE),
                6 => (ether_type::IPV6, 0, Tags::NONE),
                _ => return None,
            },
            Link::Read { ether_type, offset, tags } => (ether_type, usize::from(offset), tags),
        };
        (offset <= frame.bytes.len()).then_some(())?;
        Network { ether_type, offset, tags }.behind_tags(frame.bytes)
    }

    #[inline]
    fn behind_tags(mut self, bytes: &[u8]) -> Option<Network> {
        while VlanTag::is_tpid(self.ether_type) {
            let &[tci_0, tci_1, type_0, type_1] = bytes.get(self.offset..)?.first_chunk::<4>()?;
            let tag = VlanTag { tpid: self.ether_type, tci: u16::from_be_bytes([tci_0, tci_1]) };
            let ether_type = u16::from_be_bytes([type_0, type_1]);
            self = Network { ether_type, offset: self.offset + 4, tags: self.tags.with(tag)? };
        }
        Some(self)
    }
}
