//! ARP (RFC 826): finding the owner of an IPv4 address, and announcing our own.
//!
//! A packet may change the same as on Linux: a request for us adds its sender to the table, any
//! other packet only refreshes known neighbours (the merge flag of RFC 826), and an address
//! learned less than a second ago stays (`locktime`).

use super::neighbour::{Solicit, Source};
use super::{Endpoint, Verdict};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::arp::{LEN, Operation, Packet};
use baton_wire::eth::{Header, MacAddr, ether_type};
use core::net::Ipv4Addr;

impl Endpoint {
    /// Takes an ARP packet.
    pub(super) fn handle_arp(&mut self, now: Instant, link: &Header, packet: &[u8]) -> Verdict {
        let Ok(arp) = Packet::parse(packet) else { return Verdict::Malformed };
        let (sender, target) = (Addr::from(arp.sender_ip), Addr::from(arp.target_ip));
        // A probe asks before it uses an address, so it has none (RFC 5227 §2.1.1).
        let probe = arp.sender_ip.is_unspecified();
        if arp.sender_mac.is_multicast() || !(probe || self.routes.is_host(sender)) {
            return Verdict::Malformed;
        }
        if self.is_ours(sender) {
            let echo = arp.sender_mac.0 == self.config.mac;
            return if echo { Verdict::Ignored } else { Verdict::AddressConflict };
        }
        let request = arp.operation == Operation::Request;
        let asks_us = request && self.is_ours(target);
        let learned = !probe && self.routes.is_on_link(sender) && {
            let source = Source::Arp { solicited: !request && link.dst.0 == self.config.mac };
            self.neighbours.learn(sender, arp.sender_mac.0, source, asks_us, now, &mut self.outbox)
        };
        if asks_us {
            self.send_arp(Operation::Reply, arp.target_ip, (arp.sender_mac, arp.sender_ip), arp.sender_mac);
            Verdict::NeighbourReply
        } else if learned {
            Verdict::NeighbourLearned
        } else {
            Verdict::NotOurs
        }
    }

    /// Asks for an IPv4 neighbour.
    pub(super) fn ask_by_arp(&mut self, ask: Solicit, source: Ipv4Addr, target: Ipv4Addr) {
        let to = ask.unicast.map_or(MacAddr::BROADCAST, MacAddr);
        self.send_arp(Operation::Request, source, (MacAddr::default(), target), to);
    }

    /// Tells the link that `own` is ours (RFC 5227 §3).
    pub(super) fn announce_by_arp(&mut self, own: Ipv4Addr) {
        self.send_arp(Operation::Request, own, (MacAddr::default(), own), MacAddr::BROADCAST);
    }

    fn send_arp(&mut self, operation: Operation, own: Ipv4Addr, target: (MacAddr, Ipv4Addr), to: MacAddr) {
        let packet = Packet {
            operation,
            sender_mac: MacAddr(self.config.mac),
            sender_ip: own,
            target_mac: target.0,
            target_ip: target.1,
        };
        let (link, len) = self.own_link().header_to(to.0, ether_type::ARP);
        let mut bytes = [0; LEN];
        if packet.write(&mut bytes).is_ok() {
            self.outbox.push(&[&link[..len], &bytes]);
        }
    }
}
