//! `TCP_INFO` of a kernel socket.
//!
//! Invariant: the kernel gets a pointer to a live buffer with its true length, and writes no more
//! than that.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// Upper bound for the size of `struct tcp_info`, with space for growth.
const AT_MOST: usize = 512;

/// Size of the running kernel's `struct tcp_info`.
pub(crate) fn len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    static LEN: OnceLock<usize> = OnceLock::new();
    match LEN.get() {
        Some(len) => Ok(*len),
        None => of(fd).map(|bytes| *LEN.get_or_init(|| bytes.len())),
    }
}

/// Reads `struct tcp_info` from the socket.
pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; AT_MOST];
    let mut len = AT_MOST as libc::socklen_t;
    // SAFETY: `bytes` is valid for writes of `len` bytes, and `len` for reads and writes,
    // during the call; the kernel writes at most `len` bytes.
    let got = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut len)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(len as usize);
    Ok(bytes)
}
