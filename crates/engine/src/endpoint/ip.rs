//! IP packets that are not TCP: taken apart, checked, answered.

use super::{Endpoint, IcmpForTcp, Verdict};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::eth::{self, MacAddr, ether_type};
use baton_wire::{icmpv4, icmpv6, ipv4, ipv6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const NO_NEXT_HEADER: u8 = 59;

/// Time to live of what we send (RFC 1700, and Linux).
const TTL: u8 = 64;

/// An IP packet that arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    /// The frame's link header, if the port has any.
    pub(super) link: Option<&'a eth::Header>,
    /// Address of the sender.
    pub(super) src: Addr,
    /// The destination: us, or a multicast group.
    pub(super) dst: Addr,
    /// Time to live or hop limit.
    pub(super) hop_limit: u8,
    /// The packet from its IP header on, without padding.
    pub(super) packet: &'a [u8],
    /// The bytes after the IP headers.
    pub(super) payload: &'a [u8],
}

impl Arrival<'_> {
    /// Source and destination of an IPv6 packet.
    pub(super) fn v6_addresses(&self) -> (Ipv6Addr, Ipv6Addr) {
        (Ipv6Addr::from_bits(self.src.0), Ipv6Addr::from_bits(self.dst.0))
    }

    /// False for a broadcast or multicast, on the link or by address: it is neither echoed nor
    /// refused (RFC 1122 §3.2.2, RFC 4443 §2.4(e)).
    pub(super) fn is_to_us_alone(&self) -> bool {
        !self.link.is_some_and(|link| link.dst.is_multicast()) && !is_multicast(self.dst)
    }
}

fn is_multicast(addr: Addr) -> bool {
    match addr.ip() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

impl Endpoint {
    /// Takes an IPv4 packet.
    pub(super) fn handle_ipv4(
        &mut self,
        now: Instant,
        link: Option<&eth::Header>,
        data: &[u8],
        out: &mut dyn FnMut(IcmpForTcp),
    ) -> Verdict {
        let Ok(datagram) = ipv4::Datagram::parse(data) else { return Verdict::Malformed };
        let header = datagram.header;
        let (src, dst) = (Addr::from(header.src), Addr::from(header.dst));
        if !self.is_ours(dst) {
            return Verdict::NotOurs;
        }
        // Broadcast, multicast and loopback addresses are not valid sources, and neither are
        // our own (RFC 1122 §3.2.1.3).
        if !self.routes.is_host(src) || self.is_ours(src) {
            return Verdict::Malformed;
        }
        if header.more_fragments || header.fragment_offset != 0 {
            return Verdict::Ignored;
        }
        let len = ipv4::HEADER_LEN + datagram.options.len() + datagram.payload.len();
        let packet = data.get(..len).unwrap_or(data);
        let arrival = Arrival { link, src, dst, hop_limit: header.ttl, packet, payload: datagram.payload };
        match header.protocol {
            icmpv4::PROTOCOL => self.handle_icmpv4(now, &arrival, out),
            PROTOCOL_TCP => Verdict::Ignored,
            PROTOCOL_UDP => self.refuse_v4(now, &arrival, icmpv4::unreachable::PORT),
            _ => self.refuse_v4(now, &arrival, icmpv4::unreachable::PROTOCOL),
        }
    }

    /// Takes an IPv6 packet.
    pub(super) fn handle_ipv6(
        &mut self,
        now: Instant,
        link: Option<&eth::Header>,
        data: &[u8],
        out: &mut dyn FnMut(IcmpForTcp),
    ) -> Verdict {
        let Ok(datagram) = ipv6::Datagram::parse(data) else { return Verdict::Malformed };
        let header = datagram.header;
        let (src, dst) = (Addr::from(header.src), Addr::from(header.dst));
        // An IPv4-mapped address has no place on the wire (RFC 4038 §4.2).
        if src.is_v4() || dst.is_v4() || header.src.is_multicast() || self.is_ours(src) {
            return Verdict::Malformed;
        }
        if !self.is_ours(dst) && !header.dst.is_multicast() {
            return Verdict::NotOurs;
        }
        if datagram.chain.fragment.is_some() {
            return Verdict::Ignored;
        }
        let len = ipv6::HEADER_LEN + datagram.extensions.len() + datagram.payload.len();
        let packet = data.get(..len).unwrap_or(data);
        let arrival = Arrival { link, src, dst, hop_limit: header.hop_limit, packet, payload: datagram.payload };
        match datagram.chain.protocol {
            icmpv6::PROTOCOL => self.handle_icmpv6(now, &arrival, out),
            PROTOCOL_TCP | NO_NEXT_HEADER => Verdict::Ignored,
            PROTOCOL_UDP => self.refuse_v6(now, &arrival, None),
            _ => self.refuse_v6(now, &arrival, Some(next_header_at(&datagram))),
        }
    }

    /// Sends an ICMP message to `dst`.
    pub(super) fn send_icmpv4(
        &mut self,
        message: &icmpv4::Message<'_>,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        to: Option<MacAddr>,
    ) {
        let mut body = std::mem::take(&mut self.scratch);
        let mut ip = [0; ipv4::HEADER_LEN];
        let header = ipv4::Header::atomic(TTL, icmpv4::PROTOCOL, src, dst);
        let written = message.write(&mut body).and_then(|len| header.write(&[], len, &mut ip).map(|_| len));
        if let Ok(len) = written {
            self.send_packet(ether_type::IPV4, to, &ip, &body[..len]);
        }
        self.scratch = body;
    }

    /// Sends an ICMPv6 message to `dst`.
    pub(super) fn send_icmpv6(
        &mut self,
        message: &icmpv6::Message<'_>,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        to: Option<MacAddr>,
        hop_limit: u8,
    ) {
        let mut body = std::mem::take(&mut self.scratch);
        let mut ip = [0; ipv6::HEADER_LEN];
        let header =
            ipv6::Header { traffic_class: 0, flow_label: 0, next_header: icmpv6::PROTOCOL, hop_limit, src, dst };
        let written = message.write(src, dst, &mut body).and_then(|len| header.write(len, &mut ip).map(|_| len));
        if let Ok(len) = written {
            self.send_packet(ether_type::IPV6, to, &ip, &body[..len]);
        }
        self.scratch = body;
    }

    /// Answers `arrival` with an ICMP message, back to where its frame came from.
    pub(super) fn answer_v4(&mut self, arrival: &Arrival<'_>, message: &icmpv4::Message<'_>) {
        if let (IpAddr::V4(us), IpAddr::V4(them)) = (arrival.dst.ip(), arrival.src.ip()) {
            self.send_icmpv4(message, us, them, arrival.link.map(|link| link.src));
        }
    }

    /// The same for ICMPv6.
    pub(super) fn answer_v6(&mut self, arrival: &Arrival<'_>, message: &icmpv6::Message<'_>) {
        let (them, us) = arrival.v6_addresses();
        self.send_icmpv6(message, us, them, arrival.link.map(|link| link.src), TTL);
    }

    fn send_packet(&mut self, ether_type: u16, to: Option<MacAddr>, ip: &[u8], body: &[u8]) {
        if ip.len() + body.len() > usize::from(self.config.mtu) {
            return;
        }
        let (link, len) = match to {
            Some(mac) if self.config.ethernet => self.own_link().header_to(mac.0, ether_type),
            _ => ([0; 18], 0),
        };
        self.outbox.push(&[&link[..len], ip, body]);
    }
}

/// Offset of the field that names the protocol behind the last header walked
/// (RFC 4443 §3.4, code 1).
fn next_header_at(datagram: &ipv6::Datagram<'_>) -> u32 {
    let (mut field, mut at) = (6, 0);
    for _ in 0..datagram.chain.count {
        field = ipv6::HEADER_LEN + at;
        let words = datagram.extensions.get(at + 1).copied().unwrap_or_default();
        at += 8 + 8 * usize::from(words);
    }
    field as u32
}
