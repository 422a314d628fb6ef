//! A connection in an epoll set: the program's interest, and the last report.

use super::Set;
use crate::bits::{ERR, HUP, IN, OUT, RDHUP, bits};
use crate::gather::Gather;
use crate::locks::locked;
use crate::os::epoll::Interest;
use baton_client::{Readiness, Stream};
use baton_ipc::engine::monotonic;
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

/// A slot of the table as a descriptor named it. The number is used again, with another generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotId {
    pub number: u32,
    pub generation: u64,
}

/// A connection in an epoll set.
pub struct Entry {
    pub set: Weak<Set>,
    pub slot: SlotId,
    pub fd: RawFd,
    asked: Mutex<Asked>,
    queued: AtomicBool,
    /// It was removed from its set. A wake-up that was in progress may still come.
    dropped: AtomicBool,
}

/// Finds the readiness of a slot's connection and how often its writes found no room; `None` if it is in
/// the kernel or has gone.
pub type LookUp = fn(SlotId) -> Option<(Readiness, u64)>;

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
}

impl Asked {
    fn new(interest: Interest) -> Asked {
        Asked { interest, asleep: false, arrivals: None, was_full: true, full: 0, watch: 0 }
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
    pub fn new(set: &Arc<Set>, slot: SlotId, fd: RawFd, interest: Interest) -> Arc<Entry> {
        let asked = Mutex::new(Asked::new(interest));
        let (queued, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Entry { set: Arc::downgrade(set), slot, fd, asked, queued, dropped })
    }

    /// Marks it as on the ready list. Returns false if it was marked before.
    pub fn queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    #[cfg(test)]
    pub fn unqueue(&self) {
        self.queued.store(false, Ordering::Release);
    }

    /// The events to report now, and whether it stays on the ready list.
    pub fn take(&self, gather: &mut Gather, look_up: LookUp) -> Option<(Interest, bool)> {
        // Before the look: a wake-up that comes after it lists the entry again.
        self.queued.store(false, Ordering::Release);
        let (readiness, full) = look_up(self.slot)?;
        let mut asked = locked(&self.asked);
        let events = asked.interest.events;
        let hit = bits(&readiness) & (events | ERR | HUP);
        let report = self.would_report(&mut asked, &readiness, full)?;
        asked.was_full = !readiness.writable || asked.was_full && !report;
        if !report {
            return None;
        }
        gather.on_report(self.slot.number, monotonic);
        asked.arrivals = Some(readiness.arrivals);
        asked.asleep = events & EPOLLONESHOT as u32 != 0;
        let stays = events & (EPOLLET | EPOLLONESHOT) as u32 == 0;
        Some((Interest { events: hit, data: asked.interest.data }, stays))
    }

    /// Whether it would be reported with this readiness, or `None` if it is disabled or removed.
    fn would_report(&self, asked: &mut Asked, readiness: &Readiness, full: u64) -> Option<bool> {
        let events = asked.interest.events;
        let hit = bits(readiness) & (events | ERR | HUP);
        if asked.asleep || self.dropped.load(Ordering::Acquire) {
            return None;
        }
        asked.was_full |= full != asked.full;
        asked.full = full;
        let fresh = asked.arrivals != Some(readiness.arrivals) && hit & !OUT != 0;
        let room = readiness.writable && asked.was_full && hit & OUT != 0;
        Some(if events & EPOLLET as u32 != 0 { fresh || room } else { hit != 0 })
    }

    /// Checks an entry of the ready list: true if it would be reported now. Otherwise it is no longer
    /// marked as on the list.
    pub fn stays_ready(&self, look_up: LookUp) -> bool {
        self.queued.store(false, Ordering::Release);
        let Some((readiness, full)) = look_up(self.slot) else { return false };
        let would_be_reported = self.would_report(&mut locked(&self.asked), &readiness, full);
        would_be_reported == Some(true) && self.queue()
    }

    /// True if it is known to have input, and the program asks for input.
    pub fn has_input(&self, look_up: LookUp) -> bool {
        let asked = locked(&self.asked).interest.events & IN != 0;
        asked && look_up(self.slot).is_some_and(|(readiness, _)| readiness.readable)
    }

    /// Replaces the program's interest.
    pub fn modify(&self, interest: Interest) {
        let mut asked = locked(&self.asked);
        *asked = Asked { watch: asked.watch, ..Asked::new(interest) };
    }

    /// Forgets what was reported.
    pub fn begin_anew(&self) {
        let interest = locked(&self.asked).interest;
        self.modify(interest);
    }

    pub fn watch(self: &Arc<Entry>, stream: &Stream) {
        let watch = stream.watch(Waker::from(self.clone()));
        locked(&self.asked).watch = watch;
    }

    pub fn unwatch(&self, stream: &Stream) {
        let watch = locked(&self.asked).watch;
        stream.unwatch(watch);
    }

    /// Stops all reports.
    pub fn drop_out(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub fn is_one_shot(&self) -> bool {
        locked(&self.asked).interest.events & EPOLLONESHOT as u32 != 0
    }

    pub fn is_exclusive(&self) -> bool {
        locked(&self.asked).interest.events & EPOLLEXCLUSIVE as u32 != 0
    }

    /// The interest to give to the kernel: a one-shot entry that was reported waits for errors only.
    pub fn for_kernel(&self) -> Interest {
        let asked = locked(&self.asked);
        let mask = if asked.asleep { IN | OUT | RDHUP | libc::EPOLLPRI as u32 } else { 0 };
        Interest { events: asked.interest.events & !mask, ..asked.interest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;

    #[test]
    fn a_connection_that_is_put_in_again_for_each_request_is_still_one() {
        let readable: LookUp = |_| {
            let mut readiness = Readiness::default();
            readiness.readable = true;
            Some((readiness, 0))
        };
        let set = Arc::new(Set::new(-1));
        let interest = Interest { events: libc::EPOLLIN as u32, data: 7 };
        let after = |connections: u32| {
            let mut gather = Gather::default();
            for at in 0..64 {
                let number = at % connections;
                let entry = Entry::new(&set, SlotId { number, generation: 1 }, number as RawFd, interest);
                assert!(entry.take(&mut gather, readable).is_some());
            }
            gather.is_many(monotonic)
        };
        assert_eq!([after(1), after(16)], [false, true]);
    }
}
