//! Rules as they are walked, from whichever interface of the kernel they were read.

use super::packet::{Field, Hook};
use super::registers::Span;
use super::xt::Match;
use std::collections::HashMap;

/// What becomes of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    /// User space decides.
    Queue,
    /// Back to the chain that jumped here.
    Return,
    /// The next rule.
    Continue,
    Jump(String),
    Goto(String),
}

/// How two values are compared (`enum nft_cmp_ops`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// One step of a rule. The first that does not hold ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A field is read.
    Load {
        to: Span,
        field: Field,
    },
    Set {
        to: usize,
        value: Vec<u8>,
    },
    /// `to = (from & mask) ^ xor`.
    Mask {
        from: Span,
        to: usize,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    /// Numbers of `size` bytes are turned round.
    Swap {
        from: Span,
        to: usize,
        size: usize,
    },
    Compare {
        from: Span,
        operator: Operator,
        value: Vec<u8>,
    },
    /// Between two values, or not.
    Range {
        from: Span,
        inverted: bool,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// In a set of the rule's table, or not; what a map has goes to a register, or is the verdict.
    Lookup {
        from: usize,
        set: String,
        inverted: bool,
        to: Option<usize>,
    },
    /// A match of xtables.
    Match(Match),
    /// Holds for some packets.
    May,
    /// Changes the packet, or what becomes of it by more than the packet: named so.
    Acts(String),
    /// As this, and holds for some packets only: a limit.
    Limits(String),
    /// Only looks: counts or logs.
    Observes(&'static str),
    /// The packet's mark is set.
    Marks(String),
    /// The packet leaves conntrack. The connection's entry is looked up before a move, so nothing
    /// is lost by moving it past such a rule.
    Untracks(String),
    End(Verdict),
}

/// A rule's steps.
pub(crate) type Rule = Vec<Step>;

/// What there is to know of a set to look something up in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetKind {
    /// Bytes of a key.
    pub key_len: usize,
    /// Packets add and remove elements.
    pub is_dynamic: bool,
}

/// A table's chains and sets by name.
#[derive(Default, Debug)]
pub(crate) struct Table {
    /// `NFPROTO_…`: 1 inet, 2 ip, 5 netdev, 10 ip6.
    pub family: u8,
    pub name: String,
    pub chains: HashMap<String, Chain>,
    pub sets: HashMap<String, SetKind>,
}

impl Table {
    /// As nft names it: `inet filter`.
    pub fn title(&self) -> String {
        let family = match self.family {
            INET => "inet",
            IP => "ip",
            NETDEV => "netdev",
            IP6 => "ip6",
            _ => "other",
        };
        format!("{family} {}", self.name)
    }
}

/// `NFPROTO_…` of `linux/netfilter.h`.
pub(crate) const INET: u8 = 1;
pub(crate) const IP: u8 = 2;
pub(crate) const NETDEV: u8 = 5;
pub(crate) const IP6: u8 = 10;

/// A chain's rules, and if the kernel calls it, where.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    pub rules: Vec<Rule>,
    pub base: Option<Base>,
}

/// Where a chain begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub hook: Hook,
    pub priority: i32,
    /// Its policy is to drop.
    pub drops: bool,
    /// Interfaces that it is for; all, if empty.
    pub devices: Vec<String>,
}

/// All tables of a network namespace.
#[derive(Default, Debug)]
pub(crate) struct Ruleset {
    tables: Vec<Table>,
    /// Where packets begin, in order of priority: a table's place and a chain's name.
    bases: Vec<(usize, String, Base)>,
}

impl Ruleset {
    pub fn new(tables: Vec<Table>) -> Ruleset {
        let all = tables.iter().enumerate().flat_map(|(at, table)| table.chains.iter().map(move |it| (at, it)));
        let bases = all.filter_map(|(at, (name, chain))| Some((at, name.clone(), chain.base.clone()?)));
        let mut bases: Vec<_> = bases.collect();
        bases.sort_by_key(|(.., base)| base.priority);
        Ruleset { tables, bases }
    }

    /// Base chains at a hook that packets of an IP version and an interface pass, in order: table
    /// and chain.
    pub fn bases(&self, hook: Hook, is_v4: bool, interface: &str) -> impl Iterator<Item = (&Table, &str, &Base)> {
        let families = [if is_v4 { IP } else { IP6 }, INET, NETDEV];
        let meant = |base: &Base| base.devices.is_empty() || base.devices.iter().any(|device| names(device, interface));
        let here = self.bases.iter().filter(move |(.., base)| base.hook == hook && meant(base));
        let found = here.map(|(at, name, base)| (&self.tables[*at], name.as_str(), base));
        found.filter(move |(table, ..)| families.contains(&table.family))
    }
}

/// Whether a device's name, or the beginning of names before a `*`, means an interface.
fn names(device: &str, interface: &str) -> bool {
    match device.strip_suffix('*') {
        Some(prefix) => interface.starts_with(prefix),
        None => device == interface,
    }
}
