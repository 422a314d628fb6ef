//! The library's own descriptors in the program's table. They have the highest numbers possible,
//! because programs expect their own to be small and consecutive. The limit (`ulimit -n`) is raised
//! for them where the hard limit allows it.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// The number of descriptors by which the limit is raised.
const MORE: u64 = 65_536;

/// The lowest number of the library's descriptors.
pub fn floor() -> RawFd {
    static FLOOR: OnceLock<RawFd> = OnceLock::new();
    *FLOOR.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile);
        let (soft, hard) = (limit.current.unwrap_or(1 << 20), limit.maximum.unwrap_or(1 << 20));
        let raised = (soft + MORE).min(hard);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised.max(soft)), maximum: limit.maximum });
        let floor = if raised > soft { soft } else { soft / 2 };
        RawFd::try_from(floor).unwrap_or(RawFd::MAX / 2)
    })
}

/// The number of descriptors that the process may have now.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// All descriptors of this process.
pub fn open() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return (0..floor()).collect() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The highest descriptor of the program, which has at least the standard ones.
pub fn highest_of_program() -> RawFd {
    open().into_iter().filter(|fd| *fd < floor()).max().unwrap_or(2)
}

/// Duplicates a descriptor to a number of the library, or to any other if there is no room.
pub fn duplicate(fd: impl AsFd) -> std::io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(&fd, floor()).or_else(|_| fcntl_dupfd_cloexec(&fd, 0))?)
}

/// Moves a descriptor to a number of the library.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    duplicate(&fd).unwrap_or(fd)
}
