//! Our end of link headers.

use super::{Header, Neighbours, ethertype};

/// Our end of every link header.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct LinkAddress {
    pub(in super::super) mac: [u8; 6],
    pub(in super::super) vlan: Option<u16>,
}

impl LinkAddress {
    /// A header from us to `destination`, and its length.
    pub(in super::super) fn header_to(self, destination: [u8; 6], ethertype: u16) -> ([u8; 18], usize) {
        let mut bytes = [0; 18];
        bytes[..6].copy_from_slice(&destination);
        bytes[6..12].copy_from_slice(&self.mac);
        let Some(vlan) = self.vlan else {
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
            return (bytes, 14);
        };
        bytes[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
        bytes[14..16].copy_from_slice(&(vlan & 0x0fff).to_be_bytes());
        bytes[16..18].copy_from_slice(&ethertype.to_be_bytes());
        (bytes, 18)
    }
}

impl Neighbours {
    /// Changes our link address.
    pub(in super::super) fn set_own(&mut self, own: LinkAddress) {
        self.own = own;
        for (header, entry) in self.headers.iter_mut().zip(&self.entries) {
            if let Some(entry) = entry.as_ref().filter(|_| header.len != Header::UNRESOLVED) {
                let (bytes, len) = own.header_to(entry.mac, ethertype(entry.addr));
                *header = Header { bytes, len: len as u8 };
            }
        }
    }
}
