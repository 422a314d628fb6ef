//! Waits in the kernel, and conversions of time limits.
//!
//! Safety rules: the kernel gets pointers to live locals with their true lengths. A thread may be
//! cancelled where it waits ([`cancel`](super::cancel)).

use super::cancel::cancellable;
use super::{last_errno, real};
use libc::{POLLIN, c_int, nfds_t, pollfd, sigset_t, timespec};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::time::Duration;

pub(crate) fn as_timespec(span: Option<Duration>) -> Option<timespec> {
    span.map(|span| timespec { tv_sec: span.as_secs() as libc::time_t, tv_nsec: span.subsec_nanos().into() })
}

pub(crate) fn pointer<T>(value: &Option<T>) -> *const T {
    value.as_ref().map_or(null(), std::ptr::from_ref)
}

/// A time limit in milliseconds for `poll`: rounded up, and -1 for none.
pub(crate) fn millis(span: Option<Duration>) -> c_int {
    span.map_or(-1, |span| c_int::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

pub(crate) fn from_millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

pub(crate) fn from_timespec(time: &timespec) -> Result<Duration, i32> {
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    match (seconds, nanos) {
        (Ok(seconds), Ok(nanos @ ..1_000_000_000)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(libc::EINVAL),
    }
}

/// The kernel's `ppoll`.
///
/// # Safety
/// `mask` is null or points to a mask.
pub(crate) unsafe fn kernel_poll(
    fds: &mut [pollfd],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let time = as_timespec(timeout);
    // SAFETY: a live array with its length, and a live time; the mask is the caller's promise.
    let call = || unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, pointer(&time), mask) };
    let got = cancellable(timeout, call);
    usize::try_from(got).map_err(|_| last_errno())
}

/// Waits for input for the time `left`. Returns 0 if none came. The thread may be cancelled in it.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, left: Option<Duration>) -> Result<usize, i32> {
    // SAFETY: a null mask is allowed.
    unsafe { kernel_poll(&mut [pollfd { fd: fd.as_raw_fd(), events: POLLIN, revents: 0 }], left, null()) }
}

/// Reads an eventfd's count, and waits until it is not zero. The thread may be cancelled in it.
pub(crate) fn read_eventfd(fd: BorrowedFd<'_>) -> Result<(), i32> {
    let mut count = 0u64;
    // SAFETY: a pointer to a live local, with its length.
    let got = cancellable(None, || unsafe { real::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) });
    if got < 0 { Err(last_errno()) } else { Ok(()) }
}
