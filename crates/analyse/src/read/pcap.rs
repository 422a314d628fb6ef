//! pcap (draft-ietf-opsawg-pcap): a file header, then records.
//!
//! ```text
//!   file     magic 4 | version 2, 2 | reserved 4, 4 | snapshot length 4 | link type 4
//!   record   seconds 4 | fraction 4 | captured length 4 | length on the wire 4 | data
//! ```
//!
//! The magic number tells the byte order of all that follows and the unit of the
//! fraction. The low 16 bits of the link type field are the link type. Above stand (§4):
//!
//! ```text
//!   0xf000_0000   length of the frame check sequence, in units of 16 bits, if the next is set
//!   0x0400_0000   that length is known
//!   0x0bff_0000   reserved, to be 0; what is set there is told and not read
//! ```
//!
//! A frame check sequence of known length is taken off, so frames count as those of a capture
//! without. Only where an IP header has the length 0 would it count as payload; else the header
//! says where the packet ends.

use super::facts::{Facts, Interfaces};
use super::{FRAME_MAX, Frame, Sink, Stop};
use crate::prefetch_unsafe::prefetch;

/// Length of the file header in bytes.
pub const HEADER_LEN: usize = 24;
const RECORD_LEN: usize = 16;
/// Records that are fetched ahead, and how much of each besides its beginning: with
/// Ethernet, IPv4 and TCP headers a record takes two lines.
const AHEAD: usize = 4;
const LINE: usize = 64;

/// Records with this magic number have 8 bytes more behind the lengths (Kuznetzov's
/// patched libpcap).
const MODIFIED_EXTRA: usize = 8;

const CHECK_KNOWN: u32 = 0x0400_0000;
const RESERVED: u32 = 0x0bff_0000;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// The facts of a file's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    big_endian: bool,
    /// Nanoseconds in a unit of the fraction.
    fraction_ns: u32,
    record_len: usize,
    snapshot: u32,
    link: u16,
    /// Length of the frame check sequence at the end of each frame, in bytes.
    check_len: u32,
    /// Reserved bits that are set in the link type field.
    pub reserved: u32,
    /// Major and minor.
    pub version: (u16, u16),
}

/// The major version that files have since 1998.
pub const VERSION: u16 = 2;

/// True for the magic numbers that a pcap file begins with.
pub fn is_magic(magic: [u8; 4]) -> bool {
    kind(magic).is_some()
}

fn kind(magic: [u8; 4]) -> Option<(bool, u32)> {
    let known = |magic| matches!(magic, MICROSECONDS | NANOSECONDS | MODIFIED);
    let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
    known(little).then_some((false, little)).or_else(|| known(big).then_some((true, big)))
}

impl Layout {
    /// Reads a file's header.
    pub fn of(header: &[u8; HEADER_LEN]) -> Option<Layout> {
        let (big_endian, kind) = kind([header[0], header[1], header[2], header[3]])?;
        let word = |at| if big_endian { word::<true>(header, at) } else { word::<false>(header, at) };
        let half = |at: usize| {
            let bytes = [header[at], header[at + 1]];
            if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
        };
        let link = word(20);
        Some(Layout {
            version: (half(4), half(6)),
            big_endian,
            fraction_ns: if kind == NANOSECONDS { 1 } else { 1000 },
            record_len: RECORD_LEN + if kind == MODIFIED { MODIFIED_EXTRA } else { 0 },
            snapshot: word(16),
            link: link as u16,
            check_len: if link & CHECK_KNOWN != 0 { 2 * (link >> 28) } else { 0 },
            reserved: link & RESERVED,
        })
    }

    /// The facts that the header states.
    pub fn facts(&self) -> Facts {
        let mut interface = Interfaces::default();
        interface.add(self.link, self.snapshot);
        interface.facts("pcap", self.version, self.big_endian)
    }

    /// Hands the records that are whole in `window` to `sink`; returns how many bytes they
    /// take, and why there are no more.
    pub fn records(&self, window: &[u8], sink: &mut impl Sink) -> (usize, Stop) {
        if self.big_endian { self.records_of::<true>(window, sink) } else { self.records_of::<false>(window, sink) }
    }

    fn records_of<const BIG: bool>(&self, window: &[u8], sink: &mut impl Sink) -> (usize, Stop) {
        let mut at = 0;
        while let Some(header) = window[at..].first_chunk::<RECORD_LEN>() {
            let captured = word::<BIG>(header, 8);
            if captured > FRAME_MAX as u32 {
                return (at, Stop::Damage("a record longer than any frame"));
            }
            // A file that was cut while it is mapped, or lost its end with its machine, goes on with zeros.
            if captured == 0 && *header == [0; RECORD_LEN] {
                return (at, Stop::Damage("a record of zeros"));
            }
            let data = at + self.record_len;
            let end = data + captured as usize;
            let Some(data) = window.get(data..end) else { break };
            // Where the headers of a later record are, if it is like this one.
            let later = at + AHEAD * (end - at);
            prefetch(window, later);
            prefetch(window, later + LINE);
            let (seconds, fraction) = (word::<BIG>(header, 0), word::<BIG>(header, 4));
            let wire_len = word::<BIG>(header, 12).max(captured).saturating_sub(self.check_len);
            sink.frame(&Frame {
                data: &data[..data.len().min(wire_len as usize)],
                wire_len,
                time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(self.fraction_ns),
                link: self.link,
            });
            at = end;
        }
        (at, Stop::More)
    }
}

#[inline(always)]
fn word<const BIG: bool>(bytes: &[u8], at: usize) -> u32 {
    let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if BIG { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
}
