//! Points of time at which the program calls, for connections that the engine watches (LA Tables 2 and 3,
//! User).
//!
//! The engine decides which connections are watched; the consumer learns of it by the memory that both
//! have. A point is the entry into this library: time that a program waits for a lock around it counts as
//! wake-up.

use super::{Conn, Consumer};
use baton_latency::{Clock, Layer, Side, Slot, Stamps, WatchMemory};
use std::sync::Arc;

/// No slot.
const NONE: u16 = u16::MAX;

/// The consumer's side of what is watched.
pub(super) struct Watcher {
    memory: Arc<WatchMemory>,
    clock: Clock,
    /// [`baton_latency::Watch::changes`] when `slots` was made.
    changes: u32,
    /// The slot of each queue pair.
    slots: Vec<u16>,
}

impl Watcher {
    /// Learns which queue pairs have which slots now.
    #[cold]
    fn learn(&mut self) {
        self.changes = self.memory.changes();
        self.slots.clear();
        for (at, slot) in self.memory.slots().iter().enumerate() {
            let Some(qp) = slot.queue_pair() else { continue };
            let qp = qp as usize;
            if self.slots.len() <= qp {
                self.slots.resize(qp + 1, NONE);
            }
            self.slots[qp] = at as u16;
        }
    }

    fn slot(&self, conn: Conn) -> Option<&Slot> {
        self.memory.slot((*self.slots.get(conn.0 as usize)?).into())
    }
}

impl Consumer {
    /// Records the points of calls for connections that the engine watches in `memory`, the one that the
    /// engine has for this consumer.
    pub fn watch(&mut self, memory: Arc<WatchMemory>, clock: Clock) {
        let changes = memory.changes().wrapping_sub(1);
        self.watcher = Some(Box::new(Watcher { memory, clock, changes, slots: Vec::new() }));
    }

    /// Ends [`Consumer::watch`].
    pub fn unwatch(&mut self) {
        self.watcher = None;
    }

    /// The time, if the connection is watched; else 0.
    #[inline]
    pub(super) fn call_entered(&mut self, conn: Conn) -> u64 {
        let Some(watcher) = &mut self.watcher else { return 0 };
        if watcher.memory.changes() != watcher.changes {
            watcher.learn();
        }
        if watcher.slot(conn).is_some() { (watcher.clock)() } else { 0 }
    }

    /// The bytes of a write are in the send queue, and the engine has not been told.
    #[cold]
    pub(super) fn note_copied(&self, conn: Conn, entered: u64) {
        let (Some(watcher), Some(stream)) = (&self.watcher, self.stream(conn)) else { return };
        let Some(slot) = watcher.slot(conn) else { return };
        let stamps = Stamps { end: stream.written_total(), first: entered, last: (watcher.clock)() };
        if !slot.sent.put(&stamps) {
            watcher.memory.miss(Side::Consumer);
        }
    }

    /// The call that took bytes is about to return: it ends every message that was read to its last byte.
    #[cold]
    pub(super) fn note_read(&self, conn: Conn, entered: u64) {
        let (Some(watcher), Some(stream)) = (&self.watcher, self.stream(conn)) else { return };
        let Some(slot) = watcher.slot(conn) else { return };
        let read = stream.received_total() - stream.readable() as u64;
        let now = (watcher.clock)();
        while let Some(message) = slot.told.peek().filter(|message| message.end <= read) {
            slot.told.pass();
            let runs = entered.max(message.last);
            let record = |layer, ns| watcher.memory.record(slot, layer, ns);
            record(Layer::WakeUp, runs - message.last);
            record(Layer::Read, now.saturating_sub(runs));
            record(Layer::Receive, now.saturating_sub(message.first));
        }
    }
}
