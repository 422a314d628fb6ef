//! TIME-WAIT: old segments are answered, a new SYN may end it early
//! (RFC 9293 §3.6.1, §3.10.7.4; RFC 6191).
//!
//! RFC 1337 would ignore resets here. RFC 9293 has them end the state, but only
//! at exactly `rcv_nxt` (RFC 5961 §3.2), which an old duplicate does not meet:
//! our FIN's acknowledgment was the last thing that the peer sent.

use crate::command::CommandSink;
use crate::segment::Segment;
use crate::state::{Event, State};
use crate::tcb::{Context, Tcb};
use crate::timers::Timer;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

impl Tcb {
    /// MAY-2 (RFC 9293 §3.6.1): whether `syn` may open a new connection in place of
    /// this one, which is in TIME-WAIT; then the least initial sequence number for it. The
    /// caller aborts this connection and hands `syn` to the listener.
    pub fn reopens_for(&self, syn: &Segment) -> Option<Seq> {
        let fresh = syn.flags.contains(Flags::SYN) && !syn.flags.intersects(Flags::ACK | Flags::RST);
        if self.state != State::TimeWait || !fresh {
            return None;
        }
        let later_seq = syn.seq.after(self.rcv.rcv_nxt);
        let accept = match syn.timestamps {
            // SHLD-4 (RFC 9293 §3.6.1), RFC 6191 §2: by timestamp if both incarnations have them ...
            Some(ts) if self.is.timestamps && ts.val != self.rcv.ts_recent => {
                Seq(ts.val).after(Seq(self.rcv.ts_recent))
            }
            // ... else by sequence number.
            _ => later_seq,
        };
        // As Linux: a window's worth beyond what the old incarnation used.
        accept.then(|| self.snd.snd_nxt() + 65_537)
    }

    /// A segment of the old incarnation.
    pub(crate) fn time_wait_arrives(&mut self, cx: &mut Context<'_>, seg: &Segment, out: &mut impl CommandSink) {
        if seg.flags.contains(Flags::RST) {
            if seg.seq == self.rcv.rcv_nxt {
                self.step(Event::Reset);
                self.end(crate::command::CloseReason::Normal, true, out);
            }
            return;
        }
        if seg.flags.contains(Flags::SYN) {
            // RFC5961-4.2-1: also here, if it may not open a new connection.
            if cx.challenge.allow(cx.now) {
                self.send_ack(None, out);
            }
            return;
        }
        if !seg.flags.contains(Flags::ACK) && seg.seq == self.rcv.rcv_nxt {
            // RFC 9293 §3.10.7.4 fifth: without ACK it is dropped.
            return;
        }
        if seg.flags.contains(Flags::FIN | Flags::ACK) && self.ts_in_order(seg) {
            // RFC 9293 §3.10.7.4 fifth, TIME-WAIT: acknowledge it again, wait again.
            self.timers.arm(Timer::Life, cx.now + cx.config.time_wait);
        }
        if (seg.seg_len() > 0 || seg.seq != self.rcv.rcv_nxt) && (seg.seg_len() > 0 || self.may_provoke(cx)) {
            self.send_ack(None, out);
        }
    }
}
