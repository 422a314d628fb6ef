//! `epoll_wait` on the entries of this library and on the kernel's set.

use crate::busy_poll;
use crate::connections::rest_if_unused;
use crate::os::epoll::Room;
use crate::os::signals;
use crate::service::{has_pairs, is_direct, look};
use crate::set::Set;
use baton_client::begin_batch;
use baton_consumer::pacing::PACING;
use libc::epoll_event;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The kernel's wait, with a time limit. It returns the events that the kernel has written.
pub(crate) type KernelWait<'a> = &'a mut dyn FnMut(Room<'_>, Option<Duration>) -> Result<&mut [epoll_event], i32>;

/// `epoll_wait` on a set: reports connections in an engine and the kernel's descriptors. `sleep` is the
/// kernel's wait.
pub(crate) fn wait(set: &Set, room: Room<'_>, timeout: Option<Duration>, sleep: KernelWait<'_>) -> Result<usize, i32> {
    let mut deadline = None;
    let mut left = timeout;
    let mut rested = false;
    let ran = signals::ran();
    loop {
        let theirs = kernel_first(set, room, sleep);
        let ours = report(set, &mut room[theirs..]);
        if theirs > 0 {
            return Ok(theirs + ours);
        }
        set.kernel_waits.store(ours == room.len(), Ordering::Relaxed);
        if ours > 0 || left == Some(Duration::ZERO) {
            // An error from the kernel's set is returned only if there is nothing else to report.
            return match kernel_events(set, &mut room[ours..], sleep) {
                Err(error) if ours == 0 => Err(error),
                more => Ok(ours + more.unwrap_or(0)),
            };
        }
        if signals::ran() != ran {
            return Err(libc::EINTR);
        }
        // The clock is read only now: a call that does not sleep is too short to need it.
        deadline = deadline.or_else(|| left.map(|left| Instant::now() + left));
        let rests = !std::mem::replace(&mut rested, true)
            && is_direct()
            && !has_pairs()
            && left.is_none_or(|left| left > LONG)
            && set.is_busy();
        let woken = if rests {
            nap()
        } else if is_direct() && set.has_moved() && (has_pairs() || !set.is_busy()) {
            busy_poll::wait(left, |left| {
                let woken = if left == Some(Duration::ZERO) {
                    check_once(set, room, sleep)
                } else {
                    sleep_until_event(set, room, left, sleep)
                };
                let came = woken.as_ref().map_or(1, Woken::came);
                (woken, came)
            })
        } else {
            sleep_until_event(set, room, left, sleep)
        };
        let woken = match woken {
            Ok(woken) => woken,
            // As in fs/eventpoll.c `ep_poll`: ready entries are reported before a signal.
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
        if !woken.by_notifier && !woken.by_device && left == Some(Duration::ZERO) {
            return Ok(report(set, room));
        }
    }
}

/// The time limit above which a nap is a small part of the wait.
const LONG: Duration = Duration::from_millis(1);

/// Sleeps briefly to let requests gather. A signal interrupts it like a wait.
fn nap() -> Result<Woken, i32> {
    let span = Timespec { tv_sec: 0, tv_nsec: PACING.nap.subsec_nanos().into() };
    match nanosleep(&span) {
        NanosleepRelativeResult::Ok => Ok(Woken::default()),
        NanosleepRelativeResult::Interrupted(_) => Err(libc::EINTR),
        NanosleepRelativeResult::Err(error) => Err(error.raw_os_error()),
    }
}

/// The events of the kernel's set, in half of the room, if the last report had no room for them: connections
/// in an engine that are always ready do not shut the others out.
fn kernel_first(set: &Set, room: Room<'_>, sleep: KernelWait<'_>) -> usize {
    let half = room.len().div_ceil(2);
    // An error is found again by the wait that follows.
    if set.kernel_waits.swap(false, Ordering::Relaxed) {
        kernel_events(set, &mut room[..half], sleep).unwrap_or(0)
    } else {
        0
    }
}

/// Adds the events that the kernel's set has now.
fn kernel_events(set: &Set, room: Room<'_>, sleep: KernelWait<'_>) -> Result<usize, i32> {
    if room.is_empty() { Ok(0) } else { strip(set, room, Some(Duration::ZERO), sleep).map(|woken| woken.count) }
}

/// Checks once for events: of other programs, which costs no call, from the devices, which cost one each, or now
/// and then from the kernel's set, which costs two.
fn check_once(set: &Set, room: Room<'_>, sleep: KernelWait<'_>) -> Result<Woken, i32> {
    look();
    if set.has_ready() {
        Ok(Woken::by_notifier())
    } else if set.is_kernel_due() {
        strip(set, room, Some(Duration::ZERO), sleep)
    } else {
        Ok(Woken::default())
    }
}

/// Sleeps until an event comes, from a device or from the kernel's set.
fn sleep_until_event(set: &Set, room: Room<'_>, left: Option<Duration>, sleep: KernelWait<'_>) -> Result<Woken, i32> {
    rest_if_unused();
    let _sleeper = Sleeper::of(set);
    let _attendance = set.attend();
    if set.has_ready() { Ok(Woken::by_notifier()) } else { strip(set, room, left, sleep) }
}

/// Counts a thread that sleeps on a set. Dropping it also counts a thread that is cancelled there.
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

/// Writes the events of ready connections in an engine. A program that gets several events will send
/// several replies, so a batch begins.
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

/// The events that ended a sleep: those of the program, of the notifier, and of devices.
#[derive(Default)]
struct Woken {
    count: usize,
    by_notifier: bool,
    by_device: bool,
}

impl Woken {
    fn by_notifier() -> Woken {
        Woken { by_notifier: true, ..Woken::default() }
    }

    /// The number of events that ended the sleep.
    fn came(&self) -> usize {
        self.count + usize::from(self.by_notifier) + usize::from(self.by_device)
    }
}

/// Waits in the kernel and removes the library's own events from the result.
fn strip(set: &Set, room: Room<'_>, timeout: Option<Duration>, sleep: KernelWait<'_>) -> Result<Woken, i32> {
    set.refresh_inner();
    let events = sleep(room, timeout)?;
    set.note_kernel_asked();
    let mut count = events.len();
    let spurious = if count > 0 { set.spurious() } else { Vec::new() };
    let mut woken = Woken::default();
    let mut at = 0;
    while at < count {
        let data = events[at].u64;
        if data != set.notifier_data && data != set.device_data && !spurious.contains(&data) {
            at += 1;
            continue;
        }
        woken.by_notifier |= data == set.notifier_data;
        woken.by_device |= data == set.device_data;
        events[at..count].rotate_left(1);
        count -= 1;
    }
    Ok(Woken { count, ..woken })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::tests::set_with_an_ended_one;
    use crate::table;
    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::task::Wake;

    /// When nginx reloads, it closes idle connections after a signal has interrupted its wait: a request
    /// that has arrived by then must be reported first.
    #[test]
    fn ready_entries_are_reported_before_a_signal() {
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, entry) = set_with_an_ended_one(700_002, 9);
        let mut room = [MaybeUninit::uninit()];
        let interrupted: KernelWait<'_> = &mut |_, _| Err(libc::EINTR);
        assert_eq!(wait(&set, &mut room, None, interrupted), Err(libc::EINTR));
        let interrupted_then: KernelWait<'_> = &mut |_, _| {
            entry.wake_by_ref();
            Err(libc::EINTR)
        };
        assert_eq!(wait(&set, &mut room, None, interrupted_then), Ok(1));
    }
    /// A listening socket, for one, beside connections that are always ready.
    #[test]
    fn the_kernels_descriptors_get_room_beside_entries_that_fill_it() {
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, entry) = set_with_an_ended_one(700_005, 9);
        entry.wake_by_ref();
        let mut room = [MaybeUninit::uninit()];
        let asked = Cell::new(0);
        let events: KernelWait<'_> = &mut |room, _| {
            asked.set(asked.get() + 1);
            Ok(std::slice::from_mut(room[0].write(epoll_event { events: 1, u64: 7 })))
        };
        let mut asked_by_then = Vec::new();
        for _ in 0..4 {
            assert_eq!(wait(&set, &mut room, None, events), Ok(1));
            asked_by_then.push(asked.get());
        }
        assert_eq!(asked_by_then, [0, 1, 1, 2], "every second report is the kernel's");
    }
    #[test]
    fn a_thread_that_polls_asks_the_kernel_now_and_then() {
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, _) = set_with_an_ended_one(700_006, 9);
        let mut room = [MaybeUninit::uninit()];
        let asked = Cell::new(0);
        let nothing: KernelWait<'_> = &mut |_, _| {
            asked.set(asked.get() + 1);
            Ok(&mut [])
        };
        const CHECKS: u32 = 1_000_000;
        let checks = (0..CHECKS).find(|_| {
            assert_eq!(check_once(&set, &mut room, nothing).unwrap().came(), 0);
            asked.get() > 3
        });
        assert!(checks.is_some_and(|checks| checks > 3), "{checks:?} checks, {} of them ask the kernel", asked.get());
    }
}
