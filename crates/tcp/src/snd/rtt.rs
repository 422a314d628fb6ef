//! Round-trip time and retransmission timeout (RFC 6298), in nanoseconds.
//!
//! MUST-18 (RFC 9293 §3.8.1): RFC 6298's computation and Karn's algorithm.

use crate::config::Config;
use crate::time::{Duration, Instant};

/// RTO before any sample (RFC 6298 §2.1).
const INITIAL_RTO_NS: u64 = 1_000_000_000;
/// RTO for data after a SYN whose timer ran out (RFC 6298 §5.7).
const AFTER_SYN_LOSS_NS: u64 = 3_000_000_000;
/// The minimum RTT is measured anew after this many seconds (RFC 8985 §6.2 step 1
/// leaves the window open; Linux's default).
const MIN_RTT_WINDOW_S: u32 = 300;
/// A longer round trip counts as this (18 min): no sum below overflows.
const MAX_RTT_NS: u64 = 1 << 40;
/// Doublings beyond this no longer matter below any `rto_max`.
const MAX_BACKOFF: u8 = 32;

/// RTT estimator and RTO of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// SRTT in ns; 0 before the first sample.
    srtt: u64,
    rttvar: u64,
    /// Smallest RTT of the last minutes in ns; `u64::MAX` before the first sample.
    min: u64,
    /// Second in which `min` was measured.
    min_at: u32,
    rto_min_us: u32,
    rto_max_us: u32,
    /// Times the RTO was doubled since the last valid sample (RFC 6298 §5.5).
    backoff: u8,
    syn_was_lost: bool,
}

impl Rtt {
    pub(crate) fn new(config: &Config) -> Rtt {
        let us = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        Rtt {
            srtt: 0,
            rttvar: 0,
            min: u64::MAX,
            min_at: 0,
            rto_min_us: us(config.rto_min),
            rto_max_us: us(config.rto_max),
            backoff: 0,
            syn_was_lost: false,
        }
    }

    /// Goes on from what another stack measured; zero for what it did not.
    pub(crate) fn seed(&mut self, now: Instant, srtt: Duration, rttvar: Duration, min_rtt: Duration) {
        self.srtt = srtt.0.min(MAX_RTT_NS);
        self.rttvar = rttvar.0.min(MAX_RTT_NS);
        if min_rtt != Duration::ZERO {
            self.note_min(now, min_rtt.0.min(MAX_RTT_NS));
        }
    }

    #[inline]
    pub(crate) fn has_sample(&self) -> bool {
        self.srtt != 0
    }

    #[inline]
    pub(crate) fn srtt(&self) -> Duration {
        Duration(self.srtt)
    }

    pub(crate) fn rttvar(&self) -> Duration {
        Duration(self.rttvar)
    }

    /// The minimum RTT, if any was measured.
    #[inline]
    pub(crate) fn min(&self) -> Option<Duration> {
        (self.min != u64::MAX).then_some(Duration(self.min))
    }

    /// Takes a sample in. `share` is the number of such samples in a round trip as
    /// a power of two: the gains are divided by it (RFC 7323 Appendix G), so that
    /// the estimator's memory is counted in round trips, not in ACKs.
    #[inline]
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration, share: u32) {
        let r = rtt.0.clamp(1, MAX_RTT_NS);
        if self.srtt == 0 {
            // RFC 6298 §2.2.
            self.srtt = r;
            self.rttvar = r / 2;
        } else {
            // RFC 6298 §2.3: RTTVAR first; alpha = 1/8, beta = 1/4.
            let error = r as i64 - self.srtt as i64;
            let deviation = error.unsigned_abs() as i64 - self.rttvar as i64;
            self.rttvar = (self.rttvar as i64 + (deviation >> (2 + share))) as u64;
            self.srtt = ((self.srtt as i64 + (error >> (3 + share))) as u64).max(1);
        }
        // RFC 6298 §5.7: a new sample ends the backing off (Karn).
        self.backoff = 0;
        self.note_min(now, r);
    }

    #[inline]
    fn note_min(&mut self, now: Instant, r: u64) {
        if r <= self.min || ((now.0 / 1_000_000_000) as u32).wrapping_sub(self.min_at) > MIN_RTT_WINDOW_S {
            self.min = r;
            self.min_at = (now.0 / 1_000_000_000) as u32;
        }
    }

    /// RTO without backoff.
    ///
    /// RFC 6298 §2.3 with `rto_min` as the lower bound of the variance term, as in
    /// Linux: an RTO of SRTT + `rto_min` outlasts a peer's delayed ACK, and is never
    /// below what §2.4 with that minimum would give.
    #[inline]
    fn base(&self) -> u64 {
        if self.srtt == 0 {
            return if self.syn_was_lost { AFTER_SYN_LOSS_NS } else { INITIAL_RTO_NS };
        }
        self.srtt + (4 * self.rttvar).max(u64::from(self.rto_min_us) * 1_000)
    }

    /// The retransmission timeout as it stands, backoff included.
    #[inline]
    pub(crate) fn rto(&self) -> Duration {
        let max = u64::from(self.rto_max_us) * 1_000;
        let base = self.base().min(max);
        if self.backoff == 0 {
            return Duration(base);
        }
        Duration((u128::from(base) << self.backoff).min(u128::from(max)) as u64)
    }

    /// The timer ran out (RFC 6298 §5.5).
    pub(crate) fn back_off(&mut self) {
        // MUST-19 (RFC 9293 §3.8.2): exponential, and kept until something sent once
        // is acknowledged.
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    pub(crate) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// The timeout was spurious: the RTO returns to what the estimate says.
    pub(crate) fn end_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The handshake is over and its SYN had to be sent again (RFC 6298 §5.7).
    pub(crate) fn on_syn_loss(&mut self) {
        self.syn_was_lost = true;
        self.backoff = 0;
    }
}
