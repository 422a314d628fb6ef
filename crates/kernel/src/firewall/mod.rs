//! The firewall of a network namespace: what its rules do with a connection's packets, and when they
//! change.
//!
//! ```text
//!   nftables:         NFNLGRP_NFTABLES, a transaction ends with NEWGEN --\
//!   legacy iptables:  entries read once a second, counters left out -----+--> poll: changed
//!
//!   nft, entries: tables as the kernel has them --> ruleset --walk(connection)--> check: Hit
//! ```
//!
//! iptables-nft, ufw, firewalld, Docker and fail2ban all end in one of the two. A transaction
//! counts whatever it changes, elements of sets included: bans are often kept there. What packets
//! do counts for nothing: elements that they add (`update @set`), quotas that run out, and elements
//! that time out make no transaction.
//!
//! Rules are read again when the number of the last transaction is another, and walked for each
//! connection that is to move. Not seen: sets of `ipset`, whose changes the kernel tells nobody
//! of, and BPF programs at netfilter's hooks.

mod entries;
mod expressions;
mod legacy;
mod nft;
mod packet;
mod registers;
mod ruleset;
#[cfg(test)]
mod tests;
mod walk;
mod xt;

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

/// What becomes of connections that firewall rules act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rules {
    /// They move past such rules, unless one drops each of their packets.
    Follow,
    /// They stay in the kernel, if a rule changes their packets or what becomes of these.
    #[default]
    Refuse,
    /// They stay also if a rule only counts or logs their packets.
    Strict,
}

impl Rules {
    /// Its name in configurations.
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

/// The error for a word that names no [`Rules`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not known; write follow, refuse or strict")]
pub struct NoRules(String);

/// Follows the rules of the thread's network namespace.
pub(crate) struct Firewall {
    /// None in a kernel without netfilter's netlink.
    netlink: Option<Netlink>,
    legacy: Legacy,
    /// Legacy tables as they were read last.
    tables: Ruleset,
}

struct Netlink {
    events: Socket,
    asker: Socket,
    /// The number of the transaction that the rules are of, and the rules.
    generation: u32,
    ruleset: Ruleset,
    known: nft::Known,
}

impl Firewall {
    /// Follows the rules from now on.
    ///
    /// # Errors
    /// As the kernel's.
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

    /// What becomes readable when nftables rules change.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.netlink.as_ref().map(|netlink| netlink.events.as_fd())
    }

    /// Whether rules have changed since the last call. To be called once a second at least, for
    /// legacy tables make no events.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn poll(&mut self) -> io::Result<bool> {
        let mut changed = self.look_at_legacy();
        if let Some(Netlink { events, .. }) = &mut self.netlink {
            // Told too much to keep it all, the kernel has told of a change at least.
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

    /// The rule for which a connection has to stay in the kernel. The first with which its packets
    /// meet is named.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn check(&mut self, rules: Rules, connection: &Connection) -> io::Result<Option<Hit>> {
        let legacy = walk(&self.tables, connection, &mut NoSets);
        if let Some(hit) = rules.choose(legacy) {
            return Ok(Some(hit));
        }
        let Some(netlink) = &mut self.netlink else { return Ok(None) };
        let findings = netlink.renew().map(|()| netlink.walk(connection));
        match findings {
            Ok(findings) => Ok(rules.choose(findings)),
            // They change faster than they can be read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(Hit {
                table: "all".to_owned(),
                chain: "all".to_owned(),
                what: "rules that change while they are read".to_owned(),
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

/// Legacy tables have none.
struct NoSets;

impl walk::Sets for NoSets {
    fn find(&mut self, _: &ruleset::Table, _: &str, _: &[u8]) -> walk::Found {
        walk::Found::May
    }
}
