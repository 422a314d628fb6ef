//! The time of a capture: stamps that may go back.
//!
//! Frames of several queues are out of order by microseconds; a clock that is set goes back by any time.

/// A stamp that is further back than this, in nanoseconds, is of a clock that was set.
const SET_NS: u64 = 1_000_000_000;

/// Time as the frames of one capture tell it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// The first frame's stamp.
    pub first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// The latest stamp since the clock was set.
    latest_ns: u64,
    /// Time that has passed, in nanoseconds, without the steps back.
    pub passed_ns: u64,
    /// Frames whose stamps are before the one of the frame before them.
    pub back: u64,
}

impl Clock {
    /// Takes a frame's stamp.
    #[inline]
    pub fn on(&mut self, stamp_ns: u64) {
        let Some(last) = self.last_ns.replace(stamp_ns) else {
            (self.first_ns, self.latest_ns) = (Some(stamp_ns), stamp_ns);
            return;
        };
        if let Some(step) = stamp_ns.checked_sub(self.latest_ns) {
            self.passed_ns = self.passed_ns.saturating_add(step);
            self.latest_ns = stamp_ns;
        } else if self.latest_ns - stamp_ns > SET_NS {
            self.latest_ns = stamp_ns;
        }
        self.back += u64::from(stamp_ns < last);
    }

    /// The last frame's stamp.
    pub fn last_ns(&self) -> u64 {
        self.last_ns.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_back_is_counted_and_does_not_pass() {
        let mut clock = Clock::default();
        let second = 1_000_000_000;
        let stamps = [10 * second, 10 * second - 5, 10 * second + 7, 2 * second, 3 * second, u64::MAX, 0];
        stamps.into_iter().for_each(|stamp| clock.on(stamp));
        assert_eq!((clock.back, clock.first_ns, clock.last_ns()), (3, Some(10 * second), 0));
        assert_eq!(clock.passed_ns, 7 + second + (u64::MAX - 3 * second));
    }
}
