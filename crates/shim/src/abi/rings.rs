//! io_uring: what is asked of a ring nobody sees, so with the first ring everything stays in the
//! kernel. Or there is none: a program that can do without does what it did before rings were there.

use crate::config::config;
use crate::connection::stop;
use libc::c_int;

/// Whether a ring may be made.
pub(super) fn may_create() -> bool {
    let may = config().io_uring;
    if may {
        stop("io-uring");
    }
    may
}

/// In the place of liburing's calls that make one: as where the kernel has no `CONFIG_IO_URING`.
pub(super) extern "C" fn unsupported() -> c_int {
    -libc::ENOSYS
}
