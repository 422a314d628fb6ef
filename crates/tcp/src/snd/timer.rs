//! The one timer of a sender: retransmission (RFC 6298 §5), tail loss probe (RFC
//! 8985 §7), reordering (RFC 8985 §6.2), idle restart (RFC 5681 §4.1).

use super::ack::{AckInput, AckOutcome, Tally};
use super::{Data, Expired, Phase, Probe, Sender, Timer};
use crate::cc::{Signal, initial_window};
use crate::time::{Duration, Instant};
use baton_wire::seq::Seq;

/// Added to the probe timeout when one segment is in flight, for its ACK may be
/// delayed: WCDelAckT (RFC 8985 §7.2).
const WC_DEL_ACK: Duration = Duration::from_millis(200);
/// The probe timeout before any RTT sample (RFC 8985 §7.2).
const INITIAL_PTO: Duration = Duration::from_secs(1);
/// A probe earlier than this answers our own scheduling, not the network (Linux:
/// two jiffies).
const MIN_PTO: Duration = Duration::from_millis(2);
/// The probe timeout at most for what another stack sent. Its segments and their ACKs may be
/// lost to the move, and one that moves again and again has no time for more.
const INHERITED_PTO: Duration = Duration::from_millis(10);

impl Sender {
    /// When [`Sender::on_deadline`] wants to be called; `None` if nothing is to come.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        (self.timer != Timer::Off).then_some(self.deadline)
    }

    fn set_deadline(&mut self, timer: Timer, at: Instant) {
        self.timer = timer;
        self.deadline = at;
    }

    /// Sets the timer for what is in flight now. A reordering timer stays: only what
    /// [`Sender::detect_loss`] finds next can replace it.
    #[inline]
    pub(super) fn arm(&mut self, now: Instant) {
        if self.flight.is_empty() {
            return self.arm_idle(now);
        }
        if self.timer == Timer::Reorder {
            return;
        }
        let rto_at = self.rto_base + self.rtt.rto();
        // RFC 8985 §7.2: a probe is scheduled if the connection supports SACK, has
        // nothing SACKed and is not in recovery, once per flight.
        let may_probe = self.sack
            && (!self.irregular
                || (self.sacked == 0
                    && self.lost == 0
                    && self.probe == Probe::None
                    && self.retransmits == 0
                    && self.data != Data::Handshake
                    && matches!(self.phase, Phase::Open | Phase::Reduced)));
        if may_probe {
            // "If the RTO would expire earlier": then the probe goes at that time.
            return self.set_deadline(Timer::Tlp, (now + self.pto()).min(rto_at));
        }
        if self.probe == Probe::NewAllowed {
            return self.set_deadline(Timer::Tlp, (now + MIN_PTO).min(rto_at));
        }
        self.set_deadline(Timer::Rto, rto_at);
    }

    /// Sets the timer anew after a look for losses: RACK wants to look again at
    /// `reorder_at`.
    pub(super) fn rearm(&mut self, now: Instant, reorder_at: Option<Instant>) {
        if self.timer != Timer::Idle {
            self.timer = Timer::Off;
        }
        self.arm(now);
        if let Some(at) = reorder_at
            && self.timer != Timer::Off
            && at < self.deadline
        {
            self.set_deadline(Timer::Reorder, at);
        }
    }

    /// Nothing in flight: once nothing was sent for an RTO the window is no longer known to
    /// fit the path (RFC 5681 §4.1). Segments of the peer do not put that off.
    fn arm_idle(&mut self, now: Instant) {
        if self.timer == Timer::Idle {
            return;
        }
        // RFC 6298 §5.2: all acknowledged, the timer is off.
        self.timer = Timer::Off;
        if self.cc.cwnd > initial_window(self.mss) {
            self.set_deadline(Timer::Idle, now + self.rtt.rto());
        }
    }

    /// Probe timeout (RFC 8985 §7.2).
    #[inline]
    fn pto(&self) -> Duration {
        let known = self.rtt.has_sample().then(|| Duration(2 * self.rtt.srtt().0).max(MIN_PTO));
        if self.data == Data::Inherited {
            return known.map_or(INHERITED_PTO, |pto| pto.min(INHERITED_PTO));
        }
        let Some(pto) = known else { return INITIAL_PTO };
        if self.in_flight() <= u32::from(self.mss) { pto + WC_DEL_ACK } else { pto }
    }

    /// Time has come to `now`; does what is due, if anything.
    pub fn on_deadline(&mut self, now: Instant) -> Expired {
        if self.timer == Timer::Off || now < self.deadline {
            return Expired::None;
        }
        match self.timer {
            Timer::Off => Expired::None,
            Timer::Idle => {
                self.timer = Timer::Off;
                self.cc.on_idle(self.mss);
                Expired::Idle
            }
            Timer::Tlp => self.on_probe_timeout(now),
            Timer::Reorder => self.on_reorder_timeout(now),
            Timer::Rto => self.on_rto(now),
        }
    }

    /// MUST-18 (RFC 9293 §3.8.1): RFC 6298 §5.4 to §5.6.
    fn on_rto(&mut self, now: Instant) -> Expired {
        self.rtt.back_off();
        self.retransmits = self.retransmits.saturating_add(1);
        self.rto_base = now;
        self.probe = Probe::None;
        self.irregular = true;
        if self.data != Data::Handshake {
            self.enter_loss(now);
        }
        self.rearm(now, None);
        Expired::Rto { count: self.retransmits }
    }

    /// RFC 8985 §7.3: new data if there is any and the peer has room, else the last
    /// segment again; so, too, if the new data was held back, by Nagle's algorithm or
    /// for a move.
    fn on_probe_timeout(&mut self, now: Instant) -> Expired {
        let held_back = self.probe == Probe::NewAllowed;
        let room = self.wnd_edge.since(self.snd_nxt)
            >= i32::from(self.mss).min(i32::try_from(self.queued).unwrap_or(i32::MAX));
        self.probe = if self.queued > 0 && room && !held_back { Probe::NewAllowed } else { Probe::Due };
        self.tlp_end = self.snd_nxt;
        self.irregular = true;
        // The RTO is counted from the probe.
        self.rto_base = now;
        self.rearm(now, None);
        Expired::Tlp
    }

    fn on_reorder_timeout(&mut self, now: Instant) -> Expired {
        let mut tally = Tally { prior_pipe: self.pipe(), prior_flight: self.in_flight(), ..Tally::default() };
        let (lost, next) = self.detect_loss(now);
        tally.lost = lost;
        if lost > 0 && matches!(self.phase, Phase::Open | Phase::Reduced) {
            self.enter_recovery(&tally);
        }
        self.irregular = true;
        self.rearm(now, next);
        Expired::Reorder
    }

    /// A probe is out.
    pub(super) fn probe_sent(&self) -> bool {
        matches!(self.probe, Probe::NewSent | Probe::RepeatSent)
    }

    /// An ACK at or past the probe's end (RFC 8985 §7.4.2).
    pub(super) fn on_probe_answer(
        &mut self,
        a: &AckInput<'_>,
        dsack: Option<(Seq, Seq)>,
        tally: &Tally,
        out: &mut AckOutcome,
    ) {
        let was_repeat = self.probe == Probe::RepeatSent;
        if !was_repeat {
            self.probe = Probe::None;
            return;
        }
        if dsack.is_some_and(|(_, end)| end == self.tlp_end) {
            // Both copies arrived: nothing was lost.
            self.probe = Probe::None;
        } else if a.ack.after(self.tlp_end) {
            // The probe repaired a loss that nobody else saw: respond to it.
            self.probe = Probe::None;
            if matches!(self.phase, Phase::Open) {
                self.cc.on_congestion(Signal::Congestion, tally.prior_flight, self.mss);
                out.cwr_needed = true;
            }
        } else if tally.duplicate && a.sack.is_empty() {
            // A duplicate without SACK: from the second copy.
            self.probe = Probe::None;
        }
    }
}
