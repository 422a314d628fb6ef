//! The descriptors of the program that are known connections or epoll sets.
//!
//! ```text
//!   INDEX   descriptor -> 0 | number of a slot + 1 | SET
//!   slots   one for each connection, however many descriptors name it
//! ```
//!
//! One load tells that a descriptor is unknown; that is the whole cost of a call on any other
//! descriptor. Slots are never freed, only reused. A thread that finds a slot while another closes
//! it detects that by the generation, under the slot's lock.
//!
//! No lock of this file is held while a slot's lock is taken: `INDEX` is atomic, and the lock of
//! the list of free slots is the last in the order. A fork locks that list, so that it is
//! consistent in the child. A slot's lock may be held there by a thread that no longer exists, so a
//! child never uses a slot from before the fork ([`Frozen::child`]).

use crate::locks::{Locked, locked};
use crate::set::{Entry, SlotId};
use crate::state::{Body, State};
use baton_consumer::held::{Counted, interrupted};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Descriptors from this number on are never known.
const DESCRIPTORS: usize = 1 << 20;

/// The value of the index for an epoll set.
const SET: u32 = u32::MAX;

const CHUNK: usize = 256;
const CHUNKS: usize = 4096;

static INDEX: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
static SLOTS: [OnceLock<Box<[Slot]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
static FREE: Mutex<Free> = Mutex::new(Free { numbers: Vec::new(), first: 0, next: 0 });

struct Free {
    numbers: Vec<u32>,
    /// The slots of this process are `first..next`.
    first: u32,
    next: u32,
}

/// One connection.
#[derive(Default)]
pub struct Slot {
    number: OnceLock<u32>,
    pub body: RwLock<Body>,
    generation: AtomicU64,
    /// The last generation that ended because its last descriptor was closed, plus one.
    closed: AtomicU64,
    /// The descriptors that name it.
    pub fds: Mutex<Vec<RawFd>>,
    /// The number of calls in the kernel that may wait on its socket.
    pub kernel_calls: AtomicU32,
    /// The number of requests to send.
    pub sends: AtomicU64,
    /// The number of times that a write found no room.
    pub full: AtomicU64,
    pub nonblocking: AtomicBool,
    /// The error that ended it was reported to the program.
    pub error_reported: AtomicBool,
    /// Its entries in epoll sets.
    pub entries: Mutex<Vec<Arc<Entry>>>,
}

/// A reference to a slot as a descriptor named it: outdated once the slot's generation changes.
#[derive(Clone, Copy)]
pub struct SlotRef {
    pub slot: &'static Slot,
    generation: u64,
}

/// The locks of a slot for reading and for writing.
pub type Reading = Counted<RwLockReadGuard<'static, Body>>;
pub type Writing = Counted<RwLockWriteGuard<'static, Body>>;

fn word(fd: RawFd) -> Option<&'static AtomicU32> {
    INDEX.get(usize::try_from(fd).ok()?)
}

/// True if the descriptor may be a known connection or epoll set.
#[inline]
pub fn is_known(fd: RawFd) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

/// True if the descriptor is a known epoll set.
pub fn is_set(fd: RawFd) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Acquire) == SET)
}

/// The slot of a descriptor's connection. Returns `None` in a signal handler that interrupted this
/// library.
pub fn find(fd: RawFd) -> Option<SlotRef> {
    if interrupted() { None } else { lookup(fd) }
}

fn lookup(fd: RawFd) -> Option<SlotRef> {
    let word = word(fd)?.load(Ordering::Acquire);
    if word == 0 || word == SET {
        return None;
    }
    let slot = slot(word - 1);
    Some(SlotRef { slot, generation: slot.generation.load(Ordering::Acquire) })
}

fn slot(number: u32) -> &'static Slot {
    let chunk = SLOTS[number as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
    &chunk[number as usize % CHUNK]
}

impl Slot {
    pub fn number(&self) -> u32 {
        self.number.get().copied().unwrap_or(u32::MAX)
    }
}

impl SlotRef {
    /// Its number and generation.
    pub fn id(&self) -> SlotId {
        SlotId { number: self.slot.number(), generation: self.generation }
    }

    /// The slot of an id that [`SlotRef::id`] gave.
    pub fn of(id: SlotId) -> SlotRef {
        SlotRef { slot: slot(id.number), generation: id.generation }
    }

    /// Locks the slot for reading. Returns `None` if it was released since.
    pub fn read(&self) -> Option<Reading> {
        let slot = self.slot;
        let body = Counted::new(|| slot.body.read().unwrap_or_else(PoisonError::into_inner));
        (self.slot.generation.load(Ordering::Acquire) == self.generation).then_some(body)
    }

    /// As [`SlotRef::read`], if the lock is free: does not wait, and leaves `errno` unchanged.
    pub fn try_read(&self) -> Option<Reading> {
        let slot = self.slot;
        let body = Counted::if_free(|| slot.body.try_read().ok())?;
        (self.slot.generation.load(Ordering::Acquire) == self.generation).then_some(body)
    }

    /// Locks the slot for writing. Returns `None` if it was released since.
    pub fn write(&self) -> Option<Writing> {
        let slot = self.slot;
        let body = Counted::new(|| slot.body.write().unwrap_or_else(PoisonError::into_inner));
        (self.slot.generation.load(Ordering::Acquire) == self.generation).then_some(body)
    }

    /// True if a descriptor that named it and does so no longer was closed. Otherwise the connection
    /// came home, and the descriptor is an ordinary one.
    pub fn has_closed_one(&self) -> bool {
        // If the slot was not released, this descriptor went alone.
        self.read().is_some() || self.slot.closed.load(Ordering::Acquire) == self.generation + 1
    }

    pub fn is(&self, other: &SlotRef) -> bool {
        std::ptr::eq(self.slot, other.slot) && self.generation == other.generation
    }
}

/// Enters a descriptor as a connection in this state. Returns `None` if there is no room.
pub fn enter(fd: RawFd, state: State, nonblocking: bool) -> Option<SlotRef> {
    let word = word(fd)?;
    let number = {
        let mut free = locked(&FREE);
        match free.numbers.pop() {
            Some(number) => number,
            None if (free.next as usize) < CHUNK * CHUNKS => {
                free.next += 1;
                free.next - 1
            }
            None => return None,
        }
    };
    let slot = slot(number);
    let _ = slot.number.set(number);
    let generation = slot.generation.load(Ordering::Acquire);
    let mut body = slot.body.write().unwrap_or_else(PoisonError::into_inner);
    body.state = state;
    *locked(&slot.fds) = vec![fd];
    slot.sends.store(0, Ordering::Relaxed);
    slot.nonblocking.store(nonblocking, Ordering::Relaxed);
    slot.error_reported.store(false, Ordering::Relaxed);
    word.store(number + 1, Ordering::Release);
    Some(SlotRef { slot, generation })
}

/// Enters a descriptor as an epoll set.
pub fn enter_set(fd: RawFd) {
    word(fd).into_iter().for_each(|word| word.store(SET, Ordering::Release));
}

/// Removes a descriptor.
pub fn forget(fd: RawFd) {
    word(fd).into_iter().for_each(|word| word.store(0, Ordering::Release));
}

/// Records that a second descriptor names the same connection.
pub fn duplicate(from: RawFd, to: RawFd) {
    let (Some(slot_ref), Some(word)) = (find(from), word(to)) else { return };
    if let Some(_body) = slot_ref.read() {
        locked(&slot_ref.slot.fds).push(to);
        word.store(slot_ref.slot.number() + 1, Ordering::Release);
    }
}

/// Removes a closed descriptor. If it was the last of its connection, releases the slot and returns the
/// state.
pub fn close(fd: RawFd) -> Option<(SlotRef, State)> {
    let slot_ref = find(fd)?;
    let mut body = slot_ref.write()?;
    forget(fd);
    let mut fds = locked(&slot_ref.slot.fds);
    fds.retain(|other| *other != fd);
    if !fds.is_empty() {
        return None;
    }
    slot_ref.slot.closed.store(slot_ref.generation + 1, Ordering::Release);
    Some((slot_ref, release(slot_ref.slot, &mut body)))
}

/// Releases a slot: all its descriptors are ordinary ones from now on.
pub fn settle(slot_ref: &SlotRef, body: &mut Body) -> State {
    locked(&slot_ref.slot.fds).drain(..).for_each(forget);
    release(slot_ref.slot, body)
}

fn release(slot: &'static Slot, body: &mut Body) -> State {
    slot.generation.fetch_add(1, Ordering::AcqRel);
    let state = std::mem::take(&mut body.state);
    locked(&FREE).numbers.push(slot.number());
    state
}

/// All connections, each with its descriptors.
pub fn all() -> Vec<(SlotRef, Vec<RawFd>)> {
    let Free { first, next, .. } = *locked(&FREE);
    let fds = |number| locked(&slot(number).fds).clone();
    let known = (first..next).map(fds).filter(|fds| !fds.is_empty());
    known.filter_map(|fds| Some((lookup(fds[0])?, fds))).collect()
}

/// All known descriptors.
pub fn known() -> Vec<RawFd> {
    let known = |(fd, word): (usize, &AtomicU32)| (word.load(Ordering::Relaxed) != 0).then_some(fd as RawFd);
    INDEX.iter().enumerate().filter_map(known).collect()
}

/// The lock during a fork: no descriptor is entered while this exists.
pub struct Frozen(Locked<'static, Free>);

pub fn freeze() -> Frozen {
    Frozen(locked(&FREE))
}

impl Frozen {
    /// Called in the child: forgets all connections but not the epoll sets, and never reuses a slot from
    /// before the fork.
    pub fn child(&mut self) {
        self.0.numbers.clear();
        for word in &INDEX[..] {
            if !matches!(word.load(Ordering::Relaxed), 0 | SET) {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.0.next = self.0.next.next_multiple_of(CHUNK as u32);
        self.0.first = self.0.next;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// Serialises the tests that use the global table.
    pub(crate) static TURN: Mutex<()> = Mutex::new(());

    /// A thread may hold a slot's locks while another thread forks.
    #[test]
    fn a_child_does_not_wait_for_locks_of_threads_that_no_longer_exist() {
        let _turn = TURN.lock().unwrap();
        let before = enter(700_000, State::Free, false).unwrap();
        let closing = locked(&before.slot.fds);
        freeze().child();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(all().len()));
        let seen = receiver.recv_timeout(Duration::from_secs(10)).expect("the child waits for no lock");
        drop(closing);
        assert_eq!((seen, find(700_000).is_none()), (0, true));
        let after = enter(700_000, State::Free, false).unwrap();
        assert!(!std::ptr::eq(after.slot, before.slot) && all().len() == 1);
    }
}
