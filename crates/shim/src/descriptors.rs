//! Descriptors of ours in a program's table: as far up as may be, since programs expect
//! theirs to be small and in a row, and only as many as `ulimit -n` says.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// Descriptors that the limit is raised by.
const MORE: u64 = 65_536;

/// The lowest number that is ours.
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

/// A duplicate among ours, or among the program's if there is no room there.
pub fn duplicate(fd: impl AsFd) -> std::io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(&fd, floor()).or_else(|_| fcntl_dupfd_cloexec(&fd, 0))?)
}

/// The same descriptor under such a number.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    duplicate(&fd).unwrap_or(fd)
}
