//! Epoll sets that have connections in an engine in addition to other descriptors.
//!
//! ```text
//!   program   epoll_ctl(set, connection) --> entry: events, data, the last report
//!                                              ^ woken by the stream's watch
//!   epoll_wait   first the ready entries, then the kernel's set, which has our notifier:
//!                it is notified when an entry becomes ready while a thread sleeps on the set
//! ```
//!
//! The kernel's set never has the husk of a connection, which would always be writable. The
//! kernel's entry is removed before the connection is handed over, and is added again when the
//! connection comes home, so the program's interest holds wherever the connection is. If engines
//! run in this process, the kernel's set also has their devices, and a frame wakes one of the
//! threads that sleep.
//!
//! Level, edge and one-shot are decided when entries are collected, by the rules of the kernel's
//! `fs/eventpoll.c`. A level-triggered entry stays on the ready list while it is ready. An
//! edge-triggered one is reported with everything that it is ready for, and again only after data
//! has arrived or after a write that had found no room finds room. A one-shot entry is disabled
//! by its report until it is modified.

mod nested;
mod wait;

pub use nested::{changed as nested_changed, refresh};
pub(crate) use wait::{KernelWait, wait};

use crate::connection::{Held, at, bring_home, held};
use crate::locks::locked;
use crate::os::epoll::{Interest, control};
use crate::service;
use crate::set::{Entry, Set, SlotId};
use crate::sharing::Sharing;
use crate::state::State;
use crate::table::{self, SlotRef};
use baton_client::Readiness;
use baton_consumer::held::Counted;
use baton_ipc::engine::monotonic;
use baton_policy::Reason;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, c_int};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::task::Wake;

static SETS: RwLock<Sets> = RwLock::new(None);

/// The readiness of a connection, as of the last events from its engine, or `None` if it is in the
/// kernel.
pub fn readiness(fd: RawFd) -> Option<Readiness> {
    at(fd).map(|held| readiness_of(&held))
}

fn readiness_of(held: &Held) -> Readiness {
    match held.stream() {
        Some(stream) => {
            let mut readiness = stream.readiness_heard();
            // An error is reported once.
            readiness.failed = readiness.failed && !held.slot().error_reported.load(Ordering::Relaxed);
            readiness
        }
        None => {
            let mut over = Readiness::default();
            (over.readable, over.writable, over.peer_finished, over.ended) = (true, true, true, true);
            over
        }
    }
}

/// Readiness of an entry's connection and how often its writes found no room, or `None` if it is in
/// the kernel.
fn look_up(id: SlotId) -> Option<(Readiness, u64)> {
    let held = held(SlotRef::of(id))?;
    Some((readiness_of(&held), held.slot().full.load(Ordering::Relaxed)))
}

impl Set {
    /// Collects at most `room` events of connections in an engine. Polls the engines first.
    pub fn collect(&self, room: usize) -> Vec<Interest> {
        let may_become_ready = || service::is_used() && !locked(&self.entries).is_empty();
        if !self.has_ready() && !may_become_ready() {
            return Vec::new();
        }
        // If the program has not read the input of an earlier report, there is no hurry to poll for
        // more.
        let first = locked(&self.ready).front().cloned();
        if first.is_some_and(|entry| entry.has_input(look_up)) {
            service::glance()
        } else {
            service::look()
        }
        let mut batch = std::mem::take(&mut *locked(&self.ready));
        // Looking descriptors up takes the slots' locks, which come first in the lock order.
        let mut gather = std::mem::take(&mut *locked(&self.gather));
        let (mut found, mut again) = (Vec::new(), Vec::new());
        while found.len() < room {
            let Some(entry) = batch.pop_front() else { break };
            if let Some((report, stays)) = entry.take(&mut gather, look_up) {
                found.push(report);
                if stays && entry.queue() {
                    again.push(entry);
                }
            }
        }
        *locked(&self.gather) = gather;
        let some_left = !batch.is_empty();
        let mut ready = locked(&self.ready);
        // The order: entries that found no room, entries that became ready during this call, and last
        // those that have been reported.
        batch.append(&mut ready);
        batch.extend(again);
        *ready = batch;
        if self.nested.load(Ordering::Relaxed) && ready.is_empty() {
            self.notifier.iter().for_each(|notifier| notifier.clear());
        }
        drop(ready);
        if some_left {
            self.wake();
        }
        found
    }

    /// True if many of its connections are busy.
    pub fn is_busy(&self) -> bool {
        locked(&self.gather).is_many(monotonic)
    }
}

/// The set of a descriptor. A set whose creation the library did not see is known from now on.
pub fn set(fd: RawFd) -> Arc<Set> {
    let known = Counted::new(|| SETS.read().unwrap_or_else(PoisonError::into_inner));
    if let Some(set) = known.as_ref().and_then(|sets| sets.get(&fd)) {
        return set.clone();
    }
    drop(known);
    table::enter_set(fd);
    write().get_or_insert_default().entry(fd).or_insert_with(|| Arc::new(Set::new(fd))).clone()
}

type Sets = Option<HashMap<RawFd, Arc<Set>>>;

fn write() -> Counted<RwLockWriteGuard<'static, Sets>> {
    Counted::new(|| SETS.write().unwrap_or_else(PoisonError::into_inner))
}

/// Called when the program has closed a set's descriptor.
pub fn close(fd: RawFd) {
    table::forget(fd);
    let set = write().as_mut().and_then(|sets| sets.remove(&fd));
    if let Some(set) = set.filter(|set| set.fd == fd) {
        let entries: Vec<_> = locked(&set.entries).drain().map(|(_, entry)| entry).collect();
        for entry in entries {
            let slot_ref = SlotRef::of(entry.slot);
            locked(&slot_ref.slot.entries).retain(|other| !Arc::ptr_eq(other, &entry));
            if let Some(held) = held(slot_ref)
                && let Some(stream) = held.stream()
            {
                entry.unwatch(stream);
            }
        }
    }
}

/// Records that a second descriptor names the same set.
pub fn duplicate(from: RawFd, to: RawFd) {
    let same = set(from);
    table::enter_set(to);
    write().get_or_insert_default().insert(to, same);
}

/// Called when a set is added to another set or polled: from now on it looks ready to the kernel
/// whenever one of its entries is.
pub fn nest(fd: RawFd) {
    let set = set(fd);
    if !set.nested.swap(true, Ordering::AcqRel) {
        set.leave_devices();
        if set.notifier_is_in.swap(false, Ordering::AcqRel)
            && let Some(notifier) = &set.notifier
        {
            let _ = control(set.fd, EPOLL_CTL_DEL, notifier.as_fd().as_raw_fd(), None);
            let _ = set.prepare();
        }
        if set.has_ready() {
            set.wake();
        }
    }
}

/// `epoll_ctl` on a connection that the library knows.
pub fn change(set_fd: RawFd, what: c_int, fd: RawFd, interest: Interest) -> Result<(), i32> {
    let of_kernel = || control(set_fd, what, fd, (what != EPOLL_CTL_DEL).then_some(interest));
    if set_fd == fd {
        return Err(libc::EINVAL);
    }
    let set = set(set_fd);
    if what == EPOLL_CTL_ADD && set.is_shared() {
        bring_home(fd, Reason::EpollShared);
    }
    let Some(slot_ref) = table::find(fd) else { return of_kernel() };
    let Some(body) = slot_ref.read() else { return of_kernel() };
    let key = (slot_ref.slot.number(), fd);
    let known = locked(&set.entries).get(&key).cloned();
    let stream = match &body.state {
        State::Free => return of_kernel(),
        State::Kernel(_) => {
            of_kernel()?;
            None
        }
        State::Moved(moved) => Some(&moved.stream),
        State::Ended(_) => None,
    };
    if !matches!(body.state, State::Kernel(_)) && breaks_exclusion(what, known.as_deref(), interest.events) {
        return Err(libc::EINVAL);
    }
    match (what, known) {
        (EPOLL_CTL_ADD, None) => {
            if !matches!(body.state, State::Kernel(_)) {
                set.prepare()?;
            }
            let entry = Entry::new(&set, slot_ref.id(), fd, interest);
            set.enter(entry.clone());
            locked(&slot_ref.slot.entries).push(entry.clone());
            stream.into_iter().for_each(|stream| entry.watch(stream));
            entry.wake();
        }
        (EPOLL_CTL_MOD, Some(entry)) => {
            entry.modify(interest);
            entry.wake();
        }
        (EPOLL_CTL_DEL, Some(entry)) => {
            stream.into_iter().for_each(|stream| entry.unwatch(stream));
            locked(&slot_ref.slot.entries).retain(|other| !Arc::ptr_eq(other, &entry));
            set.drop_entry(&entry);
        }
        _ if matches!(body.state, State::Kernel(_)) => {}
        (EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, None) => return Err(libc::ENOENT),
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// True for a forbidden use of `EPOLLEXCLUSIVE`. Only `EPOLL_CTL_ADD` may set it, and only together
/// with a few events; such an entry cannot be modified (the kernel's `do_epoll_ctl`).
fn breaks_exclusion(what: c_int, known: Option<&Entry>, events: u32) -> bool {
    const WITH_IT: c_int =
        libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
    let is_asked = events & EPOLLEXCLUSIVE as u32 != 0;
    match what {
        EPOLL_CTL_ADD => is_asked && events & !(WITH_IT as u32) != 0,
        EPOLL_CTL_MOD => is_asked || known.is_some_and(Entry::is_exclusive),
        _ => false,
    }
}

/// The lock on all sets during a fork.
pub struct Frozen(Counted<RwLockWriteGuard<'static, Sets>>);

/// Locks all sets for a fork, and records that a child shares them.
pub fn freeze(sharing: Option<&Sharing>) -> Frozen {
    let sets = write();
    for set in sets.iter().flat_map(HashMap::values) {
        set.share(sharing);
        if set.notifier_is_in.swap(false, Ordering::AcqRel)
            && let Some(notifier) = &set.notifier
        {
            let _ = control(set.fd, EPOLL_CTL_DEL, notifier.as_fd().as_raw_fd(), None);
        }
    }
    Frozen(sets)
}

impl Frozen {
    /// Called in the child, where threads that no longer exist may hold locks of the sets: replaces all
    /// sets.
    pub fn child(&mut self) {
        let fds: Vec<RawFd> = self.0.iter().flat_map(HashMap::keys).copied().collect();
        let fresh = |fd| {
            let set = Set::new(fd);
            locked(&set.shared).for_good = true;
            (fd, Arc::new(set))
        };
        let before = self.0.replace(fds.into_iter().map(fresh).collect());
        // Do not run destructors, which would take locks.
        std::mem::forget(before);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bits::{IN, OUT};
    use crate::ended::Ended;

    /// A set with an entry for a connection that has ended, and so is ready once it is woken. `data` is
    /// the entry's data.
    pub(crate) fn set_with_an_ended_one(fd: RawFd, data: u64) -> (Arc<Set>, Arc<Entry>) {
        // These tests do not use the kernel's set.
        let set = Arc::new(Set::new(-1));
        let slot_ref = table::enter(fd, State::Ended(Ended::default()), false).unwrap();
        let entry = Entry::new(&set, slot_ref.id(), fd, Interest { events: IN, data });
        set.enter(entry.clone());
        (set, entry)
    }

    #[test]
    fn unread_data_counts_as_input_if_the_program_asks_for_input() {
        const ENDED: RawFd = 700_004;
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, entry) = set_with_an_ended_one(ENDED, 7);
        assert!(entry.has_input(look_up), "the end of the stream is input");
        entry.modify(Interest { events: OUT, data: 7 });
        assert!(!entry.has_input(look_up));
        entry.modify(Interest { events: IN, data: 7 });
        drop(table::close(ENDED));
        assert!(!entry.has_input(look_up), "the descriptor was closed");
        set.drop_entry(&entry);
    }

    /// A wake-up can be in progress when the program closes the connection. An entry that stayed on the
    /// list would make the set look ready for ever.
    #[test]
    fn an_entry_that_is_woken_after_its_removal_is_not_reported_and_does_not_stay() {
        const ENDED: RawFd = 700_001;
        let _turn = table::tests::TURN.lock().unwrap();
        let interest = |data| Interest { events: IN, data };
        let reported = |set: &Set| set.collect(8).into_iter().map(|reported| reported.data).collect::<Vec<_>>();
        for others in [true, false] {
            let (set, entry) = set_with_an_ended_one(ENDED, 7);
            let slot = entry.slot;
            entry.wake_by_ref();
            assert_eq!(reported(&set), [7]);
            set.drop_entry(&entry);
            // As after a report of an entry that stays on the list.
            entry.unqueue();
            entry.wake_by_ref();
            let other = others.then(|| Entry::new(&set, slot, ENDED, interest(8)));
            other.iter().for_each(|other| set.enter(other.clone()));
            other.iter().for_each(|other| other.wake_by_ref());
            assert!(set.has_ready());
            assert_eq!(reported(&set), Vec::from_iter(others.then_some(8)));
            other.iter().for_each(|other| set.drop_entry(other));
            assert!(!set.has_ready());
        }
    }
}
