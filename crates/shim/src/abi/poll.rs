//! `poll` and `select`.
//!
//! Safety rules, besides those of [`super`]: the program's list has `count` entries; a longer one than the kernel
//! permits is not looked at. A set of `select` has a bit for each descriptor below `count` that the program can have,
//! in whole words of 64 bits as the kernel reads them, and no other word is touched.

use super::fail;
use super::transfers::check;
use crate::descriptors;
use crate::os::cancel::deferred;
use crate::os::real;
use crate::os::wait::{from_millis, from_timespec, kernel_poll};
use crate::poll;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, c_int, c_short, fd_set, nfds_t};
use libc::{pollfd, sigset_t, timespec, timeval};
use std::ptr::null;
use std::time::{Duration, Instant};

/// A list of so many descriptors is not compared with the limit, which costs a call of the kernel.
const FEW: nfds_t = 64;

/// # Safety
/// `fds` points to `count` entries if the limit of descriptors permits so many, and `mask` is null or points to a
/// mask.
unsafe fn poll_for(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    if fds.is_null() || count == 0 || (count > FEW && count > descriptors::limit()) {
        return None;
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    // SAFETY: as above.
    let sleep = &mut |fds: &mut [pollfd], timeout| unsafe { kernel_poll(fds, timeout, mask) };
    poll::concerns(fds).then(|| deferred(|| poll::poll(fds, timeout, sleep)))
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    match unsafe { poll_for(fds, count, from_millis(timeout), null()) } {
        Some(done) => done.map_or_else(fail, |ready| ready as c_int),
        // SAFETY: as above.
        None => unsafe { real::poll(fds, count, timeout) },
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int {
    check(count as usize, room / size_of::<pollfd>());
    // SAFETY: the arguments are the program's.
    unsafe { poll(fds, count, timeout) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() }.map(from_timespec).transpose() {
        Ok(span) => span,
        Err(errno) => return fail(errno),
    };
    // SAFETY: as above.
    match unsafe { poll_for(fds, count, span, mask) } {
        Some(done) => done.map_or_else(fail, |ready| ready as c_int),
        // SAFETY: as above.
        None => unsafe { real::ppoll(fds, count, timeout, mask) },
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    check(count as usize, room / size_of::<pollfd>());
    // SAFETY: the arguments are the program's.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// For each of the three sets of `select`: the events to poll for, and the events that count as ready
/// (`fs/select.c`).
const KINDS: [(c_short, c_short); 3] = [
    (POLLIN | libc::POLLRDNORM | libc::POLLRDBAND, POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | POLLHUP | POLLERR),
    (POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND, POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | POLLERR),
    (POLLPRI, POLLPRI),
];

/// # Safety
/// `set` is null or has a bit for descriptor `fd`.
unsafe fn bit(set: *mut fd_set, fd: usize) -> Option<(*mut u64, u64)> {
    // A set may be longer than `fd_set`: programs allocate larger ones for high descriptors.
    // SAFETY: the caller's promise.
    (!set.is_null()).then(|| (unsafe { set.cast::<u64>().add(fd / 64) }, 1 << (fd % 64)))
}

/// The number of descriptors of which the sets of `select` may have bits. Programs pass the limit of descriptors with
/// sets that are as long as their own descriptors need: the kernel looks no further than the process's table is long,
/// which the library's descriptors make longer (fs/select.c, `core_sys_select`).
fn looked_at(count: c_int) -> c_int {
    if count <= libc::FD_SETSIZE as c_int {
        return count;
    }
    count.min((descriptors::highest_of_program() + 1).max(libc::FD_SETSIZE as c_int))
}

/// Converts the sets of `select` to a list for `poll`. Returns `None` if no known descriptor is in them.
///
/// # Safety
/// Each set is null or has bits for `count` descriptors.
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
/// As for [`listed`]; `mask` is null or points to a mask.
unsafe fn select_for(
    count: c_int,
    all: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    // SAFETY: the caller's promise.
    let mut fds = unsafe { listed(count, all)? };
    // SAFETY: as above.
    let sleep = &mut |fds: &mut [pollfd], timeout| unsafe { kernel_poll(fds, timeout, mask) };
    if let Err(errno) = deferred(|| poll::poll(&mut fds, timeout, sleep)) {
        return Some(Err(errno));
    }
    if fds.iter().any(|fd| fd.revents & POLLNVAL != 0) {
        return Some(Err(libc::EBADF));
    }
    let mut bits = 0;
    for fd in &fds {
        for (set, (asked, met)) in all.into_iter().zip(KINDS) {
            // SAFETY: as above.
            let Some((word, bit)) = (unsafe { bit(set, fd.fd as usize) }) else { continue };
            let is = fd.events & asked != 0 && fd.revents & met != 0;
            // SAFETY: as above.
            unsafe { word.write(if is { word.read() | bit } else { word.read() & !bit }) };
            bits += usize::from(is);
        }
    }
    Some(Ok(bits))
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let (begun, count) = (Instant::now(), looked_at(count));
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() } {
        Some(time) if time.tv_sec < 0 || time.tv_usec < 0 => return fail(libc::EINVAL),
        // Linux accepts more than a million microseconds.
        Some(time) => Some(Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)),
        None => None,
    };
    // SAFETY: as above.
    let Some(done) = (unsafe { select_for(count, [read, write, except], span, null()) }) else {
        // SAFETY: as above.
        return unsafe { real::select(count, read, write, except, timeout) };
    };
    // SAFETY: as above.
    if let (Some(timeout), Some(span)) = (unsafe { timeout.as_mut() }, span) {
        // Linux writes the remaining time.
        let left = span.saturating_sub(begun.elapsed());
        *timeout = timeval { tv_sec: left.as_secs() as _, tv_usec: left.subsec_micros().into() };
    }
    done.map_or_else(fail, |bits| bits as c_int)
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let count = looked_at(count);
    // SAFETY: the arguments are the program's.
    let span = match unsafe { timeout.as_ref() }.map(from_timespec).transpose() {
        Ok(span) => span,
        Err(errno) => return fail(errno),
    };
    // SAFETY: as above.
    match unsafe { select_for(count, [read, write, except], span, mask) } {
        Some(done) => done.map_or_else(fail, |bits| bits as c_int),
        // SAFETY: as above.
        None => unsafe { real::pselect(count, read, write, except, timeout, mask) },
    }
}
