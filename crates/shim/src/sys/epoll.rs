//! Epoll sets of the kernel.
//!
//! What is upheld: the kernel gets pointers to live events with their true number, and only
//! what it says it has written is read.

use super::{last_errno, real};
use crate::epoll::Set;
use crate::patience;
use crate::service::is_direct;
use libc::{c_int, epoll_event};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::null_mut;
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
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut left = timeout;
    // The devices of our own engines are in the set: it tells when to look.
    let mut look = !is_direct();
    loop {
        let ours = report(set, room, look);
        if ours > 0 || left == Some(Duration::ZERO) {
            // An error of the kernel's set is told when nothing else is.
            let _attendance = set.attend();
            let more = if ours < room.len() {
                strip(set, &mut room[ours..], Some(Duration::ZERO), sleep)
            } else {
                Ok(Woken::default())
            };
            return match more {
                Ok(woken) => {
                    let found = ours + woken.count;
                    Ok(if woken.by_device { found + report(set, &mut room[found..], true) } else { found })
                }
                Err(_) if ours > 0 => Ok(ours),
                Err(error) => Err(error),
            };
        }
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        let attendance = set.attend();
        let slept = match &attendance {
            _ if set.has_ready() => Ok(Woken::by_bell()),
            None => strip(set, room, left, sleep),
            Some(_) => patience::wait(left, |left| {
                let woken = strip(set, room, left, sleep);
                let came = woken.as_ref().map_or(1, Woken::came);
                (woken, came)
            }),
        };
        drop(attendance);
        set.sleepers.fetch_sub(1, Ordering::SeqCst);
        let woken = slept?;
        look = !is_direct() || woken.by_device;
        if woken.count > 0 {
            return Ok(woken.count + report(set, &mut room[woken.count..], look));
        }
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if !woken.by_bell && !woken.by_device && left == Some(Duration::ZERO) {
            return Ok(report(set, room, look));
        }
    }
}

fn report(set: &Set, room: Room<'_>, look: bool) -> usize {
    let found = set.collect(room.len(), look);
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
    let got = sleep(room, timeout);
    let Ok(mut count) = usize::try_from(got) else { return Err(last_errno()) };
    // SAFETY: the kernel has written so many.
    let data = |event: &MaybeUninit<epoll_event>| unsafe { event.assume_init_ref() }.u64;
    let mut woken = Woken::default();
    let mut at = 0;
    while at < count {
        let data = data(&room[at]);
        if data != set.mark && data != set.device_mark {
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
