//! A buffer used as a ring, how a large one follows a small one, and how laps are
//! posted to the engine.

use crate::buffers::{BufferPool, Share};
use baton_engine::region::{ConsumerRegion, Extent, Queue};

/// One direction's ring: stream position `p` lies `p % size` into it. Small, for
/// idle connections have it too.
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

    /// Takes a buffer unless there is one; false if the pool has none.
    pub fn ensure(&mut self, pool: &mut BufferPool) -> bool {
        if !self.has_buffer() {
            self.buffer = pool.take().unwrap_or(Ring::NO_BUFFER);
        }
        self.has_buffer()
    }

    /// Laps that were posted so far.
    #[inline]
    pub fn laps(self) -> u32 {
        self.posts
    }

    /// With a buffer in which a stream can begin with so many bytes.
    pub fn for_bytes(bytes: u64, pool: &mut BufferPool) -> Option<Ring> {
        Some(Ring { buffer: pool.take_for(bytes)?, posts: 0 })
    }

    pub fn give_back(&mut self, pool: &mut BufferPool) {
        if self.has_buffer() {
            pool.give_back(std::mem::replace(&mut self.buffer, Ring::NO_BUFFER));
        }
    }

    /// Up to which stream position there is room, if all before `done` is done with.
    #[inline]
    pub fn room_end(self, done: u64, share: Share, pool: &BufferPool) -> u64 {
        if share != Share::default() || !self.has_buffer() {
            // A program that chose a size chose it of a small ring.
            return done + u64::from(share.bytes(pool.small_size()));
        }
        pool.room_end(self.buffer, done)
    }

    /// Up to which stream position extents are posted, if the cursor stands at `pos`:
    /// to the end of its lap; to itself if there is none.
    #[inline]
    pub fn posted_end(self, pos: u64, posted: bool, pool: &BufferPool) -> u64 {
        if posted { pool.lap_end(self.buffer, pos) } else { pos }
    }

    /// All before `done` is done with.
    #[inline]
    pub fn pass(self, done: u64, pool: &mut BufferPool) {
        if self.has_buffer() {
            pool.pass(self.buffer, done);
        }
    }

    /// True if it has a buffer of the small ones.
    #[inline]
    pub fn is_small(self, pool: &BufferPool) -> bool {
        self.has_buffer() && !pool.is_large(self.buffer)
    }

    /// Goes on in a large buffer from the end of the posted lap on, at position `at`, if
    /// that is the only lap in use, all before `done` being done with. False if there is
    /// no such buffer.
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

/// `count` bytes at most of a ring from stream position `pos` on, up to its end.
pub(super) fn piece(region: &ConsumerRegion, ring: Ring, pool: &BufferPool, pos: u64, count: usize) -> Extent {
    let (offset, len) = pool.place(ring.buffer, pos);
    region.extent(offset, count.min(len as usize) as u32).expect("the pool lies within the data area")
}

/// Posts the ring from stream position `from` on, again for each lap that reaches
/// into `limit`.
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
        region.qp(qp).post(queue, ring.posts, in_use, extent).expect("two laps are in use at most");
        ring.posts = ring.posts.wrapping_add(1);
        from += u64::from(extent.len());
    }
}
