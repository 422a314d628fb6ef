//! Programs on a CPU of their own, and programs that get a part of one.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::path::PathBuf;

/// Calls `f` on a thread that is pinned to `cpu`, if there is one. Programs that `f` starts stay there.
pub fn on<T: Send>(cpu: Option<usize>, f: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let Some(cpu) = cpu else { return f() };
    std::thread::scope(|scope| {
        let bound = scope.spawn(move || {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))?;
            f()
        });
        bound.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The period over which a part of a CPU is given, in microseconds.
const PERIOD_US: u64 = 100_000;

/// A program whose share of CPU time a control group of version 1 or 2 says, until this is dropped.
#[derive(Debug)]
pub struct Share {
    pid: u32,
    path: PathBuf,
    version: Version,
    /// The group in which it was before.
    before: PathBuf,
}

impl Share {
    /// Lets this program, and all that it starts from now on, precede the other programs of the machine.
    /// These get no more than what is left.
    ///
    /// # Errors
    /// If control groups do not give out CPU time here.
    pub fn preferred() -> anyhow::Result<Share> {
        Share::new(std::process::id(), "first")
    }

    /// Gives a program this many hundredths of a CPU, however busy the machine is.
    ///
    /// # Errors
    /// If control groups do not give out CPU time here, or the program has ended.
    pub fn throttled(pid: u32, percent: u64) -> anyhow::Result<Share> {
        let group = Share::new(pid, "part")?;
        let quota = PERIOD_US * percent / 100;
        match group.version {
            Version::One => {
                group.set("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                group.set("cpu.cfs_quota_us", &quota.to_string())?;
            }
            Version::Two => group.set("cpu.max", &format!("{quota} {PERIOD_US}"))?,
        }
        Ok(group)
    }

    /// Puts a program into a new group of the largest weight.
    fn new(pid: u32, label: &str) -> anyhow::Result<Share> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let (root, version) = hierarchy(&mounts).context("no control group gives out CPU time here")?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let own = path(&groups, version).context("the program is in no control group")?;
        // A container sees its own part of the hierarchy only.
        let before = Some(root.join(own.trim_start_matches('/'))).filter(|path| path.is_dir());
        let before = before.unwrap_or_else(|| root.clone());
        let name = root.join(format!("baton-lab-{label}-{}-{pid}", std::process::id()));
        if version == Version::Two {
            fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
        }
        fs::create_dir(&name).with_context(|| format!("cannot make {}", name.display()))?;
        let group = Share { pid, path: name, version, before };
        match version {
            Version::One => group.set("cpu.shares", "262144")?,
            Version::Two => group.set("cpu.weight", "10000")?,
        }
        group.set("cgroup.procs", &pid.to_string())?;
        Ok(group)
    }

    fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let file = self.path.join(name);
        fs::write(&file, value).with_context(|| format!("cannot write {value} to {}", file.display()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = fs::write(self.before.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

/// The versions of control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

/// The mount point of the hierarchy that gives out CPU time, in the form of `/proc/mounts`. One of version 1
/// has the controller for itself, so it decides.
fn hierarchy(mounts: &str) -> Option<(PathBuf, Version)> {
    let fields: Vec<Vec<&str>> = mounts.lines().map(|line| line.split_whitespace().collect()).collect();
    let find = |kind: &str, has: &dyn Fn(&str) -> bool| {
        let found = fields.iter().find(|it| it.len() > 3 && it[2] == kind && has(it[3]));
        found.map(|it| PathBuf::from(it[1]))
    };
    let one = find("cgroup", &|options| options.split(',').any(|option| option == "cpu"));
    one.map(|it| (it, Version::One)).or_else(|| find("cgroup2", &|_| true).map(|it| (it, Version::Two)))
}

/// The path of a program's group, from `/proc/PID/cgroup`.
fn path(groups: &str, version: Version) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_here = match version {
            Version::One => controllers.split(',').any(|it| it == "cpu"),
            Version::Two => controllers.is_empty(),
        };
        is_here.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_gives_out_the_time_where_it_has_the_controller() {
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let both = format!("tmpfs / tmpfs rw 0 0\n{two}cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n");
        assert_eq!(hierarchy(&both), Some(("/sys/fs/cgroup/cpu".into(), Version::One)));
        assert_eq!(hierarchy(two), Some(("/sys/fs/cgroup".into(), Version::Two)));
        assert_eq!(hierarchy("cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"), None);
        let groups = "5:cpuset:/a\n4:cpu,cpuacct:/b\n0::/c\n";
        assert_eq!((path(groups, Version::One), path(groups, Version::Two)), (Some("/b"), Some("/c")));
    }

    #[test]
    fn programs_start_where_their_thread_is() {
        let allowed = || {
            let status = fs::read_to_string("/proc/thread-self/status")?;
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            Ok(line.map(|cpus| cpus.trim().to_owned()))
        };
        assert_eq!(on(Some(0), allowed).unwrap().as_deref(), Some("0"));
    }
}
