//! Conditions on a connection, by which a rule of a policy is for it or not.
//!
//! A condition is a key and a text, such as `local-port` and `80, 8000-8999`. The configuration file,
//! a policy file and the programs of `baton run` get the same keys and texts.

use crate::bounds::{Bounds, Prefix, Quantity, parse_ports};
pub use crate::facts::{BadCondition, Direction, Facts, Verdict, cgroup_of};
use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;

/// One condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// `local-port`: the port of our end is among these.
    LocalPort(Vec<RangeInclusive<u16>>),
    /// `remote-port`: the peer's port is among these.
    RemotePort(Vec<RangeInclusive<u16>>),
    /// `local`: our address has one of these prefixes.
    Local(Vec<Prefix>),
    /// `remote`: the peer's address has one of these prefixes.
    Remote(Vec<Prefix>),
    /// `family`: IPv6 if true, IPv4 if false.
    Family(bool),
    /// `interface`: it goes over one of these.
    Interface(Vec<String>),
    /// `direction`: which side opened it.
    Direction(Direction),
    /// `user`: its program runs as one of these users, by number.
    User(Vec<u32>),
    /// `program`: its program has one of these names.
    Program(Vec<String>),
    /// `cgroup`: its program is in one of these cgroups, or below.
    Cgroup(Vec<String>),
    /// `bytes`, `sends`, `age`, `round-trip`: the quantity is within these bounds.
    Within(Quantity, Bounds),
}

impl Condition {
    /// The keys of all conditions, in the order of the documentation.
    pub const KEYS: [&str; 14] = [
        "local-port",
        "remote-port",
        "local",
        "remote",
        "family",
        "interface",
        "direction",
        "user",
        "program",
        "cgroup",
        "bytes",
        "sends",
        "age",
        "round-trip",
    ];

    /// Reads a condition. Lists have commas between their parts. Users are numbers here; the reader of
    /// a file looks names up.
    ///
    /// # Errors
    /// [`BadCondition`], which says what to write instead after a semicolon.
    pub fn parse(key: &str, text: &str) -> Result<Condition, BadCondition> {
        let bad = |what: String| Err(BadCondition(what));
        Ok(match key {
            "local-port" => Condition::LocalPort(ports(text)?),
            "remote-port" => Condition::RemotePort(ports(text)?),
            "local" => Condition::Local(list(text, Prefix::parse)?),
            "remote" => Condition::Remote(list(text, Prefix::parse)?),
            "family" => match text.trim() {
                "ipv4" => Condition::Family(false),
                "ipv6" => Condition::Family(true),
                other => return bad(format!("'{other}' is no family; write ipv4 or ipv6")),
            },
            "direction" => match text.trim() {
                "accepted" => Condition::Direction(Direction::Accepted),
                "connected" => Condition::Direction(Direction::Connected),
                other => return bad(format!("'{other}' is no direction; write accepted or connected")),
            },
            "user" => Condition::User(list(text, |part| {
                part.parse().map_err(|_| BadCondition(format!("'{part}' is no user; write a name or a number")))
            })?),
            "interface" => Condition::Interface(list(text, name)?),
            "program" => Condition::Program(list(text, program)?),
            "cgroup" => Condition::Cgroup(list(text, cgroup)?),
            _ => match Quantity::from_key(key) {
                Some(quantity) => Condition::Within(quantity, quantity.parse(text)?),
                None => return bad(format!("'{key}' is no condition; write one of {}", Condition::KEYS.join(", "))),
            },
        })
    }

    /// The key under which a file has it.
    pub const fn key(&self) -> &'static str {
        match self {
            Condition::LocalPort(_) => "local-port",
            Condition::RemotePort(_) => "remote-port",
            Condition::Local(_) => "local",
            Condition::Remote(_) => "remote",
            Condition::Family(_) => "family",
            Condition::Interface(_) => "interface",
            Condition::Direction(_) => "direction",
            Condition::User(_) => "user",
            Condition::Program(_) => "program",
            Condition::Cgroup(_) => "cgroup",
            Condition::Within(quantity, _) => quantity.key(),
        }
    }

    /// Checks it against a connection.
    pub fn check(&self, facts: &Facts) -> Verdict {
        let port = |ranges: &[RangeInclusive<u16>], port| Some(ranges.iter().any(|range| range.contains(&port)));
        let among = |names: &[String], name: &Option<String>| name.as_ref().map(|name| names.contains(name));
        let within =
            |prefixes: &[Prefix], addr: Option<IpAddr>| addr.map(|addr| prefixes.iter().any(|it| it.contains(addr)));
        let holds = match self {
            Condition::LocalPort(ranges) => port(ranges, facts.local.1),
            Condition::RemotePort(ranges) => port(ranges, facts.remote.1),
            Condition::Local(prefixes) => within(prefixes, facts.local.0),
            Condition::Remote(prefixes) => within(prefixes, facts.remote.0),
            Condition::Family(is_v6) => facts.local.0.map(|addr| addr.is_ipv6() == *is_v6),
            Condition::Interface(names) => among(names, &facts.interface),
            Condition::Direction(direction) => facts.direction.map(|it| it == *direction),
            Condition::User(users) => facts.user.map(|user| users.contains(&user)),
            Condition::Program(names) => among(names, &facts.program),
            Condition::Cgroup(paths) => {
                facts.cgroup.as_ref().map(|cgroup| paths.iter().any(|path| is_below(cgroup, path)))
            }
            Condition::Within(quantity, bounds) => {
                let value = quantity.of(facts);
                return value.map_or(Verdict::Unknown, |value| quantity.check(bounds, value));
            }
        };
        match holds {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Fails,
            None => Verdict::Unknown,
        }
    }

    /// True if it holds wherever `other`, a condition with the same key, holds.
    pub fn covers(&self, other: &Condition) -> bool {
        let ports = |ours: &[RangeInclusive<u16>], theirs: &[RangeInclusive<u16>]| {
            theirs.iter().all(|it| ours.iter().any(|range| range.contains(it.start()) && range.contains(it.end())))
        };
        let prefixes =
            |ours: &[Prefix], theirs: &[Prefix]| theirs.iter().all(|it| ours.iter().any(|wide| wide.covers(it)));
        let names = |ours: &[String], theirs: &[String]| theirs.iter().all(|it| ours.contains(it));
        match (self, other) {
            (Condition::LocalPort(ours), Condition::LocalPort(theirs))
            | (Condition::RemotePort(ours), Condition::RemotePort(theirs)) => ports(ours, theirs),
            (Condition::Local(ours), Condition::Local(theirs))
            | (Condition::Remote(ours), Condition::Remote(theirs)) => prefixes(ours, theirs),
            (Condition::Interface(ours), Condition::Interface(theirs))
            | (Condition::Program(ours), Condition::Program(theirs)) => names(ours, theirs),
            (Condition::Cgroup(ours), Condition::Cgroup(theirs)) => {
                theirs.iter().all(|it| ours.iter().any(|path| is_below(it, path)))
            }
            (Condition::User(ours), Condition::User(theirs)) => theirs.iter().all(|it| ours.contains(it)),
            (Condition::Within(of, ours), Condition::Within(it, theirs)) => of == it && ours.covers(theirs),
            (ours, theirs) => ours == theirs,
        }
    }
}

fn is_below(cgroup: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    cgroup.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The parts of a list, each read by `read`.
fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, BadCondition>) -> Result<Vec<T>, BadCondition> {
    text.split(',').map(|part| read(part.trim())).collect()
}

fn ports(text: &str) -> Result<Vec<RangeInclusive<u16>>, BadCondition> {
    let ranges = list(text, |part| parse_ports(part).map_err(|error| BadCondition(error.to_string())))?;
    for (at, range) in ranges.iter().enumerate() {
        let meets = |other: &&RangeInclusive<u16>| range.start() <= other.end() && other.start() <= range.end();
        if let Some(other) = ranges[..at].iter().find(meets) {
            let [range, other] = [range, other].map(show_ports);
            return Err(BadCondition(format!("{other} and {range} overlap; name each port once")));
        }
    }
    Ok(ranges)
}

fn name(part: &str) -> Result<String, BadCondition> {
    if part.is_empty() || part.contains(|c: char| c.is_control()) {
        return Err(BadCondition(format!(
            "'{}' is no name; write names with commas between them",
            part.escape_debug()
        )));
    }
    Ok(part.to_owned())
}

/// The kernel keeps 15 bytes of a program's name.
fn program(part: &str) -> Result<String, BadCondition> {
    let whole = name(part)?;
    let end = (0..=whole.len().min(15)).rev().find(|end| whole.is_char_boundary(*end)).unwrap_or(0);
    Ok(whole[..end].to_owned())
}

fn cgroup(part: &str) -> Result<String, BadCondition> {
    if !part.starts_with('/') {
        let what =
            format!("'{part}' is no cgroup; write its path below /sys/fs/cgroup, as /system.slice/nginx.service");
        return Err(BadCondition(what));
    }
    name(part)
}

fn show_ports(range: &RangeInclusive<u16>) -> String {
    if range.start() == range.end() { range.start().to_string() } else { format!("{}-{}", range.start(), range.end()) }
}

/// Writes its text, which [`Condition::parse`] reads.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn join<T>(parts: &[T], show: impl Fn(&T) -> String) -> String {
            parts.iter().map(show).collect::<Vec<_>>().join(", ")
        }
        let text = match self {
            Condition::LocalPort(ranges) | Condition::RemotePort(ranges) => join(ranges, show_ports),
            Condition::Local(prefixes) | Condition::Remote(prefixes) => join(prefixes, Prefix::to_string),
            Condition::Family(is_v6) => if *is_v6 { "ipv6" } else { "ipv4" }.to_owned(),
            Condition::Interface(names) | Condition::Program(names) | Condition::Cgroup(names) => names.join(", "),
            Condition::Direction(Direction::Accepted) => "accepted".to_owned(),
            Condition::Direction(Direction::Connected) => "connected".to_owned(),
            Condition::User(users) => join(users, u32::to_string),
            Condition::Within(quantity, bounds) => quantity.show(bounds),
        };
        f.write_str(&text)
    }
}
