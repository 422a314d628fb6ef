//! The memory of what is watched: spans of each watched connection of a consumer, and of all together.
//!
//! ```text
//!   Watch    header | flags | all: Spans | slot 0 | slot 1 | ... | slot 255
//!   Slot     owner, both ends | sent: Ring | told: Ring | Courses of told | Spans | Slowest, a way each
//! ```
//!
//! The engine gives slots to connections. Engine and consumer write; a reader maps the memory read-only.
//! Each layer has one writer: the engine, or the consumer for those of its calls. A connection that is watched
//! only together with all others has a slot for its rings, and its times go to `all` alone: with hundreds of
//! them, spans of each would find no place in the caches. A slot whose connection
//! has ended stays as it is until another connection gets it, the one that ended first before others.
//!
//! One in [`Watch::one_in`] may be recorded of the messages of connections, and stands for as many: then the counts
//! are estimates. [`Recorded`] says of which.
//!
//! A connection with spans of its own keeps the [`Slowest`] of the messages that are recorded on each way, with
//! the time in each layer. The engine sees the end of those that are sent, and the consumer that of those that
//! come; `Courses` tells it the engine's part.

use crate::course::Courses;
use crate::stamps::{Ring, Stamps};
use crate::{Course, Direction, Exemplar, Flags, SLOTS, Sampler, Slowest, Spans, Table};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of the memory: "BATONLAT" read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"BATONLAT");

/// Layout of this file.
const VERSION: u32 = 4;

/// Spans of one consumer of an engine. All zeros but the header is an empty one.
#[derive(Debug)]
#[repr(C)]
pub struct Watch {
    magic: AtomicU64,
    version: AtomicU32,
    /// Goes up with each slot that is given or taken back, and when it is to be recorded otherwise.
    changes: AtomicU32,
    /// Messages whose points found no room.
    missed: [AtomicU64; 2],
    /// Connections that found no slot.
    left_out: AtomicU64,
    one_in: AtomicU32,
    /// Slots with an entry in `sent` that the engine has not seen.
    pub sent: Flags,
    /// Slots with an entry in `told` that the consumer has not taken.
    pub told: Flags,
    all: Spans,
    slots: [Slot; SLOTS],
}

/// The side that writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The engine, by its turns.
    Engine = 0,
    /// The program, by its calls.
    Consumer = 1,
}

/// Where the times of a connection's messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// To those of all connections: of every message, or of one in [`Watch::one_in`].
    Together = 0,
    /// To spans of its own too, of every message.
    Wholly = 1,
    /// To spans of its own too, of one message in [`Watch::one_in`].
    Sampled = 2,
}

/// Rings and spans of one connection.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// The queue pair and 1 while a connection has it; 0 if none has.
    owner: AtomicU64,
    /// Times that the slot was given.
    given: AtomicU64,
    /// Where its times go, by the number of a [`Recorded`].
    recorded: AtomicU64,
    /// Local address, remote address, in IPv6's form; high half first.
    addresses: [AtomicU64; 4],
    /// Local port in the upper half, remote port in the lower.
    ports: AtomicU64,
    /// Writes of the consumer, for the engine.
    pub sent: Ring,
    /// Messages that the consumer was told of, for it.
    pub told: Ring,
    courses: Courses,
    spans: Spans,
    slowest: [Slowest; 2],
}

impl Watch {
    /// Makes memory that is all zero one in which nothing is watched.
    pub fn initialise(&self) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// True if [`Watch::initialise`] of this version made the memory.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC && self.version.load(Ordering::Relaxed) == VERSION
    }

    /// A number that differs once a slot was given or taken back, or is to be recorded otherwise.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// The slot of a number; `None` past the last one.
    #[inline]
    pub fn slot(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at)
    }

    /// All slots, whether a connection has them or not.
    pub fn slots(&self) -> &[Slot; SLOTS] {
        &self.slots
    }

    /// Spans of all connections that are or were watched. Its counts are estimates where not every message is
    /// recorded ([`Watch::one_in`]).
    pub fn all(&self) -> Table {
        Table::of(&self.all)
    }

    /// Records a time in nanoseconds that a message of a slot's connection spent in a layer.
    #[inline]
    pub fn record(&self, slot: &Slot, layer: crate::Layer, ns: u64) {
        let recorded = slot.recorded();
        let messages = if recorded == Recorded::Wholly { 1 } else { self.one_in() };
        if recorded != Recorded::Together {
            slot.spans.record_for(layer, ns, messages);
        }
        self.all.record_for(layer, ns, messages);
    }

    /// As [`Watch::record`] for a connection that is watched only together with others: without a look at its slot.
    #[inline]
    pub fn record_together(&self, layer: crate::Layer, ns: u64) {
        self.all.record_for(layer, ns, self.one_in());
    }

    /// One in so many is recorded, on average, of the messages of connections that are not recorded wholly.
    #[inline]
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Ordering::Relaxed).clamp(1, Sampler::RAREST)
    }

    /// Sets of how many messages one is recorded, up to [`Sampler::RAREST`]. For the engine.
    pub fn set_one_in(&self, one_in: u32) {
        self.one_in.store(one_in, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Changes where the times of a slot's connection go. For the engine.
    pub fn set_recorded(&self, at: usize, recorded: Recorded) {
        if let Some(slot) = self.slots.get(at).filter(|slot| slot.recorded() != recorded) {
            slot.recorded.store(recorded as u64, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Gives a slot to a connection. For the engine.
    pub fn give(&self, at: usize, qp: u32, local: SocketAddr, remote: SocketAddr, recorded: Recorded) {
        let Some(slot) = self.slots.get(at) else { return };
        slot.spans.clear();
        slot.slowest.iter().for_each(Slowest::clear);
        // A consumer that is still at the end of the connection before may spoil a few entries of this one.
        slot.sent.clear();
        slot.told.clear();
        for (words, end) in slot.addresses.chunks(2).zip([local, remote]) {
            let bits = v6(end.ip()).to_bits();
            words[0].store((bits >> 64) as u64, Ordering::Relaxed);
            words[1].store(bits as u64, Ordering::Relaxed);
        }
        slot.ports.store(u64::from(local.port()) << 16 | u64::from(remote.port()), Ordering::Relaxed);
        slot.recorded.store(recorded as u64, Ordering::Relaxed);
        slot.given.fetch_add(1, Ordering::Relaxed);
        slot.owner.store(u64::from(qp) + 1, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Takes a slot back from its connection. For the engine.
    pub fn take_back(&self, at: usize) {
        if let Some(slot) = self.slots.get(at) {
            slot.owner.store(0, Ordering::Release);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts a message that is not recorded, since its points found no room.
    pub fn miss(&self, side: Side) {
        let word = &self.missed[side as usize];
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts a connection that is not watched, since all slots are taken. For the engine.
    pub fn leave_out(&self) {
        self.left_out.store(self.left_out().wrapping_add(1), Ordering::Relaxed);
    }

    /// Connections that were not watched, since all slots were taken.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Messages that were not recorded, since their points found no room.
    pub fn missed(&self) -> u64 {
        self.missed.iter().map(|word| word.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

impl Slot {
    /// The queue pair of the connection that has the slot.
    pub fn queue_pair(&self) -> Option<u32> {
        u32::try_from(self.owner.load(Ordering::Acquire).checked_sub(1)?).ok()
    }

    /// Times that the slot was given; 0 if no connection ever had it.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Local and remote end of the connection that has the slot or had it last.
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        let half = |word: &AtomicU64| u128::from(word.load(Ordering::Relaxed));
        let address = |high, low| Ipv6Addr::from_bits(half(high) << 64 | half(low)).to_canonical();
        let [a, b, c, d] = &self.addresses;
        let ports = self.ports.load(Ordering::Relaxed);
        (SocketAddr::new(address(a, b), (ports >> 16) as u16), SocketAddr::new(address(c, d), ports as u16))
    }

    /// Where the times go of the connection that has the slot or had it last.
    #[inline]
    pub fn recorded(&self) -> Recorded {
        match self.recorded.load(Ordering::Relaxed) {
            0 => Recorded::Together,
            1 => Recorded::Wholly,
            _ => Recorded::Sampled,
        }
    }

    /// True if the connection that has the slot, or had it last, has spans of its own.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.recorded() != Recorded::Together
    }

    /// Tells the consumer of a message, with the engine's part of it if the message may be kept; false if there is
    /// no room. For the engine.
    #[inline]
    pub fn tell(&self, stamps: &Stamps, course: Option<&Course>) -> bool {
        self.told.put_with(stamps, |at| course.into_iter().for_each(|course| self.courses.put(at, course)))
    }

    /// The engine's part of the oldest message in `told`. For the consumer.
    pub fn course(&self) -> Course {
        self.courses.get(self.told.oldest())
    }

    /// The slowest messages of a way, to keep one. Those that are sent are the engine's, the others the consumer's.
    #[inline]
    pub fn slowest(&self, direction: Direction) -> &Slowest {
        &self.slowest[direction as usize]
    }

    /// The slowest messages of both ways at this moment, those that were sent first, the slowest of each first.
    pub fn exemplars(&self) -> Vec<Exemplar> {
        Direction::ALL.into_iter().flat_map(|way| self.slowest(way).read(way)).collect()
    }

    /// The spans of the connection that has the slot or had it last.
    pub fn table(&self) -> Table {
        Table::of(&self.spans)
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
