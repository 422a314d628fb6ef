//! Socket options in requests: a number and a 64-bit value each; and, for
//! requests that open something, bits for those that are on or off.

use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::time::Duration;

/// Numbers of [`encode`] and [`decode`].
mod number {
    pub const NODELAY: u32 = 1;
    pub const CORK: u32 = 2;
    pub const KEEPALIVE: u32 = 3;
    pub const USER_TIMEOUT: u32 = 4;
    pub const QUICKACK: u32 = 5;
    pub const LINGER2: u32 = 6;
}

/// Number of the option whose value is [`IpFields::bits`]. Only the Streamer uses it: no
/// decision depends on it.
pub const IP_FIELDS: u32 = 7;

/// Fields of its segments' IP headers that an application chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpFields {
    /// Differentiated services in the upper six bits (RFC 2474 §3); the lower two
    /// are ECN's and TCP's own.
    pub traffic_class: u8,
    /// Time to live or hop limit; 0 for the host's.
    pub ttl: u8,
    /// Routers may cut its IPv4 packets: no Don't Fragment (`IP_PMTUDISC_DONT`).
    pub fragments: bool,
}

impl IpFields {
    /// As option bits of `Connect` and `Listen`, in addition to the others.
    pub const fn bits(self) -> u64 {
        (self.traffic_class as u64) << 8 | (self.ttl as u64) << 16 | (self.fragments as u64) << 24
    }

    /// The fields in option bits.
    pub const fn from_bits(bits: u64) -> IpFields {
        IpFields { traffic_class: (bits >> 8) as u8, ttl: (bits >> 16) as u8, fragments: bits >> 24 & 1 != 0 }
    }
}

/// Option bit of `Connect` and `Listen`: Nagle's algorithm off.
pub const NODELAY: u64 = 1;

/// Option bit of `Connect` and `Listen`: probe idle peers, with default times.
pub const KEEPALIVE: u64 = 2;

/// Option bits of `Connect` and `Listen`: the MSS, in bytes, that is announced and sent
/// with at most (`TCP_MAXSEG`); 0 for what the path carries.
pub const fn most_mss(mss: u16) -> u64 {
    (mss as u64) << 32
}

/// The MSS that option bits ask for, if any.
pub const fn most_mss_of(bits: u64) -> Option<u16> {
    match (bits >> 32) as u16 {
        0 => None,
        mss => Some(mss),
    }
}

/// An option as a request carries it. Times are in whole seconds for keepalive,
/// in milliseconds for the timeouts; 0 stands for "off" or "the host's".
pub fn encode(option: SocketOption) -> (u32, u64) {
    let millis = |span: Option<Duration>| span.map_or(0, Duration::as_millis);
    match option {
        SocketOption::NoDelay(on) => (number::NODELAY, on.into()),
        SocketOption::Cork(on) => (number::CORK, on.into()),
        SocketOption::QuickAck(on) => (number::QUICKACK, on.into()),
        SocketOption::KeepAlive(None) => (number::KEEPALIVE, 0),
        SocketOption::KeepAlive(Some(keep)) => {
            let seconds = |span: Duration, max: u64| (span.as_millis() / 1000).clamp(1, max);
            let value = seconds(keep.idle, u64::from(u32::MAX))
                | seconds(keep.interval, 0xffff) << 32
                | u64::from(keep.probes.max(1)) << 48;
            (number::KEEPALIVE, value)
        }
        SocketOption::UserTimeout(span) => (number::USER_TIMEOUT, millis(span)),
        SocketOption::Linger2(span) => (number::LINGER2, millis(span)),
    }
}

/// The option that a request carries; `None` if there is no such.
pub fn decode(number: u32, value: u64) -> Option<SocketOption> {
    let millis = || (value != 0).then(|| Duration(value.saturating_mul(1_000_000)));
    Some(match number {
        number::NODELAY => SocketOption::NoDelay(value != 0),
        number::CORK => SocketOption::Cork(value != 0),
        number::QUICKACK => SocketOption::QuickAck(value != 0),
        number::KEEPALIVE => SocketOption::KeepAlive((value != 0).then(|| KeepAlive {
            idle: Duration::from_secs((value & 0xffff_ffff).max(1)),
            interval: Duration::from_secs((value >> 32 & 0xffff).max(1)),
            probes: (value >> 48).clamp(1, 127) as u8,
        })),
        number::USER_TIMEOUT => SocketOption::UserTimeout(millis()),
        number::LINGER2 => SocketOption::Linger2(millis()),
        _ => return None,
    })
}

/// The options that the bits of a `Connect` or `Listen` ask for.
pub fn from_bits(bits: u64) -> impl Iterator<Item = SocketOption> {
    let nodelay = (bits & NODELAY != 0).then_some(SocketOption::NoDelay(true));
    let keepalive = (bits & KEEPALIVE != 0).then(|| SocketOption::KeepAlive(Some(KeepAlive::default())));
    nodelay.into_iter().chain(keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_as_they_went() {
        let keep = KeepAlive { idle: Duration::from_secs(30), interval: Duration::from_secs(5), probes: 3 };
        for option in [
            SocketOption::NoDelay(true),
            SocketOption::Cork(false),
            SocketOption::QuickAck(true),
            SocketOption::KeepAlive(None),
            SocketOption::KeepAlive(Some(keep)),
            SocketOption::UserTimeout(Some(Duration::from_millis(1500))),
            SocketOption::UserTimeout(None),
            SocketOption::Linger2(Some(Duration::from_secs(7))),
        ] {
            let (number, value) = encode(option);
            assert_eq!(decode(number, value), Some(option));
        }
        assert_eq!(decode(99, 0), None);
    }

    #[test]
    fn fields_of_the_ip_header_stand_beside_the_other_bits() {
        let fields = IpFields { traffic_class: 0xb8, ttl: 255, fragments: true };
        let bits = fields.bits() | NODELAY | KEEPALIVE | most_mss(1400);
        assert_eq!((IpFields::from_bits(bits), most_mss_of(bits)), (fields, Some(1400)));
        assert_eq!(from_bits(fields.bits()).count(), 0);
    }
}
