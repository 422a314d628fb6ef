//! Points of time at which the program calls, for connections that the engine watches (LA Tables 2 and 3,
//! User).
//!
//! The engine decides which connections are watched; the consumer learns of it by the memory that both
//! have. A point is the entry into this library: time that a program waits for a lock around it counts as
//! wake-up. Where one message in so many is recorded, this side chooses writes; of what is read, a flag of the
//! engine says whether there is something to record.

use super::{Conn, Consumer};
use baton_latency::{Clock, Direction, Exemplar, Layer, PARTS, Recorded, Sampler, Side, Slot, Stamps, WatchMemory};
use std::sync::Arc;

/// Where the points of a queue pair go.
#[derive(Clone, Copy)]
struct Place {
    /// Its slot; one that is not there while it has none.
    slot: u16,
    /// Every message is recorded.
    wholly: bool,
    /// It has spans of its own.
    own: bool,
    /// The first write since bytes were read, if every message is recorded; 0 for none.
    asked: u64,
}

const NONE: Place = Place { slot: u16::MAX, wholly: false, own: false, asked: 0 };

/// The consumer's side of what is watched.
pub(super) struct Watcher {
    memory: Arc<WatchMemory>,
    clock: Clock,
    /// [`baton_latency::Watch::changes`] when `slots` was made.
    changes: u32,
    places: Vec<Place>,
    /// Every message is recorded of one at least.
    any_wholly: bool,
    /// Chooses the writes that are recorded of the others.
    sampler: Sampler,
}

impl Watcher {
    /// Learns which queue pairs have which slots now.
    #[cold]
    fn learn(&mut self) {
        self.changes = self.memory.changes();
        let one_in = self.memory.one_in();
        if self.sampler.one_in() != one_in {
            self.sampler = Sampler::new(one_in);
        }
        self.places.clear();
        self.any_wholly = false;
        for (at, slot) in self.memory.slots().iter().enumerate() {
            let Some(qp) = slot.queue_pair() else { continue };
            let qp = qp as usize;
            if self.places.len() <= qp {
                self.places.resize(qp + 1, NONE);
            }
            let recorded = slot.recorded();
            let (wholly, own) = (one_in == 1 || recorded == Recorded::Wholly, recorded != Recorded::Together);
            self.places[qp] = Place { slot: at as u16, wholly, own, asked: 0 };
            self.any_wholly |= wholly;
        }
    }

    fn place(&self, conn: Conn) -> Place {
        self.places.get(conn.0 as usize).copied().unwrap_or(NONE)
    }

    fn slot(&self, conn: Conn) -> Option<&Slot> {
        self.memory.slot(self.place(conn).slot.into())
    }

    /// The time, if this write is to be recorded; else 0.
    fn write_entered(&mut self, conn: Conn) -> u64 {
        if self.memory.changes() != self.changes {
            self.learn();
        }
        let chosen = self.sampler.chooses();
        if !(chosen || self.any_wholly) {
            return 0;
        }
        let place = self.place(conn);
        if !(place.wholly || (chosen && self.slot(conn).is_some())) {
            return 0;
        }
        let now = (self.clock)();
        match self.places.get_mut(conn.0 as usize) {
            Some(place) if place.wholly && place.asked == 0 => place.asked = now,
            _ => {}
        }
        now
    }

    /// The time, if there may be a message to record; else 0.
    fn read_entered(&mut self, conn: Conn) -> u64 {
        if self.memory.changes() != self.changes {
            self.learn();
        }
        let place = self.place(conn);
        if place.wholly || self.memory.told.is_raised(place.slot.into()) { (self.clock)() } else { 0 }
    }
}

impl Consumer {
    /// Records the points of calls for connections that the engine watches in `memory`, the one that the
    /// engine has for this consumer.
    pub fn watch(&mut self, memory: Arc<WatchMemory>, clock: Clock) {
        let changes = memory.changes().wrapping_sub(1);
        self.watcher = Some(Box::new(Watcher {
            memory,
            clock,
            changes,
            places: Vec::new(),
            any_wholly: false,
            sampler: Sampler::new(1),
        }));
    }

    /// Ends [`Consumer::watch`].
    pub fn unwatch(&mut self) {
        self.watcher = None;
    }

    /// The time, if a write that begins now is to be recorded; else 0.
    #[inline]
    pub(super) fn write_entered(&mut self, conn: Conn) -> u64 {
        match &mut self.watcher {
            None => 0,
            Some(watcher) => watcher.write_entered(conn),
        }
    }

    /// The time, if a call that takes bytes begins now and may end a message that is recorded; else 0.
    #[inline]
    pub(super) fn read_entered(&mut self, conn: Conn) -> u64 {
        match &mut self.watcher {
            None => 0,
            Some(watcher) => watcher.read_entered(conn),
        }
    }

    /// The bytes of a write are in the send queue, and the engine has not been told.
    #[cold]
    pub(super) fn note_copied(&self, conn: Conn, entered: u64) {
        let (Some(watcher), Some(stream)) = (&self.watcher, self.stream(conn)) else { return };
        let Some(slot) = watcher.slot(conn) else { return };
        let stamps = Stamps { end: stream.written_total(), first: entered, last: (watcher.clock)() };
        let place = watcher.place(conn);
        if !slot.sent.put(&stamps) {
            watcher.memory.miss(Side::Consumer);
        } else if !place.wholly {
            watcher.memory.sent.raise(place.slot.into());
        }
    }

    /// The call that took `count` bytes is about to return: it ends every message that was read to its last
    /// byte.
    #[cold]
    pub(super) fn note_read(&mut self, conn: Conn, entered: u64, count: usize) {
        let Some(stream) = self.stream(conn) else { return };
        let read = stream.received_total() - stream.readable() as u64;
        let before = read - count as u64;
        let Some(watcher) = &mut self.watcher else { return };
        let answered = watcher.places.get_mut(conn.0 as usize).filter(|_| count > 0);
        let asked = answered.map_or(0, |place| std::mem::take(&mut place.asked));
        let Some(slot) = watcher.slot(conn) else { return };
        let place = watcher.place(conn);
        let now = (watcher.clock)();
        if asked > 0 {
            watcher.memory.record(slot, Layer::Answer, now.saturating_sub(asked));
        }
        while let Some(message) = slot.told.peek().filter(|message| message.end <= read) {
            let whole = now.saturating_sub(message.first);
            let slowest = slot.slowest(Direction::Receive);
            let course = (place.own && slowest.takes(whole)).then(|| slot.course());
            slot.told.pass();
            if message.end <= before && !place.wholly {
                // A call took it that had begun before the flag was raised.
                watcher.memory.miss(Side::Consumer);
                continue;
            }
            let runs = entered.max(message.last);
            let record = |layer, ns| match place.own {
                true => watcher.memory.record(slot, layer, ns),
                false => watcher.memory.record_together(layer, ns),
            };
            let (wake_up, reading) = (runs - message.last, now.saturating_sub(runs));
            record(Layer::WakeUp, wake_up);
            record(Layer::Read, reading);
            record(Layer::Receive, whole);
            if let Some(course) = course {
                let mut parts = [0; PARTS];
                parts[..PARTS - 2].copy_from_slice(&course.parts);
                parts[PARTS - 2..].copy_from_slice(&[wake_up, reading]);
                slowest.keep(&Exemplar::new(Direction::Receive, message.first, whole, course.end, parts));
            }
        }
        if !place.wholly && slot.told.peek().is_none() {
            watcher.memory.told.lower(place.slot.into());
            if slot.told.peek().is_some() {
                watcher.memory.told.raise(place.slot.into());
            }
        }
    }
}
