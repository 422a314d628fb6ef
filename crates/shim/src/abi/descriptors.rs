//! Closing, duplicating and querying descriptors.
//!
//! Safety rules, besides those of [`super`]: an argument of `fcntl` and `ioctl` is a pointer only for the commands
//! that say so, and then one to an `int` that is not null. It is read after the kernel has, or written where the
//! kernel would. A function that `dlsym` found by libc's name for it has libc's type.

use super::fail;
use crate::connection::{self, Held, at, bring_home};
use crate::locks::locked;
use crate::os::cancel::Deferred;
use crate::os::errno::preserving;
use crate::os::real;
use crate::table::{self, find, is_known, is_set};
use crate::{account, epoll};
use baton_client::Stream;
use baton_policy::Reason;
use libc::{c_int, c_uint, c_ulong};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// Asks whether the next byte to be read is at the urgent mark (`include/uapi/asm-generic/sockios.h`).
const SIOCATMARK: c_ulong = 0x8905;

/// Forgets a descriptor. This is called before the descriptor is closed, because afterwards another
/// thread may get the same number at once.
pub(super) fn closing(fd: RawFd) {
    if !is_known(fd) {
        return;
    }
    let _deferred = Deferred::new();
    if is_set(fd) {
        epoll::close(fd);
    } else {
        if lingers(fd) {
            bring_home(fd, Reason::Linger);
        }
        connection::close(fd);
    }
}

/// True if `close` may have to wait until all data is sent (`SO_LINGER`), which only the kernel does.
fn lingers(fd: RawFd) -> bool {
    let last = find(fd).is_some_and(|slot_ref| locked(&slot_ref.slot.fds).len() == 1);
    let lingers = |held: Held| {
        let linger = held.stream().and_then(|stream| stream.linger().ok().flatten());
        linger.is_some_and(|span| !span.is_zero()) && !held.slot().nonblocking.load(Ordering::Relaxed)
    };
    last && at(fd).is_some_and(lingers)
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn close(fd: c_int) -> c_int {
    if is_known(fd) {
        preserving(|| closing(fd));
    }
    // SAFETY: the arguments are the program's.
    unsafe { real::close(fd) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    // With an invalid flag the kernel closes nothing.
    if flags & !UNSHARE == 0 {
        let in_range = |fd: &RawFd| (first..=last).contains(&(*fd as c_uint));
        let fds: Vec<RawFd> = table::known().into_iter().filter(in_range).collect();
        fds.into_iter().for_each(closing);
    }
    // Programs close descriptors that they do not know; the library's have the highest numbers.
    let below = crate::descriptors::floor() as c_uint - 1;
    let has_some = crate::service::is_linked() || crate::sharing::is_child();
    let end = if has_some { last.min(below) } else { last };
    if first > end && first <= last {
        return 0;
    }
    // SAFETY: the arguments are the program's.
    unsafe { real::close_range(first, end, flags) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn closefrom(first: c_int) {
    // SAFETY: the arguments are the program's.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Records that `to` is a duplicate of `from`.
fn duplicated(from: RawFd, to: RawFd) {
    if to < 0 || !is_known(from) {
        return;
    }
    let _deferred = Deferred::new();
    if is_set(from) {
        epoll::duplicate(from, to);
    } else {
        table::duplicate(from, to);
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn dup(fd: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let new = unsafe { real::dup(fd) };
    duplicated(fd, new);
    new
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd != to {
        closing_for(fd, to);
    }
    // SAFETY: the arguments are the program's.
    let new = unsafe { real::dup2(fd, to) };
    if fd != to {
        duplicated(fd, new);
    }
    new
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // With an invalid flag the kernel closes nothing.
    if fd != to && flags & !libc::O_CLOEXEC == 0 {
        closing_for(fd, to);
    }
    // SAFETY: the arguments are the program's.
    let new = unsafe { real::dup3(fd, to, flags) };
    duplicated(fd, new);
    new
}

/// Forgets `to`, which `dup2` is about to replace, unless the call will fail because `fd` is invalid.
fn closing_for(fd: RawFd, to: RawFd) {
    if is_known(to) && rustix::io::fcntl_getfd(crate::os::socket::borrow(fd)).is_ok() {
        closing(to);
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn fcntl(fd: c_int, command: c_int, arg: c_ulong) -> c_int {
    if !is_known(fd) {
        // SAFETY: the arguments are the program's.
        return unsafe { real::fcntl(fd, command, arg) };
    }
    let _deferred = Deferred::new();
    let flags = arg as c_int;
    if command == libc::F_SETFL && flags & libc::O_ASYNC != 0 {
        bring_home(fd, Reason::SignalsForData);
    }
    // SAFETY: the arguments are the program's.
    let done = unsafe { real::fcntl(fd, command, arg) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, done),
        libc::F_SETFL if done == 0 => set_nonblocking(fd, flags & libc::O_NONBLOCK != 0),
        _ => {}
    }
    done
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn fcntl64(fd: c_int, command: c_int, arg: c_ulong) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe { fcntl(fd, command, arg) }
}

fn set_nonblocking(fd: RawFd, on: bool) {
    if let Some(slot_ref) = find(fd) {
        slot_ref.slot.nonblocking.store(on, Ordering::Relaxed);
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn ioctl(fd: c_int, request: c_ulong, arg: c_ulong) -> c_int {
    // SAFETY: the arguments are the program's.
    let kernel = || unsafe { real::ioctl(fd, request, arg) };
    if !is_known(fd) {
        return kernel();
    }
    let _deferred = Deferred::new();
    // The argument of these requests points to an int of the program.
    let word = arg as *mut c_int;
    match request {
        libc::FIONREAD | libc::TIOCOUTQ => {
            let Some(held) = at(fd) else { return kernel() };
            if word.is_null() {
                return fail(libc::EFAULT);
            }
            let queued = match (held.stream(), held.ended()) {
                (Some(stream), _) => stream.queued().unwrap_or_default(),
                (None, Some(ended)) => (ended.len(), 0),
                (None, None) => (0, 0),
            };
            let count = if request == libc::FIONREAD { queued.0 } else { queued.1 };
            // SAFETY: not null, so it points to an int.
            unsafe { word.write(c_int::try_from(count).unwrap_or(c_int::MAX)) };
            0
        }
        // Bytes that the library holds come before the mark.
        SIOCATMARK if at(fd).is_some_and(|held| held.stream().is_some_and(Stream::holds_unread)) => {
            if word.is_null() {
                return fail(libc::EFAULT);
            }
            // SAFETY: not null, so it points to an int.
            unsafe { word.write(0) };
            0
        }
        libc::FIONBIO => {
            let done = kernel();
            if done == 0 {
                // SAFETY: the kernel has read it, so it is readable.
                set_nonblocking(fd, unsafe { word.read() } != 0);
            }
            done
        }
        libc::FIOASYNC => {
            bring_home(fd, Reason::SignalsForData);
            kernel()
        }
        _ => kernel(),
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn fdopen(fd: c_int, mode: *const libc::c_char) -> *mut libc::FILE {
    use std::sync::atomic::AtomicPtr;
    static AT: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
    let _deferred = Deferred::new();
    // libc reads and writes the descriptor of a FILE itself, without calling these functions.
    bring_home(fd, Reason::Stdio);
    if is_known(fd) {
        account::count("stays stdio");
    }
    let found = real::address(&AT, c"fdopen");
    // SAFETY: libc's function has this type, and the arguments are the program's.
    unsafe {
        let call: unsafe extern "C" fn(c_int, *const libc::c_char) -> *mut libc::FILE = std::mem::transmute(found);
        call(fd, mode)
    }
}
