//! ICMP (RFC 792, RFC 1191): view and builder.
//!
//! ```text
//!   type 1 | code 1 | checksum 2 | four bytes by type | data: echoed, or the quoted packet
//! ```

use crate::bytes::{be16, bytes4};
use crate::checksum;
use crate::error::{BuildError, ParseError};

/// Protocol number of ICMP.
pub const PROTOCOL: u8 = 1;

/// Length of what comes before the data, in bytes.
pub const HEADER_LEN: usize = 8;

/// Codes of [`Message::Unreachable`] that TCP tells apart (RFC 1122 §3.2.2.1).
pub mod unreachable {
    /// The protocol is not there.
    pub const PROTOCOL: u8 = 2;
    /// The port is not there.
    pub const PORT: u8 = 3;
    /// Too long a packet that may not be fragmented (RFC 1191 §4).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

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
        /// Why, see [`mod@unreachable`]; not [`unreachable::FRAGMENTATION_NEEDED`].
        code: u8,
        /// Start of the packet.
        quote: &'a [u8],
    },
    /// Destination unreachable: fragmentation needed and not allowed.
    FragmentationNeeded {
        /// MTU of the next hop in bytes; 0 from a router older than RFC 1191.
        mtu: u16,
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
    /// A field of the header is wrong.
    ParameterProblem {
        /// 0 if `pointer` is of meaning.
        code: u8,
        /// Offset of the field in bytes.
        pointer: u8,
        /// Start of the packet.
        quote: &'a [u8],
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
    /// Reads a message: all of an IPv4 packet's payload.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes, [`ParseError::BadChecksum`].
    pub fn parse(message: &'a [u8]) -> Result<Message<'a>, ParseError> {
        let (header, data) = message.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        if checksum::sum(message) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        let (code, id, seq) = (header[1], be16(header, 4), be16(header, 6));
        Ok(match header[0] {
            8 if code == 0 => Message::EchoRequest { id, seq, data },
            0 if code == 0 => Message::EchoReply { id, seq, data },
            3 if code == unreachable::FRAGMENTATION_NEEDED => Message::FragmentationNeeded { mtu: seq, quote: data },
            3 => Message::Unreachable { code, quote: data },
            11 => Message::TimeExceeded { code, quote: data },
            12 => Message::ParameterProblem { code, pointer: header[4], quote: data },
            kind => Message::Unknown { kind, code, rest: bytes4(header, 4), data },
        })
    }

    /// Writes the message, checksum included, to the start of `out` and returns
    /// its length.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, BuildError> {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        let (kind, code, rest, data) = match *self {
            Message::EchoRequest { id, seq, data } => (8, 0, pair(id, seq), data),
            Message::EchoReply { id, seq, data } => (0, 0, pair(id, seq), data),
            Message::Unreachable { code, quote } => (3, code, [0; 4], quote),
            Message::FragmentationNeeded { mtu, quote } => (3, unreachable::FRAGMENTATION_NEEDED, pair(0, mtu), quote),
            Message::TimeExceeded { code, quote } => (11, code, [0; 4], quote),
            Message::ParameterProblem { code, pointer, quote } => (12, code, [pointer, 0, 0, 0], quote),
            Message::Unknown { kind, code, rest, data } => (kind, code, rest, data),
        };
        write_message(kind, code, rest, data, 0, out)
    }
}

/// Writes a message whose checksum starts from `pseudo`. ICMPv6 has the same shape.
pub(crate) fn write_message(
    kind: u8,
    code: u8,
    rest: [u8; 4],
    data: &[u8],
    pseudo: u32,
    out: &mut [u8],
) -> Result<usize, BuildError> {
    let len = HEADER_LEN + data.len();
    let out = out.get_mut(..len).ok_or(BuildError::BufferTooSmall)?;
    out[..4].copy_from_slice(&[kind, code, 0, 0]);
    out[4..8].copy_from_slice(&rest);
    out[8..].copy_from_slice(data);
    let field = checksum::finish(pseudo + checksum::sum(out));
    out[2..4].copy_from_slice(&field.to_be_bytes());
    Ok(len)
}
