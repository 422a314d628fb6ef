//! The packet that an ICMP error quotes: which TCP segment is it about?
//!
//! An error's word counts only if the quoted sequence number is one that the
//! connection has in flight (RFC 5927 §4.1), so that is extracted too. RFC 792
//! promises 64 bits after the IP header: ports and sequence number.

use crate::addr::Addr;
use crate::bytes::{be16, be32};
use crate::packet::PROTOCOL_TCP;
use crate::seq::Seq;
use crate::{ipv4, ipv6};

/// Names of the quoted segment, as its sender wrote them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotedTcp {
    /// Source address: the address that the error was sent to.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: Seq,
}

impl QuotedTcp {
    /// The segment quoted in the data of an ICMP or ICMPv6 error, or `None` if it
    /// is not TCP, a later fragment, or cut before the sequence number's end.
    pub fn parse(data: &[u8]) -> Option<QuotedTcp> {
        let (src, dst, segment): (Addr, Addr, &[u8]) = match data.first()? >> 4 {
            4 => {
                let (packet, _) = ipv4::Datagram::parse_cut(data).ok()?;
                let header = packet.header;
                if header.protocol != PROTOCOL_TCP || header.fragment_offset != 0 {
                    return None;
                }
                (header.src.into(), header.dst.into(), packet.payload)
            }
            6 => {
                let (packet, _) = ipv6::Datagram::parse_cut(data).ok()?;
                let later = packet.chain.fragment.is_some_and(|fragment| fragment.offset != 0);
                if packet.chain.protocol != PROTOCOL_TCP || later {
                    return None;
                }
                let (src, dst) = (Addr::from(packet.header.src), Addr::from(packet.header.dst));
                if src.is_v4() || dst.is_v4() {
                    return None;
                }
                (src, dst, packet.payload)
            }
            _ => return None,
        };
        let start = segment.first_chunk::<8>()?;
        Some(QuotedTcp { src, dst, src_port: be16(start, 0), dst_port: be16(start, 2), seq: Seq(be32(start, 4)) })
    }
}
