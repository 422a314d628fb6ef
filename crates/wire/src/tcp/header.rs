//! The TCP header as a view and a builder, for segments off the fast paths.

use super::Flags;
use super::options::{OptionsIter, TcpOption, write_options};
use crate::bytes::{be16, be32};
use crate::error::{BuildError, ParseError};
use crate::seq::Seq;

/// Length of the header without options, in bytes.
pub const HEADER_LEN: usize = 20;

/// Length of the longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;

/// The fixed part of a TCP header (RFC 9293 §3.1), but for the data offset, which
/// the options determine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window field, unscaled.
    pub window: u16,
    /// Checksum field as it stands.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

/// A TCP segment: the payload of an IP packet, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The fixed part of the header.
    pub header: Header,
    /// The option bytes.
    pub options: &'a [u8],
    /// The bytes behind the header and its options.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Takes apart `segment`, all that follows the IP header.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the header passes the end,
    /// [`ParseError::BadLength`] for a data offset below 5 words.
    pub fn parse(segment: &'a [u8]) -> Result<Segment<'a>, ParseError> {
        let fixed = segment.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(ParseError::BadLength);
        }
        let options = segment.get(HEADER_LEN..header_len).ok_or(ParseError::Truncated)?;
        let header = Header {
            src_port: be16(fixed, 0),
            dst_port: be16(fixed, 2),
            seq: Seq(be32(fixed, 4)),
            ack: Seq(be32(fixed, 8)),
            flags: Flags(be16(fixed, 12) & 0x1ff),
            window: be16(fixed, 14),
            checksum: be16(fixed, 16),
            urgent: be16(fixed, 18),
        };
        Ok(Segment { header, options, payload: &segment[header_len..] })
    }

    /// Walks the options.
    // MUST-5 (RFC 9293 §3.1): whatever the flags of the segment are.
    pub fn options(&self) -> OptionsIter<'a> {
        OptionsIter::new(self.options)
    }
}

impl Header {
    /// Writes header and options to the start of `out`, padded to whole words,
    /// and returns their length. The checksum is written as it stands in `self`;
    /// see [`fill_checksum`].
    ///
    /// # Errors
    /// [`BuildError::TooLong`] for more than 40 bytes of options,
    /// [`BuildError::BufferTooSmall`].
    pub fn write(&self, options: &[TcpOption<'_>], out: &mut [u8]) -> Result<usize, BuildError> {
        let (fixed, room) = out.split_first_chunk_mut::<HEADER_LEN>().ok_or(BuildError::BufferTooSmall)?;
        let len = HEADER_LEN + write_options(options, room)?;
        let offset_and_flags = (len as u16 / 4) << 12 | self.flags.0 & 0x1ff;
        fixed[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        Ok(len)
    }
}

/// Fills in the checksum of `segment` (header, options and payload), sent from
/// `src` to `dst`.
///
/// # Errors
/// [`BuildError::BufferTooSmall`] if there is no room for a header,
/// [`BuildError::TooLong`] past 2^32 bytes.
// MUST-2 (RFC 9293 §3.1)
pub fn fill_checksum(segment: &mut [u8], src: crate::addr::Addr, dst: crate::addr::Addr) -> Result<(), BuildError> {
    let len = u32::try_from(segment.len()).map_err(|_| BuildError::TooLong)?;
    segment.get_mut(16..18).ok_or(BuildError::BufferTooSmall)?.fill(0);
    let pseudo = crate::checksum::pseudo(src, dst, super::PROTOCOL_TCP, len);
    let field = crate::checksum::finish(pseudo + crate::checksum::sum(segment));
    segment[16..18].copy_from_slice(&field.to_be_bytes());
    Ok(())
}
