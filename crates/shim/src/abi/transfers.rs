//! `read`, `write` and similar calls.
//!
//! Safety rules, besides those of [`super`]: the program's buffers become slices by [`buffers`](crate::os::buffers)
//! alone, for one call. A length of an address is written only if it is not null. A call that
//! the kernel serves gets the program's own arguments.
//!
//! These functions preserve the program's `errno` themselves ([`unless`]).

use super::{fail, finish, unless};
use crate::connection::{stays, stays_to_send};
use crate::os::buffers::{buffer_count, read_buffer, read_buffers, write_buffer, write_buffers};
use crate::os::cancel::deferred;
use crate::os::real;
use crate::transfer::{self, Done};
use libc::{
    MSG_DONTWAIT, MSG_FASTOPEN, MSG_TRUNC, c_int, c_void, iovec, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t,
};
use std::io::IoSliceMut;

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::read(fd, buf, len) };
    // A zero-length read never blocks (net/socket.c, `sock_read_iter`).
    if len == 0 {
        return kernel();
    }
    // SAFETY: as above.
    unless(stays(fd), kernel, || match unsafe { read_buffer(buf, len) } {
        Ok(room) => finish(deferred(|| transfer::receive(fd, &mut [room], 0)), kernel),
        Err(errno) => fail(errno),
    })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t) -> ssize_t {
    check(len, size);
    // SAFETY: the arguments are the program's.
    unsafe { read(fd, buf, len) }
}

/// Ends the program like libc's fortified functions if a call would write more than its buffer has room for.
pub(super) fn check(len: size_t, size: size_t) {
    if len > size {
        std::process::abort();
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::write(fd, buf, len) };
    // SAFETY: as above.
    unless(stays_to_send(fd), kernel, || match unsafe { write_buffer(buf, len) } {
        Ok(bytes) => finish(deferred(|| transfer::send(fd, &[bytes], 0)), kernel),
        Err(errno) => fail(errno),
    })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::readv(fd, iov, count) };
    // SAFETY: as above.
    unless(stays(fd), kernel, || unsafe { read_pieces(fd, iov, count, 0, kernel) })
}

/// # Safety
/// As for `readv`.
unsafe fn read_pieces(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    match buffer_count(count).and_then(|count| unsafe { read_buffers(iov, count) }) {
        Ok(rooms) if rooms.iter().all(|room| room.is_empty()) => kernel(),
        Ok(mut rooms) => finish(deferred(|| transfer::receive(fd, &mut rooms, flags)), kernel),
        Err(errno) => fail(errno),
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::writev(fd, iov, count) };
    // SAFETY: as above.
    unless(stays_to_send(fd), kernel, || unsafe { write_pieces(fd, iov, count, 0, kernel) })
}

/// # Safety
/// As for `writev`.
unsafe fn write_pieces(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    match buffer_count(count).and_then(|count| unsafe { write_buffers(iov, count) }) {
        Ok(bytes) => finish(deferred(|| transfer::send(fd, &bytes, flags)), kernel),
        Err(errno) => fail(errno),
    }
}

/// Converts flags of `preadv2` and `pwritev2` to those of `recv` and `send` (include/linux/fs.h,
/// `kiocb_set_rw_flags`).
fn message_flags(flags: c_int) -> Result<c_int, i32> {
    const OF_FILES: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND;
    match flags & !OF_FILES {
        0 => Ok(0),
        libc::RWF_NOWAIT => Ok(MSG_DONTWAIT),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn preadv2(fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::preadv2(fd, iov, count, at, flags) };
    // The kernel refuses a position on any socket.
    if at != -1 {
        return kernel();
    }
    unless(stays(fd), kernel, || {
        // SAFETY: as above.
        message_flags(flags).map_or_else(fail, |flags| unsafe { read_pieces(fd, iov, count, flags, kernel) })
    })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::pwritev2(fd, iov, count, at, flags) };
    // The kernel refuses a position on any socket.
    if at != -1 {
        return kernel();
    }
    unless(stays_to_send(fd), kernel, || {
        // SAFETY: as above.
        message_flags(flags).map_or_else(fail, |flags| unsafe { write_pieces(fd, iov, count, flags, kernel) })
    })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { preadv2(fd, iov, count, at, flags) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { pwritev2(fd, iov, count, at, flags) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::recv(fd, buf, len, flags) };
    unless(stays(fd), kernel, || {
        // SAFETY: as above.
        unsafe { receive_into(fd, buf, len, flags) }.map_or_else(fail, |done| finish(done, kernel))
    })
}

/// # Safety
/// As for `recv`.
unsafe fn receive_into(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> Result<Done<usize>, i32> {
    if flags & MSG_TRUNC != 0 && buf.is_null() {
        // MSG_TRUNC discards the bytes, so the buffer may be null (tcp(7)).
        let mut discarded = vec![0; len.min(1 << 20)];
        return Ok(deferred(|| transfer::receive(fd, &mut [IoSliceMut::new(&mut discarded)], flags)));
    }
    // SAFETY: the caller's promise.
    let room = unsafe { read_buffer(buf, len)? };
    Ok(deferred(|| transfer::receive(fd, &mut [room], flags)))
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t, flags: c_int) -> ssize_t {
    check(len, size);
    // SAFETY: the arguments are the program's.
    unsafe { recv(fd, buf, len, flags) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::send(fd, buf, len, flags) };
    // SAFETY: as above.
    unless(stays_to_send(fd), kernel, || match unsafe { write_buffer(buf, len) } {
        Ok(bytes) => finish(deferred(|| transfer::send(fd, &[bytes], flags)), kernel),
        Err(errno) => fail(errno),
    })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::recvfrom(fd, buf, len, flags, addr, size) };
    unless(stays(fd), kernel, || {
        // SAFETY: as above.
        let done = match unsafe { receive_into(fd, buf, len, flags) } {
            Ok(done) => done,
            Err(errno) => return fail(errno),
        };
        if matches!(done, Done::Carried(_)) && !addr.is_null() && !size.is_null() {
            // A stream has no sender's address.
            // SAFETY: not null, so it points to the length of the address buffer.
            unsafe { size.write(0) };
        }
        finish(done, kernel)
    })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the arguments are the program's.
    unsafe { recvfrom(fd, buf, len, flags, addr, size) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    let kernel = || {
        // SAFETY: the arguments are the program's.
        let done = unsafe { real::sendto(fd, buf, len, flags, addr, size) };
        if flags & MSG_FASTOPEN != 0 {
            super::sockets::on_connect_call(fd, done >= 0);
        }
        done
    };
    // A connected stream ignores the address.
    // SAFETY: as above.
    unless(stays_to_send(fd), kernel, || match unsafe { write_buffer(buf, len) } {
        Ok(bytes) => finish(deferred(|| transfer::send(fd, &[bytes], flags)), kernel),
        Err(errno) => fail(errno),
    })
}
