//! Queue lengths of a kernel socket.
//!
//! Invariant: the kernel gets a pointer to a live `int`, and writes no more than that.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the bytes in the send queue (`SIOCOUTQ`; a FIN counts) and in the receive queue
/// (`SIOCINQ`).
///
/// # Errors
/// Those of `ioctl(2)`; `EINVAL` for a listening socket.
pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    Ok((length(fd, libc::TIOCOUTQ)?, length(fd, libc::FIONREAD)?))
}

fn length(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u32> {
    let mut value: libc::c_int = 0;
    // SAFETY: either request writes one `int` through the pointer, which is valid during the
    // call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut value) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.max(0) as u32)
}
