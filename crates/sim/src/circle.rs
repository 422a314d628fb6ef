//! A circular buffer in a region's data area, posted piece by piece.
//!
//! The byte at stream position `p` lies at `base + p % size`, so pieces of any
//! length work as long as none crosses the end. A stream socket posts whole laps;
//! a message consumer posts what it has: here, pieces of random length.

use baton_engine::region::{ConsumerRegion, Queue};
use std::collections::VecDeque;

/// One direction's buffer of one queue pair.
#[derive(Debug)]
pub struct Circle {
    queue: Queue,
    base: u64,
    size: u32,
    posted: u64,
    index: u32,
    /// Ends of the extents that the engine may still need.
    ends: VecDeque<u64>,
}

impl Circle {
    /// A buffer of `size` bytes at `base`, nothing posted.
    pub fn new(queue: Queue, base: u64, size: u32) -> Circle {
        Circle { queue, base, size, posted: 0, index: 0, ends: VecDeque::new() }
    }

    /// Stream position up to which extents are posted.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Bytes that can be posted while those from `freed` on are still needed.
    pub fn room(&self, freed: u64) -> u64 {
        u64::from(self.size) - (self.posted - freed)
    }

    /// The piece of the stream from `position` on, at most `len` bytes, that is
    /// contiguous in memory: offset and length.
    pub fn contiguous(&self, position: u64, len: u64) -> (u64, u32) {
        let at = position % u64::from(self.size);
        (self.base + at, len.min(u64::from(self.size) - at) as u32)
    }

    /// The engine forgot what was posted: the next extent begins at `position`.
    pub fn forget(&mut self, position: u64) {
        self.posted = position;
        self.ends.clear();
    }

    /// Posts up to `len` bytes as one extent; 0 if its queue is full. `done` is
    /// how far the engine is through.
    pub fn post(&mut self, region: &ConsumerRegion, qp: u32, len: u64, done: u64) -> u32 {
        while self.ends.front().is_some_and(|&end| end <= done) {
            self.ends.pop_front();
        }
        let (offset, len) = self.contiguous(self.posted, len);
        let Some(extent) = region.extent(offset, len).filter(|extent| !extent.is_empty()) else { return 0 };
        if region.qp(qp).post(self.queue, self.index, self.ends.len() as u32, extent).is_err() {
            return 0;
        }
        self.index = self.index.wrapping_add(1);
        self.posted += u64::from(len);
        self.ends.push_back(self.posted);
        len
    }
}
