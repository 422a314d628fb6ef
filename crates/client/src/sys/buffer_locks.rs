//! Which buffer sizes of a socket its program has set.
//!
//! Invariant: the kernel gets a pointer to a live `int` with its length, and writes no more than that.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_BUF_LOCK` (`include/uapi/asm-generic/socket.h`, Linux 5.14).
const SO_BUF_LOCK: libc::c_int = 72;
/// `SOCK_SNDBUF_LOCK` (`include/uapi/linux/socket.h`).
const SEND: libc::c_int = 1;

/// True if the program set the send buffer's size; an older kernel does not tell.
pub(crate) fn is_send_buffer_set(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut locks: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let pointer = (&raw mut locks).cast();
    // SAFETY: `locks` is valid for writes of `len` bytes, and `len` for reads and writes, during the call.
    if unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_BUF_LOCK, pointer, &mut len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(locks & SEND != 0)
}
