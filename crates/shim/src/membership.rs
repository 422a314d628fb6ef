//! Moves a connection between the kernel's epoll sets and the library's entries for it.

use crate::locks::locked;
use crate::os::epoll::control;
use crate::set::Entry;
use crate::table::Slot;
use baton_client::Stream;
use baton_policy::Reason;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL};
use std::task::Wake;

/// True if the entry's descriptor was closed but the connection has others: it stays in its set, as in
/// the kernel (epoll(7), question 6).
fn is_closed(slot: &Slot, entry: &Entry) -> bool {
    !locked(&slot.fds).contains(&entry.fd)
}

/// Removes a connection that is about to be handed over from the kernel's sets. Returns the reason
/// why it must stay, if the removal could not be undone or other processes wait on a set.
pub fn withdraw(slot: &Slot) -> Option<Reason> {
    let entries = locked(&slot.entries);
    // Nothing tells whether the kernel has reported a one-shot entry.
    if entries.iter().any(|entry| entry.is_one_shot()) {
        return Some(Reason::EpollOneshot);
    }
    if entries.iter().filter_map(|entry| entry.set.upgrade()).any(|set| set.is_shared()) {
        return Some(Reason::EpollShared);
    }
    // The kernel cannot remove an entry whose descriptor is closed.
    if entries.iter().any(|entry| is_closed(slot, entry)) {
        return Some(Reason::EpollClosed);
    }
    for entry in entries.iter() {
        if let Some(set) = entry.set.upgrade() {
            let _ = control(set.fd, EPOLL_CTL_DEL, entry.fd, None);
        }
    }
    None
}

/// Called after a handover: the library's entries report on the connection from now on.
pub fn arrive(slot: &Slot, stream: &Stream) {
    for entry in locked(&slot.entries).iter() {
        if let Some(set) = entry.set.upgrade() {
            // An error means that the set has no room; then the connection had none either.
            let _ = set.prepare();
            entry.begin_anew();
            entry.watch(stream);
            entry.wake_by_ref();
        }
    }
}

/// Adds a connection to the kernel's sets again, except for descriptors that were closed.
pub fn put_back(slot: &Slot) {
    for entry in locked(&slot.entries).iter().filter(|entry| !is_closed(slot, entry)) {
        if let Some(set) = entry.set.upgrade() {
            let _ = control(set.fd, EPOLL_CTL_ADD, entry.fd, Some(entry.for_kernel()));
        }
    }
}

/// Removes the library's entries for a connection from all sets.
pub fn leave(slot: &Slot) {
    let entries = std::mem::take(&mut *locked(&slot.entries));
    for entry in entries {
        if let Some(set) = entry.set.upgrade() {
            set.drop_entry(&entry);
        }
    }
}
