//! Configuration of an interface.

use baton_wire::addr::Addr;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address and the length of the prefix that is on the same link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    /// The address itself, not only its network.
    pub addr: Addr,
    /// Prefix length in bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub prefix: u8,
}

impl Cidr {
    /// True if `addr` is of the same IP version and has the same prefix.
    pub fn contains(&self, addr: Addr) -> bool {
        addr.is_v4() == self.addr.is_v4() && (addr.0 ^ self.addr.0) & self.mask() == 0
    }

    /// True for the broadcast address of an IPv4 network, its own or the old
    /// all-zeros one (RFC 1122 §3.2.1.3); networks of two addresses or one have none.
    pub fn is_broadcast(&self, addr: Addr) -> bool {
        let host_bits = !self.mask();
        self.addr.is_v4()
            && self.prefix < 31
            && self.contains(addr)
            && (addr.0 & host_bits == host_bits || addr.0 & host_bits == 0)
    }

    fn mask(&self) -> u128 {
        let width = if self.addr.is_v4() { 32 } else { 128 };
        let host = width - u32::from(self.prefix).min(width);
        u128::MAX.checked_shl(host).unwrap_or(0)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let wrong = || CidrError(text.to_owned());
        let (addr, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = addr.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        if prefix > longest {
            return Err(wrong());
        }
        Ok(Cidr { addr: ip.into(), prefix })
    }
}

/// Text that is not an address with a prefix length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address with a prefix length, such as 10.77.0.2/24 or fd00::2/64")]
#[non_exhaustive]
pub struct CidrError(pub String);

/// One interface of an endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InterfaceConfig {
    /// Our link address; meaningless without `ethernet`.
    pub mac: [u8; 6],
    /// Our addresses. On Ethernet the link-local IPv6 address of `mac` is added.
    pub addresses: Vec<Cidr>,
    /// Where IPv4 packets for other networks go.
    pub gateway_v4: Option<Addr>,
    /// Where IPv6 packets for other networks go.
    pub gateway_v6: Option<Addr>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Frames have an Ethernet header; else they are bare IP packets and there
    /// are no neighbours to find.
    pub ethernet: bool,
    /// The 802.1Q VLAN that we are in, 1 to 4094; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// The interface and its addresses belong to another stack: nothing is announced, asked or
    /// answered here. `addresses` is empty; connections come by adoption.
    pub guest: bool,
}

impl InterfaceConfig {
    /// An Ethernet interface of our own, with an MTU of 1500, no gateway and no VLAN.
    pub fn ethernet(mac: [u8; 6], addresses: Vec<Cidr>) -> InterfaceConfig {
        InterfaceConfig {
            mac,
            addresses,
            gateway_v4: None,
            gateway_v6: None,
            mtu: 1500,
            ethernet: true,
            vlan: None,
            guest: false,
        }
    }

    /// An Ethernet interface that belongs to another stack, with its MTU; see `guest`.
    pub fn guest(mac: [u8; 6], mtu: u16) -> InterfaceConfig {
        InterfaceConfig { mtu, guest: true, ..InterfaceConfig::ethernet(mac, Vec::new()) }
    }
}

/// The link-local address made of a MAC (RFC 4291 §2.5.1 and appendix A).
pub fn link_local(mac: [u8; 6]) -> Addr {
    let [a, b, c, d, e, f] = mac;
    Addr::v6([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect(text)
    }

    fn addr(text: &str) -> Addr {
        text.parse::<IpAddr>().expect(text).into()
    }

    #[test]
    fn a_prefix_contains_its_own_version_only() {
        assert!(cidr("10.77.0.2/24").contains(addr("10.77.0.255")));
        assert!(!cidr("10.77.0.2/24").contains(addr("10.77.1.2")));
        assert!(cidr("0.0.0.0/0").contains(addr("8.8.8.8")));
        assert!(!cidr("0.0.0.0/0").contains(addr("fd00::1")));
        assert!(cidr("::/0").contains(addr("fd00::1")));
        assert!(!cidr("::/0").contains(addr("1.2.3.4")));
        assert!(cidr("fd00::2/64").contains(addr("fd00::ffff:1")));
        assert!(!cidr("fd00::2/64").contains(addr("fd00:0:0:1::1")));
        assert!(!cidr("10.0.0.1/32").contains(addr("10.0.0.2")));
    }

    #[test]
    fn only_ipv4_networks_of_more_than_two_have_broadcast_addresses() {
        assert!(cidr("10.77.0.2/24").is_broadcast(addr("10.77.0.255")));
        assert!(cidr("10.77.0.2/24").is_broadcast(addr("10.77.0.0")));
        assert!(!cidr("10.77.0.2/24").is_broadcast(addr("10.77.0.1")));
        assert!(!cidr("10.77.0.2/31").is_broadcast(addr("10.77.0.3")));
        assert!(!cidr("10.77.0.2/32").is_broadcast(addr("10.77.0.2")));
        assert!(!cidr("fd00::2/64").is_broadcast(addr("fd00::")));
    }

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        for good in ["10.77.0.2/24", "fd00::2/64", "0.0.0.0/0"] {
            assert_eq!(cidr(good).to_string(), good);
        }
        for bad in ["", "10.0.0.1", "10.0.0.1/33", "fd00::/129", "10.0.0/8", "10.0.0.1/x", "10.0.0.1/-1"] {
            assert_eq!(bad.parse::<Cidr>(), Err(CidrError(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn link_local_address_is_modified_eui_64() {
        assert_eq!(link_local([0x02, 0, 0, 0x12, 0x34, 0x56]), addr("fe80::ff:fe12:3456"));
    }
}
