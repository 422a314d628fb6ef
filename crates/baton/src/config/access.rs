//! `[access]`: whose programs may hand connections off.
//!
//! A program is known by the credentials that the kernel tells of the other end of the
//! service's socket (`SO_PEERCRED`, `SO_PEERGROUPS`). Names of users and groups are looked
//! up once, in `/etc/passwd` and `/etc/group`; of a directory service the numbers are to
//! be given.

use super::values::Text;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// A user or a group, as it was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Id {
    /// Its number.
    Number(u32),
    /// Its name.
    Name(String),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Name(name) => name.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Id, D::Error> {
        let text = Text::deserialize(from)?.0;
        match text.parse() {
            Ok(number) => Ok(Id::Number(number)),
            Err(_) if !text.is_empty() && !text.starts_with('-') && !text.contains([':', '\n']) => Ok(Id::Name(text)),
            Err(_) => Err(serde::de::Error::custom(format!(
                "'{text}' is neither a name nor a number; /etc/passwd and /etc/group have both"
            ))),
        }
    }
}

/// Who may hand off, besides the service's user and root.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Access {
    /// Users.
    pub users: Vec<Id>,
    /// Groups.
    pub groups: Vec<Id>,
}

impl Access {
    /// Whether a program of the user `uid` with the groups `gids` may hand connections off
    /// to a service whose user is `own_uid`. Names that nobody has mean nobody.
    pub fn allows(&self, names: &Names, own_uid: u32, uid: u32, gids: &[u32]) -> bool {
        uid == own_uid
            || uid == 0
            || self.users.iter().any(|user| names.user(user) == Some(uid))
            || self.groups.iter().any(|group| names.group(group).is_some_and(|gid| gids.contains(&gid)))
    }

    /// The first name that nobody has: a word to whoever wrote it.
    pub fn unknown(&self, names: &Names) -> Option<&Id> {
        let users = self.users.iter().filter(|user| names.user(user).is_none());
        users.chain(self.groups.iter().filter(|group| names.group(group).is_none())).next()
    }
}

/// Users and groups by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
}

impl Names {
    /// This machine's, of `/etc/passwd` and `/etc/group`. A file that cannot be read names
    /// nobody.
    pub fn load() -> Names {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Names::read(&text("/etc/passwd"), &text("/etc/group"))
    }

    /// From the text of both files (`passwd(5)`, `group(5)`).
    pub fn read(passwd: &str, group: &str) -> Names {
        Names { users: numbers(passwd), groups: numbers(group) }
    }

    /// A user's number.
    pub fn user(&self, id: &Id) -> Option<u32> {
        number(&self.users, id)
    }

    /// A group's number.
    pub fn group(&self, id: &Id) -> Option<u32> {
        number(&self.groups, id)
    }
}

fn number(known: &BTreeMap<String, u32>, id: &Id) -> Option<u32> {
    match id {
        Id::Number(number) => Some(*number),
        Id::Name(name) => known.get(name).copied(),
    }
}

/// First and third field of each line; of a name that is there twice the first counts, as
/// for `getpwnam`.
fn numbers(text: &str) -> BTreeMap<String, u32> {
    let mut known = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(_), Some(Ok(number))) = (fields.next(), fields.next(), fields.next().map(str::parse)) {
            known.entry(name.to_owned()).or_insert(number);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::read(
            "root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/:/bin/false\nbroken\nweb:x:34:34::/:\n",
            "web:x:33:\ndb:x:70:alice\n",
        )
    }

    fn name(name: &str) -> Id {
        Id::Name(name.to_owned())
    }

    #[test]
    fn by_default_the_same_user_and_root() {
        let access = Access::default();
        for (uid, allowed) in [(1000, true), (0, true), (33, false), (1001, false)] {
            assert_eq!(access.allows(&names(), 1000, uid, &[1000, 33, 70]), allowed, "{uid}");
        }
    }

    #[test]
    fn who_is_listed_by_name_or_number() {
        let access = Access { users: vec![name("web"), Id::Number(5000)], groups: vec![name("db")] };
        let table =
            [(33, &[][..], true), (34, &[], false), (5000, &[], true), (5001, &[70], true), (5001, &[71], false)];
        for (uid, gids, allowed) in table {
            assert_eq!(access.allows(&names(), 1000, uid, gids), allowed, "{uid} {gids:?}");
        }
        assert_eq!(access.unknown(&names()), None);
    }

    #[test]
    fn a_name_that_nobody_has_lets_nobody_in() {
        let access = Access { users: vec![name("nobody-here")], groups: vec![name("web")] };
        assert!(!access.allows(&names(), 1000, 33, &[]));
        assert!(!access.allows(&Names::default(), 1000, 33, &[33]));
        assert_eq!(access.unknown(&names()), Some(&name("nobody-here")));
        assert_eq!(Access { users: vec![], ..access }.unknown(&Names::default()), Some(&name("web")));
    }
}
