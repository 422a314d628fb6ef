//! ARP for IPv4 over Ethernet (RFC 826): 28 bytes, view and builder.
//!
//! ```text
//!   htype 2 | ptype 2 | hlen 1 | plen 1 | operation 2 | sender mac 6, ip 4 | target mac 6, ip 4
//! ```

use crate::bytes::{be16, be32, bytes4, bytes6};
use crate::error::{BuildError, ParseError};
use crate::eth::MacAddr;
use core::net::Ipv4Addr;

/// Length of a packet in bytes.
pub const LEN: usize = 28;

/// The first eight bytes but for the operation: Ethernet, IPv4, lengths 6 and 4.
const FORMAT: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// The purpose of an ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Who has the target's IP address?
    Request,
    /// The sender has its IP address.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Ethernet address of the sender.
    pub sender_mac: MacAddr,
    /// IPv4 address of the sender; 0.0.0.0 in a probe (RFC 5227 §1.1).
    pub sender_ip: Ipv4Addr,
    /// Ethernet address of the target; of no meaning in a request.
    pub target_mac: MacAddr,
    /// IPv4 address of the target.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads the packet at the start of `data`; what follows is padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::BadFormat`] for other hardware or
    /// protocol than Ethernet and IPv4, or another operation.
    pub fn parse(data: &[u8]) -> Result<Packet, ParseError> {
        let packet = data.first_chunk::<LEN>().ok_or(ParseError::Truncated)?;
        if packet[..6] != FORMAT {
            return Err(ParseError::BadFormat);
        }
        let operation = match be16(packet, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(ParseError::BadFormat),
        };
        Ok(Packet {
            operation,
            sender_mac: MacAddr(bytes6(packet, 8)),
            sender_ip: Ipv4Addr::from_bits(be32(packet, 14)),
            target_mac: MacAddr(bytes6(packet, 18)),
            target_ip: Ipv4Addr::from(bytes4(packet, 24)),
        })
    }

    /// Writes the packet to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, BuildError> {
        let out = out.first_chunk_mut::<LEN>().ok_or(BuildError::BufferTooSmall)?;
        let operation = match self.operation {
            Operation::Request => 1u16,
            Operation::Reply => 2,
        };
        out[..6].copy_from_slice(&FORMAT);
        out[6..8].copy_from_slice(&operation.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender_ip.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..28].copy_from_slice(&self.target_ip.octets());
        Ok(LEN)
    }
}
