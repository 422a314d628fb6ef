//! CUBIC (RFC 9438) in integers.
//!
//! `W_cubic(t) = C·(t − K)³ + W_max` with C = 0.4 segments/s³, windows in bytes.
//! Time is counted in ticks of 2^20 ns (1.048576 ms), so that the conversion from
//! nanoseconds and the cube's scale are shifts: C is 0.4·(1.048576e-3)³ =
//! 4.61169e-10 segments/tick³, held as a multiple of 2^-50.

use super::{Acked, MAX_CWND};
use crate::time::Instant;

/// C in segments per tick³, times 2^50.
const C_SCALED: u64 = 519_238;
/// 1/C in ticks³ per segment.
const C_INVERSE: u64 = 2_168_404_345;
/// Beyond this distance from K, in ticks (18 min), the curve is past [`MAX_CWND`]
/// for any segment size above 2 bytes.
const MAX_DISTANCE: u64 = 1 << 20;
/// No number of acknowledged bytes buys a segment now.
const NEVER: u32 = u32::MAX;

/// The part of CUBIC's state that outlives an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Memory {
    /// Window before the last reduction, bytes, lowered by fast convergence.
    w_max: u32,
    /// `cwnd` before the last reduction, bytes.
    cwnd_prior: u32,
}

/// An epoch of congestion avoidance: from a congestion event to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Epoch {
    /// Tick at which it began.
    start: u32,
    /// Tick of the last acknowledgment that counted.
    last: u32,
    /// Ticks from `start` until the curve reaches W_max again.
    k: u32,
    /// Window of a Reno-like flow (RFC 9438 §4.3), bytes.
    w_est: u32,
    /// Acknowledged bytes that have not yet raised `w_est`.
    est_acked: u32,
    /// Acknowledged bytes that buy one more segment, as of `last`; 0 if unknown.
    need: u32,
    begun: bool,
    paused: bool,
}

/// The largest integer whose cube is at most `x`.
pub(super) fn integer_cbrt(x: u64) -> u32 {
    let mut root: u64 = 0;
    for bit in (0..22).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= x {
            root = candidate;
        }
    }
    root as u32
}

/// `C·(t − K)³ + W_max` in bytes, within 0 and [`MAX_CWND`].
pub(super) fn w_cubic(t: u32, k: u32, w_max: u32, mss: u32) -> u32 {
    let distance = u64::from(t.abs_diff(k)).min(MAX_DISTANCE);
    let cube = distance * distance * distance;
    let bytes = (u128::from(cube) * u128::from(C_SCALED * u64::from(mss))) >> 50;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).min(u64::from(MAX_CWND)) as u32;
    if t < k { w_max.saturating_sub(bytes) } else { w_max.saturating_add(bytes).min(MAX_CWND) }
}

fn tick(now: Instant) -> u32 {
    (now.0 >> 20) as u32
}

impl Memory {
    #[cfg(test)]
    pub(super) fn of(w_max: u32, cwnd_prior: u32) -> Memory {
        Memory { w_max, cwnd_prior }
    }

    /// RFC 9438 §4.6 and §4.7: remembers the window and returns the new `ssthresh`.
    pub(super) fn on_congestion(&mut self, cwnd: u32, flight: u32) -> u32 {
        // Fast convergence: a flow whose window did not get back to W_max leaves
        // room for a newcomer, (1 + β)/2 = 0.85.
        self.w_max = if cwnd < self.w_max { (u64::from(cwnd) * 17 / 20) as u32 } else { cwnd };
        self.cwnd_prior = cwnd;
        // β_cubic = 0.7.
        (u64::from(flight) * 7 / 10) as u32
    }
}

impl Epoch {
    /// The flow was not limited by `cwnd`: time until the next acknowledgment that
    /// is does not count (RFC 9438 §5.8).
    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// RFC 9438 §4.2 to §4.5, for `bytes` acknowledged. `cwnd` and W_est grow by
    /// whole segments, each at the very byte that buys it, so the outcome does not
    /// depend on how the bytes were bundled.
    pub(super) fn on_ack(&mut self, memory: &mut Memory, cwnd: &mut u32, acked: &mut u32, a: &Acked, bytes: u32) {
        let now = tick(a.now);
        let mss = u32::from(a.mss);
        if !self.begun {
            self.begin(memory, *cwnd, mss, now);
        }
        if self.paused {
            self.paused = false;
            self.start = self.start.wrapping_add(now.wrapping_sub(self.last));
        }
        if self.last != now || self.need == 0 {
            self.last = now;
            self.need = self.bytes_a_segment(memory, cwnd, a);
            // Credit from a flatter part of the curve buys one segment at most.
            *acked = (*acked).min(self.need);
        }
        let mut left = bytes;
        while *cwnd < MAX_CWND {
            let est_need = self.bytes_an_estimate(memory, *cwnd);
            let step = left.min(est_need.saturating_sub(self.est_acked)).min(self.need.saturating_sub(*acked));
            left -= step;
            self.est_acked += step;
            *acked = if self.need == NEVER { 0 } else { *acked + step };
            if *acked >= self.need {
                *acked -= self.need;
                *cwnd += mss;
            } else if self.est_acked >= est_need {
                self.est_acked -= est_need;
                self.w_est = (self.w_est + mss).min(MAX_CWND);
            } else {
                break;
            }
            self.need = self.bytes_a_segment(memory, cwnd, a);
        }
    }

    fn begin(&mut self, memory: &mut Memory, cwnd: u32, mss: u32, now: u32) {
        *self = Epoch { start: now, last: now, w_est: cwnd, begun: true, ..Epoch::default() };
        if cwnd < memory.w_max {
            // K = cbrt((W_max − cwnd_epoch)/C).
            self.k = integer_cbrt(u64::from(memory.w_max - cwnd) * C_INVERSE / u64::from(mss.max(1)));
        } else {
            // RFC 9438 §4.8: past W_max, the curve starts at its flat middle.
            memory.w_max = cwnd;
        }
    }

    /// Acknowledged bytes that raise W_est by a segment: it grows by α segments a
    /// window, 3(1 − β)/(1 + β) = 9/17, and by one once it has made up for the
    /// reduction (RFC 9438 §4.3).
    fn bytes_an_estimate(&self, memory: &Memory, cwnd: u32) -> u32 {
        if self.w_est >= memory.cwnd_prior { cwnd } else { (u64::from(cwnd) * 17 / 9) as u32 }
    }

    /// Acknowledged bytes that buy one segment now; in the Reno-friendly region
    /// also lifts `cwnd` to W_est.
    fn bytes_a_segment(&self, memory: &Memory, cwnd: &mut u32, a: &Acked) -> u32 {
        let mss = u32::from(a.mss);
        let t = self.last.wrapping_sub(self.start);
        // RFC 9438 §4.3: below W_est, follow W_est.
        if w_cubic(t, self.k, memory.w_max, mss) < self.w_est {
            *cwnd = (*cwnd).max(self.w_est);
            return NEVER;
        }
        // RFC 9438 §4.2: target is the curve one RTT ahead, within [cwnd, 1.5·cwnd].
        let ahead = t.saturating_add((a.srtt.0 >> 20) as u32);
        let target = w_cubic(ahead, self.k, memory.w_max, mss).clamp(*cwnd, *cwnd + *cwnd / 2);
        if target <= *cwnd {
            return NEVER;
        }
        let need = u64::from(*cwnd) * u64::from(mss) / u64::from(target - *cwnd);
        need.clamp(1, u64::from(NEVER - 1)) as u32
    }
}
