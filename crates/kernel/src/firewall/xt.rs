//! Matches and targets of xtables: those of legacy iptables, and those that iptables-nft passes to
//! the kernel (`linux/netfilter/xt_*.h`). Those that are common are followed; others hold for some
//! packets.

use super::registers::Answer;
use super::ruleset::{IP6, Step};
use super::xt_match::{End, Match};

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The step of a match, given its name and revision, in tables of a family.
pub(crate) fn matching(name: &str, revision: u32, info: &[u8], _family: u8) -> Step {
    let known = match (name, revision) {
        ("comment", _) => Some(Match::Always),
        ("udp" | "icmp" | "icmp6" | "udplite" | "sctp" | "dccp" | "esp" | "ah", _) => Some(Match::Never),
        // An engine accepts no packets with IPv6 extension headers, so its connections have none.
        ("rt" | "frag" | "hbh" | "dst" | "mh", _) => Some(Match::Never),
        ("tcp", 0) => tcp(info),
        ("multiport", 1) => multiport(info),
        ("state", 0) => word(info, 0).map(|mask| Match::State { mask, inverted: false }),
        ("conntrack", 1..=3) => conntrack(info),
        ("addrtype", 1) => addrtype(info),
        ("mark", 1) => mark(info),
        ("rpfilter", 0) => info.first().map(|flags| Match::ReversePath { inverted: flags & 8 != 0 }),
        _ => None,
    };
    match (known, name) {
        (Some(known), _) => Step::Match(known),
        (None, "limit" | "hashlimit" | "quota" | "connlimit" | "recent" | "statistic" | "rateest" | "nfacct") => {
            Step::Limits(name.into())
        }
        (None, _) => Step::May,
    }
}

/// The step of a target, given its name, if it is not the standard target.
pub(crate) fn target(name: &str, _info: &[u8]) -> Step {
    match name {
        "LOG" | "NFLOG" | "ULOG" | "AUDIT" | "TRACE" => Step::Observes("log"),
        // The kernel ensures that such rules match only SYNs.
        "TCPMSS" => Step::Match(Match::Never),
        "DROP" | "REJECT" | "TARPIT" => Step::End(super::ruleset::Verdict::Drop),
        "NFQUEUE" | "QUEUE" => Step::End(super::ruleset::Verdict::Queue),
        "MARK" | "CONNMARK" | "HMARK" => Step::Marks(name.into()),
        "CT" | "NOTRACK" => Step::Untracks(name.into()),
        _ => Step::Acts(name.into()),
    }
}

/// `struct xt_tcp`: ranges of both ports, option, mask and value of flags, inversions.
fn tcp(info: &[u8]) -> Option<Match> {
    let inversions = *info.get(11)?;
    let mut all = Vec::new();
    for (at, end, bit) in [(0, End::Source, 1), (4, End::Destination, 2)] {
        let range = half(info, at)?..=half(info, at + 2)?;
        let inverted = inversions & bit != 0;
        if range != (0..=u16::MAX) || inverted {
            all.push(Match::Ports { end, ranges: vec![range], inverted });
        }
    }
    let (mask, value) = (*info.get(9)?, *info.get(10)?);
    if mask != 0 || inversions & 4 != 0 {
        all.push(Match::Flags { mask, value, inverted: inversions & 4 != 0 });
    }
    let option = *info.get(8)?;
    Some(if option == 0 { Match::All(all) } else { Match::Some(all) })
}

/// `struct xt_multiport_v1`: which port, the count, 15 ports, 15 flags that mark the start of a
/// range, inversion.
fn multiport(info: &[u8]) -> Option<Match> {
    let end = match info.first()? {
        0 => End::Source,
        1 => End::Destination,
        2 => End::Either,
        _ => return None,
    };
    let (count, inverted) = (usize::from(*info.get(1)?).min(15), *info.get(47)? != 0);
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < count {
        let from = half(info, 2 + 2 * at)?;
        let is_range = *info.get(32 + at)? != 0 && at + 1 < count;
        let to = if is_range { half(info, 4 + 2 * at)? } else { from };
        ranges.push(from..=to);
        at += if is_range { 2 } else { 1 };
    }
    Some(Match::Ports { end, ranges, inverted })
}

/// `struct xt_conntrack_mtinfo1` to `3`: the state, and other criteria.
fn conntrack(info: &[u8]) -> Option<Match> {
    const STATE: u16 = 1;
    let (asked, inverted) = (half(info, 146)?, half(info, 148)? & STATE != 0);
    // In revision 1 the fields that later revisions made 16 bits wide have 8 bits. On a
    // little-endian machine, and for the states used here, both can be read alike.
    let mask = if info.len() < 156 { u32::from(*info.get(150)?) } else { half(info, 150)?.into() };
    let state = Match::State { mask, inverted };
    Some(match asked {
        0 => Match::Always,
        STATE => state,
        _ if asked & STATE != 0 => Match::Some(vec![state]),
        _ => Match::Some(Vec::new()),
    })
}

/// `struct xt_addrtype_info_v1`: masks of the source's and the destination's type, flags.
fn addrtype(info: &[u8]) -> Option<Match> {
    const INVERT: [u32; 2] = [1, 2];
    const LIMIT_INTERFACE: u32 = 12;
    let flags = word(info, 4)?;
    let masks = [half(info, 0)?, half(info, 2)?];
    let mut all = Vec::new();
    for (at, mask) in masks.into_iter().enumerate().filter(|(_, mask)| *mask != 0) {
        all.push(Match::AddressType { of_source: at == 0, mask, inverted: flags & INVERT[at] != 0 });
    }
    Some(if flags & LIMIT_INTERFACE == 0 { Match::All(all) } else { Match::Some(all) })
}

/// `struct xt_mark_mtinfo1`.
fn mark(info: &[u8]) -> Option<Match> {
    Some(Match::Mark { value: word(info, 0)?, mask: word(info, 4)?, inverted: *info.get(8)? != 0 })
}

/// `struct ipt_ip` or `ip6t_ip6`: the addresses, interfaces and protocol that a legacy rule asks
/// for. Also returns whether the rule goes to its target or jumps to it.
pub(crate) fn header(entry: &[u8], family: u8) -> Option<(Match, bool)> {
    let (address, at) = if family == IP6 { (16, 64) } else { (4, 16) };
    let bytes = |from: usize, len: usize| entry.get(from..from + len);
    let name = |from: usize| bytes(from, 16)?.try_into().ok();
    let protocol = half(entry, at + 64)?;
    // IPv6 also has the traffic class, and a flag that says whether the protocol matters.
    let (flags, inversions) = if family == IP6 {
        (*entry.get(at + 67)?, *entry.get(at + 68)?)
    } else {
        (*entry.get(at + 66)?, *entry.get(at + 67)?)
    };
    let mut all = Vec::new();
    for (which, bit) in [(0, 8), (1, 16)] {
        all.push(Match::Address {
            of_source: which == 0,
            address: bytes(which * address, address)?.to_vec(),
            mask: bytes((which + 2) * address, address)?.to_vec(),
            inverted: inversions & bit != 0,
        });
    }
    for (which, bit) in [(0, 1), (1, 2)] {
        let (name, mask) = (name(at + which * 16)?, name(at + 32 + which * 16)?);
        all.push(Match::Interface { inbound: which == 0, name, mask, inverted: inversions & bit != 0 });
    }
    if protocol != 0 {
        let is_ours = Answer::of(protocol == libc::IPPROTO_TCP as u16).not_if(inversions & 64 != 0);
        all.push(if is_ours == Answer::Yes { Match::Always } else { Match::Never });
    }
    let (fragment, goto, service) = if family == IP6 { (0, 4, flags & 2) } else { (flags & 1, 2, 0) };
    if fragment != 0 {
        all.push(if inversions & 32 != 0 { Match::Always } else { Match::Never });
    }
    Some((if service == 0 { Match::All(all) } else { Match::Some(all) }, flags & goto != 0))
}
