//! Which connections move to the engine, and when.
//!
//! ```text
//!   Known (ports, sends, history) --Policy: the first rule for its port--> Rule
//!   Rule, Known, Room (connections there, at most) -----------------------> Decision
//!                                              Move | NotYet(why) | Never(why)
//! ```
//!
//! Kim and Rixner (OSDI 2006), "CH" below. As there (§3.3), whoever has the connections
//! asks when one is established and again at each request to send, hands off what is told
//! to move, and asks no more for one whose handoff failed. Nothing here keeps state or
//! knows a clock: a decision is a function of its arguments, and a connection that is
//! decided upon is only examined afterwards ([`KernelSide::plan`]), which may still
//! refuse. [`known`](crate::known()) asks the kernel what there is to know.
//!
//! [`KernelSide::plan`]: crate::kernel_side::KernelSide::plan
//!
//! # What has its place here and is not built
//!
//! * *Load control* (CH §3.2, figure 3): a limit that follows the engine's load. It is
//!   whoever fills in [`Room::at_most`], the smaller of the configured limit and the soft
//!   one. A connection that finds no room waits ([`Wait::Room`]), so a limit that rises
//!   needs no other change.
//! * *Lifetime prediction* (CH §3.3): more than a count of sends is then known, in
//!   [`Known`], and is looked at by one more [`Rule`].

use core::fmt;
use core::num::NonZeroU64;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// When a connection is to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// `fcfs`: as soon as it is established, first come, first served (CH §3.3).
    #[default]
    FirstCome,
    /// `after N sends`: at its Nth request to send, so that only those that live long take
    /// one of few places (CH §3.3, §5.2: T_N).
    AfterSends(NonZeroU64),
    /// `until bulk`: as soon as it is established, and back home for good once it proves to be
    /// bulk ([`Rule::keeps`]).
    UntilBulk,
    /// `small`: once it has made [`SMALL_SENDS`] requests to send, if it carried no more than
    /// [`SMALL_BYTES`] for each; back home for good once it proves to be bulk.
    Small,
    /// `never`.
    Never,
}

/// What is known of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Our port.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
    /// Requests to send that its program has made, this one included (CH §5.2 counts what
    /// is put into the socket's send buffer). Where nobody counts these, the segments with
    /// data that were sent, which CH finds proportional.
    pub sends: u64,
    /// Payload that the peer has acknowledged, and that it has sent, in bytes.
    pub bytes: u64,
    /// What has become of it before.
    pub history: History,
}

/// What was done with a connection before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum History {
    /// Nothing.
    #[default]
    New,
    /// A handoff failed or was refused.
    Failed,
    /// Somebody gave it back to the kernel.
    Restored,
}

/// How full the engine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Connections that are there.
    pub connections: u64,
    /// And may be.
    pub at_most: u64,
}

/// What is to be done with a connection now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Hand it off.
    Move,
    /// Ask again at its next request to send.
    NotYet(Wait),
    /// Ask no more.
    Never(Stay),
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// So many more requests to send.
    Sends(NonZeroU64),
    /// A place in the engine.
    Room,
    /// Smaller requests and answers.
    Smaller,
}

/// Why a connection stays for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stay {
    /// Its rule is `never`.
    Rule,
    /// Its handoff failed (CH §3.3).
    Failed,
    /// It was given back.
    Restored,
}

impl Decision {
    /// Its name in counters and JSON. It stays the same for ever.
    pub const fn code(self) -> &'static str {
        match self {
            Decision::Move => "move",
            Decision::NotYet(Wait::Sends(_)) => "waits-for-sends",
            Decision::NotYet(Wait::Room) => "waits-for-room",
            Decision::NotYet(Wait::Smaller) => "large-transfers",
            Decision::Never(Stay::Rule) => "rule-never",
            Decision::Never(Stay::Failed) => "handoff-failed",
            Decision::Never(Stay::Restored) => "restored",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Move => f.write_str("it moves now"),
            Decision::NotYet(Wait::Sends(more)) => write!(f, "it moves after {more} more sends"),
            Decision::NotYet(Wait::Room) => f.write_str("the engine has as many connections as it may have"),
            Decision::NotYet(Wait::Smaller) => {
                f.write_str("it carries much at a time, for which the kernel needs less")
            }
            Decision::Never(Stay::Rule) => f.write_str("its port's rule is never to move"),
            Decision::Never(Stay::Failed) => f.write_str("its handoff failed before"),
            Decision::Never(Stay::Restored) => f.write_str("it was given back to the kernel"),
        }
    }
}

impl Rule {
    /// Applies the rule.
    pub fn decide(self, known: &Known, room: Room) -> Decision {
        match known.history {
            History::New => {}
            History::Failed => return Decision::Never(Stay::Failed),
            History::Restored => return Decision::Never(Stay::Restored),
        }
        let due = match self {
            Rule::FirstCome | Rule::UntilBulk => 0,
            Rule::AfterSends(sends) => sends.get(),
            Rule::Small => SMALL_SENDS,
            Rule::Never => return Decision::Never(Stay::Rule),
        };
        if let Some(more) = NonZeroU64::new(due.saturating_sub(known.sends)) {
            return Decision::NotYet(Wait::Sends(more));
        }
        if self == Rule::Small && known.bytes / known.sends.max(1) > SMALL_BYTES {
            return Decision::NotYet(Wait::Smaller);
        }
        if room.connections < room.at_most { Decision::Move } else { Decision::NotYet(Wait::Room) }
    }

    /// Whether a connection on the engine stays there that has carried so many bytes by large
    /// calls, those that move [`BULK_CALL`] bytes and more.
    pub fn keeps(self, by_large_calls: u64) -> bool {
        !matches!(self, Rule::UntilBulk | Rule::Small) || by_large_calls < BULK_BYTES
    }
}

/// Requests to send after which a connection is known to live. A move costs some 80 µs and what
/// is gained by a small answer is some 2 µs of CPU time, so who has made about so many may as
/// well be expected to make as many more (CH §3.3).
pub const SMALL_SENDS: u64 = 32;

/// Bytes both ways for each request to send, from which the kernel is cheaper over tc on some
/// machine: nginx's answers of 1 KB cost 0.90 of the kernel's CPU time on the engine on an AMD
/// EPYC and 1.04 to 1.11 on an Intel Xeon, redis's few bytes 0.82 to 0.97 on either
/// (`baton bench programs`).
pub const SMALL_BYTES: u64 = 512;

/// Bytes that a read or write moves at once from which it is a large one. Chosen, not measured:
/// beside so many bytes a system call saved is little, and the kernel sends them without a copy.
pub const BULK_CALL: usize = 16 << 10;

/// Bytes moved by large calls after which a connection is bulk. Chosen, not measured.
pub const BULK_BYTES: u64 = 4 << 20;

/// Which port of a connection is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Ours: that of a service on this machine.
    Local,
    /// The peer's: that of a service that programs of this machine use.
    Remote,
}

/// The rule for the connections of some ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRule {
    /// Which port.
    pub side: Side,
    /// Of which values; none if the range is empty.
    pub ports: RangeInclusive<u16>,
    /// When they move.
    pub rule: Rule,
}

impl PortRule {
    fn is_for(&self, known: &Known) -> bool {
        self.ports.contains(match self.side {
            Side::Local => &known.local_port,
            Side::Remote => &known.remote_port,
        })
    }
}

/// The rules of a machine: "the operating system should be able to employ multiple
/// application-specific (per-port) connection selection policies" (CH §3.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Looked at in this order; the first that is for a connection's port decides.
    pub ports: Vec<PortRule>,
    /// For all others.
    pub otherwise: Rule,
}

impl Policy {
    /// The rule for a connection.
    pub fn rule(&self, known: &Known) -> Rule {
        self.ports.iter().find(|port| port.is_for(known)).map_or(self.otherwise, |port| port.rule)
    }

    /// What is to be done with a connection now.
    pub fn decide(&self, known: &Known, room: Room) -> Decision {
        self.rule(known).decide(known, room)
    }
}

/// A rule that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no rule; write fcfs, never, small, until bulk, or after N sends with N at least 1")]
pub struct NoRule(String);

impl FromStr for Rule {
    type Err = NoRule;

    fn from_str(text: &str) -> Result<Rule, NoRule> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["fcfs"] => Ok(Rule::FirstCome),
            ["never"] => Ok(Rule::Never),
            ["small"] => Ok(Rule::Small),
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
            Rule::Small => f.write_str("small"),
            Rule::UntilBulk => f.write_str("until bulk"),
            Rule::Never => f.write_str("never"),
        }
    }
}

/// Ports that are none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' are no ports; write one as 443, or a range as 8000-8999, from 1 to 65535")]
pub struct NoPorts(String);

/// Reads a port (`443`) or a range of them (`8000-8999`).
///
/// # Errors
/// [`NoPorts`] for anything else, port 0 and an empty range among it.
pub fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, NoPorts> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from > 0 && from <= to => Ok(from..=to),
        _ => Err(NoPorts(text.into())),
    }
}
