//! Where stream buffers lie in a consumer's data area.
//!
//! ```text
//!   | small | small | small | ...  one for each direction of each connection
//!   | large       | large       | ...  a few, for streams that prove fast
//! ```
//!
//! The area is larger than what is ever used at once and its pages exist only once
//! touched, so a buffer costs what was written to it. A connection has none until
//! data moves, and none when it has been idle for a while.

/// Sizes of the buffers of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSizes {
    /// Bytes of each small buffer.
    pub small: u32,
    /// Small buffers.
    pub smalls: u32,
    /// Bytes of each large buffer.
    pub large: u32,
    /// Large buffers.
    pub larges: u32,
}

impl PoolSizes {
    /// Bytes of data area that the buffers span.
    pub fn bytes(&self) -> u64 {
        self.small_bytes() + u64::from(self.large) * u64::from(self.larges)
    }

    /// Bytes of the largest buffer that there is.
    pub fn largest(&self) -> u32 {
        if self.larges == 0 { self.small } else { self.small.max(self.large) }
    }

    fn small_bytes(&self) -> u64 {
        u64::from(self.small) * u64::from(self.smalls)
    }
}

/// Buffers of one size by number, the one given back last first: its pages are warm.
#[derive(Debug, Default)]
struct Numbers {
    free: Vec<u32>,
    /// Handed out at least once.
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

/// Hands out the buffers of a data area by number: first the small ones, then the
/// large ones. A stream's buffer is a ring: position `p` lies `p % size` into it.
#[derive(Debug)]
pub struct BufferPool {
    sizes: PoolSizes,
    small: Numbers,
    large: Numbers,
    /// How each large buffer that was ever used came to its stream.
    joints: Vec<Joint>,
}

/// Where a stream passes from a small ring to a large one.
#[derive(Clone, Copy, Debug)]
struct Joint {
    /// The first position that lies in the large ring.
    at: u64,
    /// The small ring, until all before that position is done with.
    before: Option<u32>,
}

impl BufferPool {
    /// Buffers of these sizes, from offset 0 of the data area on.
    pub fn new(sizes: PoolSizes) -> BufferPool {
        BufferPool { sizes, small: Numbers::default(), large: Numbers::default(), joints: Vec::new() }
    }

    /// Bytes of a small buffer, with which every stream begins.
    #[inline]
    pub fn small_size(&self) -> u32 {
        self.sizes.small
    }

    /// Bytes of the largest buffer that there is.
    pub fn largest_size(&self) -> u32 {
        self.sizes.largest()
    }

    /// True if the buffer is one of the large ones.
    #[inline]
    pub fn is_large(&self, number: u32) -> bool {
        number >= self.sizes.smalls
    }

    #[inline]
    fn joint(&self, number: u32) -> Option<&Joint> {
        self.joints.get(number.checked_sub(self.sizes.smalls)? as usize)
    }

    /// Bytes of a buffer.
    #[inline]
    pub fn size(&self, number: u32) -> u32 {
        if self.is_large(number) { self.sizes.large } else { self.sizes.small }
    }

    /// Where a stream position lies, in bytes from the start of the data area, and how
    /// many bytes lie together from there on.
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

    /// The end of the lap that ends at this stream position or goes on beyond it.
    #[inline]
    pub fn lap_end(&self, number: u32, pos: u64) -> u64 {
        match self.joint(number) {
            Some(joint) if pos <= joint.at => joint.at,
            _ => pos.next_multiple_of(self.size(number).into()),
        }
    }

    /// Up to which stream position the ring has room, if all before `done` is done
    /// with. Two laps are in use at most; the small ring's last one counts.
    #[inline]
    pub fn room_end(&self, number: u32, done: u64) -> u64 {
        let end = done + u64::from(self.size(number));
        match self.joint(number) {
            Some(joint) if done < joint.at => end.min(self.lap_end(number, joint.at + 1)),
            _ => end,
        }
    }

    /// Takes a small buffer, if there is one.
    pub fn take(&mut self) -> Option<u32> {
        self.small.take(self.sizes.smalls)
    }

    /// Takes a large buffer, if there is one, in which a stream goes on from position
    /// `at`, where a lap of the small buffer `before` ends.
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

    /// Takes a buffer in which a stream can begin with so many bytes: a small one if that
    /// is enough.
    pub fn take_for(&mut self, bytes: u64) -> Option<u32> {
        if bytes <= u64::from(self.sizes.small) {
            return self.take();
        }
        if bytes > u64::from(self.sizes.large) {
            return None;
        }
        self.take_joined(Joint { at: 0, before: None })
    }

    /// True if a large buffer can be had.
    pub fn has_large(&self) -> bool {
        self.larges_left() > 0
    }

    fn larges_left(&self) -> usize {
        (self.sizes.larges as usize).saturating_sub(self.large.in_use())
    }

    /// True if each of these lengths finds a buffer to itself, small ones apart.
    pub fn has_large_for(&self, lengths: &[u32]) -> bool {
        lengths.iter().filter(|bytes| **bytes > self.sizes.small).count() <= self.larges_left()
    }

    /// All before `done` is done with: a small ring that ends there goes back.
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

    /// Gives a buffer back, and the one before it.
    pub fn give_back(&mut self, number: u32) {
        if self.is_large(number) {
            self.pass(number, u64::MAX);
            self.large.free.push(number - self.sizes.smalls);
        } else {
            self.small.free.push(number);
        }
    }

    /// Buffers in use.
    pub fn in_use(&self) -> usize {
        self.small.in_use() + self.large.in_use()
    }
}

/// How much of a buffer one direction of a stream uses: all of it, or so many
/// 256ths less. One byte, for idle connections have it too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    spared: u8,
}

impl Share {
    /// Bytes of the smallest share, unless the buffer is smaller.
    pub const LEAST: u32 = 2048;

    /// The smallest share of a buffer of `size` bytes that has `bytes`.
    pub fn of(bytes: u32, size: u32) -> Share {
        let spared = size.saturating_sub(bytes.max(Share::LEAST)) / (size / 256).max(1);
        Share { spared: spared.min(255) as u8 }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(self, size: u32) -> u32 {
        size - u32::from(self.spared) * (size / 256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_what_was_asked_for_and_little_more() {
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
        assert_eq!(fits(&pool), [true, true, false], "there is one");
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
        // It has read up to 9000, and its lap ends at 12288.
        let large = pool.take_large(small, 12_288).unwrap();
        assert_eq!(pool.place(large, 9000), (9000 - 8192, 12_288 - 9000));
        assert_eq!(pool.place(large, 12_288), (4096 + 12_288, 4096));
        assert_eq!(pool.place(large, 16_384), (4096, 16_384));
        assert_eq!(
            [9000, 12_288, 12_289, 20_000].map(|pos| pool.lap_end(large, pos)),
            [12_288, 12_288, 16_384, 32_768]
        );
        assert_eq!(pool.room_end(large, 9000), 16_384, "a third lap is too many");
        pool.pass(large, 12_287);
        assert_eq!(pool.take(), None);
        pool.pass(large, 12_288);
        assert_eq!(pool.take(), Some(small));
        assert_eq!(pool.lap_end(large, 12_288), 12_288);
        assert_eq!(pool.room_end(large, 12_288), 28_672);
    }
}
