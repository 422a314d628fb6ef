//! A packet that is held, and what may join it (`tcp_gro_receive`, `inet_gro_flush`, `skb_gro_receive`).

use super::Run;
use super::packet::{Network, Packet};
use baton_coalesce::Flow;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

/// Bytes of an IP packet that a joined one stays below (`GRO_LEGACY_MAX_SIZE`).
pub const MAX_SIZE: u32 = 65_536;
/// The longest TCP options, in words.
const OPTIONS: usize = 10;

/// Why a held packet goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// The next segment's sequence number is not the one that follows.
    Sequence,
    /// It has other flags, or CWR.
    Flags,
    /// It has another window.
    TcpWindow,
    /// It has another acknowledgment number.
    Acknowledgment,
    /// Its options differ, timestamps among them.
    Options,
    /// Its time to live, type of service, traffic class or don't-fragment bit differs.
    IpHeader,
    /// Its IP identification is neither the next nor, if the second was not, the same.
    IpId,
    /// It has no payload.
    NoPayload,
    /// It is longer than the first.
    Longer,
    /// Its frame is longer than its IP packet.
    Padded,
    /// The packet would have become larger than 64 KiB.
    Size,
    /// The segment that joined last has PSH or FIN.
    Push,
    /// The segment that joined last is shorter than the first.
    Short,
    /// A ninth packet came to its list.
    Evicted,
    /// The poll ended.
    Poll,
    /// The input ended.
    Input,
}

impl Flush {
    /// All of them: first those of a segment that does not fit, in the order in which they are tested.
    pub const ALL: [Flush; 16] = [
        Flush::Sequence,
        Flush::Flags,
        Flush::TcpWindow,
        Flush::Acknowledgment,
        Flush::Options,
        Flush::IpHeader,
        Flush::IpId,
        Flush::NoPayload,
        Flush::Longer,
        Flush::Padded,
        Flush::Size,
        Flush::Push,
        Flush::Short,
        Flush::Evicted,
        Flush::Poll,
        Flush::Input,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Flush::Sequence => "sequence",
            Flush::Flags => "flags",
            Flush::TcpWindow => "tcp_window",
            Flush::Acknowledgment => "acknowledgment",
            Flush::Options => "tcp_options",
            Flush::IpHeader => "ip_header",
            Flush::IpId => "ip_id",
            Flush::NoPayload => "no_payload",
            Flush::Longer => "longer",
            Flush::Padded => "padded",
            Flush::Size => "size",
            Flush::Push => "push",
            Flush::Short => "short",
            Flush::Evicted => "evicted",
            Flush::Poll => "poll",
            Flush::Input => "input",
        }
    }
}

/// A packet that waits for the next segment.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Its place for a [`Sink`](super::Sink).
    pub slot: u32,
    /// Segments that it has.
    pub segments: u32,
    flow: Flow,
    mac: [u8; 12],
    label: u32,
    network: Network,
    /// The IP identification does not change (`ip_fixedid`).
    fixed_id: bool,
    first: Seq,
    ack: u32,
    word: u32,
    options: [[u8; 4]; OPTIONS],
    /// Payload of the first segment, in bytes (`gso_size`).
    mss: u32,
    payload_len: u32,
    ip_len: u32,
}

impl Held {
    /// A packet of one segment.
    pub fn new(slot: u32, packet: &Packet<'_>) -> Held {
        let mut options = [[0; 4]; OPTIONS];
        options[..packet.options.len()].copy_from_slice(packet.options);
        Held {
            slot,
            segments: 1,
            flow: *packet.flow,
            mac: *packet.mac,
            label: packet.label,
            network: packet.network,
            fixed_id: false,
            first: packet.seq,
            ack: packet.ack,
            word: packet.word,
            options,
            mss: packet.payload_len,
            payload_len: packet.payload_len,
            ip_len: packet.ip_len,
        }
    }

    /// True if a segment is of its connection (`gro_list_prepare`, `inet_gro_receive`).
    #[inline]
    pub fn is_of(&self, packet: &Packet<'_>) -> bool {
        self.flow == *packet.flow && self.label == packet.label && self.mac == *packet.mac
    }

    /// The run that it is.
    pub fn run(&self) -> Run {
        Run { flow: self.flow, first: self.first, segments: self.segments, payload_len: self.payload_len }
    }

    /// Why a segment of its connection cannot join.
    #[inline]
    pub fn refusal(&mut self, packet: &Packet<'_>) -> Option<Flush> {
        const FREE: u32 = ((Flags::FIN.0 | Flags::PSH.0) as u32) << 16;
        const CWR: u32 = (Flags::CWR.0 as u32) << 16;
        let differing = (self.word ^ packet.word) & !FREE | packet.word & CWR;
        let cause = if packet.payload_len == 0 {
            Flush::NoPayload
        } else if packet.seq != self.first + self.payload_len {
            Flush::Sequence
        } else if differing >> 16 != 0 {
            // The data offset is among these bits: options of another length.
            if differing >> 28 != 0 { Flush::Options } else { Flush::Flags }
        } else if differing != 0 {
            Flush::TcpWindow
        } else if packet.ack != self.ack {
            Flush::Acknowledgment
        } else if !packet.options.iter().eq(&self.options[..packet.options.len()]) {
            Flush::Options
        } else if let Some(cause) = self.network_refusal(&packet.network) {
            cause
        } else if packet.payload_len > self.mss {
            Flush::Longer
        } else if packet.padded {
            Flush::Padded
        } else if self.ip_len + packet.payload_len >= MAX_SIZE {
            Flush::Size
        } else {
            return None;
        };
        Some(cause)
    }

    /// `inet_gro_flush` and `ipv6_gro_flush`. The second packet decides whether the identification counts up or stays.
    #[inline]
    fn network_refusal(&mut self, next: &Network) -> Option<Flush> {
        let (Network::V4 { ttl, tos, df, id }, Network::V4 { ttl: next_ttl, tos: next_tos, df: next_df, id: next_id }) =
            (self.network, *next)
        else {
            return (self.network != *next).then_some(Flush::IpHeader);
        };
        if (ttl, tos, df) != (next_ttl, next_tos, next_df) {
            return Some(Flush::IpHeader);
        }
        let offset = next_id.wrapping_sub(id);
        if self.segments == 1 && df && offset == 0 {
            self.fixed_id = true;
        }
        let expected = if self.fixed_id { 0 } else { self.segments as u16 };
        (offset != expected).then_some(Flush::IpId)
    }

    /// Takes a segment that is not refused.
    pub fn append(&mut self, packet: &Packet<'_>) {
        self.segments += 1;
        self.payload_len += packet.payload_len;
        self.ip_len += packet.payload_len;
    }

    /// Why no segment may follow the one that joined last.
    pub fn is_last(&self, packet: &Packet<'_>) -> Option<Flush> {
        if packet.flags() & (Flags::PSH.0 | Flags::FIN.0) != 0 {
            return Some(Flush::Push);
        }
        (packet.payload_len < self.mss).then_some(Flush::Short)
    }
}
