//! The operating system and libc, as this crate uses them. No module here imports from the rest of
//! the crate.
//!
//! Each file states its safety rules. The library calls the kernel directly, or uses descriptors that
//! the table does not know, so that it never re-enters its own exported functions.

pub(crate) mod buffers;
pub(crate) mod cancel;
pub(crate) mod counters;
pub(crate) mod epoll;
pub(crate) mod errno;
pub(crate) mod real;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod wait;

/// Sets `errno`.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: libc returns the calling thread's valid `errno`.
    unsafe { *libc::__errno_location() = errno }
}

/// The error number of the last call of libc that failed.
pub(crate) fn last_errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
