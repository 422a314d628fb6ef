//! Probing an idle peer (RFC 9293 §3.8.4).

use crate::command::CommandSink;
use crate::expire::SUMS_AGAIN;
use crate::state::State;
use crate::tcb::{Context, Tcb};
use crate::time::Instant;
use crate::timers::Timer;
use baton_wire::tcp::Flags;

impl Tcb {
    /// Starts the wait for silence, if the consumer asked for keepalive.
    pub(crate) fn arm_keepalive(&mut self, heard: Instant) {
        let orphaned = self.state == State::FinWait2 && self.is.orphan;
        if !self.state.is_synchronized() || self.state == State::TimeWait || orphaned {
            return;
        }
        let keepalive = self.rare.as_ref().and_then(|r| r.keepalive);
        match keepalive {
            // MUST-27 (RFC 9293 §3.8.4): the interval is the consumer's.
            Some(keepalive) => self.timers.arm(Timer::Life, heard + keepalive.idle),
            None => self.timers.disarm(Timer::Life),
        }
    }

    pub(crate) fn keepalive_due(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        let busy = self.snd.snd_una() != self.snd.snd_nxt() || self.timers.is_armed(Timer::Persist);
        let quiet = cx.now.since(self.last_heard);
        let Some((rare, keepalive)) = self.rare.as_mut().and_then(|r| r.keepalive.map(|k| (r, k))) else {
            return;
        };
        // MUST-26 (RFC 9293 §3.8.4): only with nothing outstanding and nothing heard.
        if self.last_heard >= rare.keepalive_at {
            rare.keepalive_sent = 0;
        }
        if busy || quiet < keepalive.idle {
            rare.keepalive_sent = 0;
            let since = if busy { cx.now } else { self.last_heard };
            return self.arm_keepalive(since);
        }
        let out_of_time = rare.user_timeout.is_some_and(|timeout| quiet >= timeout);
        // MUST-29 (RFC 9293 §3.8.4): one lost answer proves nothing.
        if rare.keepalive_sent >= keepalive.probes || (out_of_time && rare.keepalive_sent > 0) {
            return self.give_up(out);
        }
        rare.keepalive_sent += 1;
        rare.keepalive_at = cx.now;
        if rare.keepalive_sent > SUMS_AGAIN {
            self.sum_again(out);
        }
        // SHLD-12 (RFC 9293 §3.8.4): SEG.SEQ = SND.NXT - 1 and no data.
        self.send_control(Flags::ACK, self.snd.snd_nxt() - 1, out);
        self.timers.arm(Timer::Life, cx.now + keepalive.interval);
    }
}
