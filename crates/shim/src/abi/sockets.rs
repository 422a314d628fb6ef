//! Making connections, and querying their addresses and options.
//!
//! Safety rules, besides those of [`super`]: an address is read only as far as its family, and only if it is that long.
//! An answer is cut to the room that the program's length says, and the length is written last.

use super::{fail, unless};
use crate::connection::{self, CallTarget, Held, at, begin, bring_home, stays, target};
use crate::options::{self, Answer};
use crate::os::cancel::Deferred;
use crate::os::socket::Name;
use crate::os::{real, set_errno, socket as ask};
use crate::service;
use crate::state::Moved;
use crate::table::is_known;
use baton_policy::Reason;
use baton_policy::conditions::Direction;
use libc::{c_int, c_void, sockaddr, socklen_t};
use std::net::Shutdown;

/// Forgets an earlier descriptor with the number that the kernel has just returned: it was closed in a
/// way that the library did not see.
pub(super) fn forget_reused(fd: c_int) -> c_int {
    if fd >= 0 && is_known(fd) {
        super::descriptors::closing(fd);
    }
    fd
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    forget_reused(unsafe { real::socket(domain, kind, protocol) })
}

/// Registers a new connection.
fn register(fd: c_int) {
    let _deferred = Deferred::new();
    begin(fd, Direction::Accepted, false);
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn accept(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int {
    // SAFETY: the arguments are the program's.
    let new = forget_reused(unsafe { real::accept(fd, addr, size) });
    if new >= 0 {
        register(new);
    }
    new
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn accept4(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let new = forget_reused(unsafe { real::accept4(fd, addr, size, flags) });
    if new >= 0 {
        register(new);
    }
    new
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn connect(fd: c_int, addr: *const sockaddr, size: socklen_t) -> c_int {
    let lengths = size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>();
    let is_address = !addr.is_null() && lengths.contains(&(size as usize));
    // SAFETY: an address is as long as the program says, and begins with its family.
    let family = is_address.then(|| c_int::from(unsafe { (*addr).sa_family }));
    if is_known(fd) && family == Some(libc::AF_UNSPEC) {
        let _deferred = Deferred::new();
        bring_home(fd, Reason::ConnectedAnew);
    }
    // Like the kernel, check the address before the socket.
    if family.is_some() && at(fd).is_some() {
        return fail(libc::EISCONN);
    }
    // SAFETY: the arguments are the program's.
    let done = unsafe { real::connect(fd, addr, size) };
    if matches!(family, Some(libc::AF_INET | libc::AF_INET6)) {
        on_connect_call(fd, done == 0);
    }
    done
}

/// Registers the connection that a call has made or begun. `done` says whether the call succeeded.
/// Leaves `errno` unchanged.
pub(super) fn on_connect_call(fd: c_int, done: bool) {
    let errno = crate::os::last_errno();
    let begun = done || matches!(errno, libc::EINPROGRESS | libc::EINTR);
    if begun && connection::is_new(fd) && ask::is_stream(fd) {
        let _deferred = Deferred::new();
        // With TCP Fast Open the call returns before the connection is established.
        begin(fd, Direction::Connected, !done || ask::is_connecting(fd));
    }
    set_errno(errno);
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    let _deferred = Deferred::new();
    let held = if is_known(fd) { target(fd) } else { CallTarget::Kernel(connection::KernelCall::none()) };
    let how_both = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return fail(libc::EINVAL),
    };
    match held {
        // SAFETY: the arguments are the program's.
        CallTarget::Kernel(_call) => unsafe { real::shutdown(fd, how) },
        CallTarget::Carried(held) => {
            let has_ended = held.moved().is_none_or(Moved::has_ended);
            match held.stream().map(|stream| stream.shut(how_both)) {
                Some(Ok(())) if !has_ended => 0,
                _ => fail(libc::ENOTCONN),
            }
        }
    }
}

/// Writes as many bytes as fit, and the length: the full one if `whole` is set, else the number
/// written.
///
/// # Safety
/// `to` points to as many bytes as `size` says.
unsafe fn write_out(bytes: &[u8], to: *mut c_void, size: *mut socklen_t, whole: bool) -> c_int {
    if size.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not null; and the caller's promise.
    unsafe {
        let room = size.read() as usize;
        if room > c_int::MAX as usize {
            return fail(libc::EINVAL);
        }
        let count = room.min(bytes.len());
        if count > 0 && to.is_null() {
            return fail(libc::EFAULT);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), count);
        size.write(if whole { bytes.len() } else { count } as socklen_t);
    }
    0
}

/// # Safety
/// As for [`write_out`].
unsafe fn name_of(
    fd: c_int,
    addr: *mut sockaddr,
    size: *mut socklen_t,
    which: fn(&Held) -> Option<Name>,
) -> Option<c_int> {
    let name = which(&at(fd)?)?;
    // SAFETY: the caller's promise.
    Some(unsafe { write_out(name.bytes(), addr.cast(), size, true) })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn getsockname(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int {
    let ours = |held: &Held| held.moved().map(|moved| moved.local);
    // SAFETY: the arguments are the program's.
    let known = if is_known(fd) { unsafe { name_of(fd, addr, size, ours) } } else { None };
    // SAFETY: as above.
    known.unwrap_or_else(|| unsafe { real::getsockname(fd, addr, size) })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn getpeername(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int {
    let theirs = |held: &Held| held.moved().map(|moved| moved.peer);
    // Poll the engines, so that a reset that has arrived is seen, as the kernel would see it.
    if is_known(fd) && at(fd).is_some_and(|held| held.moved().is_some()) {
        let _deferred = Deferred::new();
        service::look();
    }
    let has_ended = |held: Held| held.ended().is_some() || held.moved().is_some_and(Moved::has_ended);
    if is_known(fd) && at(fd).is_some_and(has_ended) {
        return fail(libc::ENOTCONN);
    }
    // SAFETY: the arguments are the program's.
    let known = if is_known(fd) { unsafe { name_of(fd, addr, size, theirs) } } else { None };
    // SAFETY: as above.
    known.unwrap_or_else(|| unsafe { real::getpeername(fd, addr, size) })
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    size: *mut socklen_t,
) -> c_int {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::getsockopt(fd, level, name, value, size) };
    // SAFETY: as above.
    unless(stays(fd), kernel, || unsafe { get_known(fd, level, name, (value, size), kernel) })
}

/// # Safety
/// As for `getsockopt`.
unsafe fn get_known(
    fd: c_int,
    level: c_int,
    name: c_int,
    (value, size): (*mut c_void, *mut socklen_t),
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let Some(held) = at(fd) else {
        let done = kernel();
        // A program that checks whether `connect` succeeded: if the connection is due, it moves now.
        if done == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) && is_known(fd) {
            let _deferred = Deferred::new();
            drop(target(fd));
        }
        return done;
    };
    let _deferred = Deferred::new();
    let answer = match held.moved() {
        Some(moved) => options::get(moved, held.slot(), level, name),
        None => Answer::Husk,
    };
    match answer {
        // SAFETY: the caller's promise.
        Answer::Value(bytes) => unsafe { write_out(&bytes, value, size, false) },
        Answer::Failed(errno) => fail(errno),
        Answer::Husk | Answer::Set => kernel(),
        Answer::Home => {
            drop(held);
            bring_home(fd, Reason::Getsockopt);
            kernel()
        }
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, size: socklen_t) -> c_int {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::setsockopt(fd, level, name, value, size) };
    // SAFETY: as above.
    unless(stays(fd), kernel, || unsafe { set_known(fd, level, name, (value, size), kernel) })
}

/// # Safety
/// As for `setsockopt`.
unsafe fn set_known(
    fd: c_int,
    level: c_int,
    name: c_int,
    (value, size): (*const c_void, socklen_t),
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let Some(held) = at(fd) else { return kernel() };
    let _deferred = Deferred::new();
    if c_int::try_from(size).is_err() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let bytes = match unsafe { crate::os::buffers::write_buffer(value, size as usize) } {
        Ok(bytes) => bytes,
        Err(errno) => return fail(errno),
    };
    let answer = held.moved().map_or(Answer::Husk, |moved| options::set(moved, level, name, &bytes));
    match answer {
        Answer::Set | Answer::Value(_) => 0,
        Answer::Failed(errno) => fail(errno),
        Answer::Husk => kernel(),
        Answer::Home => {
            drop(held);
            bring_home(fd, Reason::Setsockopt);
            kernel()
        }
    }
}
