//! The options of a TCP header: a bounded walk, and their writing.
//!
//! ```text
//!   kind 0  end of list    kind 1  no operation    else  kind, length, data
//! ```

use super::{SackBlocks, Timestamps, unsummed};
use crate::error::BuildError;
use crate::seq::Seq;

/// Most bytes of options that a header has room for: 15 words less 5.
pub const MAX_LEN: usize = 40;

/// The four bytes before a timestamps option's values as all senders of data
/// write it: two no-operations, kind 8, length 10 (RFC 7323 appendix A).
pub const TIMESTAMPS_WORD: u32 = 0x0101_080a;

/// Option kinds (IANA, TCP option kind numbers).
pub mod kind {
    /// End of the list (RFC 9293 §3.2).
    pub const END: u8 = 0;
    /// No operation (RFC 9293 §3.2).
    pub const NOP: u8 = 1;
    /// Maximum segment size (RFC 9293 §3.2).
    pub const MSS: u8 = 2;
    /// Window scale (RFC 7323 §2.2).
    pub const WINDOW_SCALE: u8 = 3;
    /// SACK permitted (RFC 2018 §2).
    pub const SACK_PERMITTED: u8 = 4;
    /// SACK (RFC 2018 §3).
    pub const SACK: u8 = 5;
    /// Timestamps (RFC 7323 §3.2).
    pub const TIMESTAMPS: u8 = 8;
    /// Experiments, told apart by an identifier (RFC 4727 §5, RFC 6994).
    pub const EXPERIMENT: u8 = 254;
}

/// One option.
// MUST-4 (RFC 9293 §3.1): end of list, no operation (both within the walk) and MSS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption<'a> {
    /// Maximum segment size in bytes.
    Mss(u16),
    /// Window scale shift as received, unclamped.
    WindowScale(u8),
    /// SACK permitted.
    SackPermitted,
    /// SACK blocks; may be empty.
    Sack(SackBlocks),
    /// Timestamps.
    Timestamps(Timestamps),
    /// The sender asks to go without checksums ([`unsummed`]).
    Unsummed {
        /// Time to live, or hop limit, that the packet left with.
        ttl: u8,
    },
    /// An option that is not known, or a known one of a wrong length.
    Unknown {
        /// The option's kind (IANA, TCP parameters).
        kind: u8,
        /// The bytes after its length byte.
        data: &'a [u8],
    },
}

/// The list breaks off: an option's length is below 2 or passes the end of the
/// header. The options before it hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the TCP option of kind {kind} has an impossible length")]
pub struct BrokenOption {
    /// Kind of the option at which it breaks off.
    pub kind: u8,
}

/// Iterates over the options of a header, padding left out. Ends after an error.
#[derive(Clone, Debug)]
pub struct OptionsIter<'a> {
    rest: &'a [u8],
}

impl<'a> OptionsIter<'a> {
    /// Walks `options`, the bytes between the fixed header and the payload.
    #[inline]
    pub const fn new(options: &'a [u8]) -> OptionsIter<'a> {
        OptionsIter { rest: options }
    }
}

impl<'a> Iterator for OptionsIter<'a> {
    type Item = Result<TcpOption<'a>, BrokenOption>;

    fn next(&mut self) -> Option<Self::Item> {
        // MUST-64 (RFC 9293 §3.2): byte by byte, so an option may begin anywhere.
        while let [kind::NOP, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let rest = core::mem::take(&mut self.rest);
        let (&kind, after) = rest.split_first()?;
        if kind == kind::END {
            return None;
        }
        // MUST-7 (RFC 9293 §3.1): an illegal length ends the walk and is reported.
        let Some(&len) = after.first() else { return Some(Err(BrokenOption { kind })) };
        match rest.get(2..usize::from(len)) {
            Some(data) => {
                self.rest = &rest[usize::from(len)..];
                Some(Ok(TcpOption::decode(kind, data)))
            }
            None => Some(Err(BrokenOption { kind })),
        }
    }
}

impl core::iter::FusedIterator for OptionsIter<'_> {}

impl<'a> TcpOption<'a> {
    /// The option of this kind with `data` after its length byte.
    // MUST-6 (RFC 9293 §3.1): what is not implemented is passed over by its length.
    fn decode(kind: u8, data: &'a [u8]) -> TcpOption<'a> {
        match (kind, data) {
            (kind::MSS, &[a, b]) => TcpOption::Mss(u16::from_be_bytes([a, b])),
            (kind::WINDOW_SCALE, &[shift]) => TcpOption::WindowScale(shift),
            (kind::SACK_PERMITTED, &[]) => TcpOption::SackPermitted,
            (kind::SACK, data) if data.len() % 8 == 0 && data.len() <= 8 * SackBlocks::MAX => {
                let mut blocks = SackBlocks::new();
                for block in data.as_chunks::<8>().0 {
                    blocks.push(Seq(crate::bytes::be32(block, 0)), Seq(crate::bytes::be32(block, 4)));
                }
                TcpOption::Sack(blocks)
            }
            (kind::TIMESTAMPS, data) => match data.first_chunk::<8>() {
                Some(ts) if data.len() == 8 => {
                    TcpOption::Timestamps(Timestamps { val: crate::bytes::be32(ts, 0), ecr: crate::bytes::be32(ts, 4) })
                }
                _ => TcpOption::Unknown { kind, data },
            },
            (kind::EXPERIMENT, data) => match unsummed::ttl_of(data) {
                Some(ttl) => TcpOption::Unsummed { ttl },
                None => TcpOption::Unknown { kind: kind::EXPERIMENT, data },
            },
            (kind, data) => TcpOption::Unknown { kind, data },
        }
    }

    /// Length in bytes of the option itself, padding apart.
    pub fn len(&self) -> usize {
        match self {
            TcpOption::Mss(_) => 4,
            TcpOption::WindowScale(_) => 3,
            TcpOption::SackPermitted => 2,
            TcpOption::Sack(blocks) => 2 + 8 * blocks.len(),
            TcpOption::Timestamps(_) => 10,
            TcpOption::Unsummed { .. } => 2 + unsummed::DATA_LEN,
            TcpOption::Unknown { data, .. } => 2 + data.len(),
        }
    }

    /// Never true: an option has a kind and a length at least.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the option to the start of `out`, which has room for it.
    fn write(&self, out: &mut [u8]) {
        // MUST-68 (RFC 9293 §3.1): every option but padding has its length byte.
        let (head, rest) = out.split_at_mut(2);
        let data = &mut rest[..self.len() - 2];
        head[1] = self.len() as u8;
        head[0] = match self {
            TcpOption::Mss(mss) => {
                data.copy_from_slice(&mss.to_be_bytes());
                kind::MSS
            }
            TcpOption::WindowScale(shift) => {
                data[0] = *shift;
                kind::WINDOW_SCALE
            }
            TcpOption::SackPermitted => kind::SACK_PERMITTED,
            TcpOption::Sack(blocks) => {
                for (place, (start, end)) in data.chunks_exact_mut(8).zip(blocks.as_slice()) {
                    place[..4].copy_from_slice(&start.0.to_be_bytes());
                    place[4..].copy_from_slice(&end.0.to_be_bytes());
                }
                kind::SACK
            }
            TcpOption::Timestamps(ts) => {
                data[..4].copy_from_slice(&ts.val.to_be_bytes());
                data[4..].copy_from_slice(&ts.ecr.to_be_bytes());
                kind::TIMESTAMPS
            }
            TcpOption::Unsummed { ttl } => {
                data[..4].copy_from_slice(&unsummed::EXID.to_be_bytes());
                data[4] = *ttl;
                kind::EXPERIMENT
            }
            TcpOption::Unknown { kind, data: bytes } => {
                data.copy_from_slice(bytes);
                *kind
            }
        };
    }

    /// No-operations before the option: timestamps and SACK have theirs at two
    /// bytes past a word, so that the 32-bit values behind kind and length are
    /// aligned (RFC 7323 appendix A, RFC 2018 §3).
    const fn padding(&self, at: usize) -> usize {
        match self {
            TcpOption::Timestamps(_) | TcpOption::Sack(_) => (2_usize.wrapping_sub(at)) % 4,
            _ => 0,
        }
    }
}

/// Writes `options` in order to the start of `out`, padded to whole words, and
/// returns the length in bytes.
///
/// # Errors
/// [`BuildError::TooLong`] past [`MAX_LEN`] bytes, [`BuildError::BufferTooSmall`]
/// if `out` is shorter than needed.
pub fn write_options(options: &[TcpOption<'_>], out: &mut [u8]) -> Result<usize, BuildError> {
    let mut at = 0;
    for option in options {
        let start = at + option.padding(at);
        let end = start + option.len();
        if end > MAX_LEN {
            return Err(BuildError::TooLong);
        }
        let room = out.get_mut(at..end).ok_or(BuildError::BufferTooSmall)?;
        room[..start - at].fill(kind::NOP);
        option.write(&mut room[start - at..]);
        at = end;
    }
    // MUST-69 (RFC 9293 §3.1): what is left of the last word is zeros.
    let end = at.next_multiple_of(4);
    out.get_mut(at..end).ok_or(BuildError::BufferTooSmall)?.fill(kind::END);
    Ok(end)
}
