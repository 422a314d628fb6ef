//! Wakers that are called at every change of one connection; see [`ready`](super::ready).

use std::task::Waker;

/// A registered waker.
#[derive(Debug)]
struct Watcher {
    number: u64,
    waker: Waker,
}

/// The registered wakers of one connection.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    all: Vec<Watcher>,
    /// Counts arrivals that the engine does not count.
    pub news: u64,
}

impl Watchers {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn wake(&self) {
        self.all.iter().for_each(|watcher| watcher.waker.wake_by_ref());
    }

    pub fn clear(&mut self) {
        self.all.clear();
    }

    pub fn add(&mut self, number: u64, waker: Waker) {
        self.all.push(Watcher { number, waker });
    }

    pub fn remove(&mut self, number: u64) {
        self.all.retain(|watcher| watcher.number != number);
    }
}
