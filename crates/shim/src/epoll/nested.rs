//! Sets within sets, and sets that are polled.
//!
//! The kernel takes a set for ready while its bell rings, so the bell of a nested set is to ring as
//! long as an entry has something to report. A wake says only that something may have changed. So
//! before a wait the library checks again which listed entries of a nested set are still ready, as the kernel does when it polls a set (`fs/eventpoll.c`, `__ep_eventpoll_poll`).
//! What rings while the kernel is asked is looked at afterwards, and an event that came of nothing
//! is taken out of its answer.

use super::{SETS, Set, set};
use crate::service;
use crate::sys::epoll::{Interest, control};
use crate::sys::socket::is_readable;
use crate::table::{self, locked};
use baton_consumer::held::Counted;
use libc::{EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLONESHOT, c_int};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

/// A set that is in another.
pub struct Inner {
    fd: RawFd,
    set: Weak<Set>,
    /// What the other asks for, and its events of it say.
    interest: Interest,
}

/// `epoll_ctl` did this with a set in a set.
pub fn changed(outer: RawFd, what: c_int, fd: RawFd, interest: Option<Interest>) {
    let (outer, within) = (set(outer), Arc::downgrade(&set(fd)));
    let mut inner = locked(&outer.inner);
    inner.retain(|inner| inner.fd != fd && inner.set.strong_count() > 0);
    if let Some(interest) = interest.filter(|_| what != EPOLL_CTL_DEL) {
        inner.push(Inner { fd, set: within, interest });
    }
}

/// The set that a descriptor is, if we know that it is one.
fn known(fd: RawFd) -> Option<Arc<Set>> {
    let sets = Counted::new(|| SETS.read().unwrap_or_else(PoisonError::into_inner));
    table::is_set(fd).then(|| sets.as_ref()?.get(&fd).cloned())?
}

/// A set that is polled looks ready from now on if something in it is.
pub fn refresh(fd: RawFd) {
    if let Some(set) = known(fd) {
        service::look();
        set.refresh();
    }
}

impl Set {
    /// Sets that are in this one, each with its number there and what is asked of it.
    fn inner(&self) -> Vec<(RawFd, Arc<Set>, Interest)> {
        let inner = locked(&self.inner);
        inner.iter().filter_map(|inner| Some((inner.fd, inner.set.upgrade()?, inner.interest))).collect()
    }

    /// Makes the bell of a nested set agree with its entries, and those of the sets within it.
    fn refresh(&self) {
        self.inner().iter().for_each(|(_, inner, _)| inner.refresh());
        if !self.nested.load(Ordering::Acquire) {
            return;
        }
        self.rang.store(false, Ordering::Release);
        let batch = std::mem::take(&mut *locked(&self.ready));
        // No lock may be held while descriptors are looked up.
        let kept: Vec<_> = batch.into_iter().filter(|entry| entry.stays_ready()).collect();
        let mut ready = locked(&self.ready);
        let came = std::mem::take(&mut *ready);
        *ready = kept.into_iter().chain(came).collect();
        if ready.is_empty() {
            self.bell.iter().for_each(|bell| bell.clear());
        }
    }

    /// Before the kernel is asked for events of this set.
    pub fn refresh_inner(&self) {
        let inner = self.inner();
        if !inner.is_empty() {
            service::look();
            inner.iter().for_each(|(_, inner, _)| inner.refresh());
        }
    }

    /// Data of events that the kernel may have made of nothing since [`Set::refresh_inner`].
    pub fn deceived(&self) -> Vec<u64> {
        let mut deceived = Vec::new();
        for (fd, inner, interest) in self.inner().into_iter().filter(|(_, inner, _)| inner.has_rung()) {
            inner.refresh();
            if is_readable(fd) {
                continue;
            }
            if interest.events & EPOLLONESHOT as u32 != 0 {
                // The event that nobody is told of was the only one.
                let _ = control(self.fd, EPOLL_CTL_MOD, fd, Some(interest));
            }
            deceived.push(interest.data);
        }
        deceived
    }

    /// Its bell, or one within it, has been rung since it was refreshed.
    fn has_rung(&self) -> bool {
        self.rang.load(Ordering::Acquire) || self.inner().iter().any(|(_, inner, _)| inner.has_rung())
    }
}
