//! Where stream buffers lie in a consumer's data area.
//!
//! All buffers of a pool have one size. The area is larger than what is ever
//! used at once and its pages exist only once touched, so a buffer costs what was
//! written to it. A connection has none until data moves, and none when it has been
//! idle for a while.

/// Hands out equal buffers of a data area by number: number `n` lies `n` sizes
/// into it.
#[derive(Debug)]
pub struct BufferPool {
    /// Bytes of each buffer.
    size: u32,
    free: Vec<u32>,
    /// Buffers handed out at least once.
    used: u32,
    capacity: u32,
}

impl BufferPool {
    /// `capacity` buffers of `size` bytes, from offset 0 of the data area on.
    pub fn new(size: u32, capacity: u32) -> BufferPool {
        BufferPool { size, free: Vec::new(), used: 0, capacity }
    }

    /// Bytes of data area that the pool spans.
    pub fn bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.capacity)
    }

    /// Bytes of each buffer.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of a buffer, the one given back last first: its pages are warm.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.used < self.capacity).then(|| {
                self.used += 1;
                self.used - 1
            })
        })
    }

    /// Gives a buffer back.
    pub fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Buffers in use.
    pub fn in_use(&self) -> usize {
        self.used as usize - self.free.len()
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
        let mut pool = BufferPool::new(4096, 2);
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!((a, b, pool.take()), (0, 1, None));
        pool.give_back(a);
        assert_eq!((pool.in_use(), pool.take()), (1, Some(a)));
    }
}
