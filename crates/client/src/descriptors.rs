//! Descriptor numbers. Some programs expect their own descriptors to be small and consecutive, so
//! the library can move its descriptors out of the way.

use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

static FLOOR: AtomicI32 = AtomicI32::new(0);

/// From now on, services use descriptor numbers of at least `number` where the process's limit
/// allows.
pub fn keep_descriptors_above(number: RawFd) {
    FLOOR.store(number, Ordering::Relaxed);
}

/// Moves a descriptor to a number above the floor, if one is set.
pub(super) fn lifted(fd: OwnedFd) -> OwnedFd {
    match FLOOR.load(Ordering::Relaxed) {
        0 => fd,
        floor => fcntl_dupfd_cloexec(&fd, floor).unwrap_or(fd),
    }
}
