//! HyStart++ (RFC 9406): leave slow start when the round-trip time rises, before
//! a queue overflows. For the first slow start only (RFC 9406 §4.3).

use super::{Acked, Stage};
use baton_wire::seq::Seq;

/// RTT samples a round needs before its minimum counts (RFC 9406 §4.3).
const N_RTT_SAMPLE: u16 = 8;
/// Bounds of the rise that counts, µs (MIN_RTT_THRESH, MAX_RTT_THRESH).
const RTT_THRESH_US: (u32, u32) = (4_000, 16_000);
/// Share of the last round's minimum that counts as a rise (MIN_RTT_DIVISOR).
const MIN_RTT_DIVISOR: u32 = 8;
/// In Conservative Slow Start growth is divided by this.
const CSS_GROWTH_DIVISOR: u32 = 4;
/// Rounds of Conservative Slow Start before congestion avoidance.
const CSS_ROUNDS: u8 = 5;

/// State of one slow start; round-trip times in µs, `u32::MAX` for none yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    round_end: Seq,
    last_min: u32,
    current_min: u32,
    css_baseline_min: u32,
    samples: u16,
    css_rounds: u8,
    in_css: bool,
    started: bool,
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart {
            round_end: Seq(0),
            last_min: u32::MAX,
            current_min: u32::MAX,
            css_baseline_min: u32::MAX,
            samples: 0,
            css_rounds: 0,
            in_css: false,
            started: false,
        }
    }
}

/// True if Conservative Slow Start has run its rounds.
pub(super) fn is_done(divisor: u32, stage: &Stage) -> bool {
    divisor != 1 && matches!(stage, Stage::SlowStart(h) if h.css_rounds >= CSS_ROUNDS)
}

impl HyStart {
    /// Takes acknowledgments in; returns what slow start's growth is divided by.
    pub(super) fn on_ack(&mut self, a: &Acked) -> u32 {
        if !self.started || a.snd_una.after_eq(self.round_end) {
            self.next_round(a);
        }
        if let Some(rtt) = a.rtt {
            self.current_min = self.current_min.min(u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
            self.samples = self.samples.saturating_add(a.acks);
        }
        if self.samples >= N_RTT_SAMPLE && self.current_min != u32::MAX {
            self.judge();
        }
        if self.in_css { CSS_GROWTH_DIVISOR } else { 1 }
    }

    /// A round lasts until what was sent at its start is acknowledged.
    fn next_round(&mut self, a: &Acked) {
        if self.in_css {
            self.css_rounds += 1;
        }
        self.started = true;
        self.round_end = a.snd_nxt;
        self.last_min = self.current_min;
        self.current_min = u32::MAX;
        self.samples = 0;
    }

    /// RFC 9406 §4.2: into Conservative Slow Start on a rise, and back out of it if
    /// the rise was a jitter.
    fn judge(&mut self) {
        if self.in_css {
            if self.current_min < self.css_baseline_min {
                self.in_css = false;
                self.css_rounds = 0;
                self.css_baseline_min = u32::MAX;
            }
        } else if self.last_min != u32::MAX {
            let thresh = (self.last_min / MIN_RTT_DIVISOR).clamp(RTT_THRESH_US.0, RTT_THRESH_US.1);
            if self.current_min >= self.last_min.saturating_add(thresh) {
                self.css_baseline_min = self.current_min;
                self.in_css = true;
                self.css_rounds = 0;
            }
        }
    }
}
