//! Which descriptors of the program are connections or epoll sets that we know.
//!
//! ```text
//!   INDEX   descriptor -> 0 | number of a slot + 1 | SET
//!   slots   what is known of a connection, whatever number of descriptors name it
//! ```
//!
//! One load tells that a descriptor is none of ours, which is all that a call on any other
//! costs. Slots are never freed, only used again: who looks one up while another thread
//! closes it finds that out by the generation, under the slot's lock.
//!
//! Nothing is held while a lock of a slot is taken: `INDEX` is atomic, and the list of free
//! slots is locked by itself, last. A fork locks that list, so that it is whole in the child;
//! any lock of a slot may be held there by a thread that is no more, so a child never looks at
//! a slot from before ([`Frozen::child`]).

use crate::connection::{Body, State};
use crate::epoll::Entry;
use baton_consumer::held::{Counted, interrupted};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Descriptors above are never ours.
const DESCRIPTORS: usize = 1 << 20;

/// The descriptor is an epoll set.
const SET: u32 = u32::MAX;

const CHUNK: usize = 256;
const CHUNKS: usize = 4096;

static INDEX: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
static SLOTS: [OnceLock<Box<[Slot]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
static FREE: Mutex<Free> = Mutex::new(Free { numbers: Vec::new(), first: 0, next: 0 });

struct Free {
    numbers: Vec<u32>,
    /// The slots of this process are from this one on, and before `next`.
    first: u32,
    next: u32,
}

/// One connection.
#[derive(Default)]
pub struct Slot {
    number: OnceLock<u32>,
    pub body: RwLock<Body>,
    generation: AtomicU64,
    /// Descriptors that name it.
    pub fds: Mutex<Vec<RawFd>>,
    /// Calls of the kernel that may wait on its socket.
    pub kernel_calls: AtomicU32,
    /// Requests to send.
    pub sends: AtomicU64,
    /// Times that a write found no room.
    pub full: AtomicU64,
    pub nonblocking: AtomicBool,
    /// What ended it was told.
    pub told: AtomicBool,
    /// Where epoll sets have it.
    pub entries: Mutex<Vec<Arc<Entry>>>,
}

/// A slot as a descriptor named it.
#[derive(Clone, Copy)]
pub struct Named {
    pub slot: &'static Slot,
    generation: u64,
}

/// A lock that nobody sleeps with.
pub type Locked<'a, T> = Counted<MutexGuard<'a, T>>;

pub fn locked<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    // What a panic left is as true as it was.
    Counted::new(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A slot that is looked at, or changed.
pub type Reading = Counted<RwLockReadGuard<'static, Body>>;
pub type Writing = Counted<RwLockWriteGuard<'static, Body>>;

fn word(fd: RawFd) -> Option<&'static AtomicU32> {
    INDEX.get(usize::try_from(fd).ok()?)
}

/// True if a call on it may be ours.
#[inline]
pub fn is_known(fd: RawFd) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

/// True if it is an epoll set.
pub fn is_set(fd: RawFd) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Acquire) == SET)
}

/// The connection that a descriptor is.
pub fn named(fd: RawFd) -> Option<Named> {
    if interrupted() { None } else { lookup(fd) }
}

fn lookup(fd: RawFd) -> Option<Named> {
    let word = word(fd)?.load(Ordering::Acquire);
    if word == 0 || word == SET {
        return None;
    }
    let slot = slot(word - 1);
    Some(Named { slot, generation: slot.generation.load(Ordering::Acquire) })
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

impl Named {
    /// What it is now; none if it was let go of since.
    pub fn read(&self) -> Option<Reading> {
        let slot = self.slot;
        let body = Counted::new(|| slot.body.read().unwrap_or_else(PoisonError::into_inner));
        (self.slot.generation.load(Ordering::Acquire) == self.generation).then_some(body)
    }

    /// The same, and nobody else does anything with it.
    pub fn write(&self) -> Option<Writing> {
        let slot = self.slot;
        let body = Counted::new(|| slot.body.write().unwrap_or_else(PoisonError::into_inner));
        (self.slot.generation.load(Ordering::Acquire) == self.generation).then_some(body)
    }

    pub fn is(&self, other: &Named) -> bool {
        std::ptr::eq(self.slot, other.slot) && self.generation == other.generation
    }
}

/// Knows a descriptor as this from now on; none if there is no room.
pub fn enter(fd: RawFd, state: State, nonblocking: bool) -> Option<Named> {
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
    slot.told.store(false, Ordering::Relaxed);
    word.store(number + 1, Ordering::Release);
    Some(Named { slot, generation })
}

/// Knows an epoll set.
pub fn enter_set(fd: RawFd) {
    word(fd).into_iter().for_each(|word| word.store(SET, Ordering::Release));
}

/// Knows nothing of a descriptor any more.
pub fn forget(fd: RawFd) {
    word(fd).into_iter().for_each(|word| word.store(0, Ordering::Release));
}

/// A second descriptor names the same.
pub fn duplicate(from: RawFd, to: RawFd) {
    let (Some(named), Some(word)) = (named(from), word(to)) else { return };
    if let Some(_body) = named.read() {
        locked(&named.slot.fds).push(to);
        word.store(named.slot.number() + 1, Ordering::Release);
    }
}

/// One descriptor less; what it was if it was the last.
pub fn close(fd: RawFd) -> Option<(Named, State)> {
    let named = named(fd)?;
    let mut body = named.write()?;
    forget(fd);
    let mut fds = locked(&named.slot.fds);
    fds.retain(|other| *other != fd);
    fds.is_empty().then(|| (named, release(named.slot, &mut body)))
}

/// It is nobody's any more: all its descriptors are ordinary ones.
pub fn settle(named: &Named, body: &mut Body) -> State {
    locked(&named.slot.fds).drain(..).for_each(forget);
    release(named.slot, body)
}

fn release(slot: &'static Slot, body: &mut Body) -> State {
    slot.generation.fetch_add(1, Ordering::AcqRel);
    let state = std::mem::take(&mut body.state);
    locked(&FREE).numbers.push(slot.number());
    state
}

/// All connections, each as one of its descriptors names it.
pub fn all() -> Vec<(Named, Vec<RawFd>)> {
    let Free { first, next, .. } = *locked(&FREE);
    let fds = |number| locked(&slot(number).fds).clone();
    let known = (first..next).map(fds).filter(|fds| !fds.is_empty());
    known.filter_map(|fds| Some((lookup(fds[0])?, fds))).collect()
}

/// All descriptors that are known.
pub fn known() -> Vec<RawFd> {
    let known = |(fd, word): (usize, &AtomicU32)| (word.load(Ordering::Relaxed) != 0).then_some(fd as RawFd);
    INDEX.iter().enumerate().filter_map(known).collect()
}

/// Nobody enters anything while this lives: a fork.
pub struct Frozen(Locked<'static, Free>);

pub fn freeze() -> Frozen {
    Frozen(locked(&FREE))
}

impl Frozen {
    /// In the child: what was known is not, but epoll sets, and no slot is used again.
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

    /// Tests that use the one table there is take turns.
    pub(crate) static TURN: Mutex<()> = Mutex::new(());

    /// Whoever closes a connection while another thread forks holds its slot's locks.
    #[test]
    fn a_child_does_not_look_at_what_threads_that_are_no_more_hold() {
        let _turn = TURN.lock().unwrap();
        let before = enter(700_000, State::Free, false).unwrap();
        let closing = locked(&before.slot.fds);
        freeze().child();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(all().len()));
        let seen = told.recv_timeout(Duration::from_secs(10)).expect("it waits for nobody");
        drop(closing);
        assert_eq!((seen, named(700_000).is_none()), (0, true));
        let after = enter(700_000, State::Free, false).unwrap();
        assert!(!std::ptr::eq(after.slot, before.slot) && all().len() == 1);
    }
}
