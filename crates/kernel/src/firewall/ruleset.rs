//! Rules in the form in which they are walked, whichever kernel interface they were read from.

use super::packet::{Field, Hook};
use super::registers::Span;
use super::xt_match::Match;
use std::collections::HashMap;

/// A packet's next step: the end of its way through the rules, or another chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    /// User space decides.
    Queue,
    /// Continue in the chain that jumped here.
    Return,
    /// Continue with the next rule.
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

/// A question to a set of the rule's table: whether what a register holds is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lookup {
    /// The register that is looked up.
    pub from: usize,
    /// Name of the set.
    pub set: String,
    /// The step holds for what is not in the set.
    pub inverted: bool,
    /// The register that a map's value goes into, which may be the verdict's; `None` unless the
    /// set is a map.
    pub to: Option<usize>,
}

/// One step of a rule. The first step that does not hold ends the rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Reads a field.
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
    /// Swaps the byte order of numbers of `size` bytes.
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
    /// Is between two values, or is not.
    Range {
        from: Span,
        inverted: bool,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// Is in a set of the rule's table, or is not.
    Lookup(Lookup),
    /// A match of xtables.
    Match(Match),
    /// Holds for some packets.
    May,
    /// Changes the packet or what happens to it, other than by a verdict. The string names the
    /// action.
    Acts(String),
    /// The same, and holds for some packets only: a limit.
    Limits(String),
    /// Only observes: counts or logs.
    Observes(&'static str),
    /// Sets the packet's mark.
    Marks(String),
    /// Removes the packet from conntrack. The connection's entry is looked up before a move, so
    /// moving past such a rule loses nothing.
    Untracks(String),
    End(Verdict),
}

/// The steps of a rule.
pub(crate) type Rule = Vec<Step>;

/// Properties of a set that a lookup needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetKind {
    /// The length of a key, in bytes.
    pub key_len: usize,
    /// Packets add and remove elements.
    pub is_dynamic: bool,
}

/// A table's chains and sets, by name.
#[derive(Default, Debug)]
pub(crate) struct Table {
    /// `NFPROTO_…`: 1 inet, 2 ip, 5 netdev, 10 ip6.
    pub family: u8,
    pub name: String,
    pub chains: HashMap<String, Chain>,
    pub sets: HashMap<String, SetKind>,
}

impl Table {
    /// The table's name as nft writes it, for example `inet filter`.
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

/// The rules of a chain and, if the kernel calls the chain, its hook.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    pub rules: Vec<Rule>,
    pub base: Option<Base>,
}

/// Where packets enter a base chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub hook: Hook,
    pub priority: i32,
    /// Its policy is to drop.
    pub drops: bool,
    /// The interfaces that it applies to; all, if empty.
    pub devices: Vec<String>,
}

/// All tables of a network namespace.
#[derive(Default, Debug)]
pub(crate) struct Ruleset {
    tables: Vec<Table>,
    /// The base chains by priority: a table's index and a chain's name.
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

    /// The base chains at a hook that packets of an IP version pass on an interface, in order, as
    /// tables and chains.
    pub fn bases(&self, hook: Hook, is_v4: bool, interface: &str) -> impl Iterator<Item = (&Table, &str, &Base)> {
        let families = [if is_v4 { IP } else { IP6 }, INET, NETDEV];
        let meant = |base: &Base| base.devices.is_empty() || base.devices.iter().any(|device| names(device, interface));
        let here = self.bases.iter().filter(move |(.., base)| base.hook == hook && meant(base));
        let found = here.map(|(at, name, base)| (&self.tables[*at], name.as_str(), base));
        found.filter(move |(table, ..)| families.contains(&table.family))
    }
}

/// Returns true if a device's name, or a prefix that ends with `*`, matches an interface.
fn names(device: &str, interface: &str) -> bool {
    match device.strip_suffix('*') {
        Some(prefix) => interface.starts_with(prefix),
        None => device == interface,
    }
}
