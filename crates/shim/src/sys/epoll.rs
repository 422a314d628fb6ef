//! Epoll sets of the kernel.
//!
//! What is upheld: the kernel gets pointers to live events with their true number, and only
//! what it says it has written is read.

use super::cancel::waiting;
use super::signals::{self, set_of};
use super::{last_errno, real};
use crate::epoll::Set;
use crate::gather;
use crate::patience;
use crate::service::{is_direct, look};
use baton_client::begin_batch;
use libc::{c_int, epoll_event};
use rustix::event::epoll::Event;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Events and data, as in `struct epoll_event`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    pub events: u32,
    pub data: u64,
}

/// `epoll_ctl` of the kernel.
pub(crate) fn control(set: RawFd, what: c_int, fd: RawFd, interest: Option<Interest>) -> Result<(), i32> {
    let mut event = interest.map(|interest| epoll_event { events: interest.events, u64: interest.data });
    let at = event.as_mut().map_or(null_mut(), std::ptr::from_mut);
    // SAFETY: null, or a live event.
    if unsafe { real::epoll_ctl(set, what, fd, at) } == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `epoll_wait` that takes none of these signals meanwhile, beside those that this thread takes
/// never; how many events there are. It may be cancelled.
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
    // SAFETY: room for so many events, which look as the kernel's, and a live mask or null.
    let got = waiting(left, || unsafe { real::epoll_pwait(set.as_raw_fd(), at, count, millis, mask) });
    let got = usize::try_from(got).map_err(|_| last_errno())?;
    // SAFETY: the kernel has written so many.
    unsafe { events.set_len(events.len() + got) };
    Ok(got)
}

/// A number that no program has by chance.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Where a program wants its events.
pub(crate) type Room<'a> = &'a mut [MaybeUninit<epoll_event>];

/// `epoll_wait` over a set: ours and the kernel's. `sleep` is the kernel's call, for so long.
pub(crate) fn wait(
    set: &Set,
    room: Room<'_>,
    timeout: Option<Duration>,
    sleep: &mut dyn FnMut(Room<'_>, Option<Duration>) -> c_int,
) -> Result<usize, i32> {
    let mut deadline = None;
    let mut left = timeout;
    let mut rested = false;
    let ran = signals::ran();
    loop {
        let ours = report(set, room);
        if ours > 0 || left == Some(Duration::ZERO) {
            // An error of the kernel's set is told when nothing else is.
            return match more(set, &mut room[ours..], sleep) {
                Err(error) if ours == 0 => Err(error),
                more => Ok(ours + more.unwrap_or(0)),
            };
        }
        if signals::ran() != ran {
            return Err(libc::EINTR);
        }
        // Before, it takes no time that would be worth a look at the clock.
        deadline = deadline.or_else(|| left.map(|left| Instant::now() + left));
        let rests = !std::mem::replace(&mut rested, true)
            && is_direct()
            && left.is_none_or(|left| left > LONG)
            && set.is_busy();
        let woken = if rests {
            nap()
        } else if is_direct() && !set.is_busy() {
            patience::wait(left, |left| {
                let woken =
                    if left == Some(Duration::ZERO) { glance(set, room, sleep) } else { doze(set, room, left, sleep) };
                let came = woken.as_ref().map_or(1, Woken::came);
                (woken, came)
            })
        } else {
            doze(set, room, left, sleep)
        };
        let woken = match woken {
            Ok(woken) => woken,
            // As in fs/eventpoll.c `ep_poll`: what there is comes before a signal.
            Err(error) => match report(set, room) {
                0 => return Err(error),
                ours => return Ok(ours),
            },
        };
        if rests {
            continue;
        }
        if woken.count > 0 {
            return Ok(woken.count + report(set, &mut room[woken.count..]));
        }
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if !woken.by_bell && !woken.by_device && left == Some(Duration::ZERO) {
            return Ok(report(set, room));
        }
    }
}

/// Waits of which a nap is a small part.
const LONG: Duration = Duration::from_millis(1);

/// Lets requests gather; a signal ends it as it ends a wait.
fn nap() -> Result<Woken, i32> {
    let span = Timespec { tv_sec: 0, tv_nsec: gather::NAP.subsec_nanos().into() };
    match nanosleep(&span) {
        NanosleepRelativeResult::Ok => Ok(Woken::default()),
        NanosleepRelativeResult::Interrupted(_) => Err(libc::EINTR),
        NanosleepRelativeResult::Err(error) => Err(error.raw_os_error()),
    }
}

/// Beside ours: what the kernel's set has now.
fn more(set: &Set, room: Room<'_>, sleep: &mut dyn FnMut(Room<'_>, Option<Duration>) -> c_int) -> Result<usize, i32> {
    if room.is_empty() { Ok(0) } else { strip(set, room, Some(Duration::ZERO), sleep).map(|woken| woken.count) }
}

/// Looks whether something came: over the devices, which cost a call each, or to the kernel's
/// set, which costs two.
fn glance(set: &Set, room: Room<'_>, sleep: &mut dyn FnMut(Room<'_>, Option<Duration>) -> c_int) -> Result<Woken, i32> {
    look();
    if set.has_ready() { Ok(Woken::by_bell()) } else { strip(set, room, Some(Duration::ZERO), sleep) }
}

/// Sleeps until something comes, on devices, too.
fn doze(
    set: &Set,
    room: Room<'_>,
    left: Option<Duration>,
    sleep: &mut dyn FnMut(Room<'_>, Option<Duration>) -> c_int,
) -> Result<Woken, i32> {
    let _sleeper = Sleeper::of(set);
    let _attendance = set.attend();
    if set.has_ready() { Ok(Woken::by_bell()) } else { strip(set, room, left, sleep) }
}

/// Who sleeps over a set, and may be cancelled there.
struct Sleeper<'a>(&'a Set);

impl Sleeper<'_> {
    fn of(set: &Set) -> Sleeper<'_> {
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        Sleeper(set)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ours that are ready, of what engines have said by now. Whoever is told of several will
/// answer several.
fn report(set: &Set, room: Room<'_>) -> usize {
    let found = set.collect(room.len());
    if is_direct() {
        begin_batch(found.len());
    }
    for (place, found) in room.iter_mut().zip(&found) {
        place.write(epoll_event { events: found.events, u64: found.data });
    }
    found.len()
}

/// What ended a sleep: events of the program's, our bell, devices.
#[derive(Default)]
struct Woken {
    count: usize,
    by_bell: bool,
    by_device: bool,
}

impl Woken {
    fn by_bell() -> Woken {
        Woken { by_bell: true, ..Woken::default() }
    }

    /// How much ended the sleep.
    fn came(&self) -> usize {
        self.count + usize::from(self.by_bell) + usize::from(self.by_device)
    }
}

/// The kernel's events without those of ours, and which of these there were.
fn strip(
    set: &Set,
    room: Room<'_>,
    timeout: Option<Duration>,
    sleep: &mut dyn FnMut(Room<'_>, Option<Duration>) -> c_int,
) -> Result<Woken, i32> {
    set.refresh_inner();
    let got = sleep(room, timeout);
    let Ok(mut count) = usize::try_from(got) else { return Err(last_errno()) };
    let deceived = if count > 0 { set.deceived() } else { Vec::new() };
    // SAFETY: the kernel has written so many.
    let data = |event: &MaybeUninit<epoll_event>| unsafe { event.assume_init_ref() }.u64;
    let mut woken = Woken::default();
    let mut at = 0;
    while at < count {
        let data = data(&room[at]);
        if data != set.mark && data != set.device_mark && !deceived.contains(&data) {
            at += 1;
            continue;
        }
        woken.by_bell |= data == set.mark;
        woken.by_device |= data == set.device_mark;
        room[at..count].rotate_left(1);
        count -= 1;
    }
    Ok(Woken { count, ..woken })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::tests::set_with_an_ended_one;
    use crate::sys::fail;
    use crate::table;
    use std::task::Wake;

    /// nginx that is to reload closes what is idle when its wait is interrupted: a request that
    /// has come by then is not to be lost.
    #[test]
    fn what_is_ready_is_told_before_a_signal() {
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, entry) = set_with_an_ended_one(700_002, 9);
        let mut room = [MaybeUninit::uninit()];
        let mut interrupted = |_: Room<'_>, _| fail(libc::EINTR);
        assert_eq!(wait(&set, &mut room, None, &mut interrupted), Err(libc::EINTR));
        let mut interrupted_then = |_: Room<'_>, _| {
            entry.wake_by_ref();
            fail(libc::EINTR)
        };
        assert_eq!(wait(&set, &mut room, None, &mut interrupted_then), Ok(1));
    }
}
