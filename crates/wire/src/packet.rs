//! From a frame to a TCP segment in one pass: the parse of every data frame.
//!
//! ```text
//!   | Ethernet (+ up to 2 VLAN tags) | IPv4 / IPv6 (+ options) | TCP | options | payload | padding
//!   0                                ip_offset       tcp_offset      payload_offset
//! ```
//!
//! A header is looked at once, front to back, each with one bounds check. The headers of a
//! data segment from a normal sender (no tag, no IP options, timestamps as the
//! only TCP option, behind two no-operations) run straight through, with offsets
//! that the compiler knows; all else goes through cold copies of the same
//! functions. A refused frame has one [`Reject`], the first that applies in their
//! order.

use crate::addr::Addr;
use crate::bytes::{be16, be32, bytes4, bytes16};
use crate::checksum;
use crate::eth::{VlanTag, VlanTags, ether_type};
use crate::ipv6;
use crate::seq::Seq;
pub use crate::tcp::PROTOCOL_TCP;
use crate::tcp::options::{OptionsIter, TIMESTAMPS_WORD, TcpOption};
use crate::tcp::{Flags, Timestamps};

/// The header at the start of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// An Ethernet II header.
    Ethernet,
    /// The IP header; its first four bits say which.
    Ip,
}

/// Why a frame is not taken for a TCP segment. Tested in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reject {
    /// Neither IPv4 nor IPv6, or shorter than its link header.
    NotIp,
    /// Lengths or version contradict one another, or a header is cut off. An
    /// IPv4-mapped address in an IPv6 header counts as that: it would pass for the
    /// IPv4 packet that it is not (Linux refuses it too, `ip6_rcv_core`).
    Malformed,
    /// The IPv4 header's checksum is wrong.
    IpChecksum,
    /// Another protocol than TCP.
    NotTcp,
    /// A fragment: offset not 0, more to come, or an IPv6 fragment header.
    Fragment,
}

/// Conditions that [`Packet::parse_with`] insists on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// The IPv4 header's checksum is right. To be left out when the port vouches
    /// for it.
    pub ip_checksum: bool,
    /// The frame holds the whole packet. To be left out for captures that kept
    /// only the first bytes of each frame; headers must be whole even then.
    pub whole: bool,
}

impl Checks {
    /// Everything is checked.
    pub const ALL: Checks = Checks { ip_checksum: true, whole: true };
}

/// The facts of a TCP segment's headers, and where its parts lie in the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
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
    /// Urgent pointer.
    pub urgent: u16,
    /// ECN field of the IP header (RFC 3168 §5): the low two bits of
    /// `traffic_class`.
    pub ecn: u8,
    /// Traffic class or type of service, ECN included.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// The timestamps option; of several, the last.
    pub timestamps: Option<Timestamps>,
    /// There is no TCP option but timestamps and padding, and the list is whole.
    pub plain_options: bool,
    /// There are IPv4 options or IPv6 extension headers.
    // MUST-50 (RFC 9293 §3.9.2.1): walked over, and else ignored.
    pub ip_options: bool,
    /// VLAN tags.
    pub vlan: VlanTags,
    /// Offset of the IP header in the frame, in bytes.
    pub ip_offset: u16,
    /// Offset of the TCP header in the frame, in bytes.
    pub tcp_offset: u16,
    /// Offset of the payload in the frame, in bytes.
    pub payload_offset: u16,
    /// Length of the payload in bytes, by the IP header.
    pub payload_len: u32,
}

/// Where a parse is when the link header is behind it.
struct Start<'a> {
    frame: &'a [u8],
    ip_offset: usize,
    vlan: VlanTags,
    checks: Checks,
}

/// Fields of an IP header.
struct Ip {
    src: Addr,
    dst: Addr,
    traffic_class: u8,
    ttl: u8,
    options: bool,
    /// It is the first fragment of several, or an IPv6 one of any kind.
    fragment: bool,
    /// Offset of the TCP header, from the IP header.
    tcp_offset: usize,
    /// End of the packet, from the IP header.
    end: usize,
}

impl Packet {
    /// Parses a frame with [`Checks::ALL`].
    ///
    /// Bytes after the IP packet (Ethernet padding) are left out. A packet with a
    /// length of 0 in its IP header (BIG TCP, RFC 2675, and some captures made
    /// above a segmenting NIC) is [`Reject::Malformed`]: no port hands out frames
    /// longer than 64 KiB.
    ///
    /// # Errors
    /// The reason why it is not a TCP segment.
    #[inline]
    pub fn parse(frame: &[u8], link: Link) -> Result<Packet, Reject> {
        Packet::parse_with(frame, link, Checks::ALL)
    }

    /// Parses a frame.
    ///
    /// # Errors
    /// The reason why it is not a TCP segment.
    #[inline]
    pub fn parse_with(frame: &[u8], link: Link, checks: Checks) -> Result<Packet, Reject> {
        let start = |ip_offset| Start { frame, ip_offset, vlan: VlanTags::NONE, checks };
        match link {
            Link::Ethernet => {
                let header = frame.first_chunk::<14>().ok_or(Reject::NotIp)?;
                match be16(header, 12) {
                    ether_type::IPV4 => ipv4(start(14)),
                    ether_type::IPV6 => ipv6(start(14)),
                    tpid => tagged(start(14), tpid),
                }
            }
            Link::Ip => match frame.first().map(|byte| byte >> 4) {
                Some(4) => ipv4(start(0)),
                Some(6) => ipv6(start(0)),
                _ => Err(Reject::NotIp),
            },
        }
    }

    /// True if the packet is IPv6.
    #[inline]
    pub const fn is_v6(&self) -> bool {
        !self.src.is_v4()
    }

    /// The options of the TCP header. `frame` is the one that was parsed.
    #[inline]
    pub fn options<'a>(&self, frame: &'a [u8]) -> OptionsIter<'a> {
        OptionsIter::new(self.tcp_header(frame).get(20..).unwrap_or_default())
    }

    /// The TCP header with its options. `frame` is the one that was parsed.
    #[inline]
    pub fn tcp_header<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(usize::from(self.tcp_offset)..usize::from(self.payload_offset)).unwrap_or_default()
    }

    /// The payload: `payload_len` bytes, or what the frame has of them if it was
    /// parsed without [`Checks::whole`]. `frame` is the one that was parsed.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let rest = frame.get(usize::from(self.payload_offset)..).unwrap_or_default();
        rest.get(..self.payload_len as usize).unwrap_or(rest)
    }

    /// The partial sum of pseudo header, TCP header with its checksum field, and
    /// options. Added to the payload's sum it folds to 0xffff when the checksum
    /// is right. `frame` is the one that was parsed.
    // MUST-3 (RFC 9293 §3.1): half of the check; the payload's sum comes from its copy.
    #[inline]
    pub fn header_sum(&self, frame: &[u8]) -> u32 {
        let header = self.tcp_header(frame);
        let pseudo = checksum::pseudo_addrs(self.src, self.dst)
            + u64::from(PROTOCOL_TCP)
            + u64::from(self.payload_len)
            + header.len() as u64;
        u32::from(checksum::fold64(pseudo + checksum::header_sum(header)))
    }
}

/// Behind one or two VLAN tags (IEEE 802.1Q, 802.1ad).
#[cold]
fn tagged(mut start: Start<'_>, mut tpid: u16) -> Result<Packet, Reject> {
    while VlanTag::is_tpid(tpid) {
        let rest = start.frame.get(start.ip_offset..).and_then(|rest| rest.first_chunk::<4>()).ok_or(Reject::NotIp)?;
        if !start.vlan.push(VlanTag { tpid, tci: be16(rest, 0) }) {
            return Err(Reject::NotIp);
        }
        tpid = be16(rest, 2);
        start.ip_offset += 4;
    }
    match tpid {
        ether_type::IPV4 => ipv4(start),
        ether_type::IPV6 => ipv6(start),
        _ => Err(Reject::NotIp),
    }
}

#[inline(always)]
fn ipv4(start: Start<'_>) -> Result<Packet, Reject> {
    match start.frame.get(start.ip_offset) {
        Some(0x45) => ipv4_of(start, 20),
        _ => ipv4_with_options(start),
    }
}

#[cold]
fn ipv4_with_options(start: Start<'_>) -> Result<Packet, Reject> {
    let first = *start.frame.get(start.ip_offset).ok_or(Reject::Malformed)?;
    if first >> 4 != 4 || first & 0xf < 5 {
        return Err(Reject::Malformed);
    }
    ipv4_of(start, usize::from(first & 0xf) * 4)
}

/// IPv4 with a header of `header_len` bytes.
#[inline(always)]
fn ipv4_of(start: Start<'_>, header_len: usize) -> Result<Packet, Reject> {
    let packet = start.frame.get(start.ip_offset..).ok_or(Reject::Malformed)?;
    let header = packet.first_chunk::<20>().ok_or(Reject::Malformed)?;
    let all = packet.get(..header_len).ok_or(Reject::Malformed)?;
    let end = usize::from(be16(header, 2));
    if end < header_len || (start.checks.whole && packet.len() < end) {
        return Err(Reject::Malformed);
    }
    if start.checks.ip_checksum && checksum::fold64(checksum::header_sum(all)) != 0xffff {
        return Err(Reject::IpChecksum);
    }
    if header[9] != PROTOCOL_TCP {
        return Err(Reject::NotTcp);
    }
    let fragment = be16(header, 6) & 0x3fff;
    // Past the first fragment there is no TCP header to look at.
    if fragment & 0x1fff != 0 {
        return Err(Reject::Fragment);
    }
    let ip = Ip {
        src: Addr::v4(bytes4(header, 12)),
        dst: Addr::v4(bytes4(header, 16)),
        traffic_class: header[1],
        ttl: header[8],
        options: header_len != 20,
        fragment: fragment != 0,
        tcp_offset: header_len,
        end,
    };
    tcp(&start, packet, &ip)
}

#[inline(always)]
fn ipv6(start: Start<'_>) -> Result<Packet, Reject> {
    let packet = start.frame.get(start.ip_offset..).ok_or(Reject::Malformed)?;
    let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>().ok_or(Reject::Malformed)?;
    let end = ipv6::HEADER_LEN + usize::from(be16(header, 4));
    if header[0] >> 4 != 6 || (start.checks.whole && packet.len() < end) {
        return Err(Reject::Malformed);
    }
    let ip = Ip {
        src: Addr::v6(bytes16(header, 8)),
        dst: Addr::v6(bytes16(header, 24)),
        traffic_class: (be16(header, 0) >> 4) as u8,
        ttl: header[7],
        options: false,
        fragment: false,
        tcp_offset: ipv6::HEADER_LEN,
        end,
    };
    if ip.src.is_v4() || ip.dst.is_v4() {
        return Err(Reject::Malformed);
    }
    match header[6] {
        PROTOCOL_TCP => tcp(&start, packet, &ip),
        next => ipv6_with_extensions(&start, packet, ip, next),
    }
}

/// Walks extension headers up to the TCP header.
#[cold]
fn ipv6_with_extensions(start: &Start<'_>, packet: &[u8], mut ip: Ip, next: u8) -> Result<Packet, Reject> {
    let data = packet.get(ipv6::HEADER_LEN..ip.end.min(packet.len())).unwrap_or_default();
    let chain = ipv6::walk_extensions(next, data).map_err(|_| Reject::Malformed)?;
    let later_fragment = chain.fragment.is_some_and(|fragment| fragment.offset != 0);
    if chain.protocol != PROTOCOL_TCP && !(later_fragment && ipv6::is_extension(chain.protocol)) {
        return Err(Reject::NotTcp);
    }
    // Past the first fragment there is no TCP header to look at.
    if later_fragment {
        return Err(Reject::Fragment);
    }
    ip.options = true;
    ip.fragment = chain.fragment.is_some();
    ip.tcp_offset += chain.len;
    tcp(start, packet, &ip)
}

/// The TCP header of `packet`, which begins with the IP header.
#[inline(always)]
fn tcp(start: &Start<'_>, packet: &[u8], ip: &Ip) -> Result<Packet, Reject> {
    let segment = packet.get(ip.tcp_offset..ip.end.min(packet.len())).ok_or(Reject::Malformed)?;
    let header = segment.first_chunk::<20>().ok_or(Reject::Malformed)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < 20 {
        return Err(Reject::Malformed);
    }
    let options = segment.get(20..header_len).ok_or(Reject::Malformed)?;
    if ip.fragment {
        return Err(Reject::Fragment);
    }
    let (values, facts) = common_options(options);
    let tcp_offset = start.ip_offset + ip.tcp_offset;
    Ok(Packet {
        src: ip.src,
        dst: ip.dst,
        src_port: be16(header, 0),
        dst_port: be16(header, 2),
        seq: Seq(be32(header, 4)),
        ack: Seq(be32(header, 8)),
        flags: Flags(be16(header, 12) & 0x1ff),
        window: be16(header, 14),
        urgent: be16(header, 18),
        ecn: ip.traffic_class & 3,
        traffic_class: ip.traffic_class,
        ttl: ip.ttl,
        timestamps: (facts & HAS_TIMESTAMPS != 0)
            .then_some(Timestamps { val: (values >> 32) as u32, ecr: values as u32 }),
        plain_options: facts & PLAIN != 0,
        ip_options: ip.options,
        vlan: start.vlan,
        ip_offset: start.ip_offset as u16,
        tcp_offset: tcp_offset as u16,
        payload_offset: (tcp_offset + header_len) as u16,
        payload_len: (ip.end - ip.tcp_offset - header_len) as u32,
    })
}

/// The options are whole, and nothing but timestamps and padding.
const PLAIN: u8 = 1;
/// There are timestamps.
const HAS_TIMESTAMPS: u8 = 2;

/// TSval and TSecr, and what else is to be said. Two registers and not a tuple
/// with an `Option`, which would go through memory and stall on the way back.
#[inline(always)]
fn common_options(options: &[u8]) -> (u64, u8) {
    if options.is_empty() {
        return (0, PLAIN);
    }
    match options.first_chunk::<12>() {
        Some(words) if options.len() == 12 && be32(words, 0) == TIMESTAMPS_WORD => {
            (u64::from(be32(words, 4)) << 32 | u64::from(be32(words, 8)), PLAIN | HAS_TIMESTAMPS)
        }
        _ => other_options(options),
    }
}

#[cold]
fn other_options(options: &[u8]) -> (u64, u8) {
    let (mut values, mut facts) = (0, PLAIN);
    for option in OptionsIter::new(options) {
        match option {
            Ok(TcpOption::Timestamps(ts)) => {
                values = u64::from(ts.val) << 32 | u64::from(ts.ecr);
                facts |= HAS_TIMESTAMPS;
            }
            _ => facts &= !PLAIN,
        }
    }
    (values, facts)
}
