//! `[access]`: the users whose programs may hand connections off.
//!
//! The kernel tells the service which user is at the other end of its socket (`SO_PEERCRED`).
//! A group therefore stands for the members that it has when the service starts. Names are looked
//! up in `/etc/passwd` and `/etc/group`; users of a directory service must be given by number.

use super::values::Text;
use baton_ipc::order::RunAs;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;

/// A user or a group, as written in the file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Id {
    /// By number.
    Number(u32),
    /// By name.
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

/// The users who may hand connections off, in addition to the service's user and root.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Access {
    /// Users by name or number.
    pub users: Vec<Id>,
    /// Groups, which stand for their members.
    pub groups: Vec<Id>,
    /// A process whose descendants have access, whichever user they run as. The service ends with it.
    pub descendants_of: Option<u32>,
}

impl Access {
    /// The numbers of all users who have access, each once.
    ///
    /// # Errors
    /// The first user or group that does not exist.
    pub fn uids(&self, names: &Names) -> Result<Vec<u32>, Id> {
        let mut uids = BTreeSet::new();
        for user in &self.users {
            uids.insert(names.user(user).ok_or_else(|| user.clone())?);
        }
        for group in &self.groups {
            uids.extend(names.members(group).ok_or_else(|| group.clone())?);
        }
        Ok(uids.into_iter().collect())
    }
}

/// The users and groups of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// Name, number, number of the first group.
    users: Vec<(String, u32, u32)>,
    /// Name, number, names of members.
    groups: Vec<(String, u32, Vec<String>)>,
}

impl Names {
    /// Reads this machine's `/etc/passwd` and `/etc/group`. A file that cannot be read counts as
    /// empty.
    pub fn load() -> Names {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Names::read(&text("/etc/passwd"), &text("/etc/group"))
    }

    /// Parses the text of both files (`passwd(5)`, `group(5)`) and skips malformed lines.
    pub fn read(passwd: &str, group: &str) -> Names {
        let user = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            Some((fields[0].to_owned(), fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
        };
        let members = |text: &str| text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let group_of = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            Some((fields[0].to_owned(), fields.get(2)?.parse().ok()?, members(fields.get(3)?)))
        };
        Names { users: passwd.lines().filter_map(user).collect(), groups: group.lines().filter_map(group_of).collect() }
    }

    /// The number of a user. A number is returned as it is, whether the user exists or not.
    pub fn user(&self, id: &Id) -> Option<u32> {
        match id {
            Id::Number(number) => Some(*number),
            Id::Name(name) => self.users.iter().find(|(user, ..)| user == name).map(|(_, uid, _)| *uid),
        }
    }

    /// The numbers of a user and of its primary group. For a user number that the machine does not
    /// know, the group has the same number.
    pub fn user_and_group(&self, id: &Id) -> Option<RunAs> {
        let uid = self.user(id)?;
        let known = self.users.iter().find(|(_, number, _)| *number == uid);
        Some(RunAs { uid, gid: known.map_or(uid, |(.., gid)| *gid) })
    }

    /// The members of a group: the users whose primary group it is, and the users that it lists.
    fn members(&self, id: &Id) -> Option<BTreeSet<u32>> {
        let listed = self.groups.iter().find(|(name, gid, _)| match id {
            Id::Number(number) => gid == number,
            Id::Name(wanted) => name == wanted,
        });
        let (_, gid, members) = listed?;
        let of_it = |(name, _, first): &&(String, u32, u32)| first == gid || members.contains(name);
        Some(self.users.iter().filter(of_it).map(|(_, uid, _)| *uid).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::read(
            "root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/:/bin/false\nbroken\n\nweb:x:34:34::/:\n\
             alice:x:1000:1000::/:\nbob:x:1001:70::/:\n",
            "web:x:33:\nnot:one\ndb:x:70:alice,nobody-here\nempty:x:71:\n",
        )
    }

    fn name(name: &str) -> Id {
        Id::Name(name.to_owned())
    }

    fn uids(users: &[Id], groups: &[Id]) -> Result<Vec<u32>, Id> {
        Access { users: users.to_vec(), groups: groups.to_vec(), descendants_of: None }.uids(&names())
    }

    #[test]
    fn by_default_nobody_else_has_access() {
        assert_eq!(Access::default().uids(&names()), Ok(vec![]));
    }

    #[test]
    fn users_and_groups_are_listed_by_name_or_number() {
        assert_eq!(uids(&[name("web"), Id::Number(5000), name("web")], &[]), Ok(vec![33, 5000]));
        assert_eq!(
            uids(&[], &[name("db")]),
            Ok(vec![1000, 1001]),
            "listed members, and users whose primary group it is"
        );
        assert_eq!(uids(&[name("bob")], &[Id::Number(70), name("empty")]), Ok(vec![1000, 1001]));
    }

    #[test]
    fn an_unknown_name_is_reported() {
        assert_eq!(uids(&[name("alice"), name("carol")], &[]), Err(name("carol")));
        assert_eq!(uids(&[], &[name("db"), name("alice")]), Err(name("alice")));
        assert_eq!(uids(&[], &[Id::Number(72)]), Err(Id::Number(72)));
        assert_eq!(uids(&[name("broken")], &[]), Err(name("broken")));
    }

    #[test]
    fn an_engine_has_its_users_group() {
        let of = |id| names().user_and_group(&id).map(|RunAs { uid, gid }| (uid, gid));
        assert_eq!(of(name("bob")), Some((1001, 70)));
        assert_eq!(of(Id::Number(1001)), Some((1001, 70)));
        assert_eq!(of(Id::Number(4000)), Some((4000, 4000)));
        assert_eq!(of(name("carol")), None);
    }
}
