//! The account of a program's connections that `baton run --explain` prints.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Connections of a program under `baton run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    /// Connections that left the kernel.
    pub moved: u64,
    /// Those of them that were joined with their other ends on this machine.
    pub paired: u64,
    /// All connections.
    pub all: u64,
}

impl Account {
    /// Finds the account in what `baton run` and its program printed to standard error.
    pub fn parse(said: &str) -> Option<Account> {
        let lines = || said.lines().filter_map(|line| line.strip_prefix("baton: "));
        let mut words = lines().find(|line| line.contains(" moved to "))?.split(' ');
        let moved = words.next()?.parse().ok()?;
        let all = words.nth(1)?.parse().ok()?;
        let joined = lines().find(|line| line.contains(" of them were joined "));
        let paired = joined.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Some(Account { moved, paired: paired.unwrap_or(0), all })
    }

    /// The sum of two.
    #[must_use]
    pub fn and(self, other: Account) -> Account {
        Account { moved: self.moved + other.moved, paired: self.paired + other.paired, all: self.all + other.all }
    }
}

/// How many were in pairs, as in `48 of 50`.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.paired, self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_read() {
        let said = "started\nbaton: 4 of 5 connections moved to the engine; 1 bytes sent and 2 received there\n";
        let moved = Account { moved: 4, paired: 0, all: 5 };
        assert_eq!(Account::parse(said), Some(moved));
        let joined = format!("{said}baton:   3 of them were joined with their other ends on this machine\n");
        let paired = Account { paired: 3, ..moved };
        assert_eq!(Account::parse(&joined), Some(paired));
        assert_eq!(moved.and(paired).to_string(), "3 of 10");
        assert_eq!(Account::parse("baton: nothing"), None);
    }
}
