//! IPv4 (RFC 791): header view and builder, and the walk over its options.
//!
//! TCP segments go through [`crate::packet`] and [`crate::template`]; this is for
//! ICMP and whatever else an endpoint answers.

use crate::bytes::{be16, be32};
use crate::checksum;
use crate::error::{BuildError, ParseError};
use core::net::Ipv4Addr;

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;

/// Most bytes of options.
pub const MAX_OPTIONS: usize = 40;

/// An IPv4 header, but for lengths and checksum, which follow from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Type of service, ECN included.
    pub traffic_class: u8,
    /// Identification.
    pub id: u16,
    /// "Don't fragment".
    pub dont_fragment: bool,
    /// "More fragments".
    pub more_fragments: bool,
    /// Offset of this fragment in bytes, a multiple of 8 below 65536.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

/// A packet, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The fields of the header but for its options.
    pub header: Header,
    /// Option bytes, padding included.
    pub options: &'a [u8],
    /// Payload, without padding of the frame.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Takes apart the packet at the start of `data`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `data` ends before the packet,
    /// [`ParseError::BadFormat`] for another version, [`ParseError::BadLength`]
    /// if the lengths contradict each other, [`ParseError::BadChecksum`].
    pub fn parse(data: &'a [u8]) -> Result<Datagram<'a>, ParseError> {
        let (datagram, whole) = Datagram::parse_cut(data)?;
        let header_len = HEADER_LEN + datagram.options.len();
        if !whole {
            return Err(ParseError::Truncated);
        }
        if checksum::rfc1071(&data[..header_len]) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        Ok(datagram)
    }

    /// The same for a packet whose payload may be cut short and whose checksum
    /// may have changed on the way, as in the quotation of an ICMP error. Says
    /// too whether the payload is whole.
    ///
    /// # Errors
    /// As for [`Datagram::parse`], without the checksum.
    pub fn parse_cut(data: &'a [u8]) -> Result<(Datagram<'a>, bool), ParseError> {
        let fixed = data.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        if fixed[0] >> 4 != 4 {
            return Err(ParseError::BadFormat);
        }
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let total = usize::from(be16(fixed, 2));
        if header_len < HEADER_LEN || total < header_len {
            return Err(ParseError::BadLength);
        }
        let options = data.get(HEADER_LEN..header_len).ok_or(ParseError::Truncated)?;
        let payload = &data[header_len..total.min(data.len())];
        let fragment = be16(fixed, 6);
        let header = Header {
            traffic_class: fixed[1],
            id: be16(fixed, 4),
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: fragment << 3,
            ttl: fixed[8],
            protocol: fixed[9],
            src: Ipv4Addr::from_bits(be32(fixed, 12)),
            dst: Ipv4Addr::from_bits(be32(fixed, 16)),
        };
        Ok((Datagram { header, options, payload }, total <= data.len()))
    }

    /// Walks the options.
    pub fn options(&self) -> OptionsIter<'a> {
        OptionsIter { rest: self.options }
    }
}

impl Header {
    /// The header of a packet that is no fragment and may not become one, so that its
    /// identification means nothing (an atomic datagram, RFC 6864 §4).
    pub fn atomic(ttl: u8, protocol: u8, src: Ipv4Addr, dst: Ipv4Addr) -> Header {
        Header {
            traffic_class: 0,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl,
            protocol,
            src,
            dst,
        }
    }

    /// Writes the header with `options`, padded with zeros to whole words, to the
    /// start of `out`, with lengths and checksum for a payload of `payload_len`
    /// bytes, and returns the header's length.
    ///
    /// # Errors
    /// [`BuildError::TooLong`] for more than [`MAX_OPTIONS`] bytes of options or
    /// more than 65535 bytes in all, [`BuildError::BufferTooSmall`].
    pub fn write(&self, options: &[u8], payload_len: usize, out: &mut [u8]) -> Result<usize, BuildError> {
        if options.len() > MAX_OPTIONS {
            return Err(BuildError::TooLong);
        }
        let len = HEADER_LEN + options.len().next_multiple_of(4);
        let total = payload_len.checked_add(len).and_then(|total| u16::try_from(total).ok());
        let total = total.ok_or(BuildError::TooLong)?;
        let out = out.get_mut(..len).ok_or(BuildError::BufferTooSmall)?;
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        out[0] = 0x40 | (len / 4) as u8;
        out[1] = self.traffic_class;
        out[2..4].copy_from_slice(&total.to_be_bytes());
        out[4..6].copy_from_slice(&self.id.to_be_bytes());
        out[6..8].copy_from_slice(&(flags | self.fragment_offset >> 3).to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..20].copy_from_slice(&self.dst.octets());
        let (kept, padding) = out[HEADER_LEN..].split_at_mut(options.len());
        kept.copy_from_slice(options);
        padding.fill(0);
        let field = !checksum::rfc1071(out);
        out[10..12].copy_from_slice(&field.to_be_bytes());
        Ok(len)
    }
}

/// One option of an IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Option<'a> {
    /// Its type byte: copied flag, class and number (RFC 791 §3.1).
    pub kind: u8,
    /// The bytes after its length byte.
    pub data: &'a [u8],
}

/// Iterates over the options, padding left out; [`ParseError::BadLength`] is the
/// last item if the list breaks off.
#[derive(Clone, Debug)]
pub struct OptionsIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for OptionsIter<'a> {
    type Item = Result<Ipv4Option<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [1, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let rest = core::mem::take(&mut self.rest);
        let (&kind, after) = rest.split_first()?;
        if kind == 0 {
            return None;
        }
        let len = usize::from(after.first().copied().unwrap_or(0));
        let Some(data) = rest.get(2..len) else { return Some(Err(ParseError::BadLength)) };
        self.rest = &rest[len..];
        Some(Ok(Ipv4Option { kind, data }))
    }
}

impl core::iter::FusedIterator for OptionsIter<'_> {}
