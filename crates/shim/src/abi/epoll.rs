//! Epoll.
//!
//! Safety rules, besides those of [`super`]: events are written into the program's room alone, and only those that
//! were written are read. `EPOLL_CTL_DEL` looks at no event, as in the kernel.

use super::sockets::forget_reused;
use super::{fail, finish, zero_or};
use crate::os::cancel::{Deferred, cancellable, deferred};
use crate::os::epoll::{Interest, Room, control, filled};
use crate::os::real;
use crate::os::wait::{as_timespec, from_millis, from_timespec, millis, pointer};
use crate::table::{find, is_known, is_set};
use crate::transfer::Done;
use crate::{connection, epoll as sets};
use libc::{c_int, epoll_event, sigset_t, timespec};
use std::mem::MaybeUninit;
use std::ptr::null;
use std::time::Duration;

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let set = forget_reused(unsafe { real::epoll_create(size) });
    if set >= 0 {
        sets::set(set);
    }
    set
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let set = forget_reused(unsafe { real::epoll_create1(flags) });
    if set >= 0 {
        sets::set(set);
    }
    set
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let _deferred = Deferred::new();
    let event_read = if what == libc::EPOLL_CTL_DEL { std::ptr::null() } else { event.cast_const() };
    // SAFETY: the arguments are the program's: null or an event.
    let asked = unsafe { event_read.as_ref() }.map(|event| Interest { events: event.events, data: event.u64 });
    if what == libc::EPOLL_CTL_ADD {
        if !is_known(fd) {
            connection::register_early(fd);
        } else if is_set(fd) {
            sets::nest(fd);
        }
    }
    // If the connection is due to move, this moves it first.
    if find(fd).is_some() {
        drop(connection::target(fd));
    }
    match (find(fd).is_some(), what == libc::EPOLL_CTL_DEL, asked) {
        (true, true, _) => zero_or(sets::change(set, what, fd, Interest { events: 0, data: 0 })),
        (true, false, Some(interest)) => zero_or(sets::change(set, what, fd, interest)),
        (false, false, Some(_)) => record_nested(set, what, fd, asked, zero_or(control(set, what, fd, asked))),
        // SAFETY: as above.
        _ => record_nested(set, what, fd, asked, unsafe { real::epoll_ctl(set, what, fd, event) }),
    }
}

/// Records a successful call of the kernel on a set within a set.
fn record_nested(set: c_int, what: c_int, fd: c_int, asked: Option<Interest>, done: c_int) -> c_int {
    if done == 0 && is_set(set) && is_set(fd) {
        sets::nested_changed(set, what, fd, asked);
    }
    done
}

/// The program's array of events, or `EINVAL` if it is empty, as in the kernel.
///
/// # Safety
/// `events` points to room for `room` events.
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
/// As for libc's function of this name.
pub(super) unsafe fn epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe { epoll_pwait(set, events, room, timeout, null()) }
}

/// # Safety
/// As for libc's function of this name.
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
    // SAFETY: as above.
    let Ok(places) = (unsafe { room_for(events, room) }) else { return kernel(events, room, timeout) };
    if !is_set(set) {
        return kernel(events, room, timeout);
    }
    let sleep: sets::KernelWait<'_> = &mut |room, left| {
        let got = cancellable(left, || kernel(room.as_mut_ptr().cast(), room.len() as c_int, millis(left)));
        // SAFETY: `got` is what the kernel returned for this room.
        unsafe { filled(room, got) }
    };
    let done = deferred(|| sets::wait(&sets::set(set), places, from_millis(timeout), sleep));
    finish(done.map_or_else(Done::Failed, Done::Carried), || -1)
}

/// # Safety
/// As for libc's function of this name.
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
        // SAFETY: as above.
        unsafe { real::epoll_pwait2(set, events, room, pointer(&time), mask) }
    };
    // SAFETY: as above.
    match unsafe { room_for(events, room) } {
        Ok(places) if is_set(set) => {
            let sleep: sets::KernelWait<'_> = &mut |room, left| {
                let got = cancellable(left, || kernel(room.as_mut_ptr().cast(), room.len() as c_int, left));
                // SAFETY: `got` is what the kernel returned for this room.
                unsafe { filled(room, got) }
            };
            let done = deferred(|| sets::wait(&sets::set(set), places, span, sleep));
            finish(done.map_or_else(Done::Failed, Done::Carried), || -1)
        }
        _ => kernel(events, room, span),
    }
}
