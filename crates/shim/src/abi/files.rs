//! `sendfile` and `splice`: bytes between a connection and another descriptor.
//!
//! Safety rules, besides those of [`super`]: a position is null or an `off_t` of the program. It is read before the
//! transfer and written after one that moved bytes.
//!
//! These functions preserve the program's `errno` themselves.

use super::{fail, finish, unless};
use crate::connection::{CallTarget, bring_home, stays, target};
use crate::os::buffers::MAX_RW_COUNT;
use crate::os::cancel::Deferred;
use crate::os::errno::preserving;
use crate::os::{real, socket};
use crate::table::is_known;
use crate::transfer::{Done, send_file};
use baton_consumer::held::interrupted;
use baton_policy::Reason;
use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};
use rustix::fs::{FileType, SeekFrom, fstat, seek};

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn sendfile(out: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::sendfile(out, from, at, count) };
    // SAFETY: as above.
    unless(stays(out), kernel, || unsafe { send_known(out, from, at, count, kernel) })
}

/// # Safety
/// As for `sendfile`.
unsafe fn send_known(
    out: c_int,
    from: c_int,
    at: *mut off_t,
    count: size_t,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if interrupted() {
        return fail(libc::EAGAIN);
    }
    // `sendfile` is not a cancellation point (pthreads(7)).
    let _deferred = Deferred::new();
    if let CallTarget::Kernel(_call) = target(out) {
        return kernel();
    }
    let file = match fstat(socket::borrow(from)) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(error) => return fail(error.raw_os_error()),
    };
    if !matches!(file, FileType::RegularFile | FileType::BlockDevice) {
        // The kernel decides which kinds of file can be sent.
        bring_home(out, Reason::SendfileOfNoFile);
        return kernel();
    }
    // SAFETY: the caller's promise.
    let begin = match unsafe { at.as_ref() } {
        Some(at) if *at < 0 => return fail(libc::EINVAL),
        Some(at) => *at as u64,
        None => match seek(socket::borrow(from), SeekFrom::Current(0)) {
            Ok(at) => at,
            Err(error) => return fail(error.raw_os_error()),
        },
    };
    let done = send_file(out, socket::borrow(from), begin, count.min(MAX_RW_COUNT));
    if let Done::Carried(sent) = &done {
        let end = begin + *sent as u64;
        // SAFETY: as above.
        match unsafe { at.as_mut() } {
            Some(at) => *at = end as off_t,
            None => drop(seek(socket::borrow(from), SeekFrom::Start(end))),
        }
    }
    finish(done, kernel)
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn sendfile64(out: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { sendfile(out, from, at, count) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    for fd in [from, to].into_iter().filter(|fd| is_known(*fd)) {
        let _deferred = Deferred::new();
        preserving(|| bring_home(fd, Reason::Splice));
    }
    // SAFETY: the arguments are the program's.
    unsafe { real::splice(from, from_at, to, to_at, len, flags) }
}
