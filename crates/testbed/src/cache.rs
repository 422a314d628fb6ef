//! The host's caches (CH Table 2): which line is where, and how long a reference takes.
//!
//! A cache holds tags alone. The least recently used line of a set gives way.

/// Size of a line, in bytes (CH Table 2).
pub const LINE_BYTES: u64 = 64;

const L1_SETS: usize = 64 * 1024 / LINE_BYTES as usize / L1_WAYS;
const L1_WAYS: usize = 2;
const L2_SETS: usize = 1024 * 1024 / LINE_BYTES as usize / L2_WAYS;
const L2_WAYS: usize = 16;

/// Cycles of a hit in the first level, of a hit in the second, and of an access to memory
/// (CH Table 2).
const L1_CYCLES: u64 = 1;
const L2_CYCLES: u64 = 15;
const MEMORY_CYCLES: u64 = 195;

/// One level: `ways` tags a set, the most recently used first; 0 is an empty way.
#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    tags: Vec<u64>,
}

impl Level {
    fn new(sets: usize, ways: usize) -> Level {
        Level { ways, tags: vec![0; sets * ways] }
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let sets = (self.tags.len() / self.ways) as u64;
        let first = (line % sets) as usize * self.ways;
        &mut self.tags[first..first + self.ways]
    }

    /// Makes the line the most recently used of its set. Returns true if it was there.
    fn touch(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let found = set.iter().position(|&tag| tag == line);
        let last = found.unwrap_or(set.len() - 1);
        set.copy_within(..last, 1);
        set[0] = line;
        found.is_some()
    }

    fn invalidate(&mut self, line: u64) {
        for tag in self.set(line) {
            if *tag == line {
                *tag = 0;
            }
        }
    }
}

/// Both levels of one processor, and what it waited for them.
#[derive(Clone, Debug)]
pub struct Caches {
    first: Level,
    second: Level,
}

impl Default for Caches {
    fn default() -> Caches {
        Caches { first: Level::new(L1_SETS, L1_WAYS), second: Level::new(L2_SETS, L2_WAYS) }
    }
}

impl Caches {
    /// References `bytes` from `address` on, line by line. Returns the cycles that this takes. A miss
    /// of the second level brings the next line with it (CH Table 2, "next-line on a miss").
    pub fn reference(&mut self, address: u64, bytes: u64) -> u64 {
        // Line 0 would look like an empty way.
        let lines = address / LINE_BYTES + 1..(address + bytes).div_ceil(LINE_BYTES) + 1;
        lines.map(|line| self.reference_line(line)).sum()
    }

    fn reference_line(&mut self, line: u64) -> u64 {
        if self.first.touch(line) {
            return L1_CYCLES;
        }
        if self.second.touch(line) {
            return L2_CYCLES;
        }
        self.second.touch(line + 1);
        MEMORY_CYCLES
    }

    /// The NIC writes `bytes` at `address` by DMA: lines that the caches hold are stale (CH §4.1).
    pub fn invalidate(&mut self, address: u64, bytes: u64) {
        for line in address / LINE_BYTES + 1..(address + bytes).div_ceil(LINE_BYTES) + 1 {
            self.first.invalidate(line);
            self.second.invalidate(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_costs_memory_then_the_first_level_and_memory_again_after_dma() {
        let mut caches = Caches::default();
        assert_eq!(caches.reference(4096, 64), 195);
        assert_eq!(caches.reference(4096, 64), 1);
        caches.invalidate(4096, 64);
        assert_eq!(caches.reference(4096, 64), 195);
    }

    #[test]
    fn a_miss_brings_the_next_line() {
        let mut caches = Caches::default();
        assert_eq!(caches.reference(0, 128), 195 + 15);
    }

    #[test]
    fn a_third_line_of_a_set_of_two_ways_displaces_the_oldest() {
        let mut caches = Caches::default();
        let stride = L1_SETS as u64 * LINE_BYTES;
        for way in 0..3 {
            caches.reference(way * stride, 64);
        }
        assert_eq!(caches.reference(2 * stride, 64), 1);
        assert_eq!(caches.reference(0, 64), 15, "the second level still has it");
    }
}
