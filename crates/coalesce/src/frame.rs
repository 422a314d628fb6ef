//! The input: a frame and what is known about it, and what its headers say.

use crate::flow::{Flow, Tags};
use crate::verdict::Reason;
use baton_wire::seq::Seq;
use baton_wire::tcp::Timestamps;

/// The header at the start of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// An Ethernet header, with VLAN tags or without.
    Ethernet,
    /// The IP header; its first four bits say which.
    Ip,
    /// A header that the caller has read (Linux cooked, null/loop, or Ethernet
    /// whose tag the kernel took off).
    Read {
        /// Ethertype of the data behind the link header. After the ethertype of a VLAN tag come the
        /// tag's other two bytes and the next ethertype. 0 if the protocol has none.
        ether_type: u16,
        /// Where that begins, in bytes from the start of the frame.
        offset: u16,
        /// VLAN tags already taken off, the outermost first.
        tags: Tags,
    },
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its bytes from the first header on; of a truncated capture, what there is.
    pub bytes: &'a [u8],
    /// Its length on the wire in bytes, link header included. Looked at only where
    /// an IP header gives a length of 0 (captured above segmentation offload).
    pub wire_len: u32,
    /// The header at its start.
    pub link: Link,
    /// The port has verified the TCP checksum, or answers for it (the frame never
    /// left this machine).
    pub vouched: bool,
}

impl<'a> Frame<'a> {
    /// A whole frame whose checksum nobody vouches for.
    #[inline]
    pub const fn whole(bytes: &'a [u8], link: Link) -> Frame<'a> {
        Frame { bytes, wire_len: bytes.len() as u32, link, vouched: false }
    }
}

/// How checksums are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// None is looked at: the default for captures, many of which were made where
    /// the sender's NIC had yet to fill them in.
    #[default]
    Trust,
    /// That of the IPv4 header is right, and that of TCP, unless the port vouches
    /// for it ([`Frame::vouched`]): the way of RA §3.1, with the NIC's word for TCP.
    Verify,
}

/// Result of [`classify`](crate::classify).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// An eligible data segment.
    Data(Segment),
    /// Anything else; goes on unchanged.
    Bypass {
        /// Why, the first that applies in the order of [`Reason`].
        reason: Reason,
        /// The connection, if addresses and ports could be read: its run is flushed
        /// first.
        flow: Option<Flow>,
    },
}

/// The facts of an eligible segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Addresses and ports of its connection.
    pub flow: Flow,
    /// Sequence number of its first byte.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// Length of its payload in bytes, by the IP header; not 0.
    pub payload_len: u32,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// Window field, unscaled.
    pub window: u16,
    /// PSH is set.
    pub push: bool,
    /// Traffic class or type of service, ECN included.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Offset of the IP header in the frame, in bytes.
    pub ip_offset: u32,
    /// Length of the IP header, in bytes: 20 or 40.
    pub ip_header_len: u8,
    /// Length of the TCP header with its options, in bytes.
    pub tcp_header_len: u8,
}

impl Segment {
    /// The segment in a slot without a run.
    pub(crate) const fn blank() -> Segment {
        Segment {
            flow: Flow::v4([0; 4], [0; 4], 0, Tags::NONE),
            seq: Seq(0),
            ack: Seq(0),
            payload_len: 0,
            timestamps: None,
            window: 0,
            push: false,
            traffic_class: 0,
            ttl: 0,
            ip_offset: 0,
            ip_header_len: 0,
            tcp_header_len: 0,
        }
    }

    /// Length of IP and TCP header together, in bytes.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        self.ip_header_len as u32 + self.tcp_header_len as u32
    }

    /// Offset of the TCP header in the frame, in bytes.
    #[inline]
    pub const fn tcp_offset(&self) -> usize {
        self.ip_offset as usize + self.ip_header_len as usize
    }

    /// Offset of the payload in the frame, in bytes.
    #[inline]
    pub const fn payload_offset(&self) -> usize {
        self.tcp_offset() + self.tcp_header_len as usize
    }

    /// The sequence number after its last byte.
    #[inline]
    pub fn end(&self) -> Seq {
        self.seq + self.payload_len
    }
}
