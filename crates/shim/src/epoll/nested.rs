//! Epoll sets within sets, and sets that are polled.
//!
//! To the kernel a set is ready while its notifier is readable, so the notifier of a nested set must be
//! readable as long as an entry has something to report. A wake-up only says that something may have
//! changed. So before a wait the library checks which listed entries of a nested set are still ready,
//! as the kernel does when it polls a set (`fs/eventpoll.c`, `__ep_eventpoll_poll`). A set that is
//! notified during the kernel's wait is checked afterwards, and a spurious event is removed from the
//! result.

use super::{SETS, look_up, set};
use crate::locks::locked;
use crate::os::epoll::{Interest, control};
use crate::os::socket::is_readable;
use crate::service;
use crate::set::{Inner, Set};
use crate::table;
use baton_consumer::held::Counted;
use libc::{EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLONESHOT, c_int};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Records an `epoll_ctl` on a set within a set.
pub fn changed(outer: RawFd, what: c_int, fd: RawFd, interest: Option<Interest>) {
    let (outer, within) = (set(outer), Arc::downgrade(&set(fd)));
    let mut inner = locked(&outer.inner);
    inner.retain(|inner| inner.fd != fd && inner.set.strong_count() > 0);
    if let Some(interest) = interest.filter(|_| what != EPOLL_CTL_DEL) {
        inner.push(Inner { fd, set: within, interest });
    }
}

/// The set of a descriptor, if the library knows it.
fn known(fd: RawFd) -> Option<Arc<Set>> {
    let sets = Counted::new(|| SETS.read().unwrap_or_else(PoisonError::into_inner));
    table::is_set(fd).then(|| sets.as_ref()?.get(&fd).cloned())?
}

/// Called before a set is polled: makes it look ready exactly if something in it is.
pub fn refresh(fd: RawFd) {
    if let Some(set) = known(fd) {
        service::look();
        set.refresh();
    }
}

impl Set {
    /// The sets that are in this one, each with its descriptor and the interest in it.
    fn inner(&self) -> Vec<(RawFd, Arc<Set>, Interest)> {
        let inner = locked(&self.inner);
        inner.iter().filter_map(|inner| Some((inner.fd, inner.set.upgrade()?, inner.interest))).collect()
    }

    /// Makes the notifier of a nested set agree with its entries, and with those of the sets within it.
    fn refresh(&self) {
        self.inner().iter().for_each(|(_, inner, _)| inner.refresh());
        if !self.nested.load(Ordering::Acquire) {
            return;
        }
        self.notified.store(false, Ordering::Release);
        let batch = std::mem::take(&mut *locked(&self.ready));
        // Looking descriptors up takes the slots' locks, which come first in the lock order.
        let kept: Vec<_> = batch.into_iter().filter(|entry| entry.stays_ready(look_up)).collect();
        let mut ready = locked(&self.ready);
        let came = std::mem::take(&mut *ready);
        *ready = kept.into_iter().chain(came).collect();
        if ready.is_empty() {
            self.notifier.iter().for_each(|notifier| notifier.clear());
        }
    }

    /// Called before a wait on this set in the kernel: refreshes the sets within it.
    pub fn refresh_inner(&self) {
        let inner = self.inner();
        if !inner.is_empty() {
            service::look();
            inner.iter().for_each(|(_, inner, _)| inner.refresh());
        }
    }

    /// The data of spurious events: those of sets that were notified since [`Set::refresh_inner`] but are
    /// not ready.
    pub fn spurious(&self) -> Vec<u64> {
        let mut spurious = Vec::new();
        for (fd, inner, interest) in self.inner().into_iter().filter(|(_, inner, _)| inner.was_notified()) {
            inner.refresh();
            if is_readable(fd) {
                continue;
            }
            if interest.events & EPOLLONESHOT as u32 != 0 {
                // The dropped event has disabled the one-shot entry; enable it again.
                let _ = control(self.fd, EPOLL_CTL_MOD, fd, Some(interest));
            }
            spurious.push(interest.data);
        }
        spurious
    }

    /// True if it, or a set within it, was notified since the last refresh.
    fn was_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire) || self.inner().iter().any(|(_, inner, _)| inner.was_notified())
    }
}
