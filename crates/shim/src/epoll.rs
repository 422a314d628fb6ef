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

mod entry;
mod nested;
mod wait;

pub use entry::Entry;
#[cfg(test)]
pub(crate) use entry::tests;
pub use nested::{changed as nested_changed, refresh};
pub(crate) use wait::{KernelWait, wait};

use crate::connection::{Held, State, at, bring_home, held};
use crate::gather::Gather;
use crate::notifier::Notifier;
use crate::os::epoll::{Interest, control, random};
use crate::os::socket::is_inherited;
use crate::service::{self, Attendance};
use crate::sharing::Sharing;
use crate::table::{self, Slot, locked};
use baton_client::{Readiness, Stream};
use baton_consumer::held::Counted;
use baton_ipc::engine::monotonic;
use baton_policy::Reason;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, c_int};
use rustix::event::EventfdFlags;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::task::Wake;

static SETS: RwLock<Sets> = RwLock::new(None);

/// An epoll set of the program.
pub struct Set {
    fd: RawFd,
    /// The data of the notifier's and of the devices' events in the kernel's set.
    pub notifier_data: u64,
    pub device_data: u64,
    /// The version of the list of devices that are in it: [`Attendance::changes`].
    devices: AtomicU64,
    notifier: Option<Arc<Notifier>>,
    notifier_is_in: AtomicBool,
    entries: Mutex<HashMap<(u32, RawFd), Arc<Entry>>>,
    ready: Mutex<VecDeque<Arc<Entry>>>,
    gather: Mutex<Gather>,
    /// The number of threads that are in the kernel's `epoll_wait` or about to enter it.
    pub sleepers: AtomicU32,
    /// It is in another set, or polled: the kernel must see when it is ready.
    nested: AtomicBool,
    /// It was notified since its entries were checked last.
    notified: AtomicBool,
    /// The sets that are in it.
    inner: Mutex<Vec<nested::Inner>>,
    /// The other processes that share it.
    shared: Mutex<Shared>,
}

/// How long other processes share a set: see [`Set::is_shared`].
#[derive(Default)]
struct Shared {
    for_good: bool,
    until: Vec<Sharing>,
}

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

impl Set {
    fn new(fd: RawFd) -> Set {
        let notifier = Notifier::new(EventfdFlags::NONBLOCK).ok().map(Arc::new);
        Set {
            fd,
            notifier_data: random(),
            device_data: random(),
            devices: AtomicU64::new(0),
            notifier,
            notifier_is_in: AtomicBool::new(false),
            entries: Mutex::default(),
            ready: Mutex::default(),
            gather: Mutex::default(),
            sleepers: AtomicU32::new(0),
            nested: AtomicBool::new(false),
            notified: AtomicBool::new(false),
            inner: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    /// True while another process has the set and could wait on it.
    fn is_shared(&self) -> bool {
        let mut shared = locked(&self.shared);
        shared.until.retain(Sharing::lasts);
        shared.for_good || !shared.until.is_empty()
    }

    /// Records that a child shares the set from now on: for good, unless it is closed on exec.
    fn share(&self, sharing: Option<&Sharing>) {
        let mut shared = locked(&self.shared);
        shared.until.retain(Sharing::lasts);
        match sharing {
            Some(sharing) if !is_inherited(self.fd) => shared.until.push(sharing.clone()),
            _ => shared.for_good = true,
        }
    }

    /// Called when an entry is ready: wakes the threads that sleep in the kernel.
    fn wake(&self) {
        let nested = self.nested.load(Ordering::Relaxed);
        if nested {
            self.notified.store(true, Ordering::Release);
        }
        if nested || self.sleepers.load(Ordering::SeqCst) > 0 {
            self.notifier.iter().for_each(|notifier| notifier.notify());
        }
    }

    pub fn has_ready(&self) -> bool {
        !locked(&self.ready).is_empty()
    }

    /// Adds the notifier to the kernel's set.
    fn prepare(&self) -> Result<(), i32> {
        if self.notifier_is_in.load(Ordering::Acquire) {
            return Ok(());
        }
        let notifier = self.notifier.as_ref().ok_or(libc::ENOMEM)?.as_fd().as_raw_fd();
        let level = if self.nested.load(Ordering::Relaxed) { 0 } else { EPOLLET as u32 };
        let interest = Interest { events: libc::EPOLLIN as u32 | level, data: self.notifier_data };
        match control(self.fd, EPOLL_CTL_ADD, notifier, Some(interest)) {
            Ok(()) | Err(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        self.notifier_is_in.store(true, Ordering::Release);
        Ok(())
    }

    /// Prepares the wait that is about to begin to include the devices, if there are any.
    pub fn attend(&self) -> Option<Attendance> {
        // Not in a nested set: a readable device would make the outer set look ready.
        let may = self.notifier_is_in.load(Ordering::Acquire) && !self.nested.load(Ordering::Acquire);
        let attendance = service::attend().filter(|_| may)?;
        if self.devices.swap(attendance.changes, Ordering::AcqRel) != attendance.changes {
            let interest = Interest { events: (libc::EPOLLIN | EPOLLEXCLUSIVE) as u32, data: self.device_data };
            // An error means that the device has been closed; it is not needed.
            for device in service::devices() {
                let _ = control(self.fd, EPOLL_CTL_ADD, device, Some(interest));
            }
        }
        Some(attendance)
    }

    /// Collects at most `room` events of connections in an engine. Polls the engines first.
    pub fn collect(&self, room: usize) -> Vec<Interest> {
        if locked(&self.entries).is_empty() && !self.has_ready() {
            return Vec::new();
        }
        // If the program has not read the input of an earlier report, there is no hurry to poll for
        // more.
        let first = locked(&self.ready).front().cloned();
        if first.is_some_and(|entry| entry.has_input()) {
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
            if let Some((report, stays)) = entry.take(&mut gather) {
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
        let came = std::mem::take(&mut *ready);
        *ready = batch.into_iter().chain(came).chain(again).collect();
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

    fn enter(&self, entry: Arc<Entry>) {
        locked(&self.entries).insert((entry.slot_ref.slot.number(), entry.fd), entry);
    }

    fn push(&self, entry: Arc<Entry>) {
        locked(&self.ready).push_back(entry);
        self.wake();
    }

    fn drop_entry(&self, entry: &Entry) {
        entry.drop_out();
        locked(&self.entries).remove(&(entry.slot_ref.slot.number(), entry.fd));
        locked(&self.ready).retain(|other| !std::ptr::eq(&**other, entry));
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
            locked(&entry.slot_ref.slot.entries).retain(|other| !Arc::ptr_eq(other, &entry));
            if let Some(held) = held(entry.slot_ref)
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
        if set.devices.swap(0, Ordering::AcqRel) != 0 {
            for device in service::devices() {
                let _ = control(set.fd, EPOLL_CTL_DEL, device, None);
            }
        }
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
            let entry = Entry::new(&set, slot_ref, fd, interest);
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
    if entries.iter().any(|entry| entry.is_closed()) {
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
    for entry in locked(&slot.entries).iter().filter(|entry| !entry.is_closed()) {
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
