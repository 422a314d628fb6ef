//! Epoll sets that hold connections which are not in the kernel, beside what is.
//!
//! ```text
//!   program   epoll_ctl(set, connection) --> entry: events, data, what was reported last
//!                                              ^ woken by the stream's watch
//!   epoll_wait   ready entries of ours first, then the kernel's set, in which our bell is:
//!                rung when an entry becomes ready while somebody sleeps there
//! ```
//!
//! The kernel's set never has the husk of a connection: it would be writable always. An
//! entry is taken out of it before its connection is handed over and put back when it comes
//! home, so whatever the program asked for holds wherever the connection is. Where engines run
//! in this process, their devices are in the kernel's set too: one of those who sleep is woken.
//!
//! Level, edge and one-shot are decided when entries are collected, by the rules of the
//! kernel's `fs/eventpoll.c`: an entry by level stays on the list while it is ready; one by
//! edge is reported with all that it is ready for, and again only after something arrived, or
//! room came that was missed; a one-shot one is asleep until it is modified.

mod entry;
mod nested;

pub use entry::Entry;
#[cfg(test)]
pub(crate) use entry::tests;
pub use nested::{changed as nested_changed, refresh};

use crate::bell::Bell;
use crate::connection::{Held, State, at, bring_home, held};
use crate::gather::Gather;
use crate::service::{self, Attendance};
use crate::sharing::Sharing;
use crate::sys::epoll::{Interest, control, random};
use crate::sys::socket::is_inherited;
use crate::table::{self, Slot, locked};
use baton_client::{Readiness, Stream};
use baton_consumer::held::Counted;
use baton_ipc::engine::monotonic;
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
    /// The bell's data in the kernel's set, and the devices'.
    pub mark: u64,
    pub device_mark: u64,
    /// Which devices are in it: [`Attendance::changes`].
    devices: AtomicU64,
    bell: Option<Arc<Bell>>,
    bell_is_in: AtomicBool,
    entries: Mutex<HashMap<(u32, RawFd), Arc<Entry>>>,
    ready: Mutex<VecDeque<Arc<Entry>>>,
    gather: Mutex<Gather>,
    /// Threads that are in the kernel's `epoll_wait`, or about to be.
    pub sleepers: AtomicU32,
    /// It is in another set, or polled: it has to look ready to the kernel.
    nested: AtomicBool,
    /// Its bell was rung since somebody looked whether it should ring.
    rang: AtomicBool,
    /// Sets that are in it.
    inner: Mutex<Vec<nested::Inner>>,
    /// Other processes that have it too.
    shared: Mutex<Shared>,
}

/// See [`Set::is_shared`].
#[derive(Default)]
struct Shared {
    for_good: bool,
    until: Vec<Sharing>,
}

/// What a descriptor is ready for that is in no kernel, as far as engines were heard; none if
/// it is.
pub fn readiness(fd: RawFd) -> Option<Readiness> {
    at(fd).map(|held| readiness_of(&held))
}

fn readiness_of(held: &Held) -> Readiness {
    match held.stream() {
        Some(stream) => {
            let there = stream.readiness_heard();
            // An error is told once.
            Readiness { failed: there.failed && !held.slot().told.load(Ordering::Relaxed), ..there }
        }
        None => Readiness { readable: true, writable: true, peer_finished: true, ended: true, ..Readiness::default() },
    }
}

impl Set {
    fn new(fd: RawFd) -> Set {
        let bell = Bell::new(EventfdFlags::NONBLOCK).ok().map(Arc::new);
        Set {
            fd,
            mark: random(),
            device_mark: random(),
            devices: AtomicU64::new(0),
            bell,
            bell_is_in: AtomicBool::new(false),
            entries: Mutex::default(),
            ready: Mutex::default(),
            gather: Mutex::default(),
            sleepers: AtomicU32::new(0),
            nested: AtomicBool::new(false),
            rang: AtomicBool::new(false),
            inner: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    /// True while another process has the set, and might wait on it.
    fn is_shared(&self) -> bool {
        let mut shared = locked(&self.shared);
        shared.until.retain(Sharing::lasts);
        shared.for_good || !shared.until.is_empty()
    }

    /// A child has it from now on: for good, if it is not closed on exec.
    fn share(&self, sharing: Option<&Sharing>) {
        let mut shared = locked(&self.shared);
        shared.until.retain(Sharing::lasts);
        match sharing {
            Some(sharing) if !is_inherited(self.fd) => shared.until.push(sharing.clone()),
            _ => shared.for_good = true,
        }
    }

    /// An entry is ready: whoever sleeps in the kernel is woken.
    fn tell(&self) {
        let nested = self.nested.load(Ordering::Relaxed);
        if nested {
            self.rang.store(true, Ordering::Release);
        }
        if nested || self.sleepers.load(Ordering::SeqCst) > 0 {
            self.bell.iter().for_each(|bell| bell.ring());
        }
    }

    pub fn has_ready(&self) -> bool {
        !locked(&self.ready).is_empty()
    }

    /// The bell is in the kernel's set from now on.
    fn prepare(&self) -> Result<(), i32> {
        if self.bell_is_in.load(Ordering::Acquire) {
            return Ok(());
        }
        let bell = self.bell.as_ref().ok_or(libc::ENOMEM)?.as_fd().as_raw_fd();
        let level = if self.nested.load(Ordering::Relaxed) { 0 } else { EPOLLET as u32 };
        let interest = Interest { events: libc::EPOLLIN as u32 | level, data: self.mark };
        match control(self.fd, EPOLL_CTL_ADD, bell, Some(interest)) {
            Ok(()) | Err(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        self.bell_is_in.store(true, Ordering::Release);
        Ok(())
    }

    /// The wait that is about to begin looks after devices, too, if there are any.
    pub fn attend(&self) -> Option<Attendance> {
        // What looks ready to the kernel by a device would make another set look so, too.
        let may = self.bell_is_in.load(Ordering::Acquire) && !self.nested.load(Ordering::Acquire);
        let attendance = service::attend().filter(|_| may)?;
        if self.devices.swap(attendance.changes, Ordering::AcqRel) != attendance.changes {
            let interest = Interest { events: (libc::EPOLLIN | EPOLLEXCLUSIVE) as u32, data: self.device_mark };
            // One that has gone meanwhile brings nothing.
            for device in service::devices() {
                let _ = control(self.fd, EPOLL_CTL_ADD, device, Some(interest));
            }
        }
        Some(attendance)
    }

    /// Reports of ours, `room` at most; what engines have said since is taken in before.
    pub fn collect(&self, room: usize) -> Vec<Interest> {
        if locked(&self.entries).is_empty() && !self.has_ready() {
            return Vec::new();
        }
        // Whoever has not read yet what it was told of need not be told of more at once.
        let first = locked(&self.ready).front().cloned();
        if first.is_some_and(|entry| entry.has_input()) {
            service::glance()
        } else {
            service::look()
        }
        let mut batch = std::mem::take(&mut *locked(&self.ready));
        // No lock may be held while descriptors are looked up.
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
        let for_others = !batch.is_empty();
        let mut ready = locked(&self.ready);
        // What found no room comes first, what came meanwhile next, what was told last.
        let came = std::mem::take(&mut *ready);
        *ready = batch.into_iter().chain(came).chain(again).collect();
        if self.nested.load(Ordering::Relaxed) && ready.is_empty() {
            self.bell.iter().for_each(|bell| bell.clear());
        }
        drop(ready);
        if for_others {
            self.tell();
        }
        found
    }

    /// Many of its connections are busy.
    pub fn is_busy(&self) -> bool {
        locked(&self.gather).is_many(monotonic)
    }

    fn enter(&self, entry: Arc<Entry>) {
        locked(&self.entries).insert((entry.named.slot.number(), entry.fd), entry);
    }

    fn push(&self, entry: Arc<Entry>) {
        locked(&self.ready).push_back(entry);
        self.tell();
    }

    fn drop_entry(&self, entry: &Entry) {
        entry.drop_out();
        locked(&self.entries).remove(&(entry.named.slot.number(), entry.fd));
        locked(&self.ready).retain(|other| !std::ptr::eq(&**other, entry));
    }
}

/// The set that a descriptor is; of one that we did not see being made, from now on.
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

/// The program has closed it.
pub fn close(fd: RawFd) {
    table::forget(fd);
    let set = write().as_mut().and_then(|sets| sets.remove(&fd));
    if let Some(set) = set.filter(|set| set.fd == fd) {
        let entries: Vec<_> = locked(&set.entries).drain().map(|(_, entry)| entry).collect();
        for entry in entries {
            locked(&entry.named.slot.entries).retain(|other| !Arc::ptr_eq(other, &entry));
            if let Some(held) = held(entry.named)
                && let Some(stream) = held.stream()
            {
                entry.unwatch(stream);
            }
        }
    }
}

/// A second descriptor is the same set.
pub fn duplicate(from: RawFd, to: RawFd) {
    let same = set(from);
    table::enter_set(to);
    write().get_or_insert_default().insert(to, same);
}

/// It looks ready to the kernel whenever entries of ours are.
pub fn nest(fd: RawFd) {
    let set = set(fd);
    if !set.nested.swap(true, Ordering::AcqRel) {
        if set.devices.swap(0, Ordering::AcqRel) != 0 {
            for device in service::devices() {
                let _ = control(set.fd, EPOLL_CTL_DEL, device, None);
            }
        }
        if set.bell_is_in.swap(false, Ordering::AcqRel)
            && let Some(bell) = &set.bell
        {
            let _ = control(set.fd, EPOLL_CTL_DEL, bell.as_fd().as_raw_fd(), None);
            let _ = set.prepare();
        }
        if set.has_ready() {
            set.tell();
        }
    }
}

/// `epoll_ctl` on a connection that we know: done, failed so, or the kernel's.
pub fn change(set_fd: RawFd, what: c_int, fd: RawFd, interest: Interest) -> Result<(), i32> {
    let of_kernel = || control(set_fd, what, fd, (what != EPOLL_CTL_DEL).then_some(interest));
    if set_fd == fd {
        return Err(libc::EINVAL);
    }
    let set = set(set_fd);
    if what == EPOLL_CTL_ADD && set.is_shared() {
        bring_home(fd, "epoll-shared");
    }
    let Some(named) = table::named(fd) else { return of_kernel() };
    let Some(body) = named.read() else { return of_kernel() };
    let key = (named.slot.number(), fd);
    let known = locked(&set.entries).get(&key).cloned();
    let stream = match &body.state {
        State::Free => return of_kernel(),
        State::Kernel(_) => {
            of_kernel()?;
            None
        }
        State::Moved(moved) => Some(&moved.stream),
        State::Over(_) => None,
    };
    if !matches!(body.state, State::Kernel(_)) && breaks_exclusion(what, known.as_deref(), interest.events) {
        return Err(libc::EINVAL);
    }
    match (what, known) {
        (EPOLL_CTL_ADD, None) => {
            if !matches!(body.state, State::Kernel(_)) {
                set.prepare()?;
            }
            let entry = Entry::new(&set, named, fd, interest);
            set.enter(entry.clone());
            locked(&named.slot.entries).push(entry.clone());
            stream.into_iter().for_each(|stream| entry.watch(stream));
            entry.wake();
        }
        (EPOLL_CTL_MOD, Some(entry)) => {
            entry.modify(interest);
            entry.wake();
        }
        (EPOLL_CTL_DEL, Some(entry)) => {
            stream.into_iter().for_each(|stream| entry.unwatch(stream));
            locked(&named.slot.entries).retain(|other| !Arc::ptr_eq(other, &entry));
            set.drop_entry(&entry);
        }
        _ if matches!(body.state, State::Kernel(_)) => {}
        (EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, None) => return Err(libc::ENOENT),
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// What is exclusive is so from the beginning, for good, and with few events besides (the
/// kernel's `do_epoll_ctl`).
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

/// Takes a connection that is about to be handed over out of the kernel's sets; why not, if
/// that could not be undone, or others wait there too.
pub fn withdraw(slot: &Slot) -> Option<&'static str> {
    let entries = locked(&slot.entries);
    // Whether the kernel has reported one is not to be known.
    if entries.iter().any(|entry| entry.is_one_shot()) {
        return Some("epoll-oneshot");
    }
    if entries.iter().filter_map(|entry| entry.set.upgrade()).any(|set| set.is_shared()) {
        return Some("epoll-shared");
    }
    // The kernel takes nothing out that has no number any more.
    if entries.iter().any(|entry| entry.is_closed()) {
        return Some("epoll-closed");
    }
    for entry in entries.iter() {
        if let Some(set) = entry.set.upgrade() {
            let _ = control(set.fd, EPOLL_CTL_DEL, entry.fd, None);
        }
    }
    None
}

/// It was handed over: its entries are ours.
pub fn arrive(slot: &Slot, stream: &Stream) {
    for entry in locked(&slot.entries).iter() {
        if let Some(set) = entry.set.upgrade() {
            // A set that takes no bell had no room for the connection either.
            let _ = set.prepare();
            entry.begin_anew();
            entry.watch(stream);
            entry.wake_by_ref();
        }
    }
}

/// The kernel's sets have it again, but under numbers that were closed.
pub fn put_back(slot: &Slot) {
    for entry in locked(&slot.entries).iter().filter(|entry| !entry.is_closed()) {
        if let Some(set) = entry.set.upgrade() {
            let _ = control(set.fd, EPOLL_CTL_ADD, entry.fd, Some(entry.for_kernel()));
        }
    }
}

/// No set has it as ours any more.
pub fn leave(slot: &Slot) {
    let entries = std::mem::take(&mut *locked(&slot.entries));
    for entry in entries {
        if let Some(set) = entry.set.upgrade() {
            set.drop_entry(&entry);
        }
    }
}

/// All sets stay as they are while this lives: a fork.
pub struct Frozen(Counted<RwLockWriteGuard<'static, Sets>>);

/// Every set is shared with a child from now on.
pub fn freeze(sharing: Option<&Sharing>) -> Frozen {
    let sets = write();
    for set in sets.iter().flat_map(HashMap::values) {
        set.share(sharing);
        if set.bell_is_in.swap(false, Ordering::AcqRel)
            && let Some(bell) = &set.bell
        {
            let _ = control(set.fd, EPOLL_CTL_DEL, bell.as_fd().as_raw_fd(), None);
        }
    }
    Frozen(sets)
}

impl Frozen {
    /// In the child: locks of sets may be held by threads that are no more.
    pub fn child(&mut self) {
        let fds: Vec<RawFd> = self.0.iter().flat_map(HashMap::keys).copied().collect();
        let fresh = |fd| {
            let set = Set::new(fd);
            locked(&set.shared).for_good = true;
            (fd, Arc::new(set))
        };
        let before = self.0.replace(fds.into_iter().map(fresh).collect());
        // Nothing of it is touched any more.
        std::mem::forget(before);
    }
}
