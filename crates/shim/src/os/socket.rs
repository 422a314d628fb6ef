//! Queries about sockets of the program.
//!
//! Safety rules: each call gets pointers to live locals with their true lengths. The kernel refuses a
//! number that is not, or no longer, a descriptor, as it would refuse the program's own call.

use super::real;
use libc::{c_int, c_void, sockaddr_storage, socklen_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::{FdFlags, fcntl_getfd};
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

/// The option that makes `recvmsg` report how many bytes are left (`linux/tcp.h`).
pub(crate) const TCP_INQ: c_int = 36;

/// The program's descriptor with this number, whether it is open or not.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    if fd < 0 {
        // A number that is never an open descriptor.
        return rustix::fs::ABS;
    }
    // SAFETY: not -1, as required; it is only passed to the kernel, which checks it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// True if it is readable now.
pub(crate) fn is_readable(fd: RawFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(borrow(fd), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// A socket address as the kernel writes it.
#[derive(Clone, Copy)]
pub struct Name {
    /// `struct sockaddr_in` or `struct sockaddr_in6`.
    bytes: [u8; 28],
    len: u8,
}

impl Name {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    fn family(&self) -> c_int {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]]).into()
    }

    /// The port, or `None` if it is not an IP address.
    pub fn port(&self) -> Option<u16> {
        let ip = matches!(self.family(), libc::AF_INET | libc::AF_INET6);
        ip.then(|| u16::from_be_bytes([self.bytes[2], self.bytes[3]]))
    }

    /// The IP address. An IPv4 address that is mapped into IPv6 counts as IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.family() {
            libc::AF_INET => <[u8; 4]>::try_from(&self.bytes[4..8]).ok().map(IpAddr::from),
            libc::AF_INET6 => {
                <[u8; 16]>::try_from(&self.bytes[8..24]).ok().map(|addr| IpAddr::from(addr).to_canonical())
            }
            _ => None,
        }
    }
}

/// The local address, or the peer's if `peer` is set, of an IP socket.
pub(crate) fn name(fd: RawFd, peer: bool) -> Option<Name> {
    let mut address = std::mem::MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: room for any address, with its true length.
    let got = unsafe {
        let ask = if peer { real::getpeername } else { real::getsockname };
        ask(fd, address.as_mut_ptr().cast(), &mut len)
    };
    // SAFETY: all bytes are initialized: they were zero before the call.
    let bytes: &[u8; 28] = unsafe { &*address.as_ptr().cast() };
    let name = Name { bytes: *bytes, len: len.min(28) as u8 };
    (got == 0 && name.port().is_some()).then_some(name)
}

/// Device and inode of a descriptor.
pub(crate) fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let stat = fstat(borrow(fd)).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    fcntl_getfl(borrow(fd)).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// True if it stays open when this process executes another program.
pub(crate) fn is_inherited(fd: RawFd) -> bool {
    fcntl_getfd(borrow(fd)).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

fn option<T: Default>(fd: RawFd, level: c_int, name: c_int) -> Option<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`; callers use types for which any bytes
    // are valid.
    let got = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast::<c_void>(), &mut len) };
    (got == 0).then_some(value)
}

pub(crate) fn is_stream(fd: RawFd) -> bool {
    option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// The TCP state (`net/tcp_states.h`), which is the first byte of `struct tcp_info`.
fn state(fd: RawFd) -> Option<u8> {
    option::<u8>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// True while a `connect` is in progress.
pub(crate) fn is_connecting(fd: RawFd) -> bool {
    const SYN_SENT: u8 = 2;
    state(fd) == Some(SYN_SENT)
}

/// True for a TCP socket that has no connection.
pub(crate) fn is_unconnected(fd: RawFd) -> bool {
    const CLOSE: u8 = 7;
    is_stream(fd) && state(fd) == Some(CLOSE)
}

/// True if `TCP_INQ` is on.
pub(crate) fn has_inq(fd: RawFd) -> bool {
    option::<c_int>(fd, libc::IPPROTO_TCP, TCP_INQ).is_some_and(|on| on != 0)
}

/// The time limit of a call (`SO_RCVTIMEO`, or `SO_SNDTIMEO` if `send` is set), if there is one.
pub(crate) fn timeout(fd: RawFd, send: bool) -> Option<Duration> {
    let name = if send { libc::SO_SNDTIMEO } else { libc::SO_RCVTIMEO };
    let [seconds, micros] = option::<[i64; 2]>(fd, libc::SOL_SOCKET, name)?;
    let span = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(micros).ok()? * 1000);
    (!span.is_zero()).then_some(span)
}
