//! `poll`, `select` and epoll. See [`super`] for what is upheld.

use super::cancel::{Deferred, carried, waiting};
use super::epoll::{Interest, Room, control, wait};
use super::sockets::fresh;
use super::{fail, finish, last_errno, real, zero_or};
use crate::poll;
use crate::table::{is_known, is_set, named};
use crate::transfer::Done;
use crate::{connection, epoll as sets};
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, c_int, c_short, epoll_event, fd_set, nfds_t};
use libc::{pollfd, sigset_t, timespec, timeval};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::time::{Duration, Instant};

fn as_timespec(span: Option<Duration>) -> Option<timespec> {
    span.map(|span| timespec { tv_sec: span.as_secs() as libc::time_t, tv_nsec: span.subsec_nanos().into() })
}

fn pointer<T>(value: &Option<T>) -> *const T {
    value.as_ref().map_or(null(), std::ptr::from_ref)
}

/// Milliseconds as `poll` takes them: rounded up, and -1 for ever.
fn millis(span: Option<Duration>) -> c_int {
    span.map_or(-1, |span| c_int::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

fn from_millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

fn from_timespec(time: &timespec) -> Result<Duration, i32> {
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    match (seconds, nanos) {
        (Ok(seconds), Ok(nanos @ ..1_000_000_000)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(libc::EINVAL),
    }
}

/// The kernel's `ppoll`.
///
/// # Safety
/// `mask` is null or a mask.
unsafe fn kernel_poll(fds: &mut [pollfd], timeout: Option<Duration>, mask: *const sigset_t) -> Result<usize, i32> {
    let time = as_timespec(timeout);
    // SAFETY: live descriptors with their number, a live time; the mask is the caller's promise.
    let call = || unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, pointer(&time), mask) };
    let got = waiting(timeout, call);
    usize::try_from(got).map_err(|_| last_errno())
}

/// Waits so long for input, in which the thread may be cancelled; 0 if none came.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, left: Option<Duration>) -> Result<usize, i32> {
    // SAFETY: null.
    unsafe { kernel_poll(&mut [pollfd { fd: fd.as_raw_fd(), events: POLLIN, revents: 0 }], left, null()) }
}

/// Takes an eventfd's count, waiting for one as `read` does, in which the thread may be cancelled.
pub(crate) fn take(fd: BorrowedFd<'_>) -> Result<(), i32> {
    let mut count = 0u64;
    // SAFETY: a live count.
    let got = waiting(None, || unsafe { real::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) });
    if got < 0 { Err(last_errno()) } else { Ok(()) }
}

/// # Safety
/// `fds` leads to `count` of them, and `mask` is null or a mask.
unsafe fn poll_for(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    if fds.is_null() || count == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    // SAFETY: likewise.
    let sleep = &mut |fds: &mut [pollfd], timeout| unsafe { kernel_poll(fds, timeout, mask) };
    poll::concerns(fds).then(|| carried(|| poll::poll(fds, timeout, sleep)))
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    match unsafe { poll_for(fds, count, from_millis(timeout), null()) } {
        Some(done) => done.map_or_else(fail, |ready| ready as c_int),
        // SAFETY: likewise.
        None => unsafe { real::poll(fds, count, timeout) },
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, _room: usize) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe { poll(fds, count, timeout) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() }.map(from_timespec).transpose() {
        Ok(span) => span,
        Err(errno) => return fail(errno),
    };
    // SAFETY: likewise.
    match unsafe { poll_for(fds, count, span, mask) } {
        Some(done) => done.map_or_else(fail, |ready| ready as c_int),
        // SAFETY: likewise.
        None => unsafe { real::ppoll(fds, count, timeout, mask) },
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: usize,
) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// What `select` asks for, and what it means by it (`fs/select.c`).
const KINDS: [(c_short, c_short); 3] = [
    (POLLIN | libc::POLLRDNORM | libc::POLLRDBAND, POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | POLLHUP | POLLERR),
    (POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND, POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | POLLERR),
    (POLLPRI, POLLPRI),
];

/// # Safety
/// `set` is null or has room for descriptor `fd`.
unsafe fn bit(set: *mut fd_set, fd: usize) -> Option<(*mut u64, u64)> {
    // Sets may be longer than their type: a program that knows makes them so.
    // SAFETY: the caller's promise.
    (!set.is_null()).then(|| (unsafe { set.cast::<u64>().add(fd / 64) }, 1 << (fd % 64)))
}

/// Sets for `select`, as a list for `poll`; none if they do not concern us.
///
/// # Safety
/// Each set is null or has room for `count` descriptors.
unsafe fn listed(count: c_int, all: [*mut fd_set; 3]) -> Option<Vec<pollfd>> {
    let mut fds = Vec::new();
    for fd in 0..usize::try_from(count).ok()? {
        let mut events = 0;
        for (set, (asked, _)) in all.into_iter().zip(KINDS) {
            // SAFETY: the caller's promise.
            if unsafe { bit(set, fd).is_some_and(|(word, bit)| word.read() & bit != 0) } {
                events |= asked;
            }
        }
        if events != 0 {
            fds.push(pollfd { fd: fd as c_int, events, revents: 0 });
        }
    }
    poll::concerns(&fds).then_some(fds)
}

/// # Safety
/// As [`listed`]; `mask` is null or a mask.
unsafe fn select_for(
    count: c_int,
    all: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    // SAFETY: the caller's promise.
    let mut fds = unsafe { listed(count, all)? };
    // SAFETY: likewise.
    let sleep = &mut |fds: &mut [pollfd], timeout| unsafe { kernel_poll(fds, timeout, mask) };
    if let Err(errno) = carried(|| poll::poll(&mut fds, timeout, sleep)) {
        return Some(Err(errno));
    }
    if fds.iter().any(|fd| fd.revents & POLLNVAL != 0) {
        return Some(Err(libc::EBADF));
    }
    let mut bits = 0;
    for fd in &fds {
        for (set, (asked, met)) in all.into_iter().zip(KINDS) {
            // SAFETY: likewise.
            let Some((word, bit)) = (unsafe { bit(set, fd.fd as usize) }) else { continue };
            let is = fd.events & asked != 0 && fd.revents & met != 0;
            // SAFETY: likewise.
            unsafe { word.write(if is { word.read() | bit } else { word.read() & !bit }) };
            bits += usize::from(is);
        }
    }
    Some(Ok(bits))
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let begun = Instant::now();
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() } {
        Some(time) if time.tv_sec < 0 || time.tv_usec < 0 => return fail(libc::EINVAL),
        // Linux takes more than a second of them.
        Some(time) => Some(Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)),
        None => None,
    };
    // SAFETY: likewise.
    let Some(done) = (unsafe { select_for(count, [read, write, except], span, null()) }) else {
        // SAFETY: likewise.
        return unsafe { real::select(count, read, write, except, timeout) };
    };
    // SAFETY: likewise.
    if let (Some(timeout), Some(span)) = (unsafe { timeout.as_mut() }, span) {
        // What is left of it, as Linux says.
        let left = span.saturating_sub(begun.elapsed());
        *timeout = timeval { tv_sec: left.as_secs() as _, tv_usec: left.subsec_micros().into() };
    }
    done.map_or_else(fail, |bits| bits as c_int)
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() }.map(from_timespec).transpose() {
        Ok(span) => span,
        Err(errno) => return fail(errno),
    };
    // SAFETY: likewise.
    match unsafe { select_for(count, [read, write, except], span, mask) } {
        Some(done) => done.map_or_else(fail, |bits| bits as c_int),
        // SAFETY: likewise.
        None => unsafe { real::pselect(count, read, write, except, timeout, mask) },
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let set = fresh(unsafe { real::epoll_create(size) });
    if set >= 0 {
        sets::set(set);
    }
    set
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let set = fresh(unsafe { real::epoll_create1(flags) });
    if set >= 0 {
        sets::set(set);
    }
    set
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let _deferred = Deferred::new();
    // SAFETY: the arguments are the program's.
    let asked = unsafe { event.as_ref() }.map(|event| Interest { events: event.events, data: event.u64 });
    if what == libc::EPOLL_CTL_ADD {
        if !is_known(fd) {
            connection::foresee(fd);
        } else if is_set(fd) {
            sets::nest(fd);
        }
    }
    // The time of a connection that has been made by now may have come.
    if named(fd).is_some() {
        drop(connection::place(fd));
    }
    match (named(fd).is_some(), what == libc::EPOLL_CTL_DEL, asked) {
        (true, true, _) => zero_or(sets::change(set, what, fd, Interest { events: 0, data: 0 })),
        (true, false, Some(interest)) => zero_or(sets::change(set, what, fd, interest)),
        (false, _, Some(_)) | (_, _, None) if what != libc::EPOLL_CTL_DEL && asked.is_some() => {
            zero_or(control(set, what, fd, asked))
        }
        // SAFETY: likewise.
        _ => unsafe { real::epoll_ctl(set, what, fd, event) },
    }
}

/// Room for events; `EINVAL` without any, as the kernel says.
///
/// # Safety
/// `events` has room for `room` of them.
unsafe fn room_for<'a>(events: *mut epoll_event, room: c_int) -> Result<Room<'a>, i32> {
    match usize::try_from(room) {
        Ok(room @ 1..) if !events.is_null() => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts_mut(events.cast::<MaybeUninit<epoll_event>>(), room) })
        }
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe { epoll_pwait(set, events, room, timeout, null()) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are the program's.
    let kernel = |events: *mut epoll_event, room, timeout| unsafe {
        if mask.is_null() {
            real::epoll_wait(set, events, room, timeout)
        } else {
            real::epoll_pwait(set, events, room, timeout, mask)
        }
    };
    // SAFETY: likewise.
    let Ok(places) = (unsafe { room_for(events, room) }) else { return kernel(events, room, timeout) };
    if !is_set(set) {
        return kernel(events, room, timeout);
    }
    let sleep = &mut |room: Room<'_>, left| {
        waiting(left, || kernel(room.as_mut_ptr().cast(), room.len() as c_int, millis(left)))
    };
    let done = carried(|| wait(&sets::set(set), places, from_millis(timeout), sleep));
    finish(done.map_or_else(Done::Failed, Done::Carried), || -1)
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() }.map(from_timespec).transpose() {
        Ok(span) => span,
        Err(errno) => return fail(errno),
    };
    let kernel = |events: *mut epoll_event, room, left: Option<Duration>| {
        let time = as_timespec(left);
        // SAFETY: likewise.
        unsafe { real::epoll_pwait2(set, events, room, pointer(&time), mask) }
    };
    // SAFETY: likewise.
    match unsafe { room_for(events, room) } {
        Ok(places) if is_set(set) => {
            let sleep = &mut |room: Room<'_>, left| {
                waiting(left, || kernel(room.as_mut_ptr().cast(), room.len() as c_int, left))
            };
            let done = carried(|| wait(&sets::set(set), places, span, sleep));
            finish(done.map_or_else(Done::Failed, Done::Carried), || -1)
        }
        _ => kernel(events, room, span),
    }
}
