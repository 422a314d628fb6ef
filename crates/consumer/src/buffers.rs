//! Layout of the stream buffers in a consumer's data area.
//!
//! ```text
//!  | small | small | small | ...  one for each direction of each connection
//!  | large       | large       | ...  a few, for streams that prove fast
//! ```
//!
//! The area is larger than what is ever used at once. Its pages exist only once they are touched,
//! so a buffer costs only what was written to it. A connection has no buffers before data moves,
//! and none after it has been idle for a while.

/// Sizes and numbers of a pool's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSizes {
    /// Size of a small buffer in bytes.
    pub small: u32,
    /// Number of small buffers.
    pub smalls: u32,
    /// Size of a large buffer in bytes.
    pub large: u32,
    /// Number of large buffers.
    pub larges: u32,
}

impl PoolSizes {
    /// Size of the data area that the buffers occupy, in bytes.
    pub fn bytes(&self) -> u64 {
        self.small_bytes() + u64::from(self.large) * u64::from(self.larges)
    }

    /// Size of the largest buffer in bytes.
    pub fn largest(&self) -> u32 {
        if self.larges == 0 { self.small } else { self.small.max(self.large) }
    }

    fn small_bytes(&self) -> u64 {
        u64::from(self.small) * u64::from(self.smalls)
    }
}

/// Numbers of the free buffers of one size. The last one returned is reused first, because its
/// pages are in the cache.
#[derive(Debug, Default)]
struct Numbers {
    free: Vec<u32>,
    /// How many buffers were ever handed out.
    used: u32,
}

impl Numbers {
    fn take(&mut self, capacity: u32) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.used < capacity).then(|| {
                self.used += 1;
                self.used - 1
            })
        })
    }

    fn in_use(&self) -> usize {
        self.used as usize - self.free.len()
    }
}

/// Hands out the buffers of a data area by number: the small ones have the lower numbers. A stream
/// uses its buffer as a ring: position `p` is at offset `p % size`.
#[derive(Debug)]
pub struct BufferPool {
    sizes: PoolSizes,
    small: Numbers,
    large: Numbers,
    /// For each large buffer that was ever used, how its stream came to use it.
    joints: Vec<Joint>,
}

/// The point where a stream moves from a small ring to a large one.
#[derive(Clone, Copy, Debug)]
struct Joint {
    /// First position in the large ring.
    at: u64,
    /// The small ring, until all positions before `at` are finished.
    before: Option<u32>,
}

impl BufferPool {
    /// Makes a pool of these sizes that starts at offset 0 of the data area.
    pub fn new(sizes: PoolSizes) -> BufferPool {
        BufferPool { sizes, small: Numbers::default(), large: Numbers::default(), joints: Vec::new() }
    }

    /// Size in bytes of a small buffer, which every stream starts with.
    #[inline]
    pub fn small_size(&self) -> u32 {
        self.sizes.small
    }

    /// Size of the largest buffer in bytes.
    pub fn largest_size(&self) -> u32 {
        self.sizes.largest()
    }

    /// True if the buffer is a large one.
    #[inline]
    pub fn is_large(&self, number: u32) -> bool {
        number >= self.sizes.smalls
    }

    #[inline]
    fn joint(&self, number: u32) -> Option<&Joint> {
        self.joints.get(number.checked_sub(self.sizes.smalls)? as usize)
    }

    /// Size of a buffer in bytes.
    #[inline]
    pub fn size(&self, number: u32) -> u32 {
        if self.is_large(number) { self.sizes.large } else { self.sizes.small }
    }

    /// Returns the offset of a stream position in the data area, and the number of contiguous bytes
    /// there, both in bytes.
    #[inline]
    pub fn place(&self, number: u32, pos: u64) -> (u64, u32) {
        let (number, size) = match self.joint(number) {
            Some(Joint { at, before: Some(before) }) if pos < *at => (*before, self.sizes.small),
            _ => (number, self.size(number)),
        };
        let into = (pos % u64::from(size)) as u32;
        (self.offset(number) + u64::from(into), size - into)
    }

    fn offset(&self, number: u32) -> u64 {
        if self.is_large(number) {
            self.sizes.small_bytes() + u64::from(number - self.sizes.smalls) * u64::from(self.sizes.large)
        } else {
            u64::from(number) * u64::from(self.sizes.small)
        }
    }

    /// End of the lap that contains this stream position, or that ends at it.
    #[inline]
    pub fn lap_end(&self, number: u32, pos: u64) -> u64 {
        match self.joint(number) {
            Some(joint) if pos <= joint.at => joint.at,
            _ => pos.next_multiple_of(self.size(number).into()),
        }
    }

    /// Position up to which the ring has space if all positions before `done` are finished. At most
    /// two laps are in use, and the last lap of the small ring counts as one.
    #[inline]
    pub fn room_end(&self, number: u32, done: u64) -> u64 {
        let end = done + u64::from(self.size(number));
        match self.joint(number) {
            Some(joint) if done < joint.at => end.min(self.lap_end(number, joint.at + 1)),
            _ => end,
        }
    }

    /// Takes a small buffer, if one is free.
    pub fn take(&mut self) -> Option<u32> {
        self.small.take(self.sizes.smalls)
    }

    /// Takes a large buffer, if one is free, for a stream that continues there at position `at`,
    /// where a lap of its small buffer `before` ends.
    pub fn take_large(&mut self, before: u32, at: u64) -> Option<u32> {
        self.take_joined(Joint { at, before: Some(before) })
    }

    fn take_joined(&mut self, joint: Joint) -> Option<u32> {
        let index = self.large.take(self.sizes.larges)?;
        match self.joints.get_mut(index as usize) {
            Some(place) => *place = joint,
            None => self.joints.push(joint),
        }
        Some(self.sizes.smalls + index)
    }

    /// Takes a buffer for a stream that starts with `bytes` bytes: a small one if that is enough.
    pub fn take_for(&mut self, bytes: u64) -> Option<u32> {
        if bytes <= u64::from(self.sizes.small) {
            return self.take();
        }
        if bytes > u64::from(self.sizes.large) {
            return None;
        }
        self.take_joined(Joint { at: 0, before: None })
    }

    /// True if a large buffer is free.
    pub fn has_large(&self) -> bool {
        self.larges_left() > 0
    }

    fn larges_left(&self) -> usize {
        (self.sizes.larges as usize).saturating_sub(self.large.in_use())
    }

    /// True if each of these lengths can have a buffer of its own; small buffers are not counted.
    pub fn has_large_for(&self, lengths: &[u32]) -> bool {
        lengths.iter().filter(|bytes| **bytes > self.sizes.small).count() <= self.larges_left()
    }

    /// All positions before `done` are finished: returns a small ring that ends there to the pool.
    #[inline]
    pub fn pass(&mut self, number: u32, done: u64) {
        if self.is_large(number)
            && let Some(joint) = self.joints.get_mut((number - self.sizes.smalls) as usize)
            && done >= joint.at
            && let Some(before) = joint.before.take()
        {
            self.small.free.push(before);
        }
    }

    /// Returns a buffer to the pool, together with the small one before it.
    pub fn give_back(&mut self, number: u32) {
        if self.is_large(number) {
            self.pass(number, u64::MAX);
            self.large.free.push(number - self.sizes.smalls);
        } else {
            self.small.free.push(number);
        }
    }

    /// Number of buffers in use.
    pub fn in_use(&self) -> usize {
        self.small.in_use() + self.large.in_use()
    }
}

/// The part of a buffer that one direction of a stream uses: all of it, less a number of 256ths. It
/// is a single byte because idle connections have one too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    spared: u8,
}

impl Share {
    /// Smallest share in bytes, unless the buffer is smaller.
    pub const LEAST: u32 = 2048;

    /// Returns the smallest share of a buffer of `size` bytes that holds `bytes`.
    pub fn of(bytes: u32, size: u32) -> Share {
        let spared = size.saturating_sub(bytes.max(Share::LEAST)) / (size / 256).max(1);
        Share { spared: spared.min(255) as u8 }
    }

    /// Size of the share in bytes.
    #[inline]
    pub fn bytes(self, size: u32) -> u32 {
        size - u32::from(self.spared) * (size / 256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_the_requested_size_and_little_more() {
        for size in [4096, 65_536, 262_144] {
            for bytes in [0, 2048, 2049, 5000, size - 1, size, u32::MAX] {
                let wanted = bytes.clamp(Share::LEAST, size);
                let got = Share::of(bytes, size).bytes(size);
                assert!((wanted..wanted + size / 256).contains(&got), "{got} of {size} for {bytes}");
            }
            assert_eq!(Share::default().bytes(size), size);
        }
        assert_eq!(Share::of(9, 100).bytes(100), 100);
    }

    #[test]
    fn buffers_do_not_overlap_and_come_back() {
        let sizes = PoolSizes { small: 4096, smalls: 2, large: 16_384, larges: 2 };
        let mut pool = BufferPool::new(sizes);
        let small = [pool.take().unwrap(), pool.take().unwrap()];
        assert_eq!((small.map(|n| pool.place(n, 0)), pool.take()), ([(0, 4096), (4096, 4096)], None));
        let large = [4096, 8192].map(|at| pool.take_large(small[0], at).unwrap());
        assert_eq!((pool.take_large(small[1], 0), pool.has_large(), pool.in_use()), (None, false, 4));
        assert_eq!(large.map(|n| pool.place(n, 16_384)), [(8192, 16_384), (24_576, 16_384)]);
        assert_eq!(sizes.bytes(), 40_960);
        pool.give_back(large[1]);
        assert_eq!((pool.in_use(), pool.take()), (2, Some(small[0])));
        assert_eq!(pool.take_large(small[1], 0), Some(large[1]));
    }

    #[test]
    fn a_stream_that_brings_much_begins_in_a_large_ring() {
        let sizes = PoolSizes { small: 4096, smalls: 2, large: 16_384, larges: 1 };
        let mut pool = BufferPool::new(sizes);
        assert_eq!((pool.take_for(4096), pool.take_for(16_385), pool.largest_size()), (Some(0), None, 16_384));
        let fits = |pool: &BufferPool| [[4096, 4096], [4097, 4096], [4097, 4097]].map(|two| pool.has_large_for(&two));
        assert_eq!(fits(&pool), [true, true, false], "a buffer is free");
        let large = pool.take_for(4097).unwrap();
        assert_eq!(pool.place(large, 0), (8192, 16_384));
        assert_eq!((pool.room_end(large, 0), pool.lap_end(large, 1)), (16_384, 16_384));
        assert_eq!((pool.take_for(4097), fits(&pool)), (None, [true, false, false]));
        pool.give_back(large);
        assert_eq!(pool.take_for(16_384), Some(large));
    }

    #[test]
    fn a_stream_passes_from_a_small_ring_to_a_large_one() {
        let sizes = PoolSizes { small: 4096, smalls: 1, large: 16_384, larges: 1 };
        let mut pool = BufferPool::new(sizes);
        let small = pool.take().unwrap();
        // The stream has read up to 9000, and its lap ends at 12288.
        let large = pool.take_large(small, 12_288).unwrap();
        assert_eq!(pool.place(large, 9000), (9000 - 8192, 12_288 - 9000));
        assert_eq!(pool.place(large, 12_288), (4096 + 12_288, 4096));
        assert_eq!(pool.place(large, 16_384), (4096, 16_384));
        assert_eq!(
            [9000, 12_288, 12_289, 20_000].map(|pos| pool.lap_end(large, pos)),
            [12_288, 12_288, 16_384, 32_768]
        );
        assert_eq!(pool.room_end(large, 9000), 16_384, "at most two laps are in use");
        pool.pass(large, 12_287);
        assert_eq!(pool.take(), None);
        pool.pass(large, 12_288);
        assert_eq!(pool.take(), Some(small));
        assert_eq!(pool.lap_end(large, 12_288), 12_288);
        assert_eq!(pool.room_end(large, 12_288), 28_672);
    }
}
