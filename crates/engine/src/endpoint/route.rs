//! Where a packet goes next, and from which of our addresses.
//!
//! A connected route for each prefix of ours and one default route for each IP
//! version; nothing is learned (redirects are ignored, router advertisements
//! too), so there is no state here but the configuration.

use super::config::{Cidr, InterfaceConfig, link_local};
use baton_wire::addr::Addr;

/// The addresses and routes of one interface.
#[derive(Debug)]
pub(super) struct Routes {
    addresses: Vec<Cidr>,
    gateway_v4: Option<Addr>,
    gateway_v6: Option<Addr>,
}

impl Routes {
    /// Routes of `config`, the link-local address added on Ethernet.
    pub(super) fn new(config: &InterfaceConfig) -> Routes {
        let mut addresses = config.addresses.clone();
        if config.ethernet && !config.guest {
            let own = link_local(config.mac);
            if addresses.iter().all(|cidr| cidr.addr != own) {
                addresses.push(Cidr { addr: own, prefix: 64 });
            }
        }
        Routes { addresses, gateway_v4: config.gateway_v4, gateway_v6: config.gateway_v6 }
    }

    /// Our addresses with their prefixes.
    pub(super) fn addresses(&self) -> &[Cidr] {
        &self.addresses
    }

    /// True for a unicast address of ours.
    #[inline]
    pub(super) fn is_ours(&self, addr: Addr) -> bool {
        self.addresses.iter().any(|cidr| cidr.addr == addr)
    }

    /// True if `addr` is an address of one host: not unspecified, multicast,
    /// loopback or any network's broadcast.
    pub(super) fn is_host(&self, addr: Addr) -> bool {
        let special = match addr.ip() {
            std::net::IpAddr::V4(v4) => {
                v4.octets()[0] == 0 || v4.octets()[0] >= 240 || v4.is_multicast() || v4.is_loopback()
            }
            std::net::IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast() || v6.is_loopback(),
        };
        !special && !self.addresses.iter().any(|cidr| cidr.is_broadcast(addr) && cidr.addr != addr)
    }

    /// True if `addr` is a neighbour: on a prefix of ours, or a gateway.
    pub(super) fn is_on_link(&self, addr: Addr) -> bool {
        self.gateway_of(addr) == Some(addr) || self.addresses.iter().any(|cidr| cidr.contains(addr))
    }

    /// The neighbour that packets to `remote` are given to: itself, or the
    /// gateway; `None` without a route.
    pub(super) fn next_hop(&self, remote: Addr) -> Option<Addr> {
        // MUST-46 (RFC 9293 §3.9.1.1): no route to a group, so an open to one fails.
        if !self.is_host(remote) || self.is_ours(remote) {
            None
        } else if self.is_on_link(remote) {
            Some(remote)
        } else {
            self.gateway_of(remote)
        }
    }

    /// Our address for packets to `remote`: one that shares its link, else one
    /// that shares the gateway's, else the first of that IP version that is not
    /// link-local; `None` without a route.
    pub(super) fn source_for(&self, remote: Addr) -> Option<Addr> {
        let hop = self.next_hop(remote)?;
        self.sharing(remote).or_else(|| {
            let global = |cidr: &&Cidr| cidr.addr.is_v4() == remote.is_v4() && !is_link_local(cidr.addr);
            let with_gateway = self.addresses.iter().filter(global).find(|cidr| cidr.contains(hop));
            with_gateway.or_else(|| self.addresses.iter().find(global)).map(|cidr| cidr.addr)
        })
    }

    /// Our address for asking after the neighbour `hop` (RFC 826; RFC 4861 §7.2.2).
    pub(super) fn solicit_from(&self, hop: Addr) -> Option<Addr> {
        let same_version = |cidr: &&Cidr| cidr.addr.is_v4() == hop.is_v4();
        self.sharing(hop).or_else(|| self.addresses.iter().find(same_version).map(|cidr| cidr.addr))
    }

    /// Our address on the longest prefix that `addr` shares; of several the first,
    /// which `max_by_key` finds last.
    fn sharing(&self, addr: Addr) -> Option<Addr> {
        let on_prefix = self.addresses.iter().rev().filter(|cidr| cidr.contains(addr));
        on_prefix.max_by_key(|cidr| cidr.prefix).map(|cidr| cidr.addr)
    }

    fn gateway_of(&self, addr: Addr) -> Option<Addr> {
        if addr.is_v4() { self.gateway_v4 } else { self.gateway_v6 }
    }
}

fn is_link_local(addr: Addr) -> bool {
    addr.0 >> 118 == 0xfe80 >> 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn addr(text: &str) -> Addr {
        text.parse::<IpAddr>().expect(text).into()
    }

    fn routes(gateways: bool) -> Routes {
        let addresses = ["10.77.0.2/24", "192.0.2.9/28", "fd00::2/64"].map(|c| c.parse().expect(c)).to_vec();
        Routes::new(&InterfaceConfig {
            gateway_v4: gateways.then(|| addr("192.0.2.1")),
            gateway_v6: gateways.then(|| addr("fe80::1")),
            ..InterfaceConfig::ethernet([2, 0, 0, 0, 0, 1], addresses)
        })
    }

    // tests: MUST-46
    #[test]
    fn next_hop_is_the_neighbour_or_the_gateway() {
        // (remote, next hop with gateways, without)
        let table = [
            ("10.77.0.9", Some("10.77.0.9"), Some("10.77.0.9")),
            ("8.8.8.8", Some("192.0.2.1"), None),
            ("192.0.2.1", Some("192.0.2.1"), Some("192.0.2.1")),
            ("fd00::9", Some("fd00::9"), Some("fd00::9")),
            ("2001:db8::9", Some("fe80::1"), None),
            ("fe80::1", Some("fe80::1"), Some("fe80::1")),
            ("10.77.0.2", None, None),   // ours
            ("10.77.0.255", None, None), // broadcast
            ("255.255.255.255", None, None),
            ("224.0.0.1", None, None),
            ("0.0.0.0", None, None),
            ("127.0.0.1", None, None),
            ("ff02::1", None, None),
            ("::", None, None),
            ("::1", None, None),
        ];
        for (remote, with, without) in table {
            assert_eq!(routes(true).next_hop(addr(remote)), with.map(addr), "{remote} with gateways");
            assert_eq!(routes(false).next_hop(addr(remote)), without.map(addr), "{remote} without gateways");
        }
    }

    // tests: MUST-44
    #[test]
    fn source_address_shares_the_link_with_the_next_hop() {
        let table = [
            ("10.77.0.9", Some("10.77.0.2")),
            ("192.0.2.3", Some("192.0.2.9")),
            ("8.8.8.8", Some("192.0.2.9")),
            ("fd00::9", Some("fd00::2")),
            ("2001:db8::9", Some("fd00::2")),
            ("fe80::1", Some("fe80::ff:fe00:1")),
            ("ff02::1", None),
        ];
        for (remote, source) in table {
            assert_eq!(routes(true).source_for(addr(remote)), source.map(addr), "{remote}");
        }
        assert_eq!(routes(true).solicit_from(addr("fe80::1")), Some(addr("fe80::ff:fe00:1")));
        assert_eq!(routes(true).solicit_from(addr("10.1.1.1")), Some(addr("10.77.0.2")));
    }
}
