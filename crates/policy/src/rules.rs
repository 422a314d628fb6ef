//! When connections move to the engine.
//!
//! ```text
//!   Facts --Policy: the first entry whose conditions hold--> Rule
//!   Rule, Known, Room (connections there, at most) --------> Decision
//!                                            Move | NotYet(why) | Never(why)
//! ```
//!
//! Kim and Rixner (OSDI 2006) is cited as "CH" below. As in that paper (§3.3), the caller asks when a
//! connection is established and again at each request to send, hands off a connection when told to
//! move it, and stops asking about a connection whose handoff failed. Nothing here keeps state or
//! reads a clock: a decision is a function of its arguments. Only a connection that is to move is
//! then examined by the kernel's side (`KernelSide::plan` in `baton-kernel`), which may still
//! refuse it. `known` in `baton-kernel` asks the kernel for the facts.

use crate::Reason;
use crate::bounds::parse_ports;
use crate::conditions::{BadCondition, Condition, Facts, Verdict};
use crate::places::Prices;
use crate::survival::{Class, Expected};
use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

/// When a connection is to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// `fcfs`: as soon as it is established, first come, first served (CH §3.3).
    #[default]
    FirstCome,
    /// `after N sends`: at its Nth request to send, so that only long-lived connections take one of
    /// the few places (CH §3.3, §5.2: T_N).
    AfterSends(NonZeroU64),
    /// `until bulk`: as soon as it is established, and back home for good once it turns out to be
    /// bulk ([`Rule::keeps`]).
    UntilBulk,
    /// `small`, or `small N bytes`: after [`SMALL_SENDS`] requests to send, if it carried no more than
    /// this many bytes for each, [`SMALL_BYTES`] if none are named; back home for good once it turns
    /// out to be bulk.
    Small(Option<NonZeroU64>),
    /// `predict`, or `predict saving S ns move M ns`: once what it is expected to send yet saves more
    /// than the move costs. Of those that find the engine full, the one that gains most takes a place
    /// over ([`Prices::takes_over`]). The default [`Prices`], if none are named.
    Predict(Option<Prices>),
    /// `pairs`: to no engine. If both ends are on this machine, into memory that their programs share; the caller
    /// knows whether they are.
    Pairs,
    /// `never`.
    Never,
}

/// The course of a connection so far, which a rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The number of requests to send that its program has made, including this one (CH §5.2 counts
    /// what is put into the socket's send buffer). If nobody counts these, the number of data
    /// segments sent, which CH finds proportional.
    pub sends: u64,
    /// The payload that the peer has acknowledged plus the payload that it has sent, in bytes.
    pub bytes: u64,
    /// The packets that it is expected to send yet; `None` where nobody counts them.
    pub expected: Option<Expected>,
    /// Its earlier moves.
    pub history: History,
}

/// A connection's earlier moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum History {
    /// Nothing.
    #[default]
    New,
    /// A handoff failed or was refused.
    Failed,
    /// It was given back to the kernel.
    Restored,
}

/// How full the engine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// The number of connections in the engine.
    pub connections: u64,
    /// The most connections that it may have, as configured.
    pub at_most: u64,
    /// The most connections that its load allows ([`load`](crate::load)): no connection comes while there
    /// are as many.
    pub load_limit: u64,
}

/// The action to take for a connection now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Hand it off.
    Move,
    /// Ask again at its next request to send.
    NotYet(Wait),
    /// Do not ask again.
    Never(Stay),
}

/// The condition that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// For this many more requests to send.
    Sends(NonZeroU64),
    /// For a place in the engine.
    Room,
    /// For less load on the engine.
    Load,
    /// For smaller requests and answers.
    Smaller,
    /// For more packets to come, or for others like it that last longer.
    Packets(Expected),
    /// For the conditions of a rule that may move it later.
    Condition,
}

/// Why a connection stays for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stay {
    /// Its rule is `never`.
    Rule,
    /// Its rule is `pairs`.
    OnlyPairs,
    /// Its handoff failed (CH §3.3).
    Failed,
    /// It was given back.
    Restored,
}

impl Decision {
    /// Why the connection does not move now, if it does not.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Decision::Move => None,
            Decision::NotYet(wait) => Some(wait.reason()),
            Decision::Never(stay) => Some(stay.reason()),
        }
    }
}

impl Wait {
    /// The reason with its code.
    pub const fn reason(self) -> Reason {
        match self {
            Wait::Sends(_) => Reason::WaitsForSends,
            Wait::Room => Reason::WaitsForRoom,
            Wait::Load => Reason::WaitsForLoad,
            Wait::Smaller => Reason::LargeTransfers,
            Wait::Packets(_) => Reason::FewPackets,
            Wait::Condition => Reason::WaitsForCondition,
        }
    }
}

impl Stay {
    /// The reason with its code.
    pub const fn reason(self) -> Reason {
        match self {
            Stay::Rule => Reason::RuleNever,
            Stay::OnlyPairs => Reason::OnlyPairs,
            Stay::Failed => Reason::HandoffFailed,
            Stay::Restored => Reason::Restored,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Move => f.write_str("it moves now"),
            Decision::NotYet(Wait::Sends(more)) => write!(f, "it moves after {more} more sends"),
            Decision::NotYet(Wait::Room) => f.write_str("the engine has as many connections as it may have"),
            Decision::NotYet(Wait::Load) => f.write_str("the engine has as many connections as its load allows"),
            Decision::NotYet(Wait::Smaller) => {
                f.write_str("it carries much data at a time, for which the kernel is cheaper")
            }
            Decision::NotYet(Wait::Packets(expected)) => write!(f, "{expected}, for which a move does not pay"),
            Decision::NotYet(Wait::Condition) => f.write_str("it moves once the conditions of a rule hold"),
            Decision::Never(Stay::Rule) => f.write_str("its rule is never to move"),
            Decision::Never(Stay::OnlyPairs) => f.write_str("its rule is to move into a pair only"),
            Decision::Never(Stay::Failed) => f.write_str("its handoff failed before"),
            Decision::Never(Stay::Restored) => f.write_str("it was given back to the kernel"),
        }
    }
}

impl Rule {
    /// Applies the rule to a connection.
    pub fn decide(self, known: &Known, room: Room) -> Decision {
        match known.history {
            History::New => {}
            History::Failed => return Decision::Never(Stay::Failed),
            History::Restored => return Decision::Never(Stay::Restored),
        }
        let due = match self {
            Rule::FirstCome | Rule::UntilBulk => 0,
            Rule::AfterSends(sends) => sends.get(),
            Rule::Small(_) => SMALL_SENDS,
            Rule::Predict(_) => PREDICT_SENDS,
            Rule::Pairs => return Decision::Never(Stay::OnlyPairs),
            Rule::Never => return Decision::Never(Stay::Rule),
        };
        if let Some(more) = NonZeroU64::new(due.saturating_sub(known.sends)) {
            return Decision::NotYet(Wait::Sends(more));
        }
        if let Rule::Small(bytes) = self
            && known.bytes / known.sends.max(1) > bytes.map_or(SMALL_BYTES, NonZeroU64::get)
        {
            return Decision::NotYet(Wait::Smaller);
        }
        if let (Rule::Predict(prices), Some(expected)) = (self, known.expected)
            && !prices.unwrap_or_default().pays(expected.packets)
        {
            return Decision::NotYet(Wait::Packets(expected));
        }
        if room.connections >= room.at_most {
            Decision::NotYet(Wait::Room)
        } else if room.connections >= room.load_limit {
            Decision::NotYet(Wait::Load)
        } else {
            Decision::Move
        }
    }

    /// Returns true if a connection stays on the engine after it has carried this many bytes by
    /// large calls, those that move at least [`BULK_CALL`] bytes.
    pub fn keeps(self, by_large_calls: u64) -> bool {
        !matches!(self, Rule::UntilBulk | Rule::Small(_)) || by_large_calls < BULK_BYTES
    }
}

/// After this many requests to send a connection counts as long-lived. A move costs some 80 µs, and
/// a small answer saves some 2 µs of CPU time. So a connection with about this many requests can be
/// expected to make as many more (CH §3.3).
pub const SMALL_SENDS: u64 = 32;

/// After this many requests to send `predict` begins to ask what is still to come. Chosen: most short
/// connections have ended by then, for which a question would only cost.
pub const PREDICT_SENDS: u64 = 8;

/// Bytes in both directions for each request to send, above which the kernel is cheaper over tc on
/// some machine; `baton calibrate` measures them on this one. For nginx with answers of 1 KB the engine took 0.90 of the kernel's CPU time on an
/// AMD EPYC and 1.04 to 1.11 on an Intel Xeon. For redis with a few bytes it took 0.82 to 0.97 on
/// both (`baton bench programs`).
pub const SMALL_BYTES: u64 = 512;

/// A read or write that moves at least this many bytes is a large one. Chosen, not measured:
/// compared with this many bytes, the system call saved matters little, and the kernel sends them
/// without a copy.
pub const BULK_CALL: usize = 16 << 10;

/// After this many bytes by large calls a connection is bulk. Chosen, not measured.
pub const BULK_BYTES: u64 = 4 << 20;

/// A rule and whom it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// All of these have to hold. Without any, the rule is for every connection.
    pub conditions: Vec<Condition>,
    /// When these connections move.
    pub rule: Rule,
}

/// The rules of a machine: "the operating system should be able to employ multiple
/// application-specific (per-port) connection selection policies" (CH §3.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Examined in this order; the first whose conditions hold decides.
    pub entries: Vec<Entry>,
    /// For all other connections.
    pub otherwise: Rule,
}

/// The rule for a connection now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ruling {
    /// A rule decides.
    By {
        /// The rule that decides.
        rule: Rule,
        /// The index of its entry; `None` for [`Policy::otherwise`].
        entry: Option<usize>,
        /// The index of an earlier entry whose conditions may hold later.
        later: Option<usize>,
    },
    /// The conditions of this entry ask for something that is not known here.
    Unknown(usize),
}

impl Entry {
    /// How its conditions stand together.
    pub fn check(&self, facts: &Facts) -> Verdict {
        // One that fails for good decides, whatever is unknown.
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Fails => 0,
            Verdict::Unknown => 1,
            Verdict::Later => 2,
            Verdict::Holds => 3,
        };
        self.conditions.iter().map(|condition| condition.check(facts)).min_by_key(rank).unwrap_or(Verdict::Holds)
    }

    /// True if its conditions hold wherever those of `other` hold, so that a later `other` never decides.
    pub fn covers(&self, other: &Entry) -> bool {
        let covered = |condition: &Condition| {
            other.conditions.iter().any(|it| it.key() == condition.key() && condition.covers(it))
        };
        self.conditions.iter().all(covered)
    }
}

impl Policy {
    /// One rule for all connections.
    pub fn of(rule: Rule) -> Policy {
        Policy { entries: Vec::new(), otherwise: rule }
    }

    /// True if some condition has this key.
    pub fn asks_for(&self, key: &str) -> bool {
        self.entries.iter().flat_map(|entry| &entry.conditions).any(|condition| condition.key() == key)
    }

    /// The rule for a connection.
    pub fn ruling(&self, facts: &Facts) -> Ruling {
        let mut later = None;
        for (at, entry) in self.entries.iter().enumerate() {
            match entry.check(facts) {
                Verdict::Holds => return Ruling::By { rule: entry.rule, entry: Some(at), later },
                Verdict::Later => later = later.or(Some(at)),
                Verdict::Unknown => return Ruling::Unknown(at),
                Verdict::Fails => {}
            }
        }
        Ruling::By { rule: self.otherwise, entry: None, later }
    }

    /// The class whose lifetimes count for a connection, and the prices, if its rule is `predict`.
    pub fn predicted(&self, facts: &Facts) -> Option<(Class, Prices)> {
        let Ruling::By { rule: Rule::Predict(prices), entry, .. } = self.ruling(facts) else { return None };
        let class = Class::new(entry.unwrap_or(self.entries.len()), [facts.local.1, facts.remote.1]);
        Some((class, prices.unwrap_or_default()))
    }

    /// Decides whether a connection moves now, later or never. `None` if it depends on something that is
    /// not known here.
    pub fn decide(&self, facts: &Facts, history: History, room: Room) -> Option<Decision> {
        let Ruling::By { rule, later, .. } = self.ruling(facts) else { return None };
        let (sends, bytes) = (facts.sends.unwrap_or(0), facts.bytes.unwrap_or(0));
        let known = Known { sends, bytes, expected: facts.expected, history };
        Some(match rule.decide(&known, room) {
            Decision::Never(Stay::Rule | Stay::OnlyPairs) if later.is_some() => Decision::NotYet(Wait::Condition),
            decision => decision,
        })
    }

    /// The rules, by which a policy may be calibrated: that of each entry, then that for all others.
    pub fn rules_mut(&mut self) -> impl Iterator<Item = &mut Rule> {
        self.entries.iter_mut().map(|entry| &mut entry.rule).chain([&mut self.otherwise])
    }

    /// True if some rule is `predict`.
    pub fn predicts(&self) -> bool {
        let mut rules = self.entries.iter().map(|entry| entry.rule).chain([self.otherwise]);
        rules.any(|rule| matches!(rule, Rule::Predict(_)))
    }

    /// Pairs of entries of which the first covers the second, so that the second never decides.
    pub fn shadowed(&self) -> Vec<(usize, usize)> {
        let covered = |(at, entry): (usize, &Entry)| {
            Some((self.entries[..at].iter().position(|before| before.covers(entry))?, at))
        };
        self.entries.iter().enumerate().filter_map(covered).collect()
    }
}

/// Writes the policy as lines, one an entry and the last for all others. Between conditions stand tabs,
/// which no condition contains. [`FromStr`] reads it.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { conditions, rule } in &self.entries {
            conditions.iter().try_for_each(|condition| write!(f, "{}={condition}\t", condition.key()))?;
            writeln!(f, "{rule}")?;
        }
        write!(f, "{}", self.otherwise)
    }
}

/// The error for text that is no policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPolicy {
    /// A rule cannot be read.
    #[error(transparent)]
    Rule(#[from] NoRule),
    /// A condition cannot be read.
    #[error(transparent)]
    Condition(#[from] BadCondition),
}

impl FromStr for Policy {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Policy, NoPolicy> {
        let mut entries = text.lines().map(entry).collect::<Result<Vec<Entry>, NoPolicy>>()?;
        match entries.pop() {
            Some(Entry { conditions, rule }) if conditions.is_empty() => Ok(Policy { entries, otherwise: rule }),
            _ => Err(NoRule(String::new()).into()),
        }
    }
}

fn entry(line: &str) -> Result<Entry, NoPolicy> {
    let (conditions, rule) = line.rsplit_once('\t').unwrap_or(("", line));
    let read = |part: &str| {
        let (key, text) = part.split_once('=').unwrap_or((part, ""));
        Condition::parse(key, text)
    };
    let conditions = conditions.split('\t').filter(|part| !part.is_empty()).map(read).collect::<Result<_, _>>()?;
    Ok(Entry { conditions, rule: rule.parse()? })
}

/// A policy for the connections of some ports at either end. All others stay in the kernel.
///
/// # Errors
/// [`NoPorts`](crate::bounds::NoPorts) for text that names no ports.
pub fn for_ports(rule: Rule, ports: &[String]) -> Result<Policy, crate::bounds::NoPorts> {
    let ranges: Vec<_> = ports.iter().map(|ports| parse_ports(ports.trim())).collect::<Result<_, _>>()?;
    let entry = |condition| Entry { conditions: vec![condition], rule };
    let entries = [Condition::LocalPort(ranges.clone()), Condition::RemotePort(ranges)].map(entry);
    Ok(Policy { entries: entries.into(), otherwise: Rule::Never })
}

/// The error for a word that names no rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is not a rule; write fcfs, never, pairs, small, small N bytes, predict, until bulk, or after N sends, with N at least 1"
)]
pub struct NoRule(String);

impl FromStr for Rule {
    type Err = NoRule;

    fn from_str(text: &str) -> Result<Rule, NoRule> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["fcfs"] => Ok(Rule::FirstCome),
            ["never"] => Ok(Rule::Never),
            ["pairs"] => Ok(Rule::Pairs),
            ["small"] => Ok(Rule::Small(None)),
            ["small", bytes, "bytes"] => bytes.parse().map(|it| Rule::Small(Some(it))).map_err(|_| NoRule(text.into())),
            ["predict"] => Ok(Rule::Predict(None)),
            ["predict", ref prices @ ..] => {
                Prices::from_words(prices).map(|it| Rule::Predict(Some(it))).ok_or_else(|| NoRule(text.into()))
            }
            ["until", "bulk"] => Ok(Rule::UntilBulk),
            ["after", sends, "sends" | "send"] => sends.parse().map(Rule::AfterSends).map_err(|_| NoRule(text.into())),
            _ => Err(NoRule(text.into())),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::FirstCome => f.write_str("fcfs"),
            Rule::AfterSends(sends) => write!(f, "after {sends} sends"),
            Rule::Small(None) => f.write_str("small"),
            Rule::Small(Some(bytes)) => write!(f, "small {bytes} bytes"),
            Rule::Predict(None) => f.write_str("predict"),
            Rule::Predict(Some(prices)) => write!(f, "predict {prices}"),
            Rule::UntilBulk => f.write_str("until bulk"),
            Rule::Pairs => f.write_str("pairs"),
            Rule::Never => f.write_str("never"),
        }
    }
}
