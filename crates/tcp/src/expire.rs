//! Actions when a deadline passes (RFC 9293 §3.10.8, §3.8.3).

use crate::command::{CloseReason, Command, CommandSink, Notice};
use crate::manner::Manner;
use crate::snd::{Expired, Phase};
use crate::state::{Event, State};
use crate::tcb::{Context, Tcb};
use crate::time::Instant;
use crate::timers::Timer;

/// Retransmissions of one segment after which the network is told.
///
/// SHLD-10 (RFC 9293 §3.8.3): R1 is at least 3.
pub(crate) const R1: u8 = 3;

/// Retransmissions or probes in a row without an answer after which checksums come back. One
/// alone is often just a loss.
pub(crate) const SUMS_AGAIN: u8 = 2;

impl Tcb {
    /// Does whatever is due.
    pub fn on_deadline(&mut self, cx: &mut Context<'_>, out: &mut impl CommandSink) {
        if self.timers.take_due(Timer::DelayedAck, cx.now) {
            self.rcv.gap_untold = false;
            self.send_ack(None, out);
        }
        if self.timers.take_due(Timer::Persist, cx.now) {
            self.persist_due(cx, out);
        }
        if self.timers.take_due(Timer::Life, cx.now) {
            self.life_due(cx, out);
        }
        if self.timers.take_due(Timer::Rare, cx.now) {
            self.rare_due(cx, out);
        }
        if matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        if self.snd.deadline().is_some_and(|at| at <= cx.now) {
            self.sender_due(cx, out);
        } else if self.is.behind {
            self.send_again(cx, out);
        }
    }

    fn sender_due(&mut self, cx: &mut Context<'_>, out: &mut impl CommandSink) {
        let before = self.snd.phase();
        let expired = self.snd.on_deadline(cx.now);
        let found_lost = before != Phase::Recovery && self.snd.phase() == Phase::Recovery;
        if matches!(expired, Expired::Rto { .. }) || found_lost {
            self.window_was_cut();
        }
        if let Expired::Rto { count } = expired {
            if !self.retransmission_due(cx, count, out) {
                return;
            }
            if self.is_opening() {
                return self.send_syn(cx, true, out);
            }
        }
        self.tell_transmit(out);
        self.send_again(cx, out);
    }

    /// The retransmission timer ran out for the `count`th time in a row. False if
    /// the connection is given up.
    fn retransmission_due(&mut self, cx: &Context<'_>, count: u8, out: &mut impl CommandSink) -> bool {
        // MUST-20, MUST-22 (RFC 9293 §3.8.3): R2 closes, for SYNs and for data.
        let most = match self.state {
            // MUST-23 (RFC 9293 §3.8.3): three minutes and more, see `Config::syn_retries`.
            State::SynSent => cx.config.syn_retries,
            State::SynReceived => cx.config.synack_retries,
            _ => cx.config.retries,
        };
        // MUST-21 (RFC 9293 §3.8.3): the consumer's own R2, as a time.
        let out_of_time = self.user_deadline().is_some_and(|at| at <= cx.now);
        // SHLD-17, MUST-37 (RFC 9293 §3.8.6): a peer that closed its window over data
        // in flight, and says so, is not dead.
        let held = self.snd_wnd == 0
            && !self.is_opening()
            && cx.now.since(self.last_heard) < cx.config.rto_max.saturating_mul(2);
        if out_of_time || (count > most && !held) {
            self.give_up(out);
            return false;
        }
        if count == R1 && !self.is_opening() {
            // MUST-20, SHLD-9 (RFC 9293 §3.8.3): R1. The consumer hears of it; a router that
            // died is found by its neighbour entry's own probing (RFC 4861 §7.3).
            out.command(Command::Notify(Notice::SoftError(CloseReason::TimedOut)));
        }
        if count == SUMS_AGAIN {
            self.sum_again(out);
        }
        if self.state.is_synchronized() {
            self.suspect_black_hole(cx, count);
        }
        true
    }

    /// Segments have checksums again, for good: something on the way, or a peer that went to another
    /// stack, may drop those without.
    pub(crate) fn sum_again(&mut self, out: &mut impl CommandSink) {
        if self.is_unsummed() {
            self.manner.set(Manner::SUMMED, true);
            self.is.untold = true;
            self.tell_transmit(out);
        }
    }

    /// No answer for too long.
    pub(crate) fn give_up(&mut self, out: &mut impl CommandSink) {
        if self.is_opening() {
            self.step(Event::Abort);
            self.finish(CloseReason::TimedOut, out);
        } else {
            self.abort_with(CloseReason::TimedOut, out);
        }
    }

    /// TIME-WAIT, an orphan's FIN-WAIT-2, or silence.
    fn life_due(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        match self.state {
            State::TimeWait => {
                self.step(Event::Timeout);
                self.end(CloseReason::Normal, true, out);
            }
            State::FinWait2 if self.is.orphan => {
                self.step(Event::Timeout);
                self.finish(CloseReason::Normal, out);
            }
            _ => self.keepalive_due(cx, out),
        }
    }

    /// When the user timeout ends what waits now, if the consumer set one.
    fn user_deadline(&self) -> Option<Instant> {
        let rare = self.rare.as_deref()?;
        let waiting = self.snd.snd_una() != self.snd.snd_nxt() || self.timers.is_armed(Timer::Persist);
        rare.user_timeout.filter(|_| waiting).map(|timeout| rare.stalled_since + timeout)
    }

    /// Starts, moves or stops the user timeout.
    pub(crate) fn arm_user_timeout(&mut self) {
        let at = self.user_deadline();
        if let Some(rare) = &mut self.rare {
            rare.user_at = at.unwrap_or(Instant::NEVER);
            self.arm_rare();
        }
    }

    fn rare_due(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        if self.user_deadline().is_some_and(|at| at <= cx.now) {
            return self.give_up(out);
        }
        let path_due = self.rare.as_ref().is_some_and(|rare| rare.path_mtu_at <= cx.now);
        if path_due {
            self.rare().path_mtu_at = Instant::NEVER;
            self.raise_path_mtu(out);
        }
        self.arm_user_timeout();
    }
}
