//! Turns nftables expressions, from the kernel's attributes (`linux/netfilter/nf_tables.h`,
//! `net/netfilter/nft_*.c`), into steps. An unknown expression may hold for some packets; one of a
//! kind that changes packets counts as acting.

use super::packet::Field;
use super::registers::Span;
use super::ruleset::{Lookup, Operator, Rule, Step, Verdict};
use super::xt;
use super::xt_match::Match;
use crate::netlink::{attribute, attributes};

/// The place of `NFT_REG_VERDICT`, which lies beyond the other registers.
pub(crate) const VERDICT: usize = usize::MAX;

/// The steps of a rule, from its `NFTA_RULE_EXPRESSIONS` or from the expressions of an element.
pub(crate) fn steps(list: &[u8], family: u8) -> Rule {
    const LIST_ELEM: u16 = 1;
    let mut steps = Rule::new();
    for (_, expression) in attributes(list).filter(|(kind, _)| *kind == LIST_ELEM) {
        steps.push(expression_step(expression, family));
    }
    steps
}

/// The step of one expression, which consists of a name and data.
pub(crate) fn expression_step(expression: &[u8], family: u8) -> Step {
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    let name = attribute(expression, NAME).map(text).unwrap_or_default();
    let data = attribute(expression, DATA).unwrap_or_default();
    step(&name, data, family).unwrap_or_else(|| Step::Limits(format!("{name} (unreadable)")))
}

/// `NFT_CT_ZONE` of `linux/netfilter/nf_tables.h`.
const CT_ZONE: u32 = 17;

/// Returns `None` if a mandatory attribute is missing.
fn step(name: &str, data: &[u8], family: u8) -> Option<Step> {
    let of = |kind| attribute(data, kind);
    Some(match name {
        "meta" => match of(3) {
            None => {
                Step::Load { to: Span { at: register(of(1)?)?, len: meta_len(number(of(2)?)?) }, field: meta(of(2)?)? }
            }
            Some(_) => set_meta(number(of(2)?)?),
        },
        "payload" => match of(5) {
            None => payload(data)?,
            Some(_) => Step::Acts("payload set".into()),
        },
        "ct" => match of(4) {
            None => ct(data)?,
            // The connection's entry is found in any zone.
            Some(_) if number(of(2)?)? == CT_ZONE => Step::Observes("ct zone set"),
            Some(_) => Step::Acts("ct set".into()),
        },
        "fib" => {
            let (result, flags) = (number(of(2)?)?, number(of(3)?)?);
            // OIFNAME is the only long result. With PRESENT (32) it is one byte.
            let len = if flags & 32 != 0 { 1 } else { if result == 2 { 16 } else { 4 } };
            Step::Load { to: Span { at: register(of(1)?)?, len }, field: Field::Fib(result, flags) }
        }
        "immediate" => immediate(data)?,
        "cmp" => Step::Compare {
            operator: operator(number(of(2)?)?)?,
            from: Span { at: register(of(1)?)?, len: value(of(3)?)?.len() },
            value: value(of(3)?)?.to_vec(),
        },
        "range" => Step::Range {
            inverted: number(of(2)?)? != 0,
            from: Span { at: register(of(1)?)?, len: value(of(3)?)?.len() },
            low: value(of(3)?)?.to_vec(),
            high: value(of(4)?)?.to_vec(),
        },
        "bitwise" => bitwise(data)?,
        "byteorder" => Step::Swap {
            from: Span { at: register(of(1)?)?, len: number(of(4)?)? as usize },
            to: register(of(2)?)?,
            // On a big-endian machine nothing is swapped.
            size: if cfg!(target_endian = "big") { 1 } else { number(of(5)?)? as usize },
        },
        "lookup" => Step::Lookup(Lookup {
            set: text(of(1)?),
            from: register(of(2)?)?,
            to: match of(3) {
                Some(to) => Some(register(to)?),
                None => None,
            },
            inverted: of(5).and_then(number).is_some_and(|flags| flags & 1 != 0),
        }),
        "exthdr" => match of(7) {
            None => read_option(data)?,
            Some(_) => write_option(of(2)?, of(6))?,
        },
        "match" => xt::matching(&text(of(1)?), number(of(2)?)?, of(3).unwrap_or_default(), family),
        "target" => xt::target(&text(of(1)?), of(3).unwrap_or_default()),
        "numgen" | "rt" | "osf" | "xfrm" => unknown(of(1)?)?,
        "hash" | "socket" | "tunnel" => unknown(of(2)?)?,
        _ => statement(name, data),
    })
}

/// The effect of an expression that does not read the packet.
fn statement(name: &str, data: &[u8]) -> Step {
    match name {
        "objref" => match attribute(data, 1).and_then(number) {
            Some(1) => Step::Observes("counter"),
            Some(2) => Step::Limits("quota".into()),
            Some(4) => Step::Limits("limit".into()),
            // Helpers and timeouts are given to new connections only.
            Some(3 | 7) => Step::Match(Match::Always),
            _ => Step::Acts("object".into()),
        },
        "counter" | "last" => Step::Observes("counter"),
        "log" => Step::Observes("log"),
        "reject" => Step::End(Verdict::Drop),
        "queue" => Step::End(Verdict::Queue),
        "notrack" => Step::Untracks("notrack".into()),
        "nat" | "masq" | "redir" | "dup" | "fwd" | "tproxy" | "synproxy" | "flow_offload" | "dynset" => {
            Step::Acts(name.into())
        }
        // Limits, and every unknown expression.
        _ => Step::Limits(name.into()),
    }
}

/// The value loaded into a register is unknown.
fn unknown(to: &[u8]) -> Option<Step> {
    Some(Step::Load { to: Span { at: register(to)?, len: 16 }, field: Field::Other })
}

fn meta(key: &[u8]) -> Option<Field> {
    Some(Field::Meta(number(key)?))
}

/// The number of bytes that a key of `enum nft_meta_keys` loads (`nft_meta_get_init`).
fn meta_len(key: u32) -> usize {
    match key {
        // Names of interfaces, bridges and link kinds.
        6 | 7 | 17 | 18 | 26 | 27 | 32 => 16,
        1 | 8 | 9 => 2,
        15 | 16 | 19 => 1,
        _ => 4,
    }
}

fn set_meta(key: u32) -> Step {
    match key {
        2 => Step::Acts("meta priority set".into()),
        3 => Step::Marks("meta mark set".into()),
        12 => Step::Observes("nftrace"),
        _ => Step::Acts("meta set".into()),
    }
}

fn payload(data: &[u8]) -> Option<Step> {
    let of = |kind| number(attribute(data, kind)?);
    let (base, offset, len) = (of(2)?, of(3)? as usize, of(4)? as usize);
    let field = match base {
        1 => Field::Network(offset),
        2 => Field::Transport(offset),
        _ => Field::Other,
    };
    Some(Step::Load { to: Span { at: register(attribute(data, 1)?)?, len }, field })
}

fn ct(data: &[u8]) -> Option<Step> {
    const STATE: u32 = 0;
    let to = attribute(data, 1)?;
    if number(attribute(data, 2)?)? != STATE {
        return unknown(to);
    }
    Some(Step::Load { to: Span { at: register(to)?, len: 4 }, field: Field::CtState })
}

fn immediate(data: &[u8]) -> Option<Step> {
    let to = attribute(data, 1)?;
    let what = attribute(data, 2)?;
    if number(to)? == 0 {
        return Some(Step::End(verdict(what)?));
    }
    Some(Step::Set { to: register(to)?, value: value(what)?.to_vec() })
}

fn bitwise(data: &[u8]) -> Option<Step> {
    let of = |kind| attribute(data, kind);
    let len = number(of(3)?)? as usize;
    let (from, to) = (Span { at: register(of(1)?)?, len }, register(of(2)?)?);
    // Only AND with XOR is followed. Shifts and operations on two registers are not.
    if of(6).and_then(number).unwrap_or(0) != 0 {
        return Some(Step::Load { to: Span { at: to, len }, field: Field::Other });
    }
    Some(Step::Mask { from, to, mask: value(of(4)?)?.to_vec(), xor: value(of(5)?)?.to_vec() })
}

/// Reads an option, or an IPv6 extension header. If it is missing, the rule ends, or the result
/// says that it is missing.
fn read_option(data: &[u8]) -> Option<Step> {
    const PRESENT: u32 = 1;
    const IPV6: u32 = 0;
    let number_of = |kind| attribute(data, kind).and_then(number);
    // Neither a read nor a write: the option is removed.
    let Some(to) = attribute(data, 1) else { return Some(Step::Acts("option reset".into())) };
    let is_asked_for = number_of(5).unwrap_or(0) & PRESENT != 0;
    // An engine accepts no packets with these headers, so its connections have none.
    if number_of(6).unwrap_or(IPV6) == IPV6 {
        return Some(match is_asked_for {
            true => Step::Set { to: register(to)?, value: vec![0] },
            false => Step::Match(Match::Never),
        });
    }
    Some(Step::Load { to: Span { at: register(to)?, len: number_of(4)? as usize }, field: Field::Other })
}

/// Writes a TCP or IP option. Only SYNs carry the MSS.
fn write_option(kind: &[u8], operation: Option<&[u8]>) -> Option<Step> {
    const TCPOPT: u32 = 1;
    const MSS: u8 = 2;
    let is_mss = operation.and_then(number) == Some(TCPOPT) && kind.first() == Some(&MSS);
    // Packets without the option end the rule.
    Some(if is_mss { Step::Match(Match::Never) } else { Step::Acts("option set".into()) })
}

/// The verdict in `NFTA_DATA_VERDICT`.
pub(crate) fn verdict(data: &[u8]) -> Option<Verdict> {
    const DATA_VERDICT: u16 = 2;
    const CODE: u16 = 1;
    const CHAIN: u16 = 2;
    let verdict = attribute(data, DATA_VERDICT)?;
    let chain = || attribute(verdict, CHAIN).map(text);
    Some(match number(attribute(verdict, CODE)?)? as i32 {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -1 | -2 => Verdict::Continue,
        -3 => Verdict::Jump(chain()?),
        -4 => Verdict::Goto(chain()?),
        -5 => Verdict::Return,
        // The upper half is the queue's number.
        code if code & 0xff == 3 => Verdict::Queue,
        _ => return None,
    })
}

/// The bytes in `NFTA_DATA_VALUE`.
pub(crate) fn value(data: &[u8]) -> Option<&[u8]> {
    attribute(data, 1)
}

fn operator(code: u32) -> Option<Operator> {
    use Operator::*;
    [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual].get(code as usize).copied()
}

/// A register's place: `NFT_REG_1` to `NFT_REG_4` have 16 bytes each, those from `NFT_REG32_00` on
/// 4.
fn register(number_of: &[u8]) -> Option<usize> {
    match number(number_of)? {
        0 => Some(VERDICT),
        register @ 1..=4 => Some((register as usize - 1) * 16),
        register @ 8..=23 => Some((register as usize - 8) * 4),
        _ => None,
    }
}

/// A number in network byte order.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// A string with its NUL.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
