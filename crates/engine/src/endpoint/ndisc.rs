//! Neighbour discovery (RFC 4861): solicitations and advertisements.
//!
//! Machines beyond the link cannot take part: the hop limit must still be 255
//! (§7.1). Router advertisements and redirects are ignored.

use super::ip::Arrival;
use super::neighbour::{Solicit, Source};
use super::{Endpoint, Verdict};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::eth::MacAddr;
use baton_wire::icmpv6::Message;
use baton_wire::ipv6::solicited_node;
use core::net::Ipv6Addr;

/// The hop limit of a packet that no router has forwarded (RFC 4861 §7.1).
const ON_LINK: u8 = 255;

/// All nodes of the link (RFC 4291 §2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Endpoint {
    /// Takes a neighbour solicitation (RFC 4861 §7.2.3).
    pub(super) fn handle_solicitation(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        target: Ipv6Addr,
        source_link: Option<MacAddr>,
    ) -> Verdict {
        // Somebody who asks before it uses the address (RFC 4862 §5.4.3) has none
        // yet, must ask the solicited-node group, and gives no link address
        // (RFC 4861 §7.1.1).
        let (src, dst) = arrival.v6_addresses();
        let probe = src.is_unspecified();
        let bad_probe = probe && (source_link.is_some() || dst != solicited_node(target));
        if arrival.hop_limit != ON_LINK || bad_probe || source_link.is_some_and(MacAddr::is_multicast) {
            return Verdict::Malformed;
        }
        if !self.is_ours(target.into()) {
            return Verdict::NotOurs;
        }
        if probe {
            self.send_advertisement(target, ALL_NODES, MacAddr::ipv6_multicast(ALL_NODES), false);
            return Verdict::NeighbourReply;
        }
        let Some(link_source) = arrival.link.map(|link| link.src) else { return Verdict::Ignored };
        if let Some(mac) = source_link.filter(|_| self.routes.is_on_link(src.into())) {
            self.neighbours.learn(src.into(), mac.0, Source::Solicitation, true, now, &mut self.outbox);
        }
        self.send_advertisement(target, src, source_link.unwrap_or(link_source), true);
        Verdict::NeighbourReply
    }

    /// Takes a neighbour advertisement (RFC 4861 §7.2.5): it never makes a
    /// stranger known.
    pub(super) fn handle_advertisement(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        target: Ipv6Addr,
        source: Source,
        target_link: Option<MacAddr>,
    ) -> Verdict {
        let (_, dst) = arrival.v6_addresses();
        let solicited = matches!(source, Source::Advertisement { solicited: true, .. });
        let bad = (solicited && dst.is_multicast()) || target_link.is_some_and(MacAddr::is_multicast);
        if arrival.hop_limit != ON_LINK || bad {
            return Verdict::Malformed;
        }
        if self.is_ours(target.into()) {
            let echo = target_link == Some(MacAddr(self.config.mac));
            return if echo { Verdict::Ignored } else { Verdict::AddressConflict };
        }
        let target = Addr::from(target);
        let learned = match target_link {
            Some(mac) => self.neighbours.learn(target, mac.0, source, false, now, &mut self.outbox),
            // An answer to a unicast question may leave the address out.
            None => solicited && self.neighbours.confirm_known(target, now),
        };
        if learned { Verdict::NeighbourLearned } else { Verdict::Ignored }
    }

    /// Asks for an IPv6 neighbour (RFC 4861 §7.2.2).
    pub(super) fn ask_by_solicitation(&mut self, ask: Solicit, source: Ipv6Addr, target: Ipv6Addr) {
        let message = Message::NeighbourSolicitation { target, source_link: Some(MacAddr(self.config.mac)) };
        let (dst, mac) = match ask.unicast {
            Some(mac) => (target, MacAddr(mac)),
            None => (solicited_node(target), MacAddr::ipv6_multicast(solicited_node(target))),
        };
        self.send_icmpv6(&message, source, dst, Some(mac), ON_LINK);
    }

    /// Tells the link that `own` is ours (RFC 4861 §7.2.6).
    pub(super) fn announce_by_advertisement(&mut self, own: Ipv6Addr) {
        self.send_advertisement(own, ALL_NODES, MacAddr::ipv6_multicast(ALL_NODES), false);
    }

    fn send_advertisement(&mut self, own: Ipv6Addr, dst: Ipv6Addr, to: MacAddr, solicited: bool) {
        let message = Message::NeighbourAdvertisement {
            target: own,
            router: false,
            solicited,
            overriding: true,
            target_link: Some(MacAddr(self.config.mac)),
        };
        self.send_icmpv6(&message, own, dst, Some(to), ON_LINK);
    }
}
