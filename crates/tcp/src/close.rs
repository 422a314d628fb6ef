//! Closing: CLOSE, ABORT, FINs both ways, the end (RFC 9293 §3.6, §3.10.4-5).
//!
//! `shutdown` closes the sending side only (half-close); `release` says that the
//! consumer has gone altogether, after which data that still arrives is answered
//! with a reset and FIN-WAIT-2 does not last for ever; `abort` resets.

use crate::command::{CloseReason, Command, CommandSink, Notice};
use crate::state::{Event, State};
use crate::tcb::{Context, Reply, Tcb};
use crate::timers::{Timer, Timers};
use baton_wire::tcp::Flags;

impl Tcb {
    /// CLOSE of RFC 9293 §3.10.4: no more data will be posted; a FIN follows what was.
    pub fn shutdown(&mut self, _cx: &mut Context<'_>, out: &mut impl CommandSink) {
        if self.is.shut {
            return;
        }
        match self.state {
            State::SynSent => {
                self.step(Event::Close);
                self.finish(CloseReason::Aborted, out);
            }
            // Queued until ESTABLISHED (RFC 9293 §3.10.4).
            State::SynReceived => self.is.shut = true,
            State::Established | State::CloseWait => {
                self.is.shut = true;
                self.step(Event::Close);
                out.command(Command::Fin);
            }
            _ => {}
        }
    }

    /// The consumer let go of both directions. The caller checks for unread data and then calls
    /// [`Tcb::abort`] (RFC 9293 §3.6.1).
    pub fn release(&mut self, cx: &mut Context<'_>, out: &mut impl CommandSink) {
        if self.is_closed() || self.is.orphan {
            return;
        }
        if self.rcv.parked() > 0 {
            // SHLD-3 (RFC 9293 §3.6.1): received and never read.
            return self.abort(cx, out);
        }
        self.shutdown(cx, out);
        self.is.orphan = true;
        if self.state == State::FinWait2 {
            self.timers.arm(Timer::Life, cx.now + self.fin_wait2(cx));
        }
    }

    /// ABORT of RFC 9293 §3.10.5.
    pub fn abort(&mut self, _cx: &mut Context<'_>, out: &mut impl CommandSink) {
        if !self.is_closed() {
            self.abort_with(CloseReason::Aborted, out);
        }
    }

    /// Resets the peer where RFC 9293 §3.10.5 says so, and ends.
    pub(crate) fn abort_with(&mut self, reason: CloseReason, out: &mut impl CommandSink) {
        let silent = matches!(self.state, State::SynSent | State::Closing | State::LastAck | State::TimeWait);
        if !silent {
            self.send_control(Flags::RST | Flags::ACK, self.snd.snd_nxt(), out);
        }
        let told = self.state == State::TimeWait;
        self.step(Event::Abort);
        self.end(reason, told, out);
    }

    /// Our FIN was sent: is it acknowledged?
    pub(crate) fn fin_acked(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        // The FIN is the last that we send.
        if !self.is.fin_sent || self.snd.snd_una() != self.snd.snd_nxt() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.step(Event::AckOfFin);
                out.command(Command::Notify(Notice::SendDone));
                if self.is.orphan {
                    self.timers.arm(Timer::Life, cx.now + self.fin_wait2(cx));
                }
            }
            State::Closing => {
                self.step(Event::AckOfFin);
                out.command(Command::Notify(Notice::SendDone));
                self.enter_time_wait(cx, out);
            }
            State::LastAck => {
                self.step(Event::AckOfFin);
                out.command(Command::Notify(Notice::SendDone));
                self.finish(CloseReason::Normal, out);
            }
            _ => {}
        }
    }

    /// Steps over the peer's FIN once all before it is here (RFC 9293 §3.10.7.4 eighth).
    pub(crate) fn pass_fin(&mut self, cx: &Context<'_>, reply: &mut Reply, out: &mut impl CommandSink) {
        if !self.state.may_receive() {
            return;
        }
        let Some(seq) = self.rcv.take_fin() else { return };
        // RFC 9293 §3.10.7.4 seventh: beyond the peer's FIN there is no text.
        self.rcv.drop_parked(out);
        out.command(Command::PeerFin { seq });
        // MUST-12 (RFC 9293 §3.6): a normal end of the peer's stream.
        out.command(Command::Notify(Notice::PeerFin));
        self.step(Event::Fin);
        reply.ack_now = true;
        if self.state == State::TimeWait {
            self.enter_time_wait(cx, out);
        }
    }

    fn fin_wait2(&self, cx: &Context<'_>) -> crate::time::Duration {
        self.rare.as_ref().and_then(|r| r.linger2).unwrap_or(cx.config.fin_wait2)
    }

    /// Both FINs are acknowledged, or the peer's just arrived: wait out old segments.
    fn enter_time_wait(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        self.timers = Timers::new();
        // MUST-13 (RFC 9293 §3.6.1): 2 MSL.
        self.timers.arm(Timer::Life, cx.now + cx.config.time_wait);
        self.rcv.drop_parked(out);
        self.rare = None;
        out.command(Command::Notify(Notice::Closed(CloseReason::Normal)));
        out.command(Command::Detach);
    }

    /// The connection is in CLOSED: everything is let go.
    pub(crate) fn finish(&mut self, reason: CloseReason, out: &mut impl CommandSink) {
        self.end(reason, false, out);
    }

    /// As [`Tcb::finish`]; with `told` the consumer knows already, since TIME-WAIT.
    pub(crate) fn end(&mut self, reason: CloseReason, told: bool, out: &mut impl CommandSink) {
        self.timers = Timers::new();
        self.rcv.drop_parked(out);
        self.rare = None;
        if !told {
            out.command(Command::Notify(Notice::Closed(reason)));
            out.command(Command::Detach);
        }
        out.command(Command::Release);
    }
}
