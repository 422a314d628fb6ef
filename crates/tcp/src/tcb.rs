//! The TCP Control Engine's copy of a connection, and its one way in.
//!
//! A [`Tcb`] is told of segments ([`Tcb::handle_segment`]), of what the Streamer
//! sent ([`Tcb::on_transmitted`]), of room, of time and of the consumer's wishes,
//! and answers with commands. The work is cut by concern:
//!
//! ```text
//!   open.rs      LISTEN, SYN-SENT, SYN-RECEIVED up to ESTABLISHED
//!   arrive.rs    a segment in any later state, step by step as RFC 9293 §3.10.7.4
//!   expire.rs    deadlines: retransmission, probes, delayed ACKs
//!   close.rs     CLOSE, ABORT, FINs, TIME-WAIT, the end
//!   adopt.rs     connections that come from another stack, and go to one
//!   rcv.rs ack.rs run.rs reassembly.rs      receiving side
//!   snd/ cc/                         sending side
//! ```
//!
//! Header prediction (LA §3) stands in [`Tcb::handle_segment`], its rules in
//! `predict.rs`: the next bytes of an established connection, or an ACK of ours, take
//! the short way.

use crate::ack::AckPolicy;
use crate::challenge::ChallengeLimiter;
use crate::command::{Command, CommandSink, Synchronized, TransmitContext};
use crate::config::{Acks, Config};
use crate::handshake::{Agreed, Open};
use crate::kind::Handled;
use crate::manner::Manner;
use crate::path::Path;
use crate::rare::Rare;
use crate::rcv::Receiver;
use crate::segment::{Placement, Segment, Transmitted};
use crate::snd::Sender;
use crate::state::{Event, State};
use crate::time::Instant;
use crate::timers::{Timer, Timers};
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::{Flags, Timestamps};

/// The surroundings that a connection may look at while it decides.
#[derive(Debug)]
pub struct Context<'a> {
    /// Time of the event.
    pub now: Instant,
    /// The host's choices.
    pub config: &'a Config,
    /// The host's budget of challenge ACKs (RFC 5961 §7).
    pub challenge: &'a mut ChallengeLimiter,
}

/// One connection.
#[derive(Debug)]
pub struct Tcb {
    pub(crate) snd: Sender,
    pub(crate) rcv: Receiver,
    pub(crate) ack: AckPolicy,
    pub(crate) state: State,
    pub(crate) is: Is,
    /// How data is sent, as the Streamer is told.
    pub(crate) manner: Manner,
    pub(crate) snd_wscale: WindowScale,
    /// SND.WND of RFC 9293 §3.3.1, in bytes.
    pub(crate) snd_wnd: u32,
    /// SND.WL1. SND.WL2 is not kept: an older acknowledgment than SND.UNA is not
    /// looked at, so its test always holds.
    pub(crate) snd_wl1: Seq,
    /// MAX.SND.WND of RFC 5961 §5.
    pub(crate) max_wnd: u32,
    /// The limit that the Streamer was told last.
    told_limit: Seq,
    pub(crate) ts_offset: u32,
    pub(crate) path: Path,
    /// The MTU assumed for the path when the connection opened, in bytes.
    pub(crate) link_mtu: u16,
    pub(crate) peer_mss: u16,
    /// Window probes sent since one was answered, and by how much they are backed off.
    pub(crate) probes: u8,
    pub(crate) probe_backoff: u8,
    /// Millisecond clock of the last ACK that a segment without data provoked.
    pub(crate) challenged_ms: u32,
    /// When an acceptable segment was last received.
    pub(crate) last_heard: Instant,
    pub(crate) timers: Timers,
    pub(crate) rare: Option<Box<Rare>>,
}

/// The yes-or-no facts of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Is {
    /// Opened by a listener.
    pub passive: bool,
    pub timestamps: bool,
    pub sack: bool,
    pub scaled: bool,
    pub ecn: bool,
    /// The consumer closed its sending side.
    pub shut: bool,
    pub fin_sent: bool,
    /// Nobody holds the connection any more.
    pub orphan: bool,
    /// The Streamer has to be told whatever the limit says.
    pub untold: bool,
    /// More is to be sent again than one call may command: go on at once.
    pub behind: bool,
}

/// The answer that a processed segment calls for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reply {
    pub ack_now: bool,
    pub dsack: Option<(Seq, Seq)>,
}

impl Tcb {
    pub(crate) fn new(cx: &Context<'_>, open: &Open, state: State, rcv: Receiver) -> Tcb {
        Tcb {
            snd: Sender::new(cx.config, open.iss, open.path.default_mss(), cx.now),
            rcv,
            ack: AckPolicy::new(),
            state,
            is: Is { untold: true, ..Is::default() },
            manner: Manner::default(),
            snd_wscale: WindowScale::default(),
            snd_wnd: 0,
            snd_wl1: Seq(0),
            max_wnd: 0,
            told_limit: open.iss,
            ts_offset: open.ts_offset,
            path: open.path,
            link_mtu: open.path.mtu,
            peer_mss: open.path.default_mss(),
            probes: 0,
            probe_backoff: 0,
            challenged_ms: cx.now.timestamp_ms().wrapping_sub(u32::MAX / 2),
            last_heard: cx.now,
            timers: Timers::new(),
            rare: None,
        }
    }

    /// State.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// The connection is gone: [`Command::Release`] was issued.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// When [`Tcb::on_deadline`] is to be called next, if ever.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        let sender = match self.state {
            State::Closed | State::TimeWait => Instant::NEVER,
            _ if self.is.behind => Instant(0),
            _ => self.snd.deadline().unwrap_or(Instant::NEVER),
        };
        let earliest = self.timers.earliest().min(sender);
        (earliest != Instant::NEVER).then_some(earliest)
    }

    /// A segment, or a run of them, arrived. Its parked payload, if any, is
    /// answered by exactly one [`Command::Place`] without `rest`, or [`Command::Drop`],
    /// now or later. Returns what header prediction counts.
    #[inline]
    pub fn handle_segment(
        &mut self,
        cx: &mut Context<'_>,
        seg: &Segment,
        placement: Placement,
        out: &mut impl CommandSink,
    ) -> Handled {
        if !self.is_predicted(cx.config.prediction, seg, placement) {
            let kind = self.kind_of(seg);
            self.segment_arrives(cx, seg, placement, out);
            return Handled { kind, predicted: false };
        }
        let kind = self.kind_of_predicted(seg);
        match placement {
            Placement::Placed { rcv_nxt, .. } => self.next_bytes(cx, seg, rcv_nxt, out),
            _ => {
                self.last_heard = cx.now;
                if self.update_ts_recent(seg.seq, seg.timestamps) {
                    self.tell_receive(out);
                }
                self.process_ack(cx, seg, out);
            }
        }
        Handled { kind, predicted: true }
    }

    /// Exactly the next bytes were placed.
    #[inline]
    fn next_bytes(&mut self, cx: &mut Context<'_>, seg: &Segment, rcv_nxt: Seq, out: &mut impl CommandSink) {
        self.last_heard = cx.now;
        if self.update_ts_recent(seg.seq, seg.timestamps) {
            self.tell_receive(out);
        }
        if seg.lengths.count > 1 && cx.config.acks == Acks::EverySecond {
            return self.acknowledge_each(cx, seg, out);
        }
        self.rcv.rcv_nxt = self.rcv.rcv_nxt.latest(rcv_nxt);
        if self.says_news(seg) {
            // All of a run say it, and the last is the one that may be believed soonest.
            let last = seg.seq + u32::from(seg.lengths.size) * u32::from(seg.lengths.count - 1);
            self.process_ack(cx, &Segment { seq: last, ..*seg }, out);
        }
        if self.data_in_order(cx, &seg.lengths) {
            self.send_ack(None, out);
        }
    }

    /// The segment has more to say than that its bytes are here.
    #[inline]
    pub(crate) fn says_news(&self, seg: &Segment) -> bool {
        seg.ack != self.snd.snd_una() || self.window_of(seg) != self.snd_wnd || !seg.sack.is_empty()
    }

    /// The window that a segment offers, in bytes (not for a SYN, whose window
    /// is never scaled).
    #[inline]
    pub(crate) fn window_of(&self, seg: &Segment) -> u32 {
        // MUST-1 (RFC 9293 §3.1): unsigned all the way, in 32 bits (REC-1).
        self.snd_wscale.expand(seg.wnd).0
    }

    /// RFC 5961 §5: `SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT`.
    #[inline]
    pub(crate) fn ack_is_current(&self, seg: &Segment) -> bool {
        // RFC5961-5.2-1: an ACK outside of this range makes the segment unacceptable.
        let una = self.snd.snd_una();
        seg.ack.since(una) >= -(self.max_wnd.min(1 << 30) as i32) && seg.ack.before_eq(self.snd.snd_nxt())
    }

    /// Timestamp not older than the last (RFC 7323 §5.3 R1), and there if agreed on.
    #[inline]
    pub(crate) fn ts_in_order(&self, seg: &Segment) -> bool {
        match seg.timestamps {
            Some(timestamps) => !self.is.timestamps || Seq(timestamps.val).after_eq(Seq(self.rcv.ts_recent)),
            None => !self.is.timestamps,
        }
    }

    /// TS.Recent (RFC 7323 §4.3), of a segment at `seq`; true if it changed.
    #[inline]
    pub(crate) fn update_ts_recent(&mut self, seq: Seq, timestamps: Option<Timestamps>) -> bool {
        match timestamps {
            Some(timestamps)
                if self.is.timestamps
                    && Seq(timestamps.val).after(Seq(self.rcv.ts_recent))
                    && seq.before_eq(self.rcv.last_ack_sent) =>
            {
                self.rcv.ts_recent = timestamps.val;
                self.rcv.ts_unknown = false;
                true
            }
            _ => false,
        }
    }

    /// The Streamer sent something.
    pub fn on_transmitted(&mut self, cx: &mut Context<'_>, sent: &Transmitted, out: &mut impl CommandSink) {
        if self.is_closed() {
            return;
        }
        let was_idle = self.snd.snd_una() == self.snd.snd_nxt();
        self.snd.on_sent(cx.now, sent.seq, sent.end, sent.retransmit, sent.queued);
        self.timers.disarm(Timer::Persist);
        if was_idle && self.rare.is_some() {
            self.note_progress(cx.now);
            self.arm_user_timeout();
        }
        if sent.fin {
            self.is.fin_sent = true;
        }
        if !sent.retransmit {
            self.ack.on_data_sent();
            // RFC 3168 §6.1.2: CWR on the first new data after the window was cut.
            self.is.untold |= self.manner.has(Manner::CWR);
            self.manner.set(Manner::CWR, false);
        }
        self.on_ack_left(sent.ack);
        self.tell_transmit(out);
    }

    /// An acknowledgment number left, alone or with data.
    #[inline]
    pub(crate) fn on_ack_left(&mut self, ack: Seq) {
        self.rcv.on_ack_sent(ack);
        if self.rcv.last_ack_sent.after_eq(self.rcv.rcv_nxt) {
            self.timers.disarm(Timer::DelayedAck);
        }
    }

    /// The consumer made room: it now reaches up to `right_edge`.
    pub fn on_posted(&mut self, cx: &mut Context<'_>, right_edge: Seq, out: &mut impl CommandSink) {
        if self.is_closed() {
            return;
        }
        let moved = self.rcv.on_posted(right_edge, self.eff_snd_mss());
        if !self.state.is_synchronized() {
            return;
        }
        if moved {
            self.tell_receive(out);
        }
        let rcv_nxt = self.rcv.rcv_nxt;
        let settled = self.rcv.parked() > 0 && self.rcv.settle(out);
        if self.reset_waits() {
            return self.reset_arrived(out);
        }
        if settled {
            self.pass_fin(cx, &mut Reply::default(), out);
            let waited = core::mem::take(&mut self.rcv.gap_untold);
            // Without SACK a second duplicate for the same segments would tell nothing.
            if (waited || self.is.sack || self.rcv.rcv_nxt != rcv_nxt) && !self.is_closed() {
                self.send_ack(None, out);
            }
        } else if moved && self.owes_window_update() {
            self.send_ack(None, out);
        }
    }

    /// The consumer took its room back. Promised room stays promised; data that
    /// arrives is parked until there is room again.
    pub fn on_unposted(&mut self) {
        self.rcv.on_unposted();
    }

    /// As [`Tcb::on_posted`], with a segment about to be handled whose answer
    /// may show the window anyway: if it does not, a deadline that is due will.
    #[inline]
    pub fn note_posted(&mut self, cx: &mut Context<'_>, right_edge: Seq, out: &mut impl CommandSink) {
        if self.rcv.parked() > 0 {
            self.on_posted(cx, right_edge, out);
        } else if self.state.is_synchronized() && self.rcv.on_posted(right_edge, self.eff_snd_mss()) {
            self.tell_receive(out);
            if self.owes_window_update() {
                self.timers.arm(Timer::DelayedAck, cx.now);
            }
        }
    }

    fn owes_window_update(&self) -> bool {
        self.state.may_receive() && self.rcv.wants_window_update()
    }

    /// One ACK without data.
    pub(crate) fn send_ack(&mut self, dsack: Option<(Seq, Seq)>, out: &mut impl CommandSink) {
        if !self.state.is_synchronized() {
            // The Streamer does not know of the numbers yet.
            return self.send_control(Flags::ACK, self.snd.snd_nxt(), out);
        }
        // RFC 2018 §3: three blocks beside timestamps, four without.
        let most = match (self.is.sack, self.is.timestamps) {
            (false, _) => 0,
            (true, true) => 3,
            (true, false) => 4,
        };
        let ack = self.rcv.rcv_nxt;
        let sack = if most == 0 { Default::default() } else { self.rcv.sack_blocks(dsack, most) };
        out.command(Command::Ack { ack, sack });
        self.ack.on_pure_ack();
        self.on_ack_left(ack);
    }

    /// A segment of headers only, with the timestamps option if agreed on.
    pub(crate) fn send_control(&mut self, flags: Flags, seq: Seq, out: &mut impl CommandSink) {
        let ack = if flags.contains(Flags::ACK) { self.rcv.rcv_nxt } else { Seq(0) };
        let ts_ecr = self.is.timestamps.then_some(self.rcv.ts_recent);
        out.command(Command::Control { flags, seq, ack, wnd: self.rcv.window_field(), syn: None, ts_ecr });
        if flags.contains(Flags::ACK) {
            self.on_ack_left(ack);
        }
    }

    /// Replaces the Streamer's transmit context if anything in it changed.
    #[inline]
    pub(crate) fn tell_transmit(&mut self, out: &mut impl CommandSink) {
        self.tell_context(false, out);
    }

    /// As [`Tcb::tell_transmit`]; `push`: what is queued leaves, whatever the cork says.
    #[inline]
    pub(crate) fn tell_context(&mut self, push: bool, out: &mut impl CommandSink) {
        let limit = self.snd.limit(Window(self.snd_wnd));
        if !self.is.untold && limit == self.told_limit {
            return;
        }
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        self.is.untold = false;
        self.told_limit = limit;
        out.command(Command::Transmit(TransmitContext {
            snd_una: self.snd.snd_una(),
            limit,
            mss: self.eff_snd_mss(),
            max_wnd: self.max_wnd,
            manner: self.manner,
            push,
        }));
    }

    /// Right edge and timestamp for the Streamer.
    #[inline]
    pub(crate) fn tell_receive(&mut self, out: &mut impl CommandSink) {
        out.command(Command::Receive { right_edge: self.rcv.right_edge(), ts_recent: self.rcv.ts_recent });
    }

    /// Payload bytes of a full segment that we send (RFC 9293 §3.7.1).
    #[inline]
    pub(crate) fn eff_snd_mss(&self) -> u16 {
        // MUST-16 (RFC 9293 §3.7.1): the lesser of what the peer takes and what
        // the path carries, less the options that go along with data.
        let options = if self.is.timestamps { 12 } else { 0 };
        self.peer_mss.min(self.path.mss_limit()) - options
    }

    /// Both agreed to go without checksums, and nothing has spoken against it since; while the
    /// connection opens, we ask for it.
    #[inline]
    pub(crate) fn is_unsummed(&self) -> bool {
        !self.manner.has(Manner::SUMMED)
    }

    /// Takes over what the SYNs agreed on.
    pub(crate) fn agree(&mut self, agreed: &Agreed) {
        self.peer_mss = agreed.peer_mss;
        self.is.scaled = agreed.snd_wscale.is_some();
        self.is.sack = agreed.sack;
        self.is.timestamps = agreed.timestamps;
        self.is.ecn = agreed.ecn;
        self.manner.set(Manner::SUMMED, !agreed.unsummed);
        self.snd_wscale = agreed.snd_wscale.unwrap_or_default();
        if !self.is.scaled {
            self.rcv.scale = WindowScale::default();
        }
        self.snd.set_sack(agreed.sack);
        self.snd.set_timestamps(agreed.timestamps);
        self.snd.set_mss(self.eff_snd_mss());
    }

    /// The Streamer's first copy.
    pub(crate) fn synchronized(&self) -> Synchronized {
        Synchronized {
            snd_una: self.snd.snd_una(),
            snd_nxt: self.snd.snd_nxt(),
            fin_sent: self.is.fin_sent,
            rcv_nxt: self.rcv.rcv_nxt,
            rcv_wscale: self.rcv.scale,
            ts_recent: self.is.timestamps.then_some(self.rcv.ts_recent),
            sack: self.is.sack,
            ecn: self.is.ecn,
            unsummed: self.is_unsummed() && !self.is.passive,
            snd_wscale: self.is.scaled.then_some(self.snd_wscale),
            peer_mss: self.peer_mss,
            advmss: self.advmss(),
            path_mtu: self.path.mtu,
        }
    }

    /// Moves along the table of `state.rs`.
    pub(crate) fn step(&mut self, event: Event) {
        self.state = self.state.next(event).expect("callers move only along the table");
    }
}

#[cfg(test)]
mod tests {
    use super::Tcb;

    /// An idle connection may cost 1 KiB in all; this is its part of the decisions.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Tcb>() <= 400, "{}", size_of::<Tcb>());
    }
}
