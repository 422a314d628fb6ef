//! A connection in a set: what the program asked for, and what was reported of it.

use super::{Set, readiness_of};
use crate::bits::{ERR, HUP, IN, OUT, RDHUP, bits};
use crate::connection::held;
use crate::gather::Gather;
use crate::sys::epoll::Interest;
use crate::table::{Named, locked};
use baton_client::{Readiness, Stream};
use baton_ipc::engine::monotonic;
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

/// See the file's head.
pub struct Entry {
    pub(super) set: Weak<Set>,
    pub(super) named: Named,
    pub(super) fd: RawFd,
    asked: Mutex<Asked>,
    queued: AtomicBool,
    /// It is in its set no more. Whoever was about to wake it may do so later.
    dropped: AtomicBool,
}

struct Asked {
    interest: Interest,
    /// A one-shot entry was reported.
    asleep: bool,
    /// `Readiness::arrivals` as it was reported.
    arrivals: Option<u64>,
    /// There was no room since the last report.
    was_full: bool,
    full: u64,
    watch: u64,
    /// See [`Gather::on_report`].
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
            // The set that it is in hears of each arrival.
            set.tell();
        }
    }
}

impl Entry {
    pub(super) fn new(set: &Arc<Set>, named: Named, fd: RawFd, interest: Interest) -> Arc<Entry> {
        let asked = Mutex::new(Asked::new(interest));
        let (queued, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Entry { set: Arc::downgrade(set), named, fd, asked, queued, dropped })
    }

    /// It is to be on the list of ready ones; false if it is.
    pub(super) fn queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// Events to be reported now, and whether it stays on the list.
    pub(super) fn take(&self, gather: &mut Gather) -> Option<(Interest, bool)> {
        self.queued.store(false, Ordering::Release);
        let there = held(self.named).map(|held| readiness_of(&held))?;
        let mut asked = locked(&self.asked);
        let events = asked.interest.events;
        let hit = bits(&there) & (events | ERR | HUP);
        let report = self.has_news(&mut asked, &there)?;
        asked.was_full = !there.writable || asked.was_full && !report;
        if !report {
            return None;
        }
        gather.on_report(&mut asked.seen, monotonic);
        asked.arrivals = Some(there.arrivals);
        asked.asleep = events & EPOLLONESHOT as u32 != 0;
        let stays = events & (EPOLLET | EPOLLONESHOT) as u32 == 0;
        Some((Interest { events: hit, data: asked.interest.data }, stays))
    }

    /// Whether it would be reported, being ready for this; none if it never is now.
    fn has_news(&self, asked: &mut Asked, there: &Readiness) -> Option<bool> {
        let events = asked.interest.events;
        let hit = bits(there) & (events | ERR | HUP);
        if asked.asleep || self.dropped.load(Ordering::Acquire) {
            return None;
        }
        let full = self.named.slot.full.load(Ordering::Relaxed);
        asked.was_full |= full != asked.full;
        asked.full = full;
        let fresh = asked.arrivals != Some(there.arrivals) && hit & !OUT != 0;
        let room = there.writable && asked.was_full && hit & OUT != 0;
        Some(if events & EPOLLET as u32 != 0 { fresh || room } else { hit != 0 })
    }

    /// It is on the list of ready ones, and would be reported now; else it is on the list no more.
    pub(super) fn stays_ready(&self) -> bool {
        self.queued.store(false, Ordering::Release);
        let Some(there) = held(self.named).map(|held| readiness_of(&held)) else { return false };
        let news = self.has_news(&mut locked(&self.asked), &there);
        news == Some(true) && self.queue()
    }

    /// There is something to read, as far as is known, and that is asked for.
    pub(super) fn has_input(&self) -> bool {
        let asked = locked(&self.asked).interest.events & IN != 0;
        asked && held(self.named).is_some_and(|held| readiness_of(&held).readable)
    }

    /// The program asks for something else.
    pub(super) fn modify(&self, interest: Interest) {
        let mut asked = locked(&self.asked);
        *asked = Asked { watch: asked.watch, ..Asked::new(interest) };
    }

    /// Nothing was reported of it yet.
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

    /// Nothing is reported of it any more.
    pub(super) fn drop_out(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Its descriptor was closed, and the connection has others: it stays in its set, as the kernel
    /// has it (epoll(7), question 6).
    pub(super) fn is_closed(&self) -> bool {
        !locked(&self.named.slot.fds).contains(&self.fd)
    }

    pub(super) fn is_one_shot(&self) -> bool {
        locked(&self.asked).interest.events & EPOLLONESHOT as u32 != 0
    }

    pub(super) fn is_exclusive(&self) -> bool {
        locked(&self.asked).interest.events & EPOLLEXCLUSIVE as u32 != 0
    }

    /// What the kernel is asked for: a one-shot entry that was reported waits for errors only.
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
    use crate::over::Over;
    use crate::table;

    /// A set with a connection that has ended, and so is ready once it is woken; what it waits
    /// for has this data.
    pub(crate) fn set_with_an_ended_one(fd: RawFd, data: u64) -> (Arc<Set>, Arc<Entry>) {
        // The kernel's is not asked by these tests.
        let set = Arc::new(Set::new(-1));
        let named = table::enter(fd, State::Over(Over::default()), false).unwrap();
        let entry = Entry::new(&set, named, fd, Interest { events: IN, data });
        set.enter(entry.clone());
        (set, entry)
    }

    #[test]
    fn what_waits_to_be_read_is_input_where_that_is_asked_for() {
        const ENDED: RawFd = 700_004;
        let _turn = table::tests::TURN.lock().unwrap();
        let (set, entry) = set_with_an_ended_one(ENDED, 7);
        assert!(entry.has_input(), "its end");
        entry.modify(Interest { events: OUT, data: 7 });
        assert!(!entry.has_input());
        entry.modify(Interest { events: IN, data: 7 });
        drop(table::close(ENDED));
        assert!(!entry.has_input(), "it is somebody else's number");
        set.drop_entry(&entry);
    }

    /// As by who was about to wake it when the program closed it. A set that looks ready for
    /// ever is looked at for ever.
    #[test]
    fn what_is_woken_after_it_was_taken_out_is_not_reported_and_does_not_stay() {
        const ENDED: RawFd = 700_001;
        let _turn = table::tests::TURN.lock().unwrap();
        let interest = |data| Interest { events: IN, data };
        let told = |set: &Set| set.collect(8).into_iter().map(|told| told.data).collect::<Vec<_>>();
        for others in [true, false] {
            let (set, entry) = set_with_an_ended_one(ENDED, 7);
            let named = entry.named;
            entry.wake_by_ref();
            assert_eq!(told(&set), [7]);
            set.drop_entry(&entry);
            // One that stays was put on the list again.
            entry.queued.store(false, Ordering::Release);
            entry.wake_by_ref();
            let other = others.then(|| Entry::new(&set, named, ENDED, interest(8)));
            other.iter().for_each(|other| set.enter(other.clone()));
            other.iter().for_each(|other| other.wake_by_ref());
            assert!(set.has_ready());
            assert_eq!(told(&set), Vec::from_iter(others.then_some(8)));
            other.iter().for_each(|other| set.drop_entry(other));
            assert!(!set.has_ready());
        }
    }
}
