//! io_uring. The library cannot see requests to a ring, so once the program creates one, all
//! connections stay in the kernel. Alternatively the setting `BATON_IO_URING=0` makes the creation
//! fail, and the program falls back to ordinary calls.

use crate::config::config;
use crate::connections::stop;
use baton_policy::Reason;
use libc::c_int;

/// True if the program may create a ring. Then all connections come home.
pub(super) fn may_create() -> bool {
    let may = config().io_uring;
    if may {
        stop(Reason::IoUring);
    }
    may
}

/// Replaces liburing's functions that create a ring: fails as on a kernel without
/// `CONFIG_IO_URING`.
pub(super) extern "C" fn unsupported() -> c_int {
    -libc::ENOSYS
}
