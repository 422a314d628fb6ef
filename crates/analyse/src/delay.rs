//! How long segments were held: from their arrival to the flush of their run.
//!
//! Arrivals of held segments are kept in lists, one for each run, in one table of at most
//! [`HELD_MAX`] entries. The delay of a segment that finds it full is not measured, and this is
//! counted.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::iter;

/// The most arrivals kept at a time.
pub const HELD_MAX: usize = 1 << 20;
/// The longest delay that is distinguished, in nanoseconds: 292 years.
const LONGEST_NS: u64 = u64::MAX >> 1;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Held {
    time_ns: u64,
    next: u32,
}

/// Arrivals of held segments, by slot.
#[derive(Default)]
pub struct Arrivals {
    held: Vec<Held>,
    free: Vec<u32>,
    /// The last arrival of each slot's run.
    last: Vec<u32>,
}

/// Delays of segments.
///
/// Its serialized form lists the smallest delay of each bucket that is not empty, with its count.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Listed", try_from = "Listed")]
pub struct Delays {
    histogram: Histogram<u64>,
    /// Delays of 0, which are frequent: they go into the histogram at the end.
    zero: u64,
    /// The largest, which the histogram has to three digits only.
    longest: u64,
    unmeasured: u64,
}

impl Default for Delays {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LONGEST_NS, 3).expect("3 digits, and more than 2 ns");
        Delays { histogram, zero: 0, longest: 0, unmeasured: 0 }
    }
}

impl Arrivals {
    /// A run begins in `slot`.
    pub fn start(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot >= self.last.len() {
            self.last.resize(slot + 1, NONE);
        }
        self.last[slot] = NONE;
    }

    /// A segment of the run in `slot` arrived.
    pub fn add(&mut self, slot: u32, time_ns: u64) {
        let Some(last) = self.last.get_mut(slot as usize) else { return };
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.held.len() < HELD_MAX => {
                self.held.push(Held { time_ns: 0, next: NONE });
                self.held.len() as u32 - 1
            }
            None => return,
        };
        self.held[place as usize] = Held { time_ns, next: *last };
        *last = place;
    }

    /// The run of `segments` in `slot` goes on at `at_ns`.
    pub fn flush(&mut self, slot: u32, segments: u32, at_ns: u64, delays: &mut Delays) {
        let Some(last) = self.last.get_mut(slot as usize) else { return };
        let mut place = std::mem::replace(last, NONE);
        let mut measured = 0;
        while let Some(held) = self.held.get(place as usize) {
            delays.add(at_ns.saturating_sub(held.time_ns));
            self.free.push(place);
            place = held.next;
            measured += 1;
        }
        delays.unmeasured += u64::from(segments - measured);
    }
}

impl Delays {
    fn add(&mut self, delay_ns: u64) {
        if delay_ns == 0 {
            self.zero += 1;
        } else {
            self.longest = self.longest.max(delay_ns);
            self.histogram.saturating_record(delay_ns);
        }
    }

    /// Adds everything that another counted.
    pub fn merge(&mut self, other: &Delays) {
        self.zero += other.zero;
        self.unmeasured += other.unmeasured;
        self.longest = self.longest.max(other.longest);
        self.histogram.add(&other.histogram).expect("both have the same bounds");
    }

    /// Median and 99th percentile, to three digits, and largest, in nanoseconds; 0 if there are none.
    pub fn percentiles(&self) -> [u64; 3] {
        let mut all = self.histogram.clone();
        all.saturating_record_n(0, self.zero);
        let quantile = |share| all.value_at_quantile(share).min(self.longest);
        [quantile(0.5), quantile(0.99), self.longest]
    }

    /// How many segments had which delay: bounds in nanoseconds, each with the segments of at most that delay, but
    /// more than the bound before. The first bound is 0, if any segment was not held; the others are 1, 2 and 5 times
    /// the powers of ten, from the shortest delay to the longest. Delays count to three digits, as with
    /// [`percentiles`](Self::percentiles).
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let mut buckets: Vec<(u64, u64)> = bounds().map(|bound| (bound, 0)).collect();
        for step in self.histogram.iter_recorded() {
            let delay = self.histogram.lowest_equivalent(step.value_iterated_to());
            let bucket = buckets.partition_point(|(bound, _)| *bound < delay);
            buckets[bucket].1 += step.count_since_last_iteration();
        }
        let is_used = |(_, segments): &(u64, u64)| *segments > 0;
        let end = buckets.iter().rposition(is_used).map_or(0, |last| last + 1);
        let start = buckets.iter().position(is_used).unwrap_or(0);
        let zero = Some((0, self.zero)).filter(is_used);
        zero.into_iter().chain(buckets.drain(start..end)).collect()
    }

    /// Segments that were held, whether their delay was measured or not.
    pub fn segments(&self) -> u64 {
        self.histogram.len().saturating_add(self.zero).saturating_add(self.unmeasured)
    }

    /// Segments whose delay was not measured because [`HELD_MAX`] were held.
    pub fn unmeasured(&self) -> u64 {
        self.unmeasured
    }
}

/// The bounds of buckets, the last above [`LONGEST_NS`].
fn bounds() -> impl Iterator<Item = u64> {
    let of_power = |power| [1, 2, 5].map(|number| number * 10u64.pow(power));
    (0..19).flat_map(of_power).chain(iter::once(10u64.pow(19)))
}

/// Delays in their serialized form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    histogram: Vec<(u64, u64)>,
    zero: u64,
    longest: u64,
    unmeasured: u64,
}

impl From<Delays> for Listed {
    fn from(delays: Delays) -> Listed {
        let Delays { histogram, zero, longest, unmeasured } = delays;
        let least = |delay_ns| histogram.lowest_equivalent(delay_ns);
        let histogram =
            histogram.iter_recorded().map(|step| (least(step.value_iterated_to()), step.count_at_value())).collect();
        Listed { histogram, zero, longest, unmeasured }
    }
}

impl TryFrom<Listed> for Delays {
    type Error = String;

    fn try_from(listed: Listed) -> Result<Delays, String> {
        let Listed { histogram: counts, zero, longest, unmeasured } = listed;
        let mut delays = Delays { zero, longest, unmeasured, ..Delays::default() };
        for (delay_ns, segments) in counts {
            let histogram = &mut delays.histogram;
            // One of 0 is counted apart, and an empty bucket is not listed.
            if delay_ns == 0 || segments == 0 || histogram.lowest_equivalent(delay_ns) != delay_ns {
                return Err(format!("{segments} delays of {delay_ns} ns are not a bucket of the histogram"));
            }
            histogram.record_n(delay_ns, segments).map_err(|_| format!("a delay of {delay_ns} ns is out of range"))?;
        }
        Ok(delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_counted_up_to_round_bounds() {
        let mut delays = Delays::default();
        assert_eq!(delays.buckets(), []);
        for delay in [0, 0, 1000, 1001, 2000, 9000, 10_000, 3_600_000_000_000] {
            delays.add(delay);
        }
        let buckets = delays.buckets();
        let used: Vec<(u64, u64)> = buckets.iter().copied().filter(|(_, segments)| *segments > 0).collect();
        assert_eq!(used, [(0, 2), (1000, 1), (2000, 2), (10_000, 2), (5_000_000_000_000, 1)]);
        assert_eq!(buckets[..4], [(0, 2), (1000, 1), (2000, 2), (5000, 0)]);
        assert_eq!(buckets.last(), used.last());
        // The longest delay that a stamp can say has a bucket too, and what is merged adds up.
        let mut longest = Delays::default();
        longest.add(u64::MAX);
        assert_eq!(longest.buckets(), [(10u64.pow(19), 1)]);
        longest.merge(&delays);
        assert_eq!(longest.buckets().iter().map(|(_, segments)| segments).sum::<u64>(), 9);
        assert!(longest.buckets().len() < 64);
    }

    #[test]
    fn each_segment_waits_from_its_own_arrival() {
        let (mut arrivals, mut delays) = (Arrivals::default(), Delays::default());
        for slot in [3, 1] {
            arrivals.start(slot);
            for time in [100, 200, 300] {
                arrivals.add(slot, time * u64::from(slot));
            }
        }
        arrivals.flush(1, 3, 300, &mut delays);
        assert_eq!(delays.percentiles(), [100, 200, 200]);
        arrivals.flush(3, 3, 1900, &mut delays);
        assert_eq!(delays.percentiles(), [200, 1600, 1600]);
        assert_eq!(arrivals.free.len(), 6);
        assert_eq!(delays.unmeasured(), 0);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let (mut arrivals, mut delays) = (Arrivals::default(), Delays::default());
        arrivals.start(0);
        for _ in 0..HELD_MAX + 7 {
            arrivals.add(0, 5);
        }
        arrivals.flush(0, HELD_MAX as u32 + 7, 4, &mut delays);
        assert_eq!(delays.unmeasured(), 7);
        assert_eq!(delays.percentiles(), [0, 0, 0]);
    }
}
