//! A buffer used as a ring, its replacement by a large one, and the posting of its laps to the
//! engine.

use crate::buffers::{BufferPool, Share};
use baton_engine::region::{ConsumerRegion, Extent, Queue};

/// The ring of one direction: stream position `p` is at offset `p % size`. It is kept small because
/// idle connections have one too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Number of its buffer, or [`Ring::NO_BUFFER`].
    buffer: u32,
    /// Extents posted since the connection began.
    posts: u32,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring { buffer: Ring::NO_BUFFER, posts: 0 }
    }
}

impl Ring {
    const NO_BUFFER: u32 = u32::MAX;

    #[inline]
    pub fn has_buffer(self) -> bool {
        self.buffer != Ring::NO_BUFFER
    }

    /// Takes a buffer unless there is one. Returns false if the pool has none.
    pub fn ensure(&mut self, pool: &mut BufferPool) -> bool {
        if !self.has_buffer() {
            self.buffer = pool.take().unwrap_or(Ring::NO_BUFFER);
        }
        self.has_buffer()
    }

    /// Number of laps posted so far.
    #[inline]
    pub fn laps(self) -> u32 {
        self.posts
    }

    /// Makes a ring with a buffer for a stream that starts with `bytes` bytes.
    pub fn for_bytes(bytes: u64, pool: &mut BufferPool) -> Option<Ring> {
        Some(Ring { buffer: pool.take_for(bytes)?, posts: 0 })
    }

    pub fn give_back(&mut self, pool: &mut BufferPool) {
        if self.has_buffer() {
            pool.give_back(std::mem::replace(&mut self.buffer, Ring::NO_BUFFER));
        }
    }

    /// Position up to which there is space if all positions before `done` are finished.
    #[inline]
    pub fn room_end(self, done: u64, share: Share, pool: &BufferPool) -> u64 {
        if share != Share::default() || !self.has_buffer() {
            // A size that the program chose refers to a small ring.
            return done + u64::from(share.bytes(pool.small_size()));
        }
        pool.room_end(self.buffer, done)
    }

    /// Position up to which extents are posted if the cursor is at `pos`: the end of its lap, or
    /// `pos` itself if there is no buffer.
    #[inline]
    pub fn posted_end(self, pos: u64, posted: bool, pool: &BufferPool) -> u64 {
        if posted { pool.lap_end(self.buffer, pos) } else { pos }
    }

    /// All positions before `done` are finished.
    #[inline]
    pub fn pass(self, done: u64, pool: &mut BufferPool) {
        if self.has_buffer() {
            pool.pass(self.buffer, done);
        }
    }

    /// True if its buffer is a small one.
    #[inline]
    pub fn is_small(self, pool: &BufferPool) -> bool {
        self.has_buffer() && !pool.is_large(self.buffer)
    }

    /// Continues in a large buffer at position `at`, the end of the posted lap, if that is the only
    /// lap in use and all positions before `done` are finished. Returns false if no large buffer is
    /// free.
    pub fn grow(&mut self, done: u64, at: u64, pool: &mut BufferPool) -> bool {
        if at > done + u64::from(pool.small_size()) {
            return true;
        }
        let Some(large) = pool.take_large(self.buffer, at) else { return false };
        self.buffer = large;
        pool.pass(large, done);
        true
    }
}

/// Returns at most `count` bytes of a ring, starting at stream position `pos`, up to its end.
pub(super) fn piece(region: &ConsumerRegion, ring: Ring, pool: &BufferPool, pos: u64, count: usize) -> Extent {
    let (offset, len) = pool.place(ring.buffer, pos);
    region.extent(offset, count.min(len as usize) as u32).expect("the pool is within the data area")
}

/// Posts the ring from stream position `from` on, once more for each lap that overlaps `limit`.
#[inline]
pub(super) fn post_laps(
    region: &ConsumerRegion,
    qp: u32,
    queue: Queue,
    ring: &mut Ring,
    pool: &BufferPool,
    mut from: u64,
    limit: u64,
) {
    while from < limit {
        let extent = piece(region, *ring, pool, from, usize::MAX);
        let in_use = ring.posts.min(1);
        region.qp(qp).post(queue, ring.posts, in_use, extent).expect("at most two laps are in use");
        ring.posts = ring.posts.wrapping_add(1);
        from += u64::from(extent.len());
    }
}
