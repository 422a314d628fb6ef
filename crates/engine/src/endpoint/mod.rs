//! Endpoint mode: Baton as a host of its own on a link.
//!
//! This is the part of a TCP/IP host that is not TCP: it answers ARP, neighbour solicitations
//! and echo requests, refuses other protocols, finds its neighbours' link addresses, and passes
//! on ICMP errors about its connections.
//!
//! ```text
//!   frame, not TCP --handle_frame--> arp | ndisc | icmp --> Verdict, IcmpForTcp
//!                                      |      |       |
//!                                      v      v       v
//!   hop_for, hop_from_frame -----> neighbours -----> outbox ---> the port
//!   link_header <--------------------- '
//! ```
//!
//! An [`Endpoint`] has no clock and does no I/O: it is told the time, and what it wants to send
//! waits in a bounded outbox until its driver takes it. Everything that a stranger can make it
//! keep is bounded: 4096 neighbours, 256 frames.
//!
//! On an interface that belongs to another stack it is a guest (`guest.rs`): only the neighbour
//! table is used, and its questions go to that stack.
//!
//! Left out, on purpose: duplicate address detection (the addresses are configured, and waiting
//! a second before the first packet gains nothing; another host that claims one is counted),
//! multicast listener reports, fragments (neither made nor reassembled), redirects and router
//! advertisements (ignored: any machine on the link could divert our traffic with them).

mod arp;
mod bucket;
mod config;
mod guest;
mod icmp;
mod ip;
mod ndisc;
mod neighbour;
mod outbox;
mod route;

pub use config::{Cidr, CidrError, InterfaceConfig, link_local};
pub use neighbour::HopId;

use baton_tcp::icmp::IcmpError;
use baton_tcp::time::Instant;
use baton_wire::addr::{Addr, Tuple};
use baton_wire::eth::{self, MacAddr, ether_type};
use bucket::Bucket;
use core::net::IpAddr;
use neighbour::{LinkAddress, Neighbours, Solicit};
use outbox::Outbox;
use route::Routes;
use std::collections::VecDeque;

/// An ICMP error about a segment that we sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpForTcp {
    /// The connection, our address being local.
    pub tuple: Tuple,
    /// The fate of the segment, as the error reports it.
    pub error: IcmpError,
}

/// The fate of a frame, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// An echo request was answered.
    EchoReply,
    /// An ARP request or neighbour solicitation for us was answered.
    NeighbourReply,
    /// A neighbour's link address was learned or confirmed.
    NeighbourLearned,
    /// An ICMP error about a TCP segment of ours was passed on.
    IcmpError,
    /// Refused with an ICMP error: no such port or protocol here.
    Refused,
    /// Somebody else uses an address of ours.
    AddressConflict,
    /// Not answered because of the rate limit.
    RateLimited,
    /// Addressed to somebody else.
    NotOurs,
    /// Contradicts its own lengths, checksum or format.
    Malformed,
    /// Well formed, and ignored.
    Ignored,
}

impl Verdict {
    /// All verdicts, in the order of [`Counters`].
    pub const ALL: [Verdict; 10] = [
        Verdict::EchoReply,
        Verdict::NeighbourReply,
        Verdict::NeighbourLearned,
        Verdict::IcmpError,
        Verdict::Refused,
        Verdict::AddressConflict,
        Verdict::RateLimited,
        Verdict::NotOurs,
        Verdict::Malformed,
        Verdict::Ignored,
    ];
}

/// Frames by verdict, and losses for lack of space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    verdicts: [u64; Verdict::ALL.len()],
    /// Frames that found the outbox full.
    pub outbox_overflows: u64,
    /// Hops refused because every entry of the table was in use.
    pub neighbours_full: u64,
}

impl Counters {
    /// Frames with this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict as usize]
    }
}

/// One interface as a TCP/IP host.
#[derive(Debug)]
pub struct Endpoint {
    config: InterfaceConfig,
    routes: Routes,
    neighbours: Neighbours,
    outbox: Outbox,
    echo_limit: Bucket,
    error_limit: Bucket,
    /// Scratch for a message on its way out, as long as the MTU.
    scratch: Vec<u8>,
    /// Scratch of a poll: neighbours to ask for.
    asks: Vec<Solicit>,
    /// Questions for the stack that owns the interface.
    questions: VecDeque<Addr>,
    announced: bool,
    counters: Counters,
}

impl Endpoint {
    /// An endpoint with these addresses. The first `poll` announces them.
    pub fn new(config: InterfaceConfig) -> Endpoint {
        let own = LinkAddress { mac: config.mac, vlan: config.vlan };
        Endpoint {
            routes: Routes::new(&config),
            neighbours: if config.guest { Neighbours::new(own).asking_a_host() } else { Neighbours::new(own) },
            outbox: Outbox::default(),
            echo_limit: Bucket::new(icmp::ECHO_LIMIT.0, icmp::ECHO_LIMIT.1),
            error_limit: Bucket::new(icmp::ERROR_LIMIT.0, icmp::ERROR_LIMIT.1),
            scratch: vec![0; usize::from(config.mtu)],
            asks: Vec::new(),
            questions: VecDeque::new(),
            announced: !config.ethernet || config.guest,
            counters: Counters::default(),
            config,
        }
    }

    /// True for a unicast address of ours.
    #[inline]
    pub fn is_ours(&self, addr: Addr) -> bool {
        self.routes.is_ours(addr)
    }

    /// True for an address that a connection may be with: one host's, not ours.
    pub fn is_peer(&self, addr: Addr) -> bool {
        self.routes.is_host(addr) && !self.is_ours(addr)
    }

    /// All our addresses, the link-local one included.
    pub fn addresses(&self) -> &[Cidr] {
        self.routes.addresses()
    }

    /// The address to connect to `remote` from; `None` without a route.
    pub fn source_for(&self, remote: Addr) -> Option<Addr> {
        self.routes.source_for(remote)
    }

    /// Takes a frame that is not a TCP segment. ICMP errors about a connection go to `out`;
    /// answers go to the outbox.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8], out: &mut dyn FnMut(IcmpForTcp)) -> Verdict {
        let verdict = self.judge(now, frame, out);
        self.counters.verdicts[verdict as usize] += 1;
        verdict
    }

    fn judge(&mut self, now: Instant, frame: &[u8], out: &mut dyn FnMut(IcmpForTcp)) -> Verdict {
        if !self.config.ethernet {
            return match frame.first().map(|byte| byte >> 4) {
                Some(4) => self.handle_ipv4(now, None, frame, out),
                Some(6) => self.handle_ipv6(now, None, frame, out),
                _ => Verdict::Malformed,
            };
        }
        let Ok((link, packet)) = eth::Header::parse(frame) else { return Verdict::Malformed };
        if link.src.is_multicast() {
            return Verdict::Malformed;
        }
        let for_us = link.dst == MacAddr(self.config.mac) || link.dst.is_multicast();
        if !for_us || !self.is_our_vlan(&link) {
            return Verdict::NotOurs;
        }
        if self.config.guest {
            return guest::handle_packet(&link, packet, out);
        }
        match link.ether_type {
            ether_type::ARP => self.handle_arp(now, &link, packet),
            ether_type::IPV4 => self.handle_ipv4(now, Some(&link), packet, out),
            ether_type::IPV6 => self.handle_ipv6(now, Some(&link), packet, out),
            _ => Verdict::Ignored,
        }
    }

    /// True on an interface that belongs to another stack.
    pub fn is_guest(&self) -> bool {
        self.config.guest
    }

    /// VLAN 0 is a priority, not a VLAN (IEEE 802.1Q §9.6).
    fn is_our_vlan(&self, link: &eth::Header) -> bool {
        match link.vlan.as_slice() {
            [] => self.config.vlan.is_none(),
            [tag] => tag.vid() == self.config.vlan.unwrap_or(0),
            _ => false,
        }
    }

    /// Takes a reference on the next hop to `remote`; `None` if there is no route
    /// or no room for one more neighbour.
    pub fn hop_for(&mut self, now: Instant, remote: Addr) -> Option<HopId> {
        if !self.config.ethernet {
            return self.is_peer(remote).then_some(HopId::BARE);
        }
        let next = self.routes.next_hop(remote)?;
        let hop = self.neighbours.acquire(next, now);
        self.counters.neighbours_full += u64::from(hop.is_none());
        hop
    }

    /// True if `remote` is its own next hop, a neighbour on an Ethernet link.
    pub fn is_on_link(&self, remote: Addr) -> bool {
        self.config.ethernet && self.routes.next_hop(remote) == Some(remote)
    }

    /// Takes a reference on the next hop back to `remote`, the sender of `frame`. An unknown
    /// neighbour gets the frame's source address.
    pub fn hop_from_frame(&mut self, now: Instant, remote: Addr, frame: &[u8]) -> Option<HopId> {
        if self.config.ethernet && self.routes.next_hop(remote) == Some(remote) {
            let source = frame.get(6..12).and_then(|mac| mac.try_into().ok());
            if let Some(mac) = source.filter(|mac: &[u8; 6]| mac[0] & 1 == 0) {
                self.neighbours.learn(remote, mac, neighbour::Source::Frame, true, now, &mut self.outbox);
            }
        }
        self.hop_for(now, remote)
    }

    /// Gives back a reference that [`Endpoint::hop_for`] or
    /// [`Endpoint::hop_from_frame`] took.
    pub fn hop_release(&mut self, hop: HopId) {
        self.neighbours.release(hop);
    }

    /// The link header for packets through `hop`, ready to copy: empty on a port
    /// without, `None` while the neighbour's address is unknown. It holds the
    /// ethertype too, since a neighbour is of one IP version.
    #[inline]
    pub fn link_header(&self, hop: HopId) -> Option<&[u8]> {
        self.neighbours.header(hop)
    }

    /// A connection through `hop` made forward progress: its neighbour is
    /// reachable (RFC 4861 §7.3.1).
    pub fn confirm(&mut self, hop: HopId, now: Instant) {
        self.neighbours.confirm(hop, now);
    }

    /// Sends a packet (IP header first) through `hop` as soon as its neighbour's address is
    /// known, and sees to it that it is asked for. Up to four packets of up to 128 bytes wait
    /// for one neighbour; a fifth replaces the oldest. False if this one is too big to wait.
    pub fn hold(&mut self, hop: HopId, packet: &[u8]) -> bool {
        self.neighbours.hold(hop, packet, &mut self.outbox)
    }

    /// Does what is due: asks for neighbours, gives up on those that stay silent.
    pub fn poll(&mut self, now: Instant) {
        if !self.announced {
            self.announced = true;
            self.announce();
        }
        let mut asks = std::mem::take(&mut self.asks);
        self.neighbours.poll(now, &mut |ask| asks.push(ask));
        for ask in asks.drain(..) {
            if self.config.guest {
                self.pass_question(ask);
            } else {
                self.ask(ask);
            }
        }
        self.asks = asks;
    }

    fn announce(&mut self) {
        for index in 0..self.addresses().len() {
            match self.addresses()[index].addr.ip() {
                IpAddr::V4(own) => self.announce_by_arp(own),
                IpAddr::V6(own) => self.announce_by_advertisement(own),
            }
        }
    }

    fn ask(&mut self, ask: Solicit) {
        let Some(source) = self.routes.solicit_from(ask.target) else { return };
        match (source.ip(), ask.target.ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => self.ask_by_arp(ask, source, target),
            (IpAddr::V6(source), IpAddr::V6(target)) => self.ask_by_solicitation(ask, source, target),
            _ => {}
        }
    }

    fn own_link(&self) -> LinkAddress {
        LinkAddress { mac: self.config.mac, vlan: self.config.vlan }
    }

    /// When [`Endpoint::poll`] is to be called next; `None` if nothing is planned.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.announced { self.neighbours.next_deadline() } else { Some(Instant(0)) }
    }

    /// The oldest frame to be sent, which stays in the outbox.
    pub fn peek_outbox(&self) -> Option<&[u8]> {
        self.outbox.front()
    }

    /// Takes the oldest frame to be sent.
    pub fn pop_outbox(&mut self) -> Option<&[u8]> {
        self.outbox.pop()
    }

    /// A hop in use whose neighbour did not answer: connections being opened
    /// through it fail with `EHOSTUNREACH`, established ones are told a soft
    /// error. Each failed attempt is told once.
    pub fn pop_unreachable(&mut self) -> Option<HopId> {
        self.neighbours.pop_failed()
    }

    /// Neighbours in the table, known or asked for.
    pub fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// Counts since the endpoint was made.
    pub fn counters(&self) -> Counters {
        Counters { outbox_overflows: self.outbox.overflows(), ..self.counters }
    }
}

#[cfg(test)]
mod tests;
