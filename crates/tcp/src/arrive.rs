//! A segment arrives: the steps of RFC 9293 §3.10.7.4, hardened as RFC 5961 says.
//!
//! [`Tcb::admit`] makes the checks and changes nothing; its [`Verdict`] says what
//! is to be done. Only a segment that passes all of them is processed.
//!
//! ```text
//!   TIME-WAIT?  -> time_wait.rs      SYN-SENT? -> open.rs
//!   SYN?        -> challenge         (SYN-RECEIVED: see `admit_syn`)
//!   timestamp   -> PAWS              (RFC 7323 §5.3, before the sequence number)
//!   sequence    -> ACK and drop
//!   RST         -> reset, challenge or nothing
//!   ACK         -> range check, then acknowledgment, window
//!   URG, text, FIN
//! ```

use crate::command::{CloseReason, Command, CommandSink, Notice};
use crate::open::drop_payload;
use crate::segment::{Placement, Segment};
use crate::snd::AckInput;
use crate::state::{Event, State};
use crate::tcb::{Context, Reply, Tcb};
use crate::time::Duration;
use crate::timers::Timer;
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::Flags;

/// How long TS.Recent stays good on an idle connection (RFC 7323 §5.5: 24 days).
const TS_RECENT_LIFE: Duration = Duration::from_secs(24 * 86_400);

/// Least time between two ACKs that segments without data provoke, in
/// milliseconds (Linux: `tcp_invalid_ratelimit`): ends ACK loops of two ends
/// that disagree.
const PROVOKED_ACK_MS: u32 = 500;

/// Ranges that one call sends again; more are left to a timer that is due at once.
const MAX_RETRANSMITS: usize = 4;

/// The treatment of a segment, after the check of its sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is acceptable: process acknowledgment, window, text, FIN.
    Process,
    /// Nothing.
    Ignore,
    /// Send an ACK with our numbers (RFC 9293 §3.10.7.4 first).
    Acknowledge,
    /// Send a challenge ACK, within the host's budget (RFC 5961).
    Challenge,
    /// The peer reset the connection.
    Reset,
    /// Answer with a reset at SEG.ACK.
    Refuse,
    /// Our SYN-ACK got lost.
    SynAgain,
    /// A half-open connection gives way to the listener.
    Relisten,
}

impl Tcb {
    /// Handles every segment that header prediction does not.
    pub(crate) fn segment_arrives(
        &mut self,
        cx: &mut Context<'_>,
        seg: &Segment,
        placement: Placement,
        out: &mut impl CommandSink,
    ) {
        match self.state {
            State::Closed | State::Listen => return drop_payload(placement, out),
            State::SynSent => return self.answer_arrives(cx, seg, placement, out),
            State::TimeWait => {
                drop_payload(placement, out);
                return self.time_wait_arrives(cx, seg, out);
            }
            _ => {}
        }
        let placed = matches!(placement, Placement::Placed { .. });
        let verdict = self.admit(cx, seg, placed);
        if verdict == Verdict::Process {
            return self.process(cx, seg, placement, out);
        }
        let dsack = self.duplicate_of(seg);
        drop_payload(placement, out);
        match verdict {
            Verdict::Process | Verdict::Ignore => {}
            Verdict::Acknowledge => self.acknowledge_unacceptable(cx, seg, dsack, out),
            Verdict::Challenge => self.challenge(cx, out),
            Verdict::Reset => self.reset_arrived(out),
            Verdict::Refuse => out.command(reset_at(seg.ack)),
            Verdict::SynAgain => self.send_syn(cx, true, out),
            Verdict::Relisten => {
                self.step(Event::Reset);
                self.finish(CloseReason::Reset, out);
            }
        }
    }

    /// All checks. `placed`: the Streamer made those of timestamp and sequence
    /// number, and found no flag but PSH beside ACK.
    pub(crate) fn admit(&self, cx: &Context<'_>, seg: &Segment, placed: bool) -> Verdict {
        if !placed && let Some(verdict) = self.admit_syn(seg).or_else(|| self.admit_position(cx, seg)) {
            return verdict;
        }
        if seg.flags.contains(Flags::RST) {
            return self.admit_reset(seg);
        }
        if !seg.flags.contains(Flags::ACK) {
            return Verdict::Ignore;
        }
        if self.state == State::SynReceived {
            // RFC 9293 §3.10.7.4 fifth, SYN-RECEIVED.
            let acks_syn = seg.ack.after(self.snd.snd_una()) && seg.ack.before_eq(self.snd.snd_nxt());
            return if acks_syn { Verdict::Process } else { Verdict::Refuse };
        }
        // RFC5961-5.2-2: outside of the range it is discarded, and an ACK sent back.
        if self.ack_is_current(seg) { Verdict::Process } else { Verdict::Challenge }
    }

    /// RFC 9293 §3.10.7.4 fourth, moved up: RFC 5961 §4.2 wants the answer
    /// whatever the sequence number.
    fn admit_syn(&self, seg: &Segment) -> Option<Verdict> {
        if !seg.flags.contains(Flags::SYN) || seg.flags.contains(Flags::RST) {
            return None;
        }
        if self.state != State::SynReceived {
            // RFC5961-4.2-1: a SYN gets a challenge ACK, and (RFC5961-4.2-2)
            // nothing else of it is looked at.
            return Some(Verdict::Challenge);
        }
        if seg.seq + 1 == self.rcv.rcv_nxt {
            // The SYN that made us, or its SYN-ACK when both opened: its ACK counts.
            return if seg.flags.contains(Flags::ACK) { None } else { Some(Verdict::SynAgain) };
        }
        if !self.rcv.is_acceptable(seg.seq, seg.seg_len()) {
            return Some(Verdict::Acknowledge);
        }
        // MUST-11 (RFC 9293 §3.5): how we came to SYN-RECEIVED decides.
        Some(if self.is.passive { Verdict::Relisten } else { Verdict::Challenge })
    }

    /// Timestamp, then sequence number (RFC 7323 §5.3 R1-R3).
    fn admit_position(&self, cx: &Context<'_>, seg: &Segment) -> Option<Verdict> {
        let is_reset = seg.flags.contains(Flags::RST);
        if !is_reset && self.is.timestamps && seg.timestamps.is_none() {
            // RFC 7323 §3.2: silently dropped.
            return Some(Verdict::Ignore);
        }
        let stale = cx.now.since(self.last_heard) > TS_RECENT_LIFE;
        if !is_reset && !stale && !self.rcv.ts_unknown && !self.ts_in_order(seg) {
            return Some(Verdict::Acknowledge);
        }
        let (seq, len) = self.text_position(seg);
        if self.rcv.is_acceptable(seq, len) {
            return None;
        }
        // RFC5961-3.2-1: a reset outside of the window is dropped in silence.
        Some(if is_reset { Verdict::Ignore } else { Verdict::Acknowledge })
    }

    /// Where a segment lies without the SYN that was taken before, and how long
    /// it is.
    fn text_position(&self, seg: &Segment) -> (Seq, u32) {
        if seg.flags.contains(Flags::SYN) { (seg.seq + 1, seg.seg_len() - 1) } else { (seg.seq, seg.seg_len()) }
    }

    /// RFC 9293 §3.10.7.4 second.
    fn admit_reset(&self, seg: &Segment) -> Verdict {
        if seg.seq == self.rcv.rcv_nxt || seg.seq == self.rcv.received() {
            // RFC5961-3.2-2: exactly the next number resets the connection.
            return if self.state == State::SynReceived && self.is.passive {
                Verdict::Relisten
            } else {
                Verdict::Reset
            };
        }
        if seg.seq.within(self.rcv.rcv_nxt, self.rcv.right_edge()) {
            // RFC5961-3.2-3: elsewhere in the window it is asked back.
            return Verdict::Challenge;
        }
        Verdict::Ignore
    }

    /// The old part of a segment, for D-SACK (RFC 2883 §4).
    fn duplicate_of(&self, seg: &Segment) -> Option<(Seq, Seq)> {
        let end = (seg.seq + seg.lengths.len).earliest(self.rcv.rcv_nxt);
        let recent = self.rcv.rcv_nxt.since(seg.seq) <= 1 << 24;
        (seg.lengths.len > 0 && seg.seq.before(end) && recent).then_some((seg.seq, end))
    }

    fn acknowledge_unacceptable(
        &mut self,
        cx: &Context<'_>,
        seg: &Segment,
        dsack: Option<(Seq, Seq)>,
        out: &mut impl CommandSink,
    ) {
        if self.rcv.on_probe() {
            self.tell_receive(out);
        }
        // Data is answered always: the peer needs to know. Two ends that only send each other
        // ACKs must come to rest.
        if seg.lengths.len > 0 || self.may_provoke(cx) {
            self.send_ack(dsack, out);
        }
    }

    fn challenge(&mut self, cx: &mut Context<'_>, out: &mut impl CommandSink) {
        // RFC5961-7-1: bounded for the connection and for the host.
        if self.may_provoke(cx) && cx.challenge.allow(cx.now) {
            self.send_ack(None, out);
        }
    }

    pub(crate) fn may_provoke(&mut self, cx: &Context<'_>) -> bool {
        let now = cx.now.timestamp_ms();
        let rested = now.wrapping_sub(self.challenged_ms) >= PROVOKED_ACK_MS;
        if rested {
            self.challenged_ms = now;
        }
        rested
    }

    /// The peer reset the connection. Bytes that it had sent before go to the consumer first, as
    /// Linux lets a program read what a reset found in its queue.
    pub(crate) fn reset_arrived(&mut self, out: &mut impl CommandSink) {
        if self.state.may_receive() && self.rcv.received() != self.rcv.rcv_nxt {
            self.rare().reset_waits = true;
        } else {
            self.reset(out);
        }
    }

    pub(crate) fn reset(&mut self, out: &mut impl CommandSink) {
        // MUST-12 (RFC 9293 §3.6): the consumer learns that it was no normal close. In
        // CLOSING and LAST-ACK too, as in Linux: what was sent may not have arrived.
        let reason = if self.state == State::SynReceived { CloseReason::Refused } else { CloseReason::Reset };
        self.step(Event::Reset);
        self.finish(reason, out);
    }

    /// Fifth to eighth step.
    fn process(&mut self, cx: &mut Context<'_>, seg: &Segment, placement: Placement, out: &mut impl CommandSink) {
        if self.orphan_gets_data(seg) {
            drop_payload(placement, out);
            return self.abort_with(CloseReason::Aborted, out);
        }
        if cx.now.since(self.last_heard) > TS_RECENT_LIFE || self.rcv.ts_unknown {
            // RFC 7323 §5.5: too old to compare with, or the stack before us did not say.
            self.rcv.ts_recent = seg.timestamps.map_or(0, |t| t.val.wrapping_sub(1));
        }
        self.last_heard = cx.now;
        let mut receive_changed = self.update_ts_recent(seg.seq, seg.timestamps);
        let mut released = false;
        if self.state == State::SynReceived {
            self.establish(cx, seg, Event::AckOfSyn, out);
            released = self.rcv.settle(out);
            receive_changed = false;
        } else {
            self.process_ack(cx, seg, out);
        }
        if self.is_closed() || self.state == State::TimeWait {
            return drop_payload(placement, out);
        }
        if receive_changed {
            self.tell_receive(out);
        }
        if self.refuses_urgent(cx, seg) {
            drop_payload(placement, out);
            return out.command(Command::Notify(Notice::UrgentRefused));
        }
        let dsack = self.duplicate_of(seg).or_else(|| self.rcv.placed_before(seg.seq, seg.seq + seg.lengths.len));
        let mut reply = Reply { ack_now: released || dsack.is_some(), dsack };
        self.process_ce(seg, &mut reply, out);
        self.process_urgent(seg, out);
        self.process_text(cx, seg, placement, &mut reply, out);
        self.process_fin(cx, seg, &mut reply, out);
        if reply.ack_now && !self.is_closed() {
            // MUST-58, MUST-59 (RFC 9293 §3.10.7.4): one ACK, behind all of the run
            // and of what it released.
            self.send_ack(reply.dsack, out);
        }
    }

    /// Nobody is left to read the data.
    fn orphan_gets_data(&self, seg: &Segment) -> bool {
        let (seq, _) = self.text_position(seg);
        // SHLD-3 (RFC 9293 §3.6.1): say with a reset that data was lost.
        self.is.orphan && self.state.may_receive() && (seq + seg.lengths.len).after(self.rcv.rcv_nxt)
    }

    /// Acknowledgment and window (RFC 9293 §3.10.7.4 fifth), then what they allow.
    #[inline]
    pub(crate) fn process_ack(&mut self, cx: &mut Context<'_>, seg: &Segment, out: &mut impl CommandSink) {
        let snd_una = self.snd.snd_una();
        if seg.ack.before(snd_una) {
            return self.overtaken_ack(cx, seg, out);
        }
        let snd_wnd = self.window_of(seg);
        let current = self.snd_wl1.before_eq(seg.seq);
        let wnd_changed = current && snd_wnd != self.snd_wnd;
        if current {
            // MUST-34 (RFC 9293 §3.8.6): it may shrink; `limit` then lies before `snd_nxt`.
            self.snd_wnd = snd_wnd;
            self.snd_wl1 = seg.seq;
            if snd_wnd > self.max_wnd {
                self.max_wnd = snd_wnd;
                self.is.untold = true;
            }
        }
        self.acknowledge(cx, seg, wnd_changed);
        if self.is.shut {
            self.fin_acked(cx, out);
            if self.is_closed() || self.state == State::TimeWait {
                return;
            }
        }
        if self.probes > 0 || self.timers.is_armed(Timer::Persist) {
            self.probe_answered(cx);
        }
        self.tell_transmit(out);
        self.send_again(cx, out);
    }

    /// An ACK that a later one overtook. RFC 9293 §3.10.7.4 lets it be ignored; its SACK blocks
    /// may report ranges that later ones had no space for, and are used, as in Linux.
    #[cold]
    fn overtaken_ack(&mut self, cx: &mut Context<'_>, seg: &Segment, out: &mut impl CommandSink) {
        if self.is.sack && !seg.sack.is_empty() {
            let flags = seg.flags.without(Flags::ECE);
            self.acknowledge(cx, &Segment { flags, ..*seg }, false);
            self.tell_transmit(out);
            self.send_again(cx, out);
        }
    }

    /// Gives an acknowledgment to the sender.
    pub(crate) fn acknowledge(&mut self, cx: &Context<'_>, seg: &Segment, wnd_changed: bool) {
        let outcome = self.snd.on_ack(
            cx.now,
            &AckInput {
                ack: seg.ack,
                sack: &seg.sack,
                ts_ecr: seg.timestamps.filter(|_| self.is.timestamps).map(|t| t.ecr),
                ts_now: cx.now.timestamp_ms().wrapping_add(self.ts_offset),
                ece: self.is.ecn && seg.flags.contains(Flags::ECE) && !seg.flags.contains(Flags::SYN),
                // All segments of a run say the same, so only the first tells anything new.
                segments: 1,
                has_data: seg.seg_len() > 0,
                wnd_changed,
                snd_wnd: Window(self.snd_wnd),
            },
        );
        if outcome.newly_acked > 0 {
            self.is.untold = true;
            self.note_progress(cx.now);
        }
        if outcome.cwr_needed {
            self.window_was_cut();
        }
    }

    /// Sends again what the sender takes for lost and the window of the network allows.
    #[inline]
    pub(crate) fn send_again(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) {
        for repeats in 0..MAX_RETRANSMITS {
            let Some((seq, end)) = self.snd.next_retransmit(cx.now) else {
                self.is.behind = false;
                if repeats > 0 {
                    // The rest of the window is for new data.
                    self.tell_transmit(out);
                }
                return;
            };
            out.command(Command::Retransmit { seq, end });
        }
        self.is.behind = true;
    }

    /// Seventh: the text.
    fn process_text(
        &mut self,
        cx: &Context<'_>,
        seg: &Segment,
        placement: Placement,
        reply: &mut Reply,
        out: &mut impl CommandSink,
    ) {
        let (seq, _) = self.text_position(seg);
        let arrived = match placement {
            Placement::Empty => {
                // A probe into a closed window, or one behind it.
                let is_fin = seg.flags.contains(Flags::FIN);
                reply.ack_now |= seg.lengths.len > 0 || (seq.before(self.rcv.rcv_nxt) && is_fin);
                return;
            }
            Placement::Placed { rcv_nxt, new_bytes } => {
                if !self.state.may_receive() {
                    return;
                }
                if new_bytes == 0 && seg.lengths.len > 0 {
                    reply.dsack = Some((seq, seq + seg.lengths.len));
                }
                let arrived = self.rcv.on_placed(seq, seq + seg.lengths.len, rcv_nxt, new_bytes);
                if self.rcv.parked() > 0 {
                    // Its turn may have come.
                    reply.ack_now |= self.rcv.settle(out);
                }
                arrived
            }
            Placement::Parked(id) if self.state.may_receive() => {
                self.rcv.on_parked(id, seq, seg.lengths.len, self.state.is_synchronized(), out)
            }
            Placement::Parked(park) => {
                // RFC 9293 §3.10.7.4 seventh: beyond the peer's FIN there is no text.
                return out.command(Command::Drop { park });
            }
        };
        self.note_arrival(cx, seg, arrived, reply);
    }

    /// Eighth: the FIN.
    fn process_fin(&mut self, cx: &mut Context<'_>, seg: &Segment, reply: &mut Reply, out: &mut impl CommandSink) {
        if seg.flags.contains(Flags::FIN) && self.state.may_receive() {
            let (seq, _) = self.text_position(seg);
            let fin = seq + seg.lengths.len;
            if fin.before_eq(self.rcv.right_edge()) {
                self.rcv.on_fin(fin);
            }
            reply.ack_now = true;
        }
        self.pass_fin(cx, reply, out);
    }

    /// Sixth: the urgent pointer, see `urgent.rs`.
    fn process_urgent(&mut self, seg: &Segment, out: &mut impl CommandSink) {
        if seg.flags.contains(Flags::URG)
            && self.state.may_receive()
            && let Some(end) = self.urgent_arrives(seg)
        {
            out.command(Command::Notify(Notice::Urgent(end)));
        }
    }
}

/// `<SEQ=SEG.ACK><CTL=RST>`.
fn reset_at(seq: Seq) -> Command {
    Command::Control { flags: Flags::RST, seq, ack: Seq(0), wnd: 0, syn: None, ts_ecr: None }
}
