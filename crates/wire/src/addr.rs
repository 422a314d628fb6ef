//! Addresses and connection tuples of either IP version in one shape.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An IPv4 or IPv6 address: 128 bits, an IPv4 one mapped to `::ffff:a.b.c.d`
/// (RFC 4291 §2.5.5.2), so that one comparison serves both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Addr(pub u128);

impl Addr {
    /// The unspecified IPv6 address `::`.
    pub const UNSPECIFIED: Addr = Addr(0);

    /// An IPv4 address from its four bytes in network order.
    #[inline]
    pub const fn v4(bytes: [u8; 4]) -> Addr {
        Addr(0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128)
    }

    /// An IPv6 address from its sixteen bytes in network order.
    #[inline]
    pub const fn v6(bytes: [u8; 16]) -> Addr {
        Addr(u128::from_be_bytes(bytes))
    }

    /// True for a mapped IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.0 >> 32 == 0xffff
    }

    /// The sixteen bytes in network order.
    #[inline]
    pub const fn octets(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The four bytes of a mapped IPv4 address in network order.
    #[inline]
    pub const fn octets_v4(self) -> [u8; 4] {
        (self.0 as u32).to_be_bytes()
    }

    /// The standard library's type for it.
    pub const fn ip(self) -> IpAddr {
        if self.is_v4() {
            IpAddr::V4(Ipv4Addr::from_bits(self.0 as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(self.0))
        }
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for Addr {
    fn from(ip: Ipv4Addr) -> Addr {
        Addr::v4(ip.octets())
    }
}

impl From<Ipv6Addr> for Addr {
    fn from(ip: Ipv6Addr) -> Addr {
        Addr::v6(ip.octets())
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

/// A connection's name seen from this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tuple {
    /// The address of our end.
    pub local: Addr,
    /// The peer's address.
    pub remote: Addr,
    /// The port of our end.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

impl Tuple {
    /// A tuple from two socket addresses.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Tuple {
        Tuple {
            local: local.ip().into(),
            remote: remote.ip().into(),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// The same connection, seen from its peer.
    pub const fn mirrored(self) -> Tuple {
        let Tuple { local, remote, local_port, remote_port } = self;
        Tuple { local: remote, remote: local, local_port: remote_port, remote_port: local_port }
    }

    /// Our end as a socket address.
    pub const fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.local.ip(), self.local_port)
    }

    /// The peer's end as a socket address.
    pub const fn remote_addr(&self) -> SocketAddr {
        SocketAddr::new(self.remote.ip(), self.remote_port)
    }
}
