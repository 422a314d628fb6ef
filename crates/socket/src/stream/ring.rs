//! A buffer used as a ring, and how its laps are posted to the engine.

use crate::buffers::BufferPool;
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

    pub fn give_back(&mut self, pool: &mut BufferPool) {
        if self.has_buffer() {
            pool.give_back(std::mem::replace(&mut self.buffer, Ring::NO_BUFFER));
        }
    }

    /// Where in the data area it begins, if each buffer has `size` bytes.
    #[inline]
    fn offset(self, size: u32) -> u64 {
        u64::from(self.buffer) * u64::from(size)
    }
}

/// `count` bytes at most of a ring from stream position `pos` on, up to its end.
pub(super) fn piece(region: &ConsumerRegion, ring: Ring, size: u32, pos: u64, count: usize) -> Extent {
    let at = (pos % u64::from(size)) as u32;
    let len = count.min((size - at) as usize) as u32;
    region.extent(ring.offset(size) + u64::from(at), len).expect("the pool lies within the data area")
}

/// Up to which stream position extents are posted, if the cursor stands at `limit`:
/// to the end of its lap; to itself if there is none.
#[inline]
pub(super) fn posted_end(limit: u64, posted: bool, size: u32) -> u64 {
    if posted { limit.next_multiple_of(u64::from(size)) } else { limit }
}

/// Posts the ring from stream position `from` on, again for each lap that reaches
/// into `limit`.
#[inline]
pub(super) fn post_laps(
    region: &ConsumerRegion,
    qp: u32,
    queue: Queue,
    ring: &mut Ring,
    size: u32,
    mut from: u64,
    limit: u64,
) {
    while from < limit {
        let extent = piece(region, *ring, size, from, size as usize);
        let in_use = ring.posts.min(1);
        region.qp(qp).post(queue, ring.posts, in_use, extent).expect("two laps are in use at most");
        ring.posts = ring.posts.wrapping_add(1);
        from += u64::from(extent.len());
    }
}
