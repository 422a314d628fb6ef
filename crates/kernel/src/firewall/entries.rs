//! A legacy iptables table, from the kernel's entries (`linux/netfilter/x_tables.h`) to chains.
//!
//! ```text
//!   entry: header, counters | matches, each with its size | target
//!   chains: those of hooks begin where the table says; others behind a target called ERROR,
//!           which has their name; jumps are offsets of their beginnings
//! ```

use super::legacy_table::{Table as Raw, Version};
use super::packet::Hook;
use super::ruleset::{Base, Chain, IP, IP6, Rule, Step, Table, Verdict};
use super::xt;
use std::collections::HashMap;

/// Bytes of the header before a match's or target's own data (`struct xt_entry_match`): size, name,
/// revision.
const HEAD: usize = 32;
const NAME: std::ops::Range<usize> = 2..31;
/// The hooks in the order of `struct ipt_getinfo`, with the names of their built-in chains.
const HOOKS: [(Option<Hook>, &str); 5] = [
    (Some(Hook::Prerouting), "PREROUTING"),
    (Some(Hook::Input), "INPUT"),
    (None, "FORWARD"),
    (Some(Hook::Output), "OUTPUT"),
    (Some(Hook::Postrouting), "POSTROUTING"),
];

/// The chains of a table. A table that cannot be read becomes a chain at each hook that says so.
pub(crate) fn table(version: Version, name: &str, raw: Option<&Raw>) -> Table {
    let family = if version == Version::V4 { IP } else { IP6 };
    let mut table = Table { family, name: name.to_owned(), ..Table::default() };
    match raw.and_then(|raw| chains(version, name, raw)) {
        Some(chains) => table.chains = chains,
        None => {
            let rules = vec![vec![Step::Acts("an unreadable table".into())]];
            let base = Base { hook: Hook::Input, priority: 0, drops: false, devices: Vec::new() };
            table.chains.insert("INPUT".into(), Chain { rules, base: Some(base) });
        }
    }
    table
}

/// The priority at which packets pass a table, relative to others (`enum nf_ip_hook_priorities`).
fn priority(name: &str) -> i32 {
    match name {
        "raw" => -300,
        "mangle" => -150,
        "security" => 50,
        _ => 0,
    }
}

/// One entry as it stands in its table.
struct Entry<'a> {
    at: usize,
    bytes: &'a [u8],
    target_at: usize,
}

impl<'a> Entry<'a> {
    fn target(&self) -> Option<(&'a [u8], String)> {
        let target = self.bytes.get(self.target_at..)?;
        Some((target.get(HEAD..)?, super::expressions::text(target.get(NAME)?)))
    }
}

fn entries(version: Version, bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let offsets = version.offsets_at();
        let half = |from: usize| Some(usize::from(u16::from_ne_bytes(bytes.get(from..from + 2)?.try_into().ok()?)));
        let (target_at, next) = (half(at + offsets)?, half(at + offsets + 2)?);
        let entry = bytes.get(at..at + next).filter(|_| (version.entry_len()..=next).contains(&target_at))?;
        found.push(Entry { at, bytes: entry, target_at });
        at += next;
    }
    Some(found)
}

fn chains(version: Version, table: &str, raw: &Raw) -> Option<HashMap<String, Chain>> {
    let entries = entries(version, &raw.entries)?;
    let word = |at: usize| Some(u32::from_ne_bytes(raw.info.get(at..at + 4)?.try_into().ok()?));
    // The offsets at which chains begin, with their names.
    let (valid, mut starts, mut chains) = (word(32)?, HashMap::new(), HashMap::new());
    for (number, (hook, name)) in HOOKS.into_iter().enumerate().filter(|(number, _)| valid & 1 << number != 0) {
        starts.insert(word(36 + 4 * number)? as usize, name.to_owned());
        let base = hook.map(|hook| Base { hook, priority: priority(table), drops: false, devices: Vec::new() });
        chains.insert(name.to_owned(), Chain { rules: Vec::new(), base });
    }
    for pair in entries.windows(2) {
        let (info, name) = pair[0].target()?;
        if name == "ERROR" {
            starts.insert(pair[1].at, super::expressions::text(info));
        }
    }
    let mut current: Option<String> = None;
    for entry in &entries {
        current = starts.get(&entry.at).cloned().or(current);
        let (info, name) = entry.target()?;
        if name == "ERROR" {
            current = None;
            continue;
        }
        let rule = rule(version, entry, &name, info, &starts)?;
        let chain = current.as_ref()?;
        chains.entry(chain.clone()).or_insert_with(Chain::default).rules.push(rule);
    }
    Some(chains)
}

fn rule(
    version: Version,
    entry: &Entry<'_>,
    target: &str,
    info: &[u8],
    starts: &HashMap<usize, String>,
) -> Option<Rule> {
    let family = if version == Version::V4 { IP } else { IP6 };
    let (header, goes) = xt::header(entry.bytes, family)?;
    let mut rule = vec![Step::Match(header)];
    let mut rest = entry.bytes.get(version.entry_len()..entry.target_at)?;
    while !rest.is_empty() {
        let size = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let (name, revision) = (super::expressions::text(rest.get(NAME)?), *rest.get(31)?);
        rule.push(xt::matching(&name, revision.into(), rest.get(HEAD..size)?, family));
        rest = rest.get(size..)?;
    }
    rule.push(match target {
        "" => Step::End(standard(entry, info, goes, starts)?),
        name => xt::target(name, info),
    });
    Some(rule)
}

/// `struct xt_standard_target`: a negative number is a verdict, any other is the offset to continue
/// at.
fn standard(entry: &Entry<'_>, info: &[u8], goes: bool, starts: &HashMap<usize, String>) -> Option<Verdict> {
    let code = i32::from_ne_bytes(info.get(..4)?.try_into().ok()?);
    Some(match code {
        -1 => Verdict::Drop,
        -2 => Verdict::Accept,
        // -4 is NF_QUEUE, -5 is XT_RETURN.
        -4 => Verdict::Queue,
        -5 => Verdict::Return,
        _ if code < 0 => return None,
        // A rule without a target continues with the next rule.
        _ if code as usize == entry.at + entry.bytes.len() => Verdict::Continue,
        _ => {
            let chain = starts.get(&(code as usize))?.clone();
            if goes { Verdict::Goto(chain) } else { Verdict::Jump(chain) }
        }
    })
}
