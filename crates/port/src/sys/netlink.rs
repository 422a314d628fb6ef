//! One question and its answer over generic netlink.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use super::io::own;

/// Sends `request` to the kernel's generic netlink and reads one datagram of
/// answer into `answer`; its length.
///
/// # Errors
/// As the system calls'; `TimedOut` if no answer comes within a second.
pub fn ask(request: &[u8], answer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: takes no pointer.
    let fd =
        own(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_GENERIC) })?;
    let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
    let len = size_of::<libc::timeval>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    // SAFETY: `second` is valid for reads of its size during the call.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(&second).cast(), len) };
    // SAFETY: `request` is valid for reads of its length during the call. A netlink
    // socket that is not connected sends to the kernel.
    let sent = unsafe { libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if set < 0 || sent < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `answer` is valid for writes of its length during the call.
    let n = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
