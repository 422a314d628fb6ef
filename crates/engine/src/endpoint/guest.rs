//! Guest of an interface: another stack answers for the addresses, and knows the
//! neighbours.
//!
//! The neighbour table works as usual, so a neighbour that connections use is asked for again
//! when 5 s have passed; but its questions wait here for the driver, which asks that stack and
//! passes on the answer. The only packets without TCP that matter here are errors about
//! connections' segments; the interface is steered so that they come.

use super::icmp::{pass_on_v4, pass_on_v6};
use super::ip::Arrival;
use super::neighbour::{CAPACITY, HopId, Solicit, Source};
use super::{Endpoint, IcmpForTcp, LinkAddress, Verdict};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::eth::{self, ether_type};
use baton_wire::{icmpv4, icmpv6, ipv4, ipv6};

impl Endpoint {
    /// Takes a reference on the hop through this neighbour; `None` if the table is full.
    pub fn hop_via(&mut self, now: Instant, neighbour: Addr) -> Option<HopId> {
        if !self.config.ethernet {
            return Some(HopId::BARE);
        }
        let hop = self.neighbours.acquire(neighbour, now);
        self.counters.neighbours_full += u64::from(hop.is_none());
        hop
    }

    /// A neighbour whose link address the table wants to know, or to have confirmed.
    pub fn pop_question(&mut self) -> Option<Addr> {
        self.questions.pop_front()
    }

    /// The answer: the neighbour is at this link address.
    pub fn place_neighbour(&mut self, now: Instant, neighbour: Addr, mac: [u8; 6]) {
        let source = Source::Advertisement { solicited: true, overrides: true };
        self.neighbours.learn(neighbour, mac, source, false, now, &mut self.outbox);
    }

    /// The other stack no longer knows the neighbour's link address.
    pub fn doubt_neighbour(&mut self, now: Instant, neighbour: Addr) {
        self.neighbours.doubt(neighbour, now);
    }

    /// Changes the interface's link address.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.config.mac = mac;
        self.neighbours.set_own(LinkAddress { mac, vlan: self.config.vlan });
    }

    pub(super) fn pass_question(&mut self, ask: Solicit) {
        // Each neighbour asks again a second later, so the oldest question is no loss.
        if self.questions.len() == CAPACITY {
            self.questions.pop_front();
        }
        self.questions.push_back(ask.target);
    }
}

/// Takes a packet that is not TCP. The engine does not know which addresses are local
/// here, so a packet counts only if it quotes a segment of a connection.
pub(super) fn handle_packet(link: &eth::Header, packet: &[u8], out: &mut dyn FnMut(IcmpForTcp)) -> Verdict {
    match link.ether_type {
        ether_type::IPV4 => {
            let Ok(ipv4::Datagram { header, payload, .. }) = ipv4::Datagram::parse(packet) else {
                return Verdict::Malformed;
            };
            if header.protocol != icmpv4::PROTOCOL || header.more_fragments || header.fragment_offset != 0 {
                return Verdict::Ignored;
            }
            let Ok(message) = icmpv4::Message::parse(payload) else { return Verdict::Malformed };
            let (src, dst) = (header.src.into(), header.dst.into());
            pass_on_v4(&Arrival { link: Some(link), src, dst, hop_limit: header.ttl, packet, payload }, &message, out)
        }
        ether_type::IPV6 => {
            let Ok(ipv6::Datagram { header, chain, payload, .. }) = ipv6::Datagram::parse(packet) else {
                return Verdict::Malformed;
            };
            if chain.protocol != icmpv6::PROTOCOL || chain.fragment.is_some() {
                return Verdict::Ignored;
            }
            let message = icmpv6::Message::parse(payload, header.src, header.dst);
            let Ok(message) = message else { return Verdict::Malformed };
            let (src, dst) = (Addr::from(header.src), Addr::from(header.dst));
            pass_on_v6(
                &Arrival { link: Some(link), src, dst, hop_limit: header.hop_limit, packet, payload },
                &message,
                out,
            )
        }
        _ => Verdict::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::InterfaceConfig;
    use baton_tcp::time::Duration;
    use std::net::Ipv4Addr;

    const T0: Instant = Instant(1_000_000_000);
    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn guest() -> (Endpoint, Addr) {
        let endpoint = Endpoint::new(InterfaceConfig { guest: true, ..InterfaceConfig::ethernet(OURS, Vec::new()) });
        (endpoint, Ipv4Addr::new(10, 77, 0, 9).into())
    }

    #[test]
    fn a_guest_says_nothing_and_asks_its_host() {
        let (mut endpoint, gateway) = guest();
        endpoint.poll(T0);
        assert_eq!(endpoint.peek_outbox(), None);
        assert_eq!(endpoint.pop_question(), None);
        let hop = endpoint.hop_via(T0, gateway).unwrap();
        endpoint.poll(T0);
        assert_eq!(endpoint.pop_question(), Some(gateway));
        assert_eq!(endpoint.link_header(hop), None);
        endpoint.place_neighbour(T0, gateway, THEIRS);
        let header = [&THEIRS[..], &OURS, &[8, 0]].concat();
        assert_eq!(endpoint.link_header(hop), Some(&header[..]));
        assert_eq!(endpoint.peek_outbox(), None);
        assert!(endpoint.addresses().is_empty());
    }

    #[test]
    fn a_neighbour_in_use_is_asked_for_again_and_again() {
        let (mut endpoint, gateway) = guest();
        let hop = endpoint.hop_via(T0, gateway).unwrap();
        endpoint.place_neighbour(T0, gateway, THEIRS);
        let (mut now, mut asked) = (T0, 0);
        for _ in 0..120 {
            now = now + Duration::from_secs(1);
            endpoint.poll(now);
            while let Some(neighbour) = endpoint.pop_question() {
                asked += 1;
                endpoint.place_neighbour(now, neighbour, THEIRS);
            }
            assert!(endpoint.link_header(hop).is_some(), "its address serves while it is confirmed");
        }
        assert!((20..=24).contains(&asked), "every 5 s: {asked}");
    }

    #[test]
    fn a_neighbour_in_doubt_is_asked_for_at_once_and_serves_meanwhile() {
        let (mut endpoint, gateway) = guest();
        endpoint.doubt_neighbour(T0, gateway);
        let hop = endpoint.hop_via(T0, gateway).unwrap();
        endpoint.place_neighbour(T0, gateway, THEIRS);
        endpoint.poll(T0);
        while endpoint.pop_question().is_some() {}
        for _ in 0..3 {
            endpoint.doubt_neighbour(T0, gateway);
            endpoint.poll(T0);
            assert!(endpoint.link_header(hop).is_some());
        }
        // Once for all doubts; nobody answers; nor does it go on for ever.
        let mut asked = 0;
        for second in 0..60 {
            let now = T0 + Duration::from_secs(second);
            endpoint.poll(now);
            asked += std::iter::from_fn(|| endpoint.pop_question()).count();
            endpoint.doubt_neighbour(now, gateway);
        }
        assert_eq!((asked, endpoint.link_header(hop)), (6, None));
    }

    #[test]
    fn both_link_addresses_may_change() {
        let (mut endpoint, gateway) = guest();
        let hop = endpoint.hop_via(T0, gateway).unwrap();
        endpoint.place_neighbour(T0, gateway, [2, 0, 0, 0, 0, 7]);
        endpoint.place_neighbour(T0, gateway, THEIRS);
        endpoint.set_mac([2, 0, 0, 0, 0, 2]);
        let header = [&THEIRS[..], &[2, 0, 0, 0, 0, 2], &[8, 0]].concat();
        assert_eq!(endpoint.link_header(hop), Some(&header[..]));
    }
}
