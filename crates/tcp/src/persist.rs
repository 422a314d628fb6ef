//! Zero-window probes and the override of silly-window avoidance
//! (RFC 9293 §3.8.6.1, §3.8.6.2.1).
//!
//! A probe into a closed window is a segment without data just before `snd_una`, which every
//! peer answers with its numbers (as in Linux): no byte is in flight that might be taken for
//! lost. A window too small to be worth a segment is used after a while, by as many bytes as
//! fit.

use crate::command::{Command, CommandSink};
use crate::expire::SUMS_AGAIN;
use crate::manner::Manner;
use crate::tcb::{Context, Tcb};
use crate::time::Duration;
use crate::timers::Timer;
use baton_wire::tcp::Flags;

/// How long a small window is left unused (RFC 9293 §3.8.6.2.1: 0.1 to 1 s).
const OVERRIDE: Duration = Duration::from_millis(500);

/// Probes that an orphan may send, answered or not: a peer must not be able to keep a
/// connection that nobody owns (RFC 6429; Linux: `tcp_orphan_retries`).
const ORPHAN_PROBES: u8 = 8;

impl Tcb {
    /// The Streamer has `queued` bytes or a FIN to send, nothing in flight, and may
    /// not send: then only we can find out when it may.
    pub fn on_blocked(&mut self, cx: &mut Context<'_>, queued: u32, _out: &mut impl CommandSink) {
        let idle = self.snd.snd_una() == self.snd.snd_nxt();
        let waiting = queued > 0 || (self.is.shut && !self.is.fin_sent);
        if !waiting || !idle || !self.state.is_synchronized() || self.timers.is_armed(Timer::Persist) {
            return;
        }
        self.probe_backoff = 0;
        self.arm_persist(cx);
        self.note_progress(cx.now);
        self.arm_user_timeout();
    }

    /// Bytes that the window leaves open, zero if it shrank below what is in flight.
    fn usable_window(&self) -> u32 {
        let edge = self.snd.snd_una() + self.snd_wnd;
        edge.since(self.snd.snd_nxt()).max(0) as u32
    }

    fn arm_persist(&mut self, cx: &Context<'_>) {
        let wait = if self.usable_window() > 0 {
            OVERRIDE
        } else {
            // SHLD-29, SHLD-30 (RFC 9293 §3.8.6.1): after an RTO, then twice as long each time.
            self.snd.rto().saturating_mul(1 << self.probe_backoff.min(16)).min(cx.config.rto_max)
        };
        self.timers.arm(Timer::Persist, cx.now + wait);
    }

    /// The window has been too small for long enough.
    pub(crate) fn persist_due(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        if self.snd.snd_una() != self.snd.snd_nxt() {
            return;
        }
        let usable = self.usable_window();
        if usable > 0 {
            // MUST-38 (RFC 9293 §3.8.6.2.1), (4): the override timeout.
            let snd_nxt = self.snd.snd_nxt();
            let len = usable.min(u32::from(self.eff_snd_mss()));
            out.command(Command::Retransmit { seq: snd_nxt, end: snd_nxt + len });
            // The Streamer reports it if data is still held back.
            return;
        }
        // MUST-37 (RFC 9293 §3.8.6.1): only probes that nobody answers are counted.
        let unanswered = self.probes > cx.config.retries;
        if unanswered || (self.is.orphan && self.probe_backoff >= ORPHAN_PROBES) {
            return self.give_up(out);
        }
        if self.probes >= SUMS_AGAIN {
            self.sum_again(out);
        }
        // MUST-35, MUST-36 (RFC 9293 §3.8.6): probe.
        self.send_control(Flags::ACK, self.snd.snd_una() - 1, out);
        self.probes = self.probes.saturating_add(1);
        self.probe_backoff = self.probe_backoff.saturating_add(1);
        self.arm_persist(cx);
    }

    /// The peer acknowledged something while probes were going on.
    pub(crate) fn probe_answered(&mut self, cx: &Context<'_>) {
        self.probes = 0;
        let usable = self.usable_window();
        let enough = u32::from(self.eff_snd_mss()).min(self.max_wnd / 2).max(1);
        if usable > 0 {
            self.probe_backoff = 0;
        }
        if usable >= enough && !self.manner.has(Manner::CORK) {
            self.timers.disarm(Timer::Persist);
        } else if usable > 0 {
            self.timers.arm_by(Timer::Persist, cx.now + OVERRIDE);
        }
    }
}
