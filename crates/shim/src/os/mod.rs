//! What this crate asks of the operating system and of libc. Nothing here calls the rest of the
//! crate.
//!
//! What is upheld is said in each file. What this library does itself it asks of the kernel
//! directly, or on descriptors that the table does not know.

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

/// What the last call of libc failed with.
pub(crate) fn last_errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
