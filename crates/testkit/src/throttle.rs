//! Processes that get a part of a CPU, by a cgroup of version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The period over which the part is given, in microseconds.
const PERIOD_US: u64 = 100_000;

/// A cgroup that gives a process a part of a CPU. The process gets all of it back when this is dropped.
pub struct Throttle {
    pid: u32,
    group: PathBuf,
    /// The cgroup of the process before.
    before: PathBuf,
}

/// The mount point of the hierarchy that gives out CPU time, and whether it is of version 2.
fn hierarchy() -> Option<(PathBuf, bool)> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let fields = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|it| it.len() > 3).find_map(|it| match it[2] {
        "cgroup" if it[3].split(',').any(|option| option == "cpu") => Some((it[1].into(), false)),
        "cgroup2" => {
            let given = fs::read_to_string(Path::new(it[1]).join("cgroup.subtree_control")).ok()?;
            given.split_whitespace().any(|name| name == "cpu").then(|| (it[1].into(), true))
        }
        _ => None,
    })
}

/// The cgroup of a process in a hierarchy.
fn group_of(pid: u32, root: &Path, second: bool) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_here = if second { controllers.is_empty() } else { controllers.split(',').any(|it| it == "cpu") };
        is_here.then(|| path.to_owned())
    })?;
    // A container sees its own part of the hierarchy only.
    let here = root.join(path.trim_start_matches('/'));
    Some(if here.is_dir() { here } else { root.to_owned() })
}

impl Throttle {
    /// Gives a process this many hundredths of a CPU.
    ///
    /// # Errors
    /// `Unsupported` if no cgroup here gives out CPU time; those of making a cgroup.
    pub fn new(pid: u32, percent: u64) -> io::Result<Throttle> {
        let (root, second) = hierarchy().ok_or(io::ErrorKind::Unsupported)?;
        let before = group_of(pid, &root, second).ok_or(io::ErrorKind::NotFound)?;
        let group = root.join(format!("baton-test-{}-{pid}", std::process::id()));
        fs::create_dir(&group)?;
        let throttle = Throttle { pid, group, before };
        let quota = PERIOD_US * percent / 100;
        if second {
            throttle.set("cpu.max", &format!("{quota} {PERIOD_US}"))?;
        } else {
            throttle.set("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            throttle.set("cpu.cfs_quota_us", &quota.to_string())?;
        }
        throttle.set("cgroup.procs", &pid.to_string())?;
        Ok(throttle)
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.group.join(name), value)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = fs::write(self.before.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.group);
    }
}
