//! BPF programs of a connection's control group that see its packets
//! (`BPF_CGROUP_INET_INGRESS`, `BPF_CGROUP_INET_EGRESS`).
//!
//! `sock_diag` reports the group's number, which is the inode of the group's directory in the
//! version 2 hierarchy. Only such groups have programs. A directory is looked up once and kept open
//! until nobody has asked for it for a minute. A group whose directory cannot be found, or was
//! removed, counts as one that has programs.

use crate::sys::{AttachedTo, programs_at};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, fstatfs, open, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Directories stay open for this long without use.
const UNUSED: Duration = Duration::from_secs(60);
/// `linux/magic.h`, `linux/bpf.h`.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
const BPF_CGROUP_INET_INGRESS: u32 = 0;
const BPF_CGROUP_INET_EGRESS: u32 = 1;
/// The most groups that are searched for one directory.
const GROUPS_MAX: usize = 65_536;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The control groups looked up so far.
#[derive(Default)]
pub(super) struct Cgroups {
    /// The hierarchy, if there is one; the outer `None` means that it was not looked up yet.
    root: Option<Option<OwnedFd>>,
    known: BTreeMap<u64, Group>,
}

struct Group {
    /// `None` if it cannot be found.
    directory: Option<OwnedFd>,
    has_programs: bool,
    used: Instant,
}

impl Group {
    fn look(&mut self) {
        self.used = Instant::now();
        self.has_programs = match &self.directory {
            None => true,
            Some(directory) => {
                has_programs(directory, BPF_CGROUP_INET_INGRESS) || has_programs(directory, BPF_CGROUP_INET_EGRESS)
            }
        };
    }
}

fn has_programs(directory: &OwnedFd, kind: u32) -> bool {
    match programs_at(AttachedTo::Cgroup(directory.as_fd()), kind) {
        Ok(programs) => !programs.is_empty(),
        // `EINVAL` means a kernel without such programs. For a removed group the query fails too,
        // although the group's programs still see its sockets' packets.
        Err(error) => error.raw_os_error() != Some(libc::EINVAL),
    }
}

impl Cgroups {
    /// Looks at a group; 0 means no group.
    pub fn look(&mut self, id: u64) {
        if id == 0 {
            return;
        }
        let root = self.root.get_or_insert_with(hierarchy);
        // Without a hierarchy, nobody can have attached a program to one of its groups.
        let Some(root) = root else { return };
        let group = match self.known.entry(id) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(Group {
                directory: find(root, id).unwrap_or(None),
                has_programs: false,
                used: Instant::now(),
            }),
        };
        group.look();
    }

    /// Looks again at the groups of connections that are away, and forgets the unused ones.
    pub fn look_again(&mut self, ids: impl Iterator<Item = u64>) {
        let ids: BTreeSet<u64> = ids.collect();
        self.known.retain(|id, group| ids.contains(id) || group.used.elapsed() < UNUSED);
        ids.into_iter().for_each(|id| self.look(id));
    }

    /// Returns true if programs of the group saw its connections' packets at the last look.
    pub fn watches(&self, id: u64) -> bool {
        self.known.get(&id).is_some_and(|group| group.has_programs)
    }
}

/// The root of the hierarchy: where it is mounted, or from a mount of our own.
fn hierarchy() -> Option<OwnedFd> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = table.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        system.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4)).flatten()
    });
    // Another file system may be mounted on top of it.
    let is_one = |directory: &OwnedFd| fstatfs(directory).is_ok_and(|found| found.f_type == CGROUP2_SUPER_MAGIC);
    places.filter_map(|place| open(place, DIRECTORY, Mode::empty()).ok()).find(is_one).or_else(|| {
        let system = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
        fsconfig_create(system.as_fd()).ok()?;
        let mount = fsmount(system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
        // A mount made here can be traversed, but not read.
        openat(&mount, ".", DIRECTORY, Mode::empty()).ok()
    })
}

/// The directory with this inode. The search begins at the root.
fn find(root: &OwnedFd, id: u64) -> io::Result<Option<OwnedFd>> {
    let mut level = vec![openat(root, ".", DIRECTORY, Mode::empty())?];
    let mut seen = 0;
    while !level.is_empty() && seen < GROUPS_MAX {
        let mut below = Vec::new();
        for directory in level {
            if fstat(&directory)?.st_ino == id {
                return Ok(Some(directory));
            }
            seen += 1;
            // A group that is removed meanwhile is not the one wanted.
            let Ok(entries) = Dir::read_from(&directory) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if entry.file_type() != FileType::Directory || matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                below.extend(openat(&directory, name, DIRECTORY, Mode::empty()));
            }
        }
        level = below;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_testkit::need_root;
    use rustix::fs::CWD;

    #[test]
    fn a_group_is_found_by_its_number() {
        need_root!();
        let root = hierarchy().expect("the kernel has the hierarchy");
        let name = format!("baton-find-{}", std::process::id());
        let path = format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&root));
        rustix::fs::mkdirat(CWD, &*path, 0o755.into()).unwrap();
        let id = rustix::fs::stat(&*path).unwrap().st_ino;
        let found = find(&root, id).unwrap().map(|directory| fstat(&directory).unwrap().st_ino);
        let mut groups = Cgroups::default();
        groups.look(id);
        let watched = groups.watches(id);
        rustix::fs::unlinkat(CWD, &*path, rustix::fs::AtFlags::REMOVEDIR).unwrap();
        assert_eq!(found, Some(id));
        assert!(!watched, "no program is attached");
        groups.look_again(std::iter::empty());
        assert!(!groups.watches(id), "the last look is recent");
        groups.look_again([id].into_iter());
        assert!(groups.watches(id), "a removed group may have programs");
        groups.look(u64::MAX);
        assert!(groups.watches(u64::MAX), "an unknown group may have programs");
    }
}
