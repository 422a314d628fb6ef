//! The live TCP connections of this machine's programs, with what a policy may ask about them.
//!
//! A socket is found among a program's descriptors and borrowed by `pidfd_getfd(2)`, which needs the
//! right to trace the program. The kernel then says the same of it as it says the service.

use baton_policy::conditions::{Direction, Facts, cgroup_of};
use rustix::net::ipproto::TCP;
use rustix::net::sockopt::socket_protocol;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// A connection of a program.
pub struct Found {
    pub pid: u32,
    pub facts: Facts,
}

/// The connections of one program, or of all that this user may look into.
pub fn find(pid: Option<u32>) -> anyhow::Result<Vec<Found>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for pid in pid.map_or_else(all, |pid| vec![pid]) {
        let sockets = sockets(pid);
        if sockets.is_empty() {
            continue;
        }
        let listening = listening(pid);
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let program = text("comm").map(|name| name.trim_end().to_owned());
        let cgroup = text("cgroup").and_then(|lines| cgroup_of(&lines));
        let user = fs::metadata(format!("/proc/{pid}")).ok().map(|program| program.uid());
        for (inode, fd) in sockets {
            // A socket that several processes share is shown once.
            let Some(facts) = baton_kernel::known(&fd).ok().filter(|_| seen.insert(inode)) else { continue };
            let accepted = listening.contains(&facts.local.1);
            let direction = Some(if accepted { Direction::Accepted } else { Direction::Connected });
            let (program, cgroup) = (program.clone(), cgroup.clone());
            found.push(Found { pid, facts: Facts { direction, user, program, cgroup, ..facts } });
        }
    }
    Ok(found)
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A program's TCP sockets, by inode.
fn sockets(pid: u32) -> Vec<(u64, OwnedFd)> {
    let Some(program) = Pid::from_raw(pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Vec::new();
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        let fd = pidfd_getfd(&program, number, PidfdGetfdFlags::empty()).ok()?;
        (socket_protocol(&fd).ok()? == Some(TCP)).then_some((inode, fd))
    };
    entries.filter_map(socket).collect()
}

/// The ports on which somebody listens in the program's network namespace.
fn listening(pid: u32) -> BTreeSet<u16> {
    const LISTEN: &str = "0A";
    let lines = |file: &str| fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        (state == LISTEN).then(|| u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok())?
    };
    ["tcp", "tcp6"].iter().flat_map(|file| lines(file).lines().filter_map(port).collect::<Vec<_>>()).collect()
}
