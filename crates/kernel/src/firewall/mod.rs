//! The firewall of a network namespace: what its rules do with a connection's packets, and when
//! they change.
//!
//! ```text
//!   nftables:         NFNLGRP_NFTABLES, a transaction ends with NEWGEN --\
//!   legacy iptables:  entries read once a second, counters left out -----+--> poll: changed
//!
//!   nft, entries: tables as the kernel has them --> ruleset --walk(connection)--> check: Hit
//! ```
//!
//! iptables-nft, ufw, firewalld, Docker and fail2ban all end up in one of the two. Every
//! transaction counts, whatever it changes, including elements of sets: bans are often kept there.
//! The effects of packets do not count: elements that packets add (`update @set`), quotas that run
//! out, and elements that time out make no transaction.
//!
//! Rules are read again when the number of the last transaction has changed, and are walked for
//! each connection that is to move. Two things are not seen: sets of `ipset`, whose changes the
//! kernel does not report, and BPF programs at netfilter's hooks.

mod entries;
mod expressions;
mod legacy;
mod legacy_table;
mod nft;
mod packet;
mod registers;
mod ruleset;
#[cfg(test)]
mod tests;
mod walk;
mod xt;
mod xt_match;

use crate::netlink::Socket;
use legacy::Legacy;
pub(crate) use packet::Connection;
use ruleset::Ruleset;
use rustix::net::netlink::NETFILTER;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use std::time::Instant;
pub use walk::Hit;
use walk::{Findings, walk};

/// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const GROUP: u32 = 7;

/// The treatment of connections that firewall rules act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rules {
    /// They move past such rules, unless a rule drops all of their packets.
    Follow,
    /// They stay in the kernel if a rule changes their packets or what happens to those packets.
    #[default]
    Refuse,
    /// They also stay if a rule only counts or logs their packets.
    Strict,
}

impl Rules {
    /// The name in configurations.
    pub const fn word(self) -> &'static str {
        match self {
            Rules::Follow => "follow",
            Rules::Refuse => "refuse",
            Rules::Strict => "strict",
        }
    }

    fn choose(self, findings: Findings) -> Option<Hit> {
        match self {
            Rules::Follow => findings.drops,
            Rules::Refuse => findings.drops.or(findings.acts),
            Rules::Strict => findings.drops.or(findings.acts).or(findings.observes),
        }
    }
}

impl FromStr for Rules {
    type Err = NoRules;

    fn from_str(word: &str) -> Result<Rules, NoRules> {
        let all = [Rules::Follow, Rules::Refuse, Rules::Strict];
        all.into_iter().find(|rules| rules.word() == word).ok_or_else(|| NoRules(word.to_owned()))
    }
}

/// The error for a word that does not name a [`Rules`] value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is unknown; write follow, refuse or strict")]
pub struct NoRules(String);

/// Follows the rules of the network namespace of the calling thread.
pub(crate) struct Firewall {
    /// `None` if the kernel has no netfilter netlink.
    netlink: Option<Netlink>,
    legacy: Legacy,
    /// The legacy tables as they were last read.
    tables: Ruleset,
}

struct Netlink {
    events: Socket,
    asker: Socket,
    /// The number of the transaction after which the rules were read, and the rules.
    generation: u32,
    ruleset: Ruleset,
    known: nft::Known,
}

impl Firewall {
    /// Starts to follow the rules.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn open() -> io::Result<Firewall> {
        let netlink = match Socket::listen(NETFILTER, &[GROUP]) {
            Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => None,
            events => Some(Netlink {
                events: events?,
                asker: Socket::open(NETFILTER)?,
                generation: 0,
                ruleset: Ruleset::default(),
                known: nft::Known::new(),
            }),
        };
        let mut firewall = Firewall { netlink, legacy: Legacy::default(), tables: Ruleset::default() };
        firewall.look_at_legacy();
        Ok(firewall)
    }

    /// Readable when nftables rules have changed.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.netlink.as_ref().map(|netlink| netlink.events.as_fd())
    }

    /// Returns true if rules have changed since the last call. Call it at least once per second,
    /// because legacy tables cause no events.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn poll(&mut self) -> io::Result<bool> {
        let mut changed = self.look_at_legacy();
        if let Some(Netlink { events, .. }) = &mut self.netlink {
            // If the kernel had more to report than fits, something has changed as well.
            changed |= !events.drain(|kind, _| changed |= kind == nft::NEWGEN)?;
        }
        Ok(changed)
    }

    fn look_at_legacy(&mut self) -> bool {
        let changed = self.legacy.look(Instant::now());
        if changed {
            self.tables = self.legacy.ruleset();
        }
        changed
    }

    /// The first rule, in the order in which its packets meet them, because of which a connection
    /// has to stay in the kernel.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn check(&mut self, rules: Rules, connection: &Connection) -> io::Result<Option<Hit>> {
        let legacy = walk(&self.tables, connection, &mut NoSets);
        if let Some(hit) = rules.choose(legacy) {
            return Ok(Some(hit));
        }
        let Some(netlink) = &mut self.netlink else { return Ok(None) };
        let findings = netlink.renew().map(|()| netlink.walk(connection));
        match findings {
            Ok(findings) => Ok(rules.choose(findings)),
            // The rules change faster than they can be read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(Hit {
                table: "all".to_owned(),
                chain: "all".to_owned(),
                what: "rules that keep changing".to_owned(),
            })),
            Err(error) => Err(error),
        }
    }
}

impl Netlink {
    /// Reads the rules again if they have changed.
    fn renew(&mut self) -> io::Result<()> {
        if nft::generation(&mut self.asker)? != self.generation {
            self.known.clear();
            (self.generation, self.ruleset) = nft::read(&mut self.asker)?;
        }
        Ok(())
    }

    fn walk(&mut self, connection: &Connection) -> Findings {
        let mut elements = nft::Elements { socket: &mut self.asker, known: &mut self.known };
        walk(&self.ruleset, connection, &mut elements)
    }
}

/// Legacy tables have no sets.
struct NoSets;

impl walk::Sets for NoSets {
    fn find(&mut self, _: &ruleset::Table, _: &str, _: &[u8]) -> walk::Found {
        walk::Found::May
    }
}
