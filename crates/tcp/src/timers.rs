//! The timers of a connection other than the sender's own (RTO, loss probe and
//! reordering, which `snd` keeps).
//!
//! A timer is a deadline; none is `Instant::NEVER`. The engine asks for the
//! earliest after each call and arms one entry of its wheel, lazily: a deadline
//! that moved later is found out when the old one fires.

use crate::time::Instant;

/// Which timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Timer {
    /// An ACK waits for company (RFC 9293 §3.8.6.3).
    DelayedAck,
    /// The window is closed and data waits: probe it (RFC 9293 §3.8.6.1).
    Persist,
    /// Nothing was heard for long: probe the peer (RFC 9293 §3.8.4). In
    /// TIME-WAIT and for an orphan in FIN-WAIT-2: the end.
    Life,
    /// The earlier one of what `rare.rs` keeps.
    Rare,
}

/// The deadlines, one a timer.
#[derive(Clone, Copy, Debug)]
pub struct Timers([Instant; 4]);

impl Timers {
    /// No timer runs.
    pub const fn new() -> Timers {
        Timers([Instant::NEVER; 4])
    }

    /// Starts or moves a timer.
    #[inline]
    pub fn arm(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    /// Moves a timer to `at` unless it is due before.
    pub fn arm_by(&mut self, timer: Timer, at: Instant) {
        let due = &mut self.0[timer as usize];
        *due = (*due).min(at);
    }

    /// Stops a timer.
    #[inline]
    pub fn disarm(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::NEVER;
    }

    /// True if the timer runs.
    #[inline]
    pub fn is_armed(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Instant::NEVER
    }

    /// Stops a timer that is due, and says whether it was.
    #[inline]
    pub fn take_due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.0[timer as usize] <= now;
        if due {
            self.disarm(timer);
        }
        due
    }

    /// The earliest deadline, `Instant::NEVER` if none runs.
    #[inline]
    pub fn earliest(&self) -> Instant {
        let [a, b, c, d] = self.0;
        a.min(b).min(c.min(d))
    }
}

impl Default for Timers {
    fn default() -> Timers {
        Timers::new()
    }
}
