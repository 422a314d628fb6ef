//! The reassembly area: payload that waits for a decision.
//!
//! The Streamer parks payload that its fast path may not place; the TCE later says *place* or
//! *drop* (LC §3.1). The area is bounded in bytes, the bookkeeping of each piece included, so
//! that a flood of small pieces is bounded too. Memory is taken when a piece is parked and
//! given back when it is freed.

use baton_tcp::segment::ParkId;
use baton_wire::addr::Tuple;
use std::collections::BTreeMap;

/// Bytes that each piece counts for in addition to its own: its slot and the allocator's.
const OVERHEAD: usize = 64;

/// Bits of a [`ParkId`] that number the slot; the others are its generation.
const SLOT_BITS: u32 = 20;

struct Slot {
    generation: u32,
    data: Option<Box<[u8]>>,
}

/// Parked payload. See the module's documentation.
pub struct Reassembly {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Tuples of pieces that came before their connection was known.
    strangers: BTreeMap<u32, Tuple>,
    limit: usize,
    used: usize,
    usage: Usage,
}

/// How much is parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Payload bytes parked now.
    pub bytes: usize,
    /// Pieces parked now.
    pub pieces: usize,
    /// The most payload bytes parked at once.
    pub bytes_high_water: usize,
    /// The most pieces parked at once.
    pub pieces_high_water: usize,
    /// Pieces refused because the area was full.
    pub refused: u64,
}

impl Reassembly {
    /// An area that takes at most `limit_bytes`, bookkeeping (64 bytes a piece)
    /// included.
    pub fn new(limit_bytes: usize) -> Reassembly {
        Reassembly {
            slots: Vec::new(),
            free: Vec::new(),
            strangers: BTreeMap::new(),
            limit: limit_bytes,
            used: 0,
            usage: Usage::default(),
        }
    }

    /// How much is parked, and was at most.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Copies `data` into the area; `None`, and counted, if there is no room.
    pub fn park(&mut self, data: &[u8]) -> Option<ParkId> {
        let cost = data.len() + OVERHEAD;
        if self.limit - self.used < cost || (self.free.is_empty() && self.slots.len() == 1 << SLOT_BITS) {
            self.usage.refused += 1;
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, data: None });
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.data = Some(data.into());
        self.used += cost;
        self.usage.bytes += data.len();
        self.usage.pieces += 1;
        self.usage.bytes_high_water = self.usage.bytes_high_water.max(self.usage.bytes);
        self.usage.pieces_high_water = self.usage.pieces_high_water.max(self.usage.pieces);
        Some(ParkId(entry.generation << SLOT_BITS | slot))
    }

    /// As [`Reassembly::park`], for payload of an unknown connection: the TCE may open one for
    /// it, which then owns the piece.
    pub fn park_stranger(&mut self, tuple: Tuple, data: &[u8]) -> Option<ParkId> {
        let id = self.park(data)?;
        self.strangers.insert(id.0, tuple);
        Some(id)
    }

    /// True if the piece came to no connection.
    pub fn is_stranger(&self, id: ParkId) -> bool {
        self.strangers.contains_key(&id.0)
    }

    /// True if a piece is parked that came to `tuple` while it was no connection's.
    pub fn has_stranger(&self, tuple: &Tuple) -> bool {
        self.strangers.values().any(|name| name == tuple)
    }

    /// The payload of a piece; nothing if it was freed.
    pub fn get(&self, id: ParkId) -> &[u8] {
        match self.slots.get(id.0 as usize & ((1 << SLOT_BITS) - 1)) {
            Some(Slot { generation, data: Some(data) }) if *generation == id.0 >> SLOT_BITS => data,
            _ => &[],
        }
    }

    /// Frees a piece. One that was freed before is left alone, even if its place
    /// was used again (within 4,096 uses of the place).
    pub fn free(&mut self, id: ParkId) {
        let slot = id.0 & ((1 << SLOT_BITS) - 1);
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        if entry.generation != id.0 >> SLOT_BITS {
            return;
        }
        let Some(data) = entry.data.take() else { return };
        self.strangers.remove(&id.0);
        entry.generation = (entry.generation + 1) & (u32::MAX >> SLOT_BITS);
        self.free.push(slot);
        self.used -= data.len() + OVERHEAD;
        self.usage.bytes -= data.len();
        self.usage.pieces -= 1;
    }
}
