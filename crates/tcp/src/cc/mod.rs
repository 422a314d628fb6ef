//! Congestion control: how large `cwnd` may be (RFC 5681, RFC 9438, RFC 9406).
//!
//! All of it counts bytes. [`Cc::on_ack`] grows the window for what one or more
//! acknowledgments covered; [`Cc::on_congestion`] shrinks it. How the window is
//! spent during recovery is the business of [`crate::snd`] (PRR), which sets
//! `cwnd` itself meanwhile.
//!
//! Growth is counted per original acknowledgment even if a run of many arrives as
//! one (RA §3.4): the result for a run of k equals that of k single ones.
//!
//! ```text
//!        slow start (HyStart++)             congestion avoidance
//!   cwnd < ssthresh: += min(acked, L·SMSS)  Reno: SMSS a window; CUBIC: by time
//!        |                                        |
//!        +------- loss, ECE: ssthresh = β·flight -+
//!        +------- timeout: the same, cwnd = SMSS -+
//! ```

mod cubic;
mod hystart;

use crate::config::Congestion;
use crate::time::{Duration, Instant};
use baton_wire::seq::Seq;
use cubic::{Epoch, Memory};
use hystart::HyStart;

/// `cwnd` never exceeds this, bytes: the largest window that RFC 7323 §2.3 can express.
pub(crate) const MAX_CWND: u32 = 1 << 30;

/// Bytes a single acknowledgment may add in slow start, in units of SMSS: RFC 9406
/// §4.3 asks for 8 without pacing. One ACK of a receiver that merges segments
/// covers dozens of them, so RFC 5681's limit of 1 would never end.
const SLOW_START_L: u32 = 8;

/// Why the window shrinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// Loss found by acknowledgments, or ECE: `cwnd` goes to `ssthresh`.
    Congestion,
    /// The retransmission timer: `cwnd` goes to one segment.
    Timeout,
}

/// One or more acknowledgments of new data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// Time of arrival.
    pub now: Instant,
    /// Newly acknowledged bytes.
    pub bytes: u32,
    /// Original acknowledgments that it stands for, at least 1.
    pub acks: u16,
    /// Current segment size (SMSS), bytes.
    pub mss: u16,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// The newest round-trip time, if one was measured.
    pub rtt: Option<Duration>,
    /// `snd_una` after it.
    pub snd_una: Seq,
    /// Highest sequence number sent.
    pub snd_nxt: Seq,
    /// Slow start after a timeout, up to the data outstanding at that time.
    pub after_timeout: bool,
}

/// State that only one of the two phases of growth needs.
#[derive(Clone, Copy, Debug)]
enum Stage {
    SlowStart(HyStart),
    Avoidance(Epoch),
}

/// A connection's congestion control state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cc {
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow start threshold, bytes; `u32::MAX` before the first congestion.
    pub ssthresh: u32,
    /// Acknowledged bytes that have not yet led to growth.
    acked: u32,
    memory: Memory,
    stage: Stage,
    kind: Congestion,
}

/// The initial window (RFC 6928 §2): 10 segments, at most 14600 bytes unless two
/// segments are more.
pub(crate) fn initial_window(mss: u16) -> u32 {
    let mss = u32::from(mss);
    (10 * mss).min((2 * mss).max(14_600))
}

impl Cc {
    pub(crate) fn new(kind: Congestion, mss: u16) -> Cc {
        Cc {
            cwnd: initial_window(mss),
            // RFC 5681 §3.1: ssthresh starts arbitrarily high.
            ssthresh: u32::MAX,
            acked: 0,
            memory: Memory::default(),
            stage: Stage::SlowStart(HyStart::default()),
            kind,
        }
    }

    /// Goes on with a window that another stack arrived at.
    pub(crate) fn seeded(kind: Congestion, mss: u16, cwnd: u32, ssthresh: u32) -> Cc {
        let cwnd = cwnd.clamp(u32::from(mss), MAX_CWND);
        let mut cc = Cc { cwnd, ssthresh, ..Cc::new(kind, mss) };
        if !cc.in_slow_start() {
            cc.stage = Stage::Avoidance(Epoch::default());
        }
        cc
    }

    /// Changes the algorithm; the window stays.
    pub(crate) fn set_kind(&mut self, kind: Congestion) {
        self.kind = kind;
        self.memory = Memory::default();
        self.acked = 0;
        if !self.in_slow_start() {
            self.stage = Stage::Avoidance(Epoch::default());
        }
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// MUST-19 (RFC 9293 §3.8.2): slow start and congestion avoidance of RFC 5681.
    #[inline]
    pub(crate) fn on_ack(&mut self, a: &Acked) {
        let rest = if self.in_slow_start() { self.slow_start(a) } else { a.bytes };
        if rest > 0 && !self.in_slow_start() {
            self.avoid_congestion(a, rest);
        }
    }

    /// Grows exponentially; returns the bytes left over after crossing `ssthresh`.
    fn slow_start(&mut self, a: &Acked) -> u32 {
        let mss = u32::from(a.mss);
        // RFC 3465 §2.3: L is 1 in the slow start that follows a timeout, where one
        // ACK may cover what left the network long before.
        let per_ack = if a.after_timeout { mss } else { SLOW_START_L * mss };
        let divisor = match &mut self.stage {
            Stage::SlowStart(hystart) if self.ssthresh == u32::MAX => hystart.on_ack(a),
            _ => 1,
        };
        let growth = a.bytes.min(per_ack.saturating_mul(u32::from(a.acks))) / divisor;
        if hystart::is_done(divisor, &self.stage) {
            self.ssthresh = self.cwnd;
            self.enter_avoidance();
            return a.bytes;
        }
        if self.cwnd.saturating_add(growth) < self.ssthresh.min(MAX_CWND) {
            self.cwnd += growth;
            return 0;
        }
        let left = self.cross_ssthresh(a, per_ack, divisor);
        self.enter_avoidance();
        left
    }

    /// The acknowledgments one by one up to the one that reaches `ssthresh`, so
    /// that those behind it count for congestion avoidance.
    fn cross_ssthresh(&mut self, a: &Acked, per_ack: u32, divisor: u32) -> u32 {
        let each = a.bytes / u32::from(a.acks.max(1));
        let mut left = a.bytes;
        while left > 0 && self.in_slow_start() && self.cwnd < MAX_CWND {
            let bytes = if left < 2 * each || each == 0 { left } else { each };
            self.cwnd = self.cwnd.saturating_add((bytes.min(per_ack) / divisor).max(1)).min(MAX_CWND);
            left -= bytes;
        }
        left
    }

    fn enter_avoidance(&mut self) {
        self.acked = 0;
        self.stage = Stage::Avoidance(Epoch::default());
    }

    fn avoid_congestion(&mut self, a: &Acked, bytes: u32) {
        if let Stage::SlowStart(_) = self.stage {
            self.enter_avoidance();
        }
        match (&mut self.stage, self.kind) {
            (Stage::Avoidance(epoch), Congestion::Cubic) => {
                epoch.on_ack(&mut self.memory, &mut self.cwnd, &mut self.acked, a, bytes);
            }
            _ => self.reno(u32::from(a.mss), bytes),
        }
        self.cwnd = self.cwnd.min(MAX_CWND);
    }

    /// RFC 5681 §3.1: one SMSS for each window of acknowledged bytes.
    fn reno(&mut self, mss: u32, bytes: u32) {
        self.acked = self.acked.saturating_add(bytes);
        while self.acked >= self.cwnd && self.cwnd < MAX_CWND {
            self.acked -= self.cwnd;
            self.cwnd += mss;
        }
    }

    /// An acknowledgment came while the application, not `cwnd`, limited the
    /// flight: no growth, and CUBIC's clock stands still (RFC 9438 §5.8).
    pub(crate) fn on_unlimited_ack(&mut self) {
        if let Stage::Avoidance(epoch) = &mut self.stage {
            epoch.pause();
        }
    }

    /// Shrinks the window; `flight` is FlightSize in bytes (RFC 5681 §3.1).
    pub(crate) fn on_congestion(&mut self, signal: Signal, flight: u32, mss: u16) {
        let mss = u32::from(mss);
        // RFC 5681 §3.1 (4): from FlightSize, not from a cwnd that was not used.
        let flight = flight.min(self.cwnd);
        let reduced = match self.kind {
            Congestion::Reno => flight / 2,
            Congestion::Cubic => self.memory.on_congestion(self.cwnd, flight),
        };
        self.ssthresh = reduced.max(2 * mss);
        self.cwnd = match signal {
            Signal::Congestion => self.ssthresh,
            Signal::Timeout => mss,
        };
        self.enter_avoidance();
    }

    /// RFC 5681 §4.1: after an idle RTO the window is no larger than the restart
    /// window; `ssthresh` keeps three quarters of what had been reached (RFC 7661 §4.4).
    pub(crate) fn on_idle(&mut self, mss: u16) {
        let restart = initial_window(mss);
        if self.cwnd > restart {
            if self.ssthresh != u32::MAX {
                self.ssthresh = self.ssthresh.max(self.cwnd - self.cwnd / 4);
            }
            self.cwnd = restart;
            self.enter_avoidance();
            if self.ssthresh == u32::MAX {
                self.stage = Stage::SlowStart(HyStart::default());
            }
        }
    }
}

#[cfg(test)]
mod tests;
