//! pcapng (draft-ietf-opsawg-pcapng): blocks, each with its length before and behind.
//!
//! ```text
//!   block       type 4 | length 4 | body | length 4            length: a multiple of 4
//!   section     byte order 4 | version 2, 2 | length 8 | options
//!   interface   link type 2 | reserved 2 | snapshot length 4 | options  (time unit, time offset)
//!   enhanced    interface 4 | time 4, 4 | captured 4 | length on the wire 4 | data | options
//!   simple      length on the wire 4 | data                    of interface 0, without a time
//!   old         interface 2 | drops 2 | time 4, 4 | captured 4 | length on the wire 4 | data
//! ```
//!
//! A section header starts anew: its own byte order, no interfaces. Blocks of other
//! types are stepped over, however long they are. The option for the length of a frame check
//! sequence is not read: whether it counts bits or bytes was never settled.

use super::facts::{Facts, Interfaces};
use super::{FRAME_MAX, Frame, Sink, Stop};

/// The bytes that a section, and so a file, begins with; the same in both byte orders.
pub const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

/// Type and length, before a body.
const HEAD: usize = 8;
/// Shortest block: its type, and its length twice.
const BLOCK_MIN: usize = 12;
/// Longest block that is looked into, in bytes: a frame, and as much again of options.
pub const BLOCK_MAX: usize = 2 * FRAME_MAX;
/// Interfaces of a section: a number that only a damaged or hostile file exceeds.
const INTERFACES_MAX: usize = 65_536;

/// The message for a block whose two lengths differ.
pub const LENGTHS_DIFFER: &str = "a block whose two lengths differ";

/// An interface that frames were captured on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interface {
    link: u16,
    /// Bytes kept of a frame; 0: all.
    snapshot: u32,
    unit: Unit,
    /// Seconds to add to all times.
    offset: i64,
}

/// The unit of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// One unit is this many nanoseconds.
    Times(u64),
    /// This many units are one nanosecond.
    Parts(u64),
    /// Seconds divided by two to this power.
    Binary(u8),
}

impl Interface {
    fn time_ns(&self, high: u32, low: u32) -> u64 {
        let time = u64::from(high) << 32 | u64::from(low);
        let ns = match self.unit {
            Unit::Times(factor) => time.saturating_mul(factor),
            Unit::Parts(parts) => time / parts,
            Unit::Binary(power) => u64::try_from((u128::from(time) * 1_000_000_000) >> power).unwrap_or(u64::MAX),
        };
        ns.saturating_add_signed(self.offset.saturating_mul(1_000_000_000))
    }
}

/// The section that is being read.
#[derive(Default)]
pub struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Version of the first section; `None` before it.
    version: Option<(u16, u16)>,
    /// The facts of the interfaces of all sections.
    stated: Interfaces,
}

/// A block's body with the byte order to read it in.
#[derive(Clone, Copy)]
struct Body<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Body<'a> {
    #[inline(always)]
    fn word(&self, at: usize) -> Option<u32> {
        let word = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    }

    #[inline(always)]
    fn half(&self, at: usize) -> Option<u16> {
        let half = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) })
    }

    fn data(&self, at: usize, len: u32) -> Option<&'a [u8]> {
        self.bytes.get(at..at.checked_add(len as usize)?)
    }
}

impl Section {
    /// Hands the frames of the blocks that are whole in `window` to `sink`; returns how many
    /// bytes these blocks take, and why there are no more.
    pub fn blocks(&mut self, window: &[u8], sink: &mut impl Sink) -> (usize, Stop) {
        let mut at = 0;
        loop {
            match self.block(&window[at..], sink) {
                Ok(len) => at += len,
                Err(stop) => return (at, stop),
            }
        }
    }

    /// Reads the block that `rest` begins with and gives its length.
    #[inline(always)]
    fn block(&mut self, rest: &[u8], sink: &mut impl Sink) -> Result<usize, Stop> {
        let head = Body { bytes: rest, big_endian: self.big_endian };
        let kind = head.word(0).ok_or(Stop::More)?;
        if kind == SECTION {
            self.big_endian = match *rest.get(HEAD..).and_then(|order| order.first_chunk()).ok_or(Stop::More)? {
                order if u32::from_le_bytes(order) == BYTE_ORDER => false,
                order if u32::from_be_bytes(order) == BYTE_ORDER => true,
                _ => return Err(Stop::Damage("a section without a byte order")),
            };
        }
        let head = Body { bytes: rest, big_endian: self.big_endian };
        let len = head.word(4).ok_or(Stop::More)?;
        if (len as usize) < BLOCK_MIN || len % 4 != 0 {
            return Err(Stop::Damage("a block of impossible length"));
        }
        if len as usize > BLOCK_MAX {
            return Err(match kind {
                SECTION | INTERFACE | PACKET | SIMPLE | ENHANCED => Stop::Damage("a block longer than any frame"),
                _ => Stop::Skip { len: len.into(), trailer: [rest[4], rest[5], rest[6], rest[7]] },
            });
        }
        let block = rest.get(..len as usize).ok_or(Stop::More)?;
        if block[4..8] != block[block.len() - 4..] {
            return Err(Stop::Damage(LENGTHS_DIFFER));
        }
        let body = Body { bytes: &block[HEAD..block.len() - 4], big_endian: self.big_endian };
        match kind {
            ENHANCED => self.enhanced(body, sink),
            SIMPLE => self.simple(body, sink),
            PACKET => self.packet(body, sink),
            INTERFACE => self.interface(body, sink),
            SECTION => self.section(body),
            _ => Some(()),
        }
        .ok_or(Stop::Damage("a block that contradicts itself"))?;
        Ok(block.len())
    }

    /// The facts of all sections that were read.
    pub fn facts(&self) -> Option<Facts> {
        self.version.map(|version| self.stated.clone().facts("pcapng", version, self.big_endian))
    }

    fn section(&mut self, body: Body<'_>) -> Option<()> {
        self.interfaces.clear();
        let version = (body.half(4)?, body.half(6)?);
        self.version.get_or_insert(version);
        Some(())
    }

    #[inline(always)]
    fn enhanced(&self, body: Body<'_>, sink: &mut impl Sink) -> Option<()> {
        let interface = self.interfaces.get(body.word(0)? as usize)?;
        let (high, low, captured) = (body.word(4)?, body.word(8)?, body.word(12)?);
        emit(interface, interface.time_ns(high, low), body.word(16)?, body.data(20, captured)?, sink)
    }

    fn packet(&self, body: Body<'_>, sink: &mut impl Sink) -> Option<()> {
        let interface = self.interfaces.get(usize::from(body.half(0)?))?;
        let (high, low, captured) = (body.word(4)?, body.word(8)?, body.word(12)?);
        emit(interface, interface.time_ns(high, low), body.word(16)?, body.data(20, captured)?, sink)
    }

    fn simple(&self, body: Body<'_>, sink: &mut impl Sink) -> Option<()> {
        let interface = self.interfaces.first()?;
        let wire_len = body.word(0)?;
        let captured = match interface.snapshot {
            0 => wire_len,
            snapshot => wire_len.min(snapshot),
        };
        emit(interface, 0, wire_len, body.data(4, captured)?, sink)
    }

    fn interface(&mut self, body: Body<'_>, sink: &mut impl Sink) -> Option<()> {
        let reserved = body.half(2)?;
        let mut interface =
            Interface { link: body.half(0)?, snapshot: body.word(4)?, unit: Unit::Times(1000), offset: 0 };
        let mut at = 8;
        while let (Some(code), Some(len)) = (body.half(at), body.half(at + 2)) {
            let value = body.data(at + 4, len.into())?;
            match (code, value) {
                (0, _) => break,
                // if_tsresol
                (9, &[resolution, ..]) => interface.unit = unit(resolution)?,
                // if_tsoffset
                (14, &[a, b, c, d, e, f, g, h]) => {
                    let bytes = [a, b, c, d, e, f, g, h];
                    interface.offset =
                        if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                _ => {}
            }
            at += 4 + usize::from(len).next_multiple_of(4);
        }
        (self.interfaces.len() < INTERFACES_MAX).then_some(())?;
        self.stated.add(interface.link, interface.snapshot);
        self.interfaces.push(interface);
        if reserved != 0 {
            sink.reserved_bits(u32::from(reserved) << 16);
        }
        Some(())
    }
}

/// The unit of time, from the option's one byte.
fn unit(resolution: u8) -> Option<Unit> {
    let power = resolution & 0x7f;
    if resolution & 0x80 != 0 {
        return Some(Unit::Binary(power));
    }
    match power {
        0..=9 => Some(Unit::Times(10_u64.pow(9 - u32::from(power)))),
        _ => Some(Unit::Parts(10_u64.checked_pow(u32::from(power) - 9)?)),
    }
}

#[inline(always)]
fn emit(interface: &Interface, time_ns: u64, wire_len: u32, data: &[u8], sink: &mut impl Sink) -> Option<()> {
    if data.len() > FRAME_MAX {
        return None;
    }
    sink.frame(&Frame { data, wire_len: wire_len.max(data.len() as u32), time_ns, link: interface.link });
    Some(())
}
