//! The fields of a frame that GRO compares.

use baton_coalesce::{Class, Flow, Frame, Network as Place, Reason};
use baton_wire::seq::Seq;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const DONT_FRAGMENT: u16 = 0x4000;

/// The IP header's fields that a held packet must share, or nearly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// IPv4.
    V4 {
        /// Time to live.
        ttl: u8,
        /// Type of service.
        tos: u8,
        /// Don't fragment.
        df: bool,
        /// Identification.
        id: u16,
    },
    /// IPv6, with its traffic class.
    V6 {
        /// Traffic class.
        class: u8,
    },
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Addresses, ports and tags.
    pub flow: &'a Flow,
    /// Destination and source of the Ethernet header; 0 without one.
    pub mac: &'a [u8; 12],
    /// For IPv6 flow label and hop limit, which belong to the connection there (`ipv6_gro_receive`).
    pub label: u32,
    /// The IP header's other fields.
    pub network: Network,
    /// Sequence number of the first byte.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: u32,
    /// The fourth word of the header: data offset, flags, window (`tcp_flag_word`).
    pub word: u32,
    /// Options, with padding, in words. Comparing them as bytes calls `memcmp`, which took 54 ns a frame more where the
    /// bytes behind the headers were in no cache.
    pub options: &'a [[u8; 4]],
    /// Bytes of payload.
    pub payload_len: u32,
    /// Bytes of IP header, TCP header and payload.
    pub ip_len: u32,
    /// The frame is longer than the IP packet.
    pub padded: bool,
}

impl Packet<'_> {
    /// Data offset, reserved bits and flags.
    pub const fn flags(&self) -> u16 {
        (self.word >> 16) as u16
    }
}

/// The segment in a frame that has been classified.
///
/// # Errors
/// The reason why GRO does not look at it, with which it passes those held of its connection.
#[inline(always)]
pub fn of<'a>(frame: &Frame<'a>, class: &'a Class) -> Result<Packet<'a>, Reason> {
    let (flow, at) = match class {
        Class::Data(segment) => (&segment.flow, segment.ip_offset as usize),
        Class::Bypass { reason: reason @ (Reason::Fragment | Reason::IpOptions | Reason::Checksum), .. } => {
            return Err(*reason);
        }
        Class::Bypass { reason, flow } => {
            let flow = flow.as_ref().ok_or(*reason)?;
            (flow, Place::of(frame).ok_or(*reason)?.offset)
        }
    };
    read(frame, flow, at).ok_or(Reason::Malformed)
}

#[inline(always)]
fn read<'a>(frame: &Frame<'a>, flow: &'a Flow, at: usize) -> Option<Packet<'a>> {
    let packet = frame.bytes.get(at..)?;
    let rest = (frame.wire_len as usize).saturating_sub(at);
    let mac = if at >= 14 { frame.bytes.first_chunk()? } else { &[0; 12] };
    let (label, network, header_len, ip_len) = if flow.is_v6() {
        let header: &[u8; IPV6_HEADER] = packet.first_chunk()?;
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        // Label and hop limit; the version is the flow's.
        let label = (first & 0x000f_ffff) << 8 | u32::from(header[7]);
        let len = match u16::from_be_bytes([header[4], header[5]]) {
            0 => rest,
            len => IPV6_HEADER + usize::from(len),
        };
        (label, Network::V6 { class: (first >> 20) as u8 }, IPV6_HEADER, len)
    } else {
        let header: &[u8; IPV4_HEADER] = packet.first_chunk()?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let network = Network::V4 { ttl: header[8], tos: header[1], df: half(6) & DONT_FRAGMENT != 0, id: half(4) };
        let len = match half(2) {
            0 => rest,
            len => usize::from(len),
        };
        (0, network, IPV4_HEADER, len)
    };
    let segment = packet.get(header_len..)?;
    let header: &[u8; TCP_HEADER] = segment.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let flags = word(12);
    let tcp_len = (flags >> 28) as usize * 4;
    Some(Packet {
        flow,
        mac,
        label,
        network,
        seq: Seq(word(4)),
        ack: word(8),
        word: flags,
        options: segment.get(TCP_HEADER..tcp_len)?.as_chunks().0,
        payload_len: ip_len.checked_sub(header_len + tcp_len)? as u32,
        ip_len: ip_len as u32,
        padded: rest > ip_len,
    })
}
