//! IPv6 (RFC 8200): header view and builder, and the bounded walk over extension
//! headers.

use crate::bytes::{be16, be32, bytes16};
use crate::error::{BuildError, ParseError};
use core::net::Ipv6Addr;

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;

/// Most extension headers that a walk passes.
pub const MAX_EXTENSIONS: usize = 8;

/// The fixed header, but for the payload length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Traffic class, ECN included.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Protocol of the payload or of the first extension header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

/// A packet, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The fixed header.
    pub header: Header,
    /// The facts found in the extension headers.
    pub chain: Chain,
    /// The extension headers' bytes.
    pub extensions: &'a [u8],
    /// The bytes after them, of protocol [`Chain::protocol`], without padding of the
    /// frame.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Takes apart the packet at the start of `data`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `data` ends before the packet or an extension
    /// header passes its end, [`ParseError::BadFormat`] for another version,
    /// [`ParseError::TooManyExtensions`].
    pub fn parse(data: &'a [u8]) -> Result<Datagram<'a>, ParseError> {
        match Datagram::parse_cut(data)? {
            (datagram, true) => Ok(datagram),
            (_, false) => Err(ParseError::Truncated),
        }
    }

    /// The same for a packet whose payload may be cut short, as in the quotation
    /// of an ICMP error. Says too whether the payload is whole.
    ///
    /// # Errors
    /// As for [`Datagram::parse`].
    pub fn parse_cut(data: &'a [u8]) -> Result<(Datagram<'a>, bool), ParseError> {
        let (fixed, rest) = data.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let first = be32(fixed, 0);
        if first >> 28 != 6 {
            return Err(ParseError::BadFormat);
        }
        let header = Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            next_header: fixed[6],
            hop_limit: fixed[7],
            src: Ipv6Addr::from(bytes16(fixed, 8)),
            dst: Ipv6Addr::from(bytes16(fixed, 24)),
        };
        let payload_len = usize::from(be16(fixed, 4));
        let payload = &rest[..payload_len.min(rest.len())];
        let chain = walk_extensions(header.next_header, payload)?;
        let (extensions, payload) = payload.split_at(chain.len);
        Ok((Datagram { header, chain, extensions, payload }, payload_len <= rest.len()))
    }
}

impl Header {
    /// Writes the header of a packet with `payload_len` bytes after it, extension
    /// headers included, to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BuildError::TooLong`] for more than 65535 bytes of payload,
    /// [`BuildError::BufferTooSmall`].
    pub fn write(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, BuildError> {
        let payload_len = u16::try_from(payload_len).map_err(|_| BuildError::TooLong)?;
        let out = out.first_chunk_mut::<HEADER_LEN>().ok_or(BuildError::BufferTooSmall)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
        Ok(HEADER_LEN)
    }
}

/// The solicited-node multicast address of an address (RFC 4291 §2.7.1).
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, (b as u16) << 8 | c as u16)
}

/// Next-header values of the extension headers that a walk passes or stops at.
pub mod next_header {
    /// Hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing (RFC 8200 §4.4).
    pub const ROUTING: u8 = 43;
    /// Fragment (RFC 8200 §4.5).
    pub const FRAGMENT: u8 = 44;
    /// Destination options (RFC 8200 §4.6).
    pub const DESTINATION: u8 = 60;
    /// Mobility (RFC 6275 §6.1).
    pub const MOBILITY: u8 = 135;
    /// Host identity (RFC 7401 §5.1).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533 §5.1).
    pub const SHIM6: u8 = 140;
}

/// A fragment header's facts (RFC 8200 §4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentInfo {
    /// Offset of this fragment in the original's fragmentable part, in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification of the original packet.
    pub id: u32,
}

/// Result of the walk over extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Protocol of what follows the last header walked. After a fragment header
    /// with an offset other than 0, what follows is the middle of something, and
    /// this is the header's word for what it is the middle of.
    pub protocol: u8,
    /// Length of all extension headers in bytes.
    pub len: usize,
    /// Number of extension headers.
    pub count: usize,
    /// The fragment header, if there is one.
    pub fragment: Option<FragmentInfo>,
}

/// True for a header that the walk passes.
pub const fn is_extension(protocol: u8) -> bool {
    use next_header::{DESTINATION, FRAGMENT, HIP, HOP_BY_HOP, MOBILITY, ROUTING, SHIM6};
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | MOBILITY | HIP | SHIM6)
}

/// Walks the extension headers at the start of `data`, the payload of an IPv6
/// header whose next-header field is `protocol`.
///
/// Authentication and encryption headers end the walk: what they protect is not
/// ours to read.
///
/// # Errors
/// [`ParseError::Truncated`] if a header passes the end of `data`,
/// [`ParseError::TooManyExtensions`] if there are more than [`MAX_EXTENSIONS`].
pub fn walk_extensions(mut protocol: u8, data: &[u8]) -> Result<Chain, ParseError> {
    let (mut len, mut count, mut fragment) = (0, 0, None);
    while is_extension(protocol) {
        if count == MAX_EXTENSIONS {
            return Err(ParseError::TooManyExtensions);
        }
        let rest = data.get(len..).ok_or(ParseError::Truncated)?;
        let header: &[u8; 8] = rest.first_chunk().ok_or(ParseError::Truncated)?;
        let header_len = if protocol == next_header::FRAGMENT { 8 } else { 8 + 8 * usize::from(header[1]) };
        if rest.len() < header_len {
            return Err(ParseError::Truncated);
        }
        len += header_len;
        count += 1;
        if protocol == next_header::FRAGMENT {
            let field = be16(header, 2);
            fragment = Some(FragmentInfo { offset: field & !7, more: field & 1 != 0, id: be32(header, 4) });
            if field & !7 != 0 {
                protocol = header[0];
                break;
            }
        }
        protocol = header[0];
    }
    Ok(Chain { protocol, len, count, fragment })
}
