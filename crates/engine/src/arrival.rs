//! When a frame arrived, as its port knows it.

/// The part of a time that is kept, in bits: 18 minutes of nanoseconds. A port's knowledge of a frame has room for
/// no more, since bursts of frames are copied.
const BITS: u32 = 40;
const MASK: u64 = (1 << BITS) - 1;
/// A frame that is said to have waited longer than this did not, in nanoseconds.
const LONGEST: u64 = 10_000_000_000;
/// Clocks of two processors may be apart by this, in nanoseconds.
const APART: u64 = 10_000;

/// When a frame arrived, in nanoseconds of `CLOCK_MONOTONIC`, if that is known. By default it is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival([u8; 5]);

impl Arrival {
    /// A frame that arrived at `ns`, of which the low 40 bits count.
    #[inline]
    pub const fn at(ns: u64) -> Arrival {
        let kept = if ns & MASK == 0 { 1 } else { ns };
        let [a, b, c, d, e, ..] = kept.to_le_bytes();
        Arrival([a, b, c, d, e])
    }

    /// The time from the arrival until `taken`, both in nanoseconds of the clock. `None` if the arrival is not
    /// known, or cannot be right: later than that, or more than 10 s before.
    #[inline]
    pub const fn waited(self, taken: u64) -> Option<u64> {
        let [a, b, c, d, e] = self.0;
        let arrived = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let ns = taken.wrapping_sub(arrived) & MASK;
        match ns {
            _ if arrived == 0 => None,
            ..=LONGEST => Some(ns),
            _ if ns > MASK - APART => Some(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_bits_of_the_time_say_how_long_a_frame_waited() {
        for taken in [20_000_000_000, 1 << BITS, (1 << BITS) + 5, 77 << BITS, u64::MAX] {
            for ns in [0, 1, 1000, 5_000_000_000, LONGEST] {
                // The clock of an arrival that would be 0 is 1 then.
                let least = if (taken - ns) & MASK == 0 { ns.saturating_sub(1) } else { ns };
                assert_eq!(Arrival::at(taken - ns).waited(taken), Some(least), "{ns} before {taken}");
            }
        }
    }

    #[test]
    fn what_cannot_be_right_is_not_known() {
        assert_eq!(Arrival::default().waited(0), None);
        assert_eq!(Arrival::default().waited(5), None);
        for taken in [600_000_000_000, 1 << BITS, 77 << BITS] {
            assert_eq!(Arrival::at(taken - LONGEST - 1).waited(taken), None);
            assert_eq!(Arrival::at(taken - 500_000_000_000).waited(taken), None);
            assert_eq!(Arrival::at(taken + 1_000_000).waited(taken), None);
            assert_eq!(Arrival::at(taken + LONGEST).waited(taken), None);
            // Two processors' clocks differ a little.
            assert_eq!(Arrival::at(taken + 500).waited(taken), Some(0));
        }
    }
}
