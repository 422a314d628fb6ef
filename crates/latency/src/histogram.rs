//! A histogram of fixed size, as HdrHistogram's: a bucket is at most 1/32 of its value wide.
//!
//! The library of that name grows, and cannot lie in memory that processes share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Buckets of an octave: its bits.
const FINE: u32 = 5;

/// Times from 2^36 ns (69 s) on fall into the last bucket.
const OCTAVES: u32 = 36;

/// The number of buckets.
pub const BUCKETS: usize = ((OCTAVES - FINE + 1) as usize) << FINE;

/// The size of a histogram in words of 64 bits: sum, longest, and two buckets a word.
pub const WORDS: usize = 2 + BUCKETS / 2;

/// The bucket of a time in nanoseconds. The BPF programs compute it in the same way.
pub fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << OCTAVES) - 1);
    let octave = (63 - (ns | 1).leading_zeros()).saturating_sub(FINE);
    ((octave as usize) << FINE) + (ns >> octave) as usize
}

/// The longest time of a bucket, in nanoseconds.
pub fn largest(bucket: usize) -> u64 {
    let octave = (bucket >> FINE).saturating_sub(1) as u32;
    let mantissa = (bucket as u64) - ((octave as u64) << FINE);
    ((mantissa + 1) << octave) - 1
}

/// Times of a layer. All zeros is an empty one. One thread at a time records; any number read meanwhile.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    sum: AtomicU64,
    longest: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            sum: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Histogram {
    /// Records a time in nanoseconds. The owner alone may call it: it adds without a locked instruction.
    pub fn record(&self, ns: u64) {
        self.record_for(ns, 1);
    }

    /// As [`Histogram::record`], for a message that stands for `messages` like it.
    pub fn record_for(&self, ns: u64, messages: u32) {
        let add =
            |to: &AtomicU64, more: u64| to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        let bucket = &self.buckets[bucket(ns)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(messages), Ordering::Relaxed);
        add(&self.sum, ns.wrapping_mul(messages.into()));
        if ns > self.longest.load(Ordering::Relaxed) {
            self.longest.store(ns, Ordering::Relaxed);
        }
    }

    /// Forgets everything. For the owner.
    pub fn clear(&self) {
        if self.sum.load(Ordering::Relaxed) == 0 && self.buckets[0].load(Ordering::Relaxed) == 0 {
            // Nothing was recorded: its memory is not touched.
            return;
        }
        self.sum.store(0, Ordering::Relaxed);
        self.longest.store(0, Ordering::Relaxed);
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }

    /// Its times at this moment. Times that are recorded meanwhile may be missing in part.
    pub fn read(&self) -> Counts {
        let buckets = self.buckets.iter().map(|count| count.load(Ordering::Relaxed).into()).collect();
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Counts::new(of(&self.sum), of(&self.longest), buckets)
    }
}

/// The times of a [`Histogram`] at a moment, or of several of them together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// The number of times.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum: u64,
    /// The longest, in nanoseconds.
    pub longest: u64,
    buckets: Vec<u64>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { count: 0, sum: 0, longest: 0, buckets: vec![0; BUCKETS] }
    }
}

impl Counts {
    fn new(sum: u64, longest: u64, buckets: Vec<u64>) -> Counts {
        Counts { count: buckets.iter().sum(), sum, longest, buckets }
    }

    /// Reads a copy of a [`Histogram`]'s memory, as words of the machine's byte order.
    pub fn of_words(words: &[u64; WORDS]) -> Counts {
        let bytes = words[2..].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let count = |four: &[u8]| u32::from_ne_bytes(std::array::from_fn(|at| four[at])).into();
        Counts::new(words[0], words[1], bytes.chunks_exact(4).map(count).collect())
    }

    /// Adds another's. A sum that another process wrote may be anything, and stays at the largest number.
    pub fn add(&mut self, other: &Counts) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(here, there)| *here += there);
    }

    /// The times that came since an earlier reading of the same histogram. The longest is that of all time.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let buckets = self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        Counts::new(self.sum.saturating_sub(earlier.sum), self.longest, buckets)
    }

    /// The time in nanoseconds that the share `q` (0 to 1) of all does not exceed, to 1/32; `None` if there
    /// is none.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map(|bucket| largest(bucket).min(self.longest))
    }

    /// The mean in nanoseconds; `None` if there is none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_join_without_gaps_and_are_fine_enough() {
        assert_eq!((bucket(0), bucket(31), bucket(32), bucket(63), bucket(64)), (0, 31, 32, 63, 64));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for at in 0..BUCKETS - 1 {
            assert_eq!((bucket(largest(at)), bucket(largest(at) + 1)), (at, at + 1));
        }
    }

    proptest! {
        #[test]
        fn a_quantile_is_near_the_exact_one(mut times in prop::collection::vec(0u64..1 << 36, 1..200), q in 0.0..=1.0f64) {
            let histogram = Histogram::default();
            times.iter().for_each(|ns| histogram.record(*ns));
            times.sort_unstable();
            let exact = times[((times.len() as f64 * q).ceil() as usize).clamp(1, times.len()) - 1];
            let counts = histogram.read();
            let found = counts.quantile(q).unwrap();
            prop_assert!(found >= exact && found <= exact + exact / 32 + 1, "{found} for {exact}");
            prop_assert_eq!(counts.sum, times.iter().sum::<u64>());
            prop_assert_eq!(counts.longest, *times.last().unwrap());
        }
    }

    #[test]
    fn a_copy_of_the_memory_reads_the_same() {
        let histogram = Histogram::default();
        assert_eq!(size_of_val(&histogram), WORDS * size_of::<u64>());
        let mut bytes = [0u8; WORDS * 8];
        let times = [5, 40, 41, 41, 1 << 20];
        for ns in times {
            histogram.record(ns);
            let at = 16 + bucket(ns) * 4;
            let count = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            bytes[at..at + 4].copy_from_slice(&(count + 1).to_ne_bytes());
        }
        bytes[..8].copy_from_slice(&times.iter().sum::<u64>().to_ne_bytes());
        bytes[8..16].copy_from_slice(&(1u64 << 20).to_ne_bytes());
        let words = std::array::from_fn(|at| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte])));
        assert_eq!(Counts::of_words(&words), histogram.read());
    }

    #[test]
    fn readings_add_up_and_subtract() {
        let histogram = Histogram::default();
        assert_eq!((histogram.read().quantile(0.5), histogram.read().mean()), (None, None));
        histogram.record(100);
        let first = histogram.read();
        histogram.record(300);
        let second = histogram.read().since(&first);
        assert_eq!((second.count, second.sum), (1, 300));
        let mut both = first;
        both.add(&second);
        assert_eq!((both.count, both.sum, both.longest), (2, 400, 300));
    }
}
