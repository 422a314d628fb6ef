//! Finds what rules do with the packets of an established connection, without sending any.
//!
//! Base chains are walked in the order in which packets pass them, through jumps and gotos. A rule
//! holds for every packet of the connection, for none, or for some. A rule that holds for every
//! packet and accepts ends its base chain: `ct state established accept` shields the rules that
//! follow. If a rule holds for some packets only, both outcomes are walked.

use super::packet::{Connection, Hook, Packet};
use super::registers::{Answer, Bits, Registers, Span};
use super::ruleset::{Lookup, Operator, Rule, Ruleset, Step, Table, Verdict};

/// The greatest depth of nested chains, which is the kernel's limit (`NFT_JUMP_STACK_SIZE`).
const DEPTH: usize = 16;
/// The most rules that are examined for one connection, to bound the time. A larger ruleset counts
/// as one that acts.
const BUDGET: usize = 200_000;

/// The result of looking a key up in a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    No,
    /// It is there, with the map's value.
    Yes(Entry),
    /// It may be there, or is not known.
    May,
}

/// Contents of a set's element.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub verdict: Option<Verdict>,
    pub data: Option<Vec<u8>>,
    /// The steps for packets that match the element.
    pub steps: Vec<Step>,
}

/// Looks elements up in sets.
pub(crate) trait Sets {
    fn find(&mut self, table: &Table, set: &str, key: &[u8]) -> Found;
}

/// A rule that does something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The table's family and name, as nft writes them.
    pub table: String,
    /// Name of the chain that the rule is in.
    pub chain: String,
    /// The rule's action, in words.
    pub what: String,
}

/// Rules that concern the packets of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Findings {
    /// The first rule that changes packets or what happens to them.
    pub acts: Option<Hit>,
    /// The first rule that only observes.
    pub observes: Option<Hit>,
    /// A rule that drops all packets of one direction.
    pub drops: Option<Hit>,
}

/// How packets leave a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    /// All packets reach its end.
    Through,
    /// Some packets may have been accepted or dropped.
    Maybe,
    /// A verdict ended it for all packets.
    Ended,
}

struct Walk<'a, S> {
    packet: Packet<'a>,
    sets: &'a mut S,
    findings: Findings,
    budget: usize,
}

/// Walks all chains that a connection's packets pass; those of arriving packets come first.
pub(crate) fn walk(ruleset: &Ruleset, connection: &Connection, sets: &mut impl Sets) -> Findings {
    let packet = Packet::new(connection, Hook::Ingress);
    let mut walk = Walk { packet, sets, findings: Findings::default(), budget: BUDGET };
    for hook in Hook::ALL {
        if hook == Hook::Output {
            walk.packet = Packet::new(connection, hook);
        }
        walk.packet.enter(hook);
        for (table, name, base) in ruleset.bases(hook, walk.packet.is_v4(), &connection.interface_name) {
            let flow = walk.chain(table, name, true, 0);
            if base.drops && flow != Flow::Ended {
                walk.drop(table, name, "policy drop", flow == Flow::Through);
            }
        }
    }
    walk.findings
}

impl<S: Sets> Walk<'_, S> {
    /// Walks a chain, which every packet enters if `sure`.
    fn chain(&mut self, table: &Table, name: &str, sure: bool, depth: usize) -> Flow {
        let Some(chain) = table.chains.get(name).filter(|_| depth <= DEPTH) else {
            self.acts(table, name, "an unreadable chain");
            return Flow::Maybe;
        };
        // Whether every packet that entered the chain is still in it.
        let mut stays = true;
        let left = |stays: bool, flow: Flow| if stays { flow } else { Flow::Maybe };
        for rule in &chain.rules {
            if self.budget == 0 {
                self.acts(table, name, "too many rules");
                return Flow::Maybe;
            }
            self.budget -= 1;
            let (holds, verdict) = self.rule(table, name, rule);
            let each = holds == Answer::Yes;
            match verdict.filter(|_| holds != Answer::No) {
                None | Some(Verdict::Continue) => {}
                Some(Verdict::Accept) if each => return left(stays, Flow::Ended),
                Some(Verdict::Drop) => {
                    self.drop(table, name, "drop", sure && stays && each);
                    if each {
                        return left(stays, Flow::Ended);
                    }
                    stays = false;
                }
                Some(Verdict::Queue) => {
                    self.acts(table, name, "queue");
                    if each {
                        return left(stays, Flow::Ended);
                    }
                    stays = false;
                }
                Some(Verdict::Return) if each => return left(stays, Flow::Through),
                Some(Verdict::Accept | Verdict::Return) => stays = false,
                Some(Verdict::Jump(to)) => match self.chain(table, &to, sure && stays && each, depth + 1) {
                    Flow::Through => {}
                    Flow::Ended if each => return left(stays, Flow::Ended),
                    Flow::Ended | Flow::Maybe => stays = false,
                },
                Some(Verdict::Goto(to)) => {
                    let flow = self.chain(table, &to, sure && stays && each, depth + 1);
                    if each {
                        return left(stays, flow);
                    }
                    stays = false;
                }
            }
        }
        left(stays, Flow::Through)
    }

    /// Returns whether a rule holds, and its verdict.
    fn rule(&mut self, table: &Table, chain: &str, rule: &Rule) -> (Answer, Option<Verdict>) {
        let (mut registers, mut holds) = (Registers::new(), Answer::Yes);
        for step in rule {
            let answer = match step {
                Step::End(verdict) => return (holds, Some(verdict.clone())),
                Step::Lookup(lookup) => {
                    let (answer, verdict) = self.look_up(table, chain, &mut registers, lookup);
                    if verdict.is_some() && answer != Answer::No {
                        return (holds.and(answer), verdict);
                    }
                    answer
                }
                step => self.step(table, chain, step, &mut registers),
            };
            holds = holds.and(answer);
            if holds == Answer::No {
                break;
            }
        }
        (holds, None)
    }

    fn look_up(
        &mut self,
        table: &Table,
        chain: &str,
        registers: &mut Registers,
        lookup: &Lookup,
    ) -> (Answer, Option<Verdict>) {
        let Lookup { from, ref set, inverted, to } = *lookup;
        let key = table.sets.get(set).map(|kind| registers.get(Span { at: from, len: kind.key_len }));
        let found = match key {
            Some(key) if key.is_known() => self.sets.find(table, set, &key.value),
            _ => Found::May,
        };
        match found {
            Found::No => (Answer::No.not_if(inverted), None),
            Found::Yes(entry) => {
                let steps = entry.steps.iter().map(|step| self.step(table, chain, step, registers));
                let holds = steps.fold(Answer::Yes, Answer::and);
                if let (Some(to), Some(data)) = (to, &entry.data) {
                    registers.set(to, &Bits::known(data));
                }
                (holds.not_if(inverted), entry.verdict)
            }
            Found::May => {
                if to == Some(super::expressions::VERDICT) {
                    // The verdict may be any.
                    self.acts(table, chain, "a verdict map");
                } else if let Some(to) = to {
                    registers.forget(Span { at: to, len: 16 });
                }
                (Answer::May, None)
            }
        }
    }

    /// Returns whether the rule continues after a step.
    fn step(&mut self, table: &Table, chain: &str, step: &Step, registers: &mut Registers) -> Answer {
        match step {
            Step::Load { to, field } => self.packet.load(field, *to, registers),
            Step::Set { to, value } => registers.set(*to, &Bits::known(value)),
            Step::Mask { from, to, mask, xor } => {
                let masked = registers.get(*from).masked(mask, xor);
                registers.set(*to, &masked);
            }
            Step::Swap { from, to, size } => {
                let mut bits = registers.get(*from);
                for part in [&mut bits.value, &mut bits.known] {
                    part.chunks_exact_mut((*size).max(1)).for_each(<[u8]>::reverse);
                }
                registers.set(*to, &bits);
            }
            Step::Compare { from, operator: Operator::Equal, value } => return registers.equals(*from, value),
            Step::Compare { from, operator, value } => return compare(&registers.get(*from), *operator, value),
            Step::Range { from, inverted, low, high } => {
                let bits = registers.get(*from);
                let above = compare(&bits, Operator::GreaterOrEqual, low);
                return above.and(compare(&bits, Operator::LessOrEqual, high)).not_if(*inverted);
            }
            Step::Match(matches) => return matches.holds(&self.packet),
            Step::May => return Answer::May,
            Step::Acts(what) => self.acts(table, chain, what),
            Step::Limits(what) => {
                self.acts(table, chain, what);
                return Answer::May;
            }
            Step::Observes(what) => self.observes(table, chain, what),
            Step::Marks(what) => {
                self.packet.mark_is_known = false;
                self.acts(table, chain, what);
            }
            Step::Untracks(what) => {
                self.packet.untrack();
                self.observes(table, chain, what);
            }
            Step::Lookup(_) | Step::End(_) => return Answer::May,
        }
        Answer::Yes
    }

    fn drop(&mut self, table: &Table, chain: &str, what: &str, each: bool) {
        self.acts(table, chain, what);
        if each {
            self.findings.drops.get_or_insert_with(|| hit(table, chain, what));
        }
    }

    fn acts(&mut self, table: &Table, chain: &str, what: &str) {
        self.findings.acts.get_or_insert_with(|| hit(table, chain, what));
    }

    fn observes(&mut self, table: &Table, chain: &str, what: &str) {
        self.findings.observes.get_or_insert_with(|| hit(table, chain, what));
    }
}

fn hit(table: &Table, chain: &str, what: &str) -> Hit {
    Hit { table: table.title(), chain: chain.to_owned(), what: what.to_owned() }
}

fn compare(bits: &Bits, operator: Operator, value: &[u8]) -> Answer {
    use std::cmp::Ordering;
    let ordered = |is: fn(Ordering) -> bool| bits.compare(value).map_or(Answer::May, |order| Answer::of(is(order)));
    match operator {
        Operator::Equal => bits.equals(value),
        Operator::NotEqual => bits.equals(value).not_if(true),
        Operator::Less => ordered(Ordering::is_lt),
        Operator::LessOrEqual => ordered(Ordering::is_le),
        Operator::Greater => ordered(Ordering::is_gt),
        Operator::GreaterOrEqual => ordered(Ordering::is_ge),
    }
}
