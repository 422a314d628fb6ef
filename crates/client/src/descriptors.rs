//! The numbers of this library's descriptors, for programs that expect theirs to be small and
//! in a row.

use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

static FLOOR: AtomicI32 = AtomicI32::new(0);

/// Descriptors that services need from now on get numbers of this and above, where the
/// process may have such.
pub fn keep_descriptors_above(number: RawFd) {
    FLOOR.store(number, Ordering::Relaxed);
}

/// The same under such a number.
pub(super) fn lifted(fd: OwnedFd) -> OwnedFd {
    match FLOOR.load(Ordering::Relaxed) {
        0 => fd,
        floor => fcntl_dupfd_cloexec(&fd, floor).unwrap_or(fd),
    }
}
