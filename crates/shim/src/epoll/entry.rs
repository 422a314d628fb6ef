//! A connection in an epoll set: the program's interest, and the last report.

use super::{Set, readiness_of};
use crate::bits::{ERR, HUP, IN, OUT, RDHUP, bits};
use crate::connection::held;
use crate::gather::Gather;
use crate::os::epoll::Interest;
use crate::table::{SlotRef, locked};
use baton_client::{Readiness, Stream};
use baton_ipc::engine::monotonic;
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

/// A connection in an epoll set.
pub struct Entry {
    pub(super) set: Weak<Set>,
    pub(super) slot_ref: SlotRef,
    pub(super) fd: RawFd,
    asked: Mutex<Asked>,
    queued: AtomicBool,
    /// It was removed from its set. A wake-up that was in progress may still come.
    dropped: AtomicBool,
}

struct Asked {
    interest: Interest,
    /// A one-shot entry was reported, and is disabled.
    asleep: bool,
    /// `Readiness::arrivals` at the last report.
    arrivals: Option<u64>,
    /// A write found no room since the last report.
    was_full: bool,
    full: u64,
    watch: u64,
    /// The last round in which it was reported: see [`Gather::on_report`].
    seen: u32,
}

impl Asked {
    fn new(interest: Interest) -> Asked {
        Asked { interest, asleep: false, arrivals: None, was_full: true, full: 0, watch: 0, seen: 0 }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(set) = self.set.upgrade() else { return };
        if self.queue() {
            set.push(self.clone());
        } else if set.nested.load(Ordering::Relaxed) {
            // The outer set must learn of each arrival.
            set.wake();
        }
    }
}

impl Entry {
    pub(super) fn new(set: &Arc<Set>, slot_ref: SlotRef, fd: RawFd, interest: Interest) -> Arc<Entry> {
        let asked = Mutex::new(Asked::new(interest));
        let (queued, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Entry { set: Arc::downgrade(set), slot_ref, fd, asked, queued, dropped })
    }

    /// Marks it as on the ready list. Returns false if it was marked before.
    pub(super) fn queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// The events to report now, and whether it stays on the ready list.
    pub(super) fn take(&self, gather: &mut Gather) -> Option<(Interest, bool)> {
        self.queued.store(false, Ordering::Release);
        let readiness = held(self.slot_ref).map(|held| readiness_of(&held))?;
        let mut asked = locked(&self.asked);
        let events = asked.interest.events;
        let hit = bits(&readiness) & (events | ERR | HUP);
        let report = self.would_report(&mut asked, &readiness)?;
        asked.was_full = !readiness.writable || asked.was_full && !report;
        if !report {
            return None;
        }
        gather.on_report(&mut asked.seen, monotonic);
        asked.arrivals = Some(readiness.arrivals);
        asked.asleep = events & EPOLLONESHOT as u32 != 0;
        let stays = events & (EPOLLET | EPOLLONESHOT) as u32 == 0;
        Some((Interest { events: hit, data: asked.interest.data }, stays))
    }

    /// Whether it would be reported with this readiness, or `None` if it is disabled or removed.
    fn would_report(&self, asked: &mut Asked, readiness: &Readiness) -> Option<bool> {
        let events = asked.interest.events;
        let hit = bits(readiness) & (events | ERR | HUP);
        if asked.asleep || self.dropped.load(Ordering::Acquire) {
            return None;
        }
        let full = self.slot_ref.slot.full.load(Ordering::Relaxed);
        asked.was_full |= full != asked.full;
        asked.full = full;
        let fresh = asked.arrivals != Some(readiness.arrivals) && hit & !OUT != 0;
        let room = readiness.writable && asked.was_full && hit & OUT != 0;
        Some(if events & EPOLLET as u32 != 0 { fresh || room } else { hit != 0 })
    }

    /// Checks an entry of the ready list: true if it would be reported now. Otherwise it is no longer
    /// marked as on the list.
    pub(super) fn stays_ready(&self) -> bool {
        self.queued.store(false, Ordering::Release);
        let Some(readiness) = held(self.slot_ref).map(|held| readiness_of(&held)) else { return false };
        let would_be_reported = self.would_report(&mut locked(&self.asked), &readiness);
        would_be_reported == Some(true) && self.queue()
    }

    /// True if it is known to have input, and the program asks for input.
    pub(super) fn has_input(&self) -> bool {
        let asked = locked(&self.asked).interest.events & IN != 0;
        asked && held(self.slot_ref).is_some_and(|held| readiness_of(&held).readable)
    }

    /// Replaces the program's interest.
    pub(super) fn modify(&self, interest: Interest) {
        let mut asked = locked(&self.asked);
        *asked = Asked { watch: asked.watch, ..Asked::new(interest) };
    }

    /// Forgets what was reported.
    pub(super) fn begin_anew(&self) {
        let interest = locked(&self.asked).interest;
        self.modify(interest);
    }

    pub(super) fn watch(self: &Arc<Entry>, stream: &Stream) {
        let watch = stream.watch(Waker::from(self.clone()));
        locked(&self.asked).watch = watch;
    }

    pub(super) fn unwatch(&self, stream: &Stream) {
        let watch = locked(&self.asked).watch;
        stream.unwatch(watch);
    }

    /// Stops all reports.
    pub(super) fn drop_out(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// True if its descriptor was closed but the connection has others: it stays in its set, as in the
    /// kernel (epoll(7), question 6).
    pub(super) fn is_closed(&self) -> bool {
        !locked(&self.slot_ref.slot.fds).contains(&self.fd)
    }

    pub(super) fn is_one_shot(&self) -> bool {
        locked(&self.asked).interest.events & EPOLLONESHOT as u32 != 0
    }

    pub(super) fn is_exclusive(&self) -> bool {
        locked(&self.asked).interest.events & EPOLLEXCLUSIVE as u32 != 0
    }

    /// The interest to give to the kernel: a one-shot entry that was reported waits for errors only.
    pub(super) fn for_kernel(&self) -> Interest {
        let asked = locked(&self.asked);
        let mask = if asked.asleep { IN | OUT | RDHUP | libc::EPOLLPRI as u32 } else { 0 };
        Interest { events: asked.interest.events & !mask, ..asked.interest }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::connection::State;
    use crate::ended::Ended;
    use crate::table;

    /// A set with an entry for a connection that has ended, and so is ready once it is woken. `data` is
    /// the entry's data.
    pub(crate) fn set_with_an_ended_one(fd: RawFd, data: u64) -> (Arc<Set>, Arc<Entry>) {
        // These tests do not use the kernel's set.
        let set = Arc::new(Set::new(-1));
        let slot_ref = table::enter(fd, State::Ended(Ended::default()), false).unwrap();
        let entry = Entry::new(&set, slot_ref, fd, Interest { events: IN, data });
        set.enter(entry.clone());
        (set, entry)
    }

    #[test]
    fn unread_data_counts_as_input_if_the_program_asks_for_input() {
        const ENDED: RawFd = 700_004;
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, entry) = set_with_an_ended_one(ENDED, 7);
        assert!(entry.has_input(), "the end of the stream is input");
        entry.modify(Interest { events: OUT, data: 7 });
        assert!(!entry.has_input());
        entry.modify(Interest { events: IN, data: 7 });
        drop(table::close(ENDED));
        assert!(!entry.has_input(), "the descriptor was closed");
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
            let slot_ref = entry.slot_ref;
            entry.wake_by_ref();
            assert_eq!(reported(&set), [7]);
            set.drop_entry(&entry);
            // As after a report of an entry that stays on the list.
            entry.queued.store(false, Ordering::Release);
            entry.wake_by_ref();
            let other = others.then(|| Entry::new(&set, slot_ref, ENDED, interest(8)));
            other.iter().for_each(|other| set.enter(other.clone()));
            other.iter().for_each(|other| other.wake_by_ref());
            assert!(set.has_ready());
            assert_eq!(reported(&set), Vec::from_iter(others.then_some(8)));
            other.iter().for_each(|other| set.drop_entry(other));
            assert!(!set.has_ready());
        }
    }
}
