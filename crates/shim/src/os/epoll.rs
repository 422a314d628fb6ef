//! The kernel's epoll calls.
//!
//! Safety rules: the kernel gets pointers to live arrays with their true lengths, and only events that
//! it says it has written are read.

use super::cancel::cancellable;
use super::signals::{self, set_of};
use super::{last_errno, real};
use libc::{c_int, epoll_event};
use rustix::event::epoll::Event;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{null, null_mut};
use std::time::Duration;

/// Events and data as in `struct epoll_event`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    pub events: u32,
    pub data: u64,
}

/// The kernel's `epoll_ctl`.
pub(crate) fn control(set: RawFd, what: c_int, fd: RawFd, interest: Option<Interest>) -> Result<(), i32> {
    let mut event = interest.map(|interest| epoll_event { events: interest.events, u64: interest.data });
    let at = event.as_mut().map_or(null_mut(), std::ptr::from_mut);
    // SAFETY: null, or a live event.
    if unsafe { real::epoll_ctl(set, what, fd, at) } == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `epoll_wait` that blocks `signals` during the wait, in addition to those that the thread blocks.
/// Appends the events and returns their number. The thread may be cancelled in it.
pub(crate) fn wait_without(
    set: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    left: Option<Duration>,
    signals: u64,
) -> Result<usize, i32> {
    const { assert!(size_of::<Event>() == size_of::<epoll_event>()) };
    let most = |left: Duration| left.as_micros().div_ceil(1000).min(c_int::MAX as u128) as c_int;
    let mask = (signals != 0).then(|| set_of(signals::mask() | signals));
    let mask = mask.as_ref().map_or(null(), std::ptr::from_ref);
    let room = events.spare_capacity_mut();
    let (at, count) = (room.as_mut_ptr().cast(), room.len() as c_int);
    let millis = left.map_or(-1, most);
    // SAFETY: room for `count` events, which have the kernel's layout, and a live mask or null.
    let got = cancellable(left, || unsafe { real::epoll_pwait(set.as_raw_fd(), at, count, millis, mask) });
    let got = usize::try_from(got).map_err(|_| last_errno())?;
    // SAFETY: the kernel has written `got` events.
    unsafe { events.set_len(events.len() + got) };
    Ok(got)
}

/// A random number, which a program is not expected to use as data.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The program's array for events.
pub(crate) type Room<'a> = &'a mut [MaybeUninit<epoll_event>];

/// The events that a wait of the kernel has written, or its error number.
///
/// # Safety
/// `got` is the result of `epoll_wait` for this room.
pub(crate) unsafe fn filled(room: Room<'_>, got: c_int) -> Result<&mut [epoll_event], i32> {
    let count = usize::try_from(got).map_err(|_| last_errno())?;
    // SAFETY: the kernel has written `count` events.
    Ok(unsafe { &mut *(std::ptr::from_mut(&mut room[..count]) as *mut [epoll_event]) })
}
