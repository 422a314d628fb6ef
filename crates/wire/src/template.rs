//! All headers of a data segment, stamped out of a template.
//!
//! Fields that stay the same in all segments of a connection are written once, into a
//! [`Template`], together with their share of the two checksums. A segment then costs a few
//! fixed-size copies and a handful of additions.
//!
//! ```text
//!   | link 0, 14, 18 or 22 | IPv4 20 or IPv6 40 | ports 4 |      the template's bytes
//!                            length, id, ECN      | seq ack flags window urgent | TS | SACK |
//! ```

use crate::addr::Addr;
use crate::checksum;
use crate::error::BuildError;
use crate::eth::{self, ether_type};
use crate::packet::PROTOCOL_TCP;
use crate::seq::Seq;
use crate::tcp::options::{TIMESTAMPS_WORD, kind};
use crate::tcp::unsummed::MARK;
use crate::tcp::{Flags, SackBlocks, Timestamps};

/// Most bytes that [`Template::emit`] writes.
pub const MAX_HEADERS: usize = eth::MAX_HEADER_LEN + 40 + 60;

const STORED: usize = eth::MAX_HEADER_LEN + 40 + 4;

/// Fields that the segments of a connection have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route<'a> {
    /// The link header: 0, 14, 18 or 22 bytes. Its last two bytes, the ethertype,
    /// are set by the template.
    pub link: &'a [u8],
    /// Source address, of the same IP version as `dst`.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Traffic class or type of service; its ECN bits are each segment's own.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
}

/// Fields that differ from segment to segment.
#[derive(Clone, Copy, Debug)]
pub struct Emit<'a> {
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window field, already scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Timestamps option.
    pub ts: Option<Timestamps>,
    /// SACK blocks; with timestamps the first three are written.
    pub sack: &'a SackBlocks,
    /// Length of the payload in bytes.
    pub payload_len: u32,
    /// Partial sum of the payload, or `None` to leave to the port what has to be
    /// added to the pseudo header's sum.
    pub payload_sum: Option<u32>,
    /// IPv4 identification.
    pub ip_id: u16,
    /// ECN field of the IP header, two bits (RFC 3168 §5).
    pub ecn: u8,
}

/// The headers of a connection's segments, up to the ports, ready to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// Link header, IP header and ports, one after the other.
    bytes: [u8; STORED],
    link_len: u8,
    v6: bool,
    /// A mark stands where checksums would.
    unsummed: bool,
    /// Partial sum of the IPv4 header with length, identification and checksum 0.
    ip_sum: u16,
    /// Partial sum of the pseudo header with length 0.
    pseudo_sum: u16,
    /// Partial sum of the ports.
    ports_sum: u16,
}

impl Template {
    /// Writes the constant part of a connection's headers. IPv4 packets have
    /// "don't fragment" set.
    ///
    /// # Errors
    /// [`BuildError::TooLong`] for a link header that is not of 0, 14, 18 or 22
    /// bytes.
    #[inline]
    pub fn new(route: &Route<'_>) -> Result<Template, BuildError> {
        let mut bytes = [0; STORED];
        let link_len = route.link.len();
        match link_len {
            0 => {}
            14 => bytes[..14].copy_from_slice(&route.link[..14]),
            18 => bytes[..18].copy_from_slice(&route.link[..18]),
            22 => bytes[..22].copy_from_slice(&route.link[..22]),
            _ => return Err(BuildError::TooLong),
        }
        let v6 = !route.dst.is_v4();
        if link_len != 0 {
            let ether_type = if v6 { ether_type::IPV6 } else { ether_type::IPV4 };
            bytes[link_len - 2..link_len].copy_from_slice(&ether_type.to_be_bytes());
        }
        let ip = &mut bytes[link_len..];
        let (ip_len, ip_sum) = if v6 { (40, write_v6(ip, route)) } else { (20, write_v4(ip, route)) };
        ip[ip_len..ip_len + 2].copy_from_slice(&route.src_port.to_be_bytes());
        ip[ip_len + 2..ip_len + 4].copy_from_slice(&route.dst_port.to_be_bytes());
        let pseudo_sum = checksum::pseudo(route.src, route.dst, PROTOCOL_TCP, 0) as u16;
        let ports_sum = checksum::fold(u32::from(route.src_port) + u32::from(route.dst_port));
        Ok(Template { bytes, link_len: link_len as u8, v6, unsummed: false, ip_sum, pseudo_sum, ports_sum })
    }

    /// True for IPv6.
    #[inline]
    pub const fn is_v6(&self) -> bool {
        self.v6
    }

    /// Offset of the TCP header in the frame, in bytes.
    #[inline]
    pub const fn tcp_offset(&self) -> usize {
        self.link_len as usize + if self.v6 { 40 } else { 20 }
    }

    /// Writes all headers of a segment to the start of `out` and returns their
    /// length: at most [`MAX_HEADERS`], and 0, with nothing of use written, if
    /// `out` is too short for them or the packet longer than IP can say.
    ///
    /// The TCP checksum is complete if the payload's sum is given; if not, the
    /// field holds the folded pseudo-header sum, for the port to go on from, or an
    /// [unsummed](Template::unsummed) segment's mark.
    #[inline]
    pub fn emit(&self, out: &mut [u8], segment: &Emit<'_>) -> usize {
        let written = match (self.v6, self.link_len) {
            (false, 14) => self.emit_as::<14, false>(out, segment),
            (true, 14) => self.emit_as::<14, true>(out, segment),
            (false, 0) => self.emit_as::<0, false>(out, segment),
            (true, 0) => self.emit_as::<0, true>(out, segment),
            (false, 18) => self.emit_as::<18, false>(out, segment),
            (true, 18) => self.emit_as::<18, true>(out, segment),
            (false, _) => self.emit_as::<22, false>(out, segment),
            (true, _) => self.emit_as::<22, true>(out, segment),
        };
        written.unwrap_or(0)
    }

    #[inline(always)]
    fn emit_as<const LINK: usize, const V6: bool>(&self, out: &mut [u8], segment: &Emit<'_>) -> Option<usize> {
        let ip_len = if V6 { 40 } else { 20 };
        let (stored, rest) = out.split_at_mut_checked(LINK + ip_len + 4)?;
        let (fixed, options_room) = rest.split_first_chunk_mut::<16>()?;
        let (options_len, options_sum) = write_data_options(options_room, segment)?;
        let tcp_len = 20 + options_len + segment.payload_len as usize;
        let ip_total = if V6 { tcp_len } else { tcp_len + 20 };
        let ip_total = u16::try_from(ip_total).ok()?;

        stored.copy_from_slice(&self.bytes[..LINK + ip_len + 4]);
        if V6 {
            stored[LINK + 1] |= (segment.ecn & 3) << 4;
            stored[LINK + 4..LINK + 6].copy_from_slice(&ip_total.to_be_bytes());
        } else {
            self.finish_v4(stored[LINK..].first_chunk_mut::<20>()?, ip_total, segment);
        }

        let offset_and_flags = ((20 + options_len as u32) << 10) | u32::from(segment.flags.0 & 0x1ff);
        let flags_and_window = offset_and_flags << 16 | u32::from(segment.window);
        let pseudo = u64::from(self.pseudo_sum) + tcp_len as u64;
        let field = match segment.payload_sum {
            // MUST-2 (RFC 9293 §3.1)
            Some(payload) => {
                let sum = pseudo
                    + u64::from(self.ports_sum)
                    + u64::from(segment.seq.0)
                    + u64::from(segment.ack.0)
                    + u64::from(flags_and_window)
                    + u64::from(segment.urgent)
                    + options_sum
                    + u64::from(payload);
                !checksum::fold64(sum)
            }
            None if self.unsummed => MARK,
            None => checksum::fold64(pseudo),
        };
        fixed[0..4].copy_from_slice(&segment.seq.0.to_be_bytes());
        fixed[4..8].copy_from_slice(&segment.ack.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&flags_and_window.to_be_bytes());
        fixed[12..14].copy_from_slice(&field.to_be_bytes());
        fixed[14..16].copy_from_slice(&segment.urgent.to_be_bytes());
        Some(LINK + ip_len + 20 + options_len)
    }

    /// The same, but routers may cut its IPv4 packets (RFC 791 §3.1: no Don't Fragment).
    /// IPv6 packets are cut by nobody on the way.
    #[must_use]
    pub fn fragmentable(mut self) -> Template {
        if !self.v6 {
            let ip = usize::from(self.link_len);
            self.bytes[ip + 6] = 0;
            self.ip_sum = checksum::fold64(checksum::header_sum(&self.bytes[ip..ip + 20]));
        }
        self
    }

    /// The same, but its segments go without a TCP checksum: the field holds [`MARK`] where
    /// the payload's sum is not given.
    #[must_use]
    pub fn unsummed(mut self) -> Template {
        self.unsummed = true;
        self
    }

    /// True for the template of segments without a TCP checksum.
    #[inline]
    pub const fn is_unsummed(&self) -> bool {
        self.unsummed
    }

    /// The fields of the IPv4 header that are the segment's own.
    #[inline(always)]
    fn finish_v4(&self, header: &mut [u8; 20], total: u16, segment: &Emit<'_>) {
        let ecn = segment.ecn & 3;
        let sum = u32::from(self.ip_sum) + u32::from(total) + u32::from(segment.ip_id) + u32::from(ecn);
        header[1] |= ecn;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&segment.ip_id.to_be_bytes());
        header[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    }
}

/// [`Template::emit`] for a segment that is the only one of its kind.
///
/// # Errors
/// Those of [`Template::new`], and [`BuildError::BufferTooSmall`] where `emit`
/// returns 0.
pub fn emit_once(route: &Route<'_>, out: &mut [u8], segment: &Emit<'_>) -> Result<usize, BuildError> {
    match Template::new(route)?.emit(out, segment) {
        0 => Err(BuildError::BufferTooSmall),
        len => Ok(len),
    }
}

/// Writes the IPv4 header with length, identification, ECN and checksum 0, and
/// returns its sum.
fn write_v4(ip: &mut [u8], route: &Route<'_>) -> u16 {
    ip[0] = 0x45;
    ip[1] = route.traffic_class & !3;
    ip[6] = 0x40;
    ip[8] = route.ttl;
    ip[9] = PROTOCOL_TCP;
    ip[12..16].copy_from_slice(&route.src.octets_v4());
    ip[16..20].copy_from_slice(&route.dst.octets_v4());
    checksum::fold64(checksum::header_sum(&ip[..20]))
}

/// Writes the IPv6 header with length and ECN 0. It has no checksum.
fn write_v6(ip: &mut [u8], route: &Route<'_>) -> u16 {
    let first = 6 << 28 | u32::from(route.traffic_class & !3) << 20 | route.flow_label & 0xf_ffff;
    ip[..4].copy_from_slice(&first.to_be_bytes());
    ip[6] = PROTOCOL_TCP;
    ip[7] = route.ttl;
    ip[8..24].copy_from_slice(&route.src.octets());
    ip[24..40].copy_from_slice(&route.dst.octets());
    0
}

/// Timestamps, then SACK, each behind two no-operations. Length and partial sum.
#[inline(always)]
fn write_data_options(out: &mut [u8], segment: &Emit<'_>) -> Option<(usize, u64)> {
    let (mut len, mut sum) = (0, 0);
    if let Some(ts) = segment.ts {
        let place = out.first_chunk_mut::<12>()?;
        place[0..4].copy_from_slice(&TIMESTAMPS_WORD.to_be_bytes());
        place[4..8].copy_from_slice(&ts.val.to_be_bytes());
        place[8..12].copy_from_slice(&ts.ecr.to_be_bytes());
        sum = u64::from(TIMESTAMPS_WORD) + u64::from(ts.val) + u64::from(ts.ecr);
        len = 12;
    }
    if !segment.sack.is_empty() {
        let (sack_len, sack_sum) = write_sack(out.get_mut(len..)?, segment.sack, segment.ts.is_some())?;
        len += sack_len;
        sum += sack_sum;
    }
    Some((len, sum))
}

#[cold]
fn write_sack(out: &mut [u8], sack: &SackBlocks, with_ts: bool) -> Option<(usize, u64)> {
    let fit = if with_ts { SackBlocks::MAX - 1 } else { SackBlocks::MAX };
    let blocks = &sack.as_slice()[..sack.len().min(fit)];
    let (head, rest) = out.split_first_chunk_mut::<4>()?;
    *head = [kind::NOP, kind::NOP, kind::SACK, 2 + 8 * blocks.len() as u8];
    let mut sum = u64::from(u32::from_be_bytes(*head));
    let places = rest.get_mut(..8 * blocks.len())?.as_chunks_mut::<8>().0;
    for (place, (start, end)) in places.iter_mut().zip(blocks) {
        *place = (u64::from(start.0) << 32 | u64::from(end.0)).to_be_bytes();
        sum += u64::from(start.0) + u64::from(end.0);
    }
    Some((4 + 8 * blocks.len(), sum))
}
