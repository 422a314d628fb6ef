//! ICMPv6 (RFC 4443) with neighbour discovery (RFC 4861): view and builder.
//!
//! ```text
//!   type 1 | code 1 | checksum 2, pseudo header included | four bytes by type | data
//! ```

use crate::bytes::{be16, be32, bytes4, bytes6, bytes16};
use crate::checksum;
use crate::error::{BuildError, ParseError};
use crate::eth::MacAddr;
use crate::icmpv4::write_message;
use core::net::Ipv6Addr;

/// Next-header value of ICMPv6.
pub const PROTOCOL: u8 = 58;

/// Length of what comes before the data, in bytes.
pub const HEADER_LEN: usize = 8;

/// Types of the neighbour discovery messages (RFC 4861 §4.3, §4.4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// Kinds of the options with a link-layer address (RFC 4861 §4.6.1).
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// A message. The `quote` of an error is the start of the packet that it is about:
/// see [`crate::quote::QuotedTcp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Asks for an echo.
    EchoRequest {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
        /// The bytes that the reply has to repeat.
        data: &'a [u8],
    },
    /// Identifier, sequence number and data.
    EchoReply {
        /// Identifier of the request.
        id: u16,
        /// Sequence number of the request.
        seq: u16,
        /// Data of the request.
        data: &'a [u8],
    },
    /// Destination unreachable.
    Unreachable {
        /// Why (RFC 4443 §3.1): 4 is no such port.
        code: u8,
        /// Start of the packet.
        quote: &'a [u8],
    },
    /// Packet too big.
    PacketTooBig {
        /// MTU of the next hop in bytes.
        mtu: u32,
        /// Start of the packet.
        quote: &'a [u8],
    },
    /// Time exceeded.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
        /// Start of the packet.
        quote: &'a [u8],
    },
    /// A field of a header is wrong.
    ParameterProblem {
        /// The kind of problem (RFC 4443 §3.4).
        code: u8,
        /// Offset of the field in bytes.
        pointer: u32,
        /// Start of the packet.
        quote: &'a [u8],
    },
    /// Asks for a neighbour's link-layer address. Valid only with a hop limit of
    /// 255 (RFC 4861 §7.1.1), which is the caller's to check.
    NeighbourSolicitation {
        /// The address asked about.
        target: Ipv6Addr,
        /// Link-layer address of the sender.
        source_link: Option<MacAddr>,
    },
    /// Tells a link-layer address. Valid only with a hop limit of 255 (RFC 4861
    /// §7.1.2), which is the caller's to check.
    NeighbourAdvertisement {
        /// The address that is announced.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It is to replace what is known.
        overriding: bool,
        /// The link-layer address.
        target_link: Option<MacAddr>,
    },
    /// Any other.
    Unknown {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
        /// The bytes after the first eight.
        data: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Reads a message: all of an IPv6 packet's payload after its extension headers.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], [`ParseError::BadChecksum`]; of neighbour
    /// discovery [`ParseError::BadLength`] for an option of impossible length and
    /// [`ParseError::BadFormat`] for a code other than 0 or a multicast target.
    pub fn parse(message: &'a [u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<Message<'a>, ParseError> {
        let (header, data) = message.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        if checksum::fold(pseudo(src, dst, message.len()) + checksum::sum(message)) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        let (code, id, seq, word) = (header[1], be16(header, 4), be16(header, 6), be32(header, 4));
        Ok(match header[0] {
            128 if code == 0 => Message::EchoRequest { id, seq, data },
            129 if code == 0 => Message::EchoReply { id, seq, data },
            1 => Message::Unreachable { code, quote: data },
            2 => Message::PacketTooBig { mtu: word, quote: data },
            3 => Message::TimeExceeded { code, quote: data },
            4 => Message::ParameterProblem { code, pointer: word, quote: data },
            SOLICITATION => {
                let (target, source_link) = neighbour(code, data, SOURCE_LINK)?;
                Message::NeighbourSolicitation { target, source_link }
            }
            ADVERTISEMENT => {
                let (target, target_link) = neighbour(code, data, TARGET_LINK)?;
                let [router, solicited, overriding] = [31, 30, 29].map(|bit| word >> bit & 1 != 0);
                Message::NeighbourAdvertisement { target, router, solicited, overriding, target_link }
            }
            kind => Message::Unknown { kind, code, rest: bytes4(header, 4), data },
        })
    }

    /// Writes the message, sent from `src` to `dst`, checksum included, to the
    /// start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn write(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Result<usize, BuildError> {
        let pair = |first: u16, second: u16| (u32::from(first) << 16 | u32::from(second)).to_be_bytes();
        let mut place = [0; 24];
        let (kind, code, rest, data) = match *self {
            Message::EchoRequest { id, seq, data } => (128, 0, pair(id, seq), data),
            Message::EchoReply { id, seq, data } => (129, 0, pair(id, seq), data),
            Message::Unreachable { code, quote } => (1, code, [0; 4], quote),
            Message::PacketTooBig { mtu, quote } => (2, 0, mtu.to_be_bytes(), quote),
            Message::TimeExceeded { code, quote } => (3, code, [0; 4], quote),
            Message::ParameterProblem { code, pointer, quote } => (4, code, pointer.to_be_bytes(), quote),
            Message::NeighbourSolicitation { target, source_link } => {
                (SOLICITATION, 0, [0; 4], write_neighbour(&mut place, target, SOURCE_LINK, source_link))
            }
            Message::NeighbourAdvertisement { target, router, solicited, overriding, target_link } => {
                let flags = u32::from(router) << 31 | u32::from(solicited) << 30 | u32::from(overriding) << 29;
                let data = write_neighbour(&mut place, target, TARGET_LINK, target_link);
                (ADVERTISEMENT, 0, flags.to_be_bytes(), data)
            }
            Message::Unknown { kind, code, rest, data } => (kind, code, rest, data),
        };
        write_message(kind, code, rest, data, pseudo(src, dst, HEADER_LEN + data.len()), out)
    }
}

fn pseudo(src: Ipv6Addr, dst: Ipv6Addr, len: usize) -> u32 {
    checksum::pseudo(src.into(), dst.into(), PROTOCOL, len as u32)
}

/// Target, and the address of the link-layer option of this kind, from what
/// follows the header; of several such options the first.
fn neighbour(code: u8, data: &[u8], kind: u8) -> Result<(Ipv6Addr, Option<MacAddr>), ParseError> {
    let (target, mut options) = data.split_first_chunk::<16>().ok_or(ParseError::Truncated)?;
    let target = Ipv6Addr::from(bytes16(target, 0));
    if code != 0 || target.is_multicast() {
        return Err(ParseError::BadFormat);
    }
    let mut link = None;
    while let [option_kind, words, ..] = *options {
        // RFC 4861 §4.6: a packet with an option of length 0 is to be discarded.
        let (option, rest) = options.split_at_checked(8 * usize::from(words)).ok_or(ParseError::BadLength)?;
        let start = option.first_chunk::<8>().ok_or(ParseError::BadLength)?;
        if option_kind == kind && link.is_none() {
            link = Some(MacAddr(bytes6(start, 2)));
        }
        options = rest;
    }
    if options.is_empty() { Ok((target, link)) } else { Err(ParseError::BadLength) }
}

/// Writes what follows the header to `place` and returns what was written.
fn write_neighbour(place: &mut [u8; 24], target: Ipv6Addr, kind: u8, link: Option<MacAddr>) -> &[u8] {
    place[..16].copy_from_slice(&target.octets());
    let Some(mac) = link else { return &place[..16] };
    place[16..18].copy_from_slice(&[kind, 1]);
    place[18..].copy_from_slice(&mac.0);
    place
}
