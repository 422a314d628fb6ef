//! The fields of a frame that GRO compares.

use baton_coalesce::{Class, Flow, Frame, Network as Place, Reason};
use baton_wire::seq::Seq;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const DONT_FRAGMENT: u16 = 0x4000;

/// Packets of one connection (`gro_list_prepare`, `inet_gro_receive`, `ipv6_gro_receive`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Addresses, ports and tags.
    pub flow: Flow,
    /// Destination and source of the Ethernet header; 0 without one.
    mac: [u8; 12],
    /// For IPv6 flow label and hop limit, which belong to the connection there.
    label: u32,
}

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
    /// The connection that it belongs to.
    pub key: Key,
    /// The IP header's other fields.
    pub network: Network,
    /// Sequence number of the first byte.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: u32,
    /// The fourth word of the header: data offset, flags, window (`tcp_flag_word`).
    pub word: u32,
    /// Options, with padding.
    pub options: &'a [u8],
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
#[inline]
pub fn of<'a>(frame: &Frame<'a>, class: &Class) -> Result<Packet<'a>, Reason> {
    let (flow, at) = match class {
        Class::Data(segment) => (segment.flow, segment.ip_offset as usize),
        Class::Bypass { reason: reason @ (Reason::Fragment | Reason::IpOptions | Reason::Checksum), .. } => {
            return Err(*reason);
        }
        Class::Bypass { reason, flow } => {
            let flow = flow.ok_or(*reason)?;
            (flow, Place::of(frame).ok_or(*reason)?.offset)
        }
    };
    read(frame, flow, at).ok_or(Reason::Malformed)
}

#[inline]
fn read<'a>(frame: &Frame<'a>, flow: Flow, at: usize) -> Option<Packet<'a>> {
    let packet = frame.bytes.get(at..)?;
    let half = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let rest = (frame.wire_len as usize).saturating_sub(at);
    let (network, label, header_len, ip_len) = if flow.is_v6() {
        let first = word(0)?;
        // Label and hop limit; the version is the flow's.
        let label = (first & 0x000f_ffff) << 8 | u32::from(*packet.get(7)?);
        let class = (first >> 20) as u8;
        let len = match half(4)? {
            0 => rest,
            len => IPV6_HEADER + usize::from(len),
        };
        (Network::V6 { class }, label, IPV6_HEADER, len)
    } else {
        let fragment = half(6)?;
        let df = fragment & DONT_FRAGMENT != 0;
        let network = Network::V4 { ttl: *packet.get(8)?, tos: *packet.get(1)?, df, id: half(4)? };
        let len = match half(2)? {
            0 => rest,
            len => usize::from(len),
        };
        (network, 0, IPV4_HEADER, len)
    };
    let flags = word(header_len + 12)?;
    let tcp_len = (flags >> 28) as usize * 4;
    let options = packet.get(header_len + TCP_HEADER..header_len + tcp_len)?;
    let mac = if at >= 14 { *frame.bytes.first_chunk()? } else { [0; 12] };
    Some(Packet {
        key: Key { flow, mac, label },
        network,
        seq: Seq(word(header_len + 4)?),
        ack: word(header_len + 8)?,
        word: flags,
        options,
        payload_len: ip_len.checked_sub(header_len + tcp_len)? as u32,
        ip_len: ip_len as u32,
        padded: rest > ip_len,
    })
}
