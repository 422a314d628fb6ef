//! Ports, address prefixes and bounded quantities: the values of conditions.

use crate::facts::{BadCondition, Facts, Verdict};
use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;

/// The error for text that names no ports.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a port or range; write a port as 443, or a range as 8000-8999, from 1 to 65535")]
pub struct NoPorts(String);

/// Parses a port (`443`) or a range of ports (`8000-8999`).
///
/// # Errors
/// [`NoPorts`] for anything else, including port 0 and an empty range.
pub fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, NoPorts> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from > 0 && from <= to => Ok(from..=to),
        _ => Err(NoPorts(text.into())),
    }
}

/// The leading bits of addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    addr: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Reads `10.0.0.0/8`, or an address alone.
    ///
    /// # Errors
    /// [`BadCondition`]; also if bits behind the prefix are set.
    pub fn parse(text: &str) -> Result<Prefix, BadCondition> {
        let bad = || BadCondition(format!("'{text}' is no prefix; write an address, or a prefix as 10.0.0.0/8"));
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let addr: IpAddr = addr.trim().parse().map_err(|_| bad())?;
        let width = if addr.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        let prefix = Prefix { addr, bits };
        if bits > width || prefix.leading(addr) != number(addr) {
            return Err(bad());
        }
        Ok(prefix)
    }

    /// The address without the bits behind the prefix.
    fn leading(&self, addr: IpAddr) -> u128 {
        let width = if addr.is_ipv4() { 32 } else { 128 };
        let behind = width - u32::from(self.bits).min(width);
        number(addr).checked_shr(behind).and_then(|lead| lead.checked_shl(behind)).unwrap_or(0)
    }

    /// True if the address begins with these bits.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.addr.is_ipv4() && self.leading(addr) == number(self.addr)
    }

    /// True if it contains every address of `other`.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.bits <= other.bits && self.contains(other.addr)
    }
}

fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u32::from(addr).into(),
        IpAddr::V6(addr) => addr.into(),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.bits)
    }
}

/// Something about a connection that is counted or measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// `bytes`: payload in both directions.
    Bytes,
    /// `sends`: requests to send.
    Sends,
    /// `age`: time since it was established.
    Age,
    /// `round-trip`: smoothed round-trip time.
    RoundTrip,
}

/// The least and the most of a quantity: bytes, a number, or microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    least: u64,
    most: u64,
}

impl Bounds {
    /// True if everything within `other` is within these.
    pub fn covers(&self, other: &Bounds) -> bool {
        self.least <= other.least && other.most <= self.most
    }
}

/// Units with their sizes, the smallest first.
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const TIMES: [(&str, u64); 4] = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)];

impl Quantity {
    const ALL: [Quantity; 4] = [Quantity::Bytes, Quantity::Sends, Quantity::Age, Quantity::RoundTrip];

    pub(crate) const fn key(self) -> &'static str {
        match self {
            Quantity::Bytes => "bytes",
            Quantity::Sends => "sends",
            Quantity::Age => "age",
            Quantity::RoundTrip => "round-trip",
        }
    }

    pub(crate) fn from_key(key: &str) -> Option<Quantity> {
        Quantity::ALL.into_iter().find(|quantity| quantity.key() == key)
    }

    pub(crate) fn of(self, facts: &Facts) -> Option<u64> {
        match self {
            Quantity::Bytes => facts.bytes,
            Quantity::Sends => facts.sends,
            Quantity::Age => facts.age_us,
            Quantity::RoundTrip => facts.round_trip_us,
        }
    }

    /// How bounds stand for a value now. All quantities but the round-trip time only grow.
    pub(crate) fn check(self, bounds: &Bounds, value: u64) -> Verdict {
        match value {
            value if (bounds.least..=bounds.most).contains(&value) => Verdict::Holds,
            value if value > bounds.most && self != Quantity::RoundTrip => Verdict::Fails,
            _ => Verdict::Later,
        }
    }

    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Quantity::Bytes => &SIZES,
            Quantity::Sends => &[("", 1)],
            Quantity::Age | Quantity::RoundTrip => &TIMES,
        }
    }

    /// Reads `>= 64 KiB`, `<= 10 ms`, or `1 s - 5 s`.
    pub(crate) fn parse(self, text: &str) -> Result<Bounds, BadCondition> {
        let example = match self {
            Quantity::Bytes => ">= 64 KiB, <= 1 MiB or 4 KiB - 1 MiB",
            Quantity::Sends => ">= 20, <= 100 or 20 - 100",
            Quantity::Age | Quantity::RoundTrip => ">= 10 ms, <= 5 s or 1 s - 1 min",
        };
        let bad = || BadCondition(format!("'{text}' are no bounds for {}; write them as {example}", self.key()));
        let value = |text: &str| self.value(text.trim()).ok_or_else(bad);
        let text = text.trim();
        let bounds = if let Some(least) = text.strip_prefix(">=") {
            Bounds { least: value(least)?, most: u64::MAX }
        } else if let Some(most) = text.strip_prefix("<=") {
            Bounds { least: 0, most: value(most)? }
        } else {
            let (least, most) = text.split_once('-').ok_or_else(bad)?;
            Bounds { least: value(least)?, most: value(most)? }
        };
        if bounds.least <= bounds.most { Ok(bounds) } else { Err(bad()) }
    }

    fn value(self, text: &str) -> Option<u64> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let (_, size) = self.units().iter().find(|(name, _)| *name == unit.trim())?;
        number.parse::<u64>().ok()?.checked_mul(*size)
    }

    pub(crate) fn show(self, bounds: &Bounds) -> String {
        let show = |value: u64| {
            let units = self.units().iter().rev();
            let (unit, size) = units.copied().find(|(_, size)| value.is_multiple_of(*size)).unwrap_or(("", 1));
            format!("{} {unit}", value / size).trim_end().to_owned()
        };
        match (bounds.least, bounds.most) {
            (least, u64::MAX) => format!(">= {}", show(least)),
            (0, most) => format!("<= {}", show(most)),
            (least, most) => format!("{} - {}", show(least), show(most)),
        }
    }
}
