//! Opening: from nothing to ESTABLISHED (RFC 9293 §3.5, §3.10.1, §3.10.7.3).
//!
//! ```text
//!   connect ---SYN--->  SYN-SENT --(SYN,ACK)-----------------> ESTABLISHED
//!                          |  (SYN)                               ^
//!                          v                                      |
//!   accept ---SYN,ACK--> SYN-RECEIVED --(ACK of our SYN)----------+
//!   from_cookie ---------------------------------------------------+
//! ```

use crate::command::{CloseReason, Command, CommandSink, Notice, SynReply};
use crate::cookie::Decoded;
use crate::handshake::{Agreed, Open, offer, our_scale};
use crate::manner::Manner;
use crate::rcv::Receiver;
use crate::reset::reset_for;
use crate::segment::{Placement, Segment};
use crate::state::{Event, State};
use crate::tcb::{Context, Reply, Tcb};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

impl Tcb {
    /// Opens actively: a SYN goes out (RFC 9293 §3.10.1).
    pub fn connect(cx: &mut Context<'_>, open: &Open, out: &mut impl CommandSink) -> Tcb {
        let scale = our_scale(cx.config);
        let rcv = Receiver::new(Seq(0), open.rcv_space, cx.config.unposted_window, scale);
        let mut tcb = Tcb::new(cx, open, State::SynSent, rcv);
        tcb.is.timestamps = cx.config.timestamps;
        tcb.is.ecn = cx.config.ecn;
        tcb.manner.set(Manner::SUMMED, !(cx.config.unsummed && open.path.on_link));
        tcb.send_syn(cx, false, out);
        tcb
    }

    /// Answers a SYN that reached a listener: a SYN-ACK goes out. Payload or FIN
    /// of the SYN are not taken; the peer sends them again.
    pub fn accept(cx: &mut Context<'_>, syn: &Segment, open: &Open, out: &mut impl CommandSink) -> Tcb {
        let agreed = Agreed::with(cx.config, open.path, syn);
        let rcv = Receiver::new(syn.seq + 1, open.rcv_space, cx.config.unposted_window, our_scale(cx.config));
        let mut tcb = Tcb::new(cx, open, State::SynReceived, rcv);
        // MUST-11 (RFC 9293 §3.5): a passive open remembers that it was one.
        tcb.is.passive = true;
        tcb.agree(&agreed);
        tcb.take_syn(syn);
        tcb.send_syn(cx, false, out);
        tcb
    }

    /// Goes on from a SYN cookie that `ack` brought back. The payload of `ack`,
    /// if it has any, is handed in by [`Tcb::handle_segment`] afterwards.
    pub fn from_cookie(
        cx: &mut Context<'_>,
        ack: &Segment,
        cookie: &Decoded,
        open: &Open,
        out: &mut impl CommandSink,
    ) -> Tcb {
        let rcv = Receiver::new(cookie.irs + 1, open.rcv_space, cx.config.unposted_window, our_scale(cx.config));
        let open = Open { iss: cookie.iss, ..*open };
        let mut tcb = Tcb::new(cx, &open, State::SynReceived, rcv);
        tcb.is.passive = true;
        tcb.agree(&cookie.agreed);
        tcb.rcv.ts_recent = ack.timestamps.map_or(0, |t| t.val);
        // Nobody remembers when the SYN-ACK left, so it counts as repeated: only a timestamp
        // gives an RTT (Karn).
        tcb.snd.on_sent(cx.now, open.iss, open.iss + 1, false, 0);
        tcb.snd.on_sent(cx.now, open.iss, open.iss + 1, true, 0);
        tcb.establish(cx, ack, Event::AckOfSyn, out);
        tcb
    }

    /// Takes the facts that only a SYN has: timestamp and initial window.
    fn take_syn(&mut self, syn: &Segment) {
        self.rcv.ts_recent = syn.timestamps.map_or(0, |t| t.val);
        self.take_window(syn, u32::from(syn.wnd));
    }

    /// Sets the send window from a segment that is known to be current.
    pub(crate) fn take_window(&mut self, seg: &Segment, snd_wnd: u32) {
        self.snd_wnd = snd_wnd;
        self.snd_wl1 = seg.seq;
        self.max_wnd = self.max_wnd.max(snd_wnd);
    }

    /// Our SYN, or SYN-ACK, for the first time or again.
    pub(crate) fn send_syn(&mut self, cx: &Context<'_>, again: bool, out: &mut impl CommandSink) {
        let iss = self.snd.snd_una();
        let opening = self.state == State::SynSent;
        let (mut flags, ack, ts_ecr) = if opening {
            (Flags::SYN, Seq(0), 0)
        } else {
            (Flags::SYN | Flags::ACK, self.rcv.rcv_nxt, self.rcv.ts_recent)
        };
        // RFC 3168 §6.1.1.1: a SYN sent again asks for no ECN, since something on the path may
        // have dropped it for that.
        self.is.ecn &= !(again && opening);
        if self.is.ecn {
            flags |= if opening { Flags::ECE | Flags::CWR } else { Flags::ECE };
        }
        let syn = if opening {
            SynReply { unsummed: self.is_unsummed(), ..offer(cx.config, self.path) }
        } else {
            self.reply(cx)
        };
        let ts_ecr = self.is.timestamps.then_some(ts_ecr);
        let wnd = self.rcv.syn_window_field();
        out.command(Command::Control { flags, seq: iss, ack, wnd, syn: Some(syn), ts_ecr });
        self.snd.on_sent(cx.now, iss, iss + 1, again, 0);
    }

    fn reply(&self, cx: &Context<'_>) -> SynReply {
        let agreed = Agreed {
            peer_mss: self.peer_mss,
            snd_wscale: self.is.scaled.then_some(self.snd_wscale),
            sack: self.is.sack,
            timestamps: self.is.timestamps,
            ecn: self.is.ecn,
            unsummed: self.is_unsummed(),
        };
        agreed.reply(cx.config, self.path)
    }

    /// SYN-SENT: RFC 9293 §3.10.7.3, first to fifth.
    pub(crate) fn answer_arrives(
        &mut self,
        cx: &mut Context<'_>,
        seg: &Segment,
        placement: Placement,
        out: &mut impl CommandSink,
    ) {
        let settle_none = |out: &mut _| drop_payload(placement, out);
        let acks_syn = seg.flags.contains(Flags::ACK);
        if acks_syn && !(seg.ack.after(self.snd.snd_una()) && seg.ack.before_eq(self.snd.snd_nxt())) {
            settle_none(out);
            if let Some(reset) = reset_for(seg) {
                out.command(reset);
            }
            return;
        }
        if seg.flags.contains(Flags::RST) {
            settle_none(out);
            // RFC5961-3.2-4: in SYN-SENT a reset counts if it acknowledges the SYN.
            if acks_syn {
                self.step(Event::Reset);
                self.finish(CloseReason::Refused, out);
            }
            return;
        }
        if !seg.flags.contains(Flags::SYN) {
            return settle_none(out);
        }
        let agreed = Agreed::with(cx.config, self.path, seg);
        // Two SYNs that cross do not answer each other, so neither end learns what the other has agreed to.
        let agreed = Agreed { unsummed: agreed.unsummed && self.is_unsummed() && acks_syn, ..agreed };
        let room = self.rcv.room();
        self.rcv = Receiver::new(seg.seq + 1, room, cx.config.unposted_window, our_scale(cx.config));
        self.agree(&agreed);
        self.take_syn(seg);
        self.last_heard = cx.now;
        if acks_syn {
            self.syn_acked(cx, seg, placement, out);
        } else {
            // MUST-10 (RFC 9293 §3.5): both may open at once.
            self.step(Event::Syn);
            self.send_syn(cx, true, out);
            self.hold(seg, placement, out);
        }
    }

    fn syn_acked(&mut self, cx: &mut Context<'_>, seg: &Segment, placement: Placement, out: &mut impl CommandSink) {
        self.establish(cx, seg, Event::SynAck, out);
        self.hold(seg, placement, out);
        self.rcv.settle(out);
        let mut reply = Reply::default();
        self.pass_fin(cx, &mut reply, out);
        if !self.is_closed() {
            self.send_ack(None, out);
        }
    }

    /// Text and FIN that came with a SYN wait until the connection is open
    /// (RFC 9293 §3.10.7.3 fourth).
    fn hold(&mut self, seg: &Segment, placement: Placement, out: &mut impl CommandSink) {
        if let Placement::Parked(id) = placement {
            self.rcv.on_parked(id, seg.seq + 1, seg.lengths.len, false, out);
        }
        if seg.flags.contains(Flags::FIN) {
            self.rcv.on_fin(seg.seq + 1 + seg.lengths.len);
        }
    }

    /// Our SYN is acknowledged by `seg`: the connection is open.
    pub(crate) fn establish(&mut self, cx: &mut Context<'_>, seg: &Segment, event: Event, out: &mut impl CommandSink) {
        self.step(event);
        let field = if seg.flags.contains(Flags::SYN) { u32::from(seg.wnd) } else { self.window_of(seg) };
        self.take_window(seg, field);
        self.acknowledge(cx, seg, true);
        self.timers.disarm(crate::timers::Timer::Persist);
        out.command(Command::Synchronized(self.synchronized()));
        self.tell_receive(out);
        self.is.untold = true;
        self.tell_transmit(out);
        out.command(Command::Notify(Notice::Established));
        self.arm_keepalive(cx.now);
        if self.is.shut {
            // A CLOSE that was queued (RFC 9293 §3.10.4, SYN-RECEIVED).
            self.is.shut = false;
            self.shutdown(cx, out);
        }
    }

    /// True while our SYN is what waits for an acknowledgment.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }
}

/// Parked payload that nobody wants.
pub(crate) fn drop_payload(placement: Placement, out: &mut impl CommandSink) {
    if let Placement::Parked(park) = placement {
        out.command(Command::Drop { park });
    }
}
