//! Acknowledgments: the plain path, and the one for everything else.

use super::flight::{LOST, RETRANSMITTED, SACKED};
use super::rack::{DUP_THRESH, Delivered};
pub(super) use super::{AckInput, AckOutcome};
use super::{Data, Phase, Probe, Sender};
use crate::cc::Acked;
use crate::time::{Duration, Instant};
use baton_wire::seq::Seq;

/// The sums of one acknowledgment.
#[derive(Default)]
pub(super) struct Tally {
    /// Bytes that `snd_una` moved by.
    pub newly_acked: u32,
    /// Bytes newly known to have arrived, by either kind of acknowledgment.
    pub delivered: u32,
    /// Of these, bytes by SACK.
    pub newly_sacked: u32,
    /// Of these, bytes that were sent only once.
    pub original: u32,
    /// When the newest cumulatively acknowledged data sent only once was sent.
    pub sample_at: Option<Instant>,
    /// Data that was sent more than once is among the cumulatively acknowledged.
    pub repeated: bool,
    /// Bytes newly deemed lost.
    pub lost: u32,
    /// It is a duplicate in the sense of RFC 5681 §2.
    pub duplicate: bool,
    /// The recovery or reduction that it ended.
    pub left: Option<Phase>,
    /// Bytes in pipe before it.
    pub prior_pipe: u32,
    /// FlightSize before it.
    pub prior_flight: u32,
}

impl AckInput<'_> {
    /// How many of the acknowledgments that this stands for covered `part` of the `whole`
    /// bytes.
    #[inline]
    fn acks_for(&self, part: u32, whole: u32) -> u16 {
        let acks = self.segments.max(1);
        if part == whole || acks == 1 {
            return acks;
        }
        (u64::from(acks) * u64::from(part)).div_ceil(u64::from(whole)) as u16
    }

    /// True if TSecr shows that what triggered this acknowledgment was sent before
    /// `sent_at`. One tick of slack: our reports of sending may lag behind it.
    pub(super) fn echoes_before(&self, now: Instant, sent_at: Instant) -> bool {
        self.ts_ecr.is_some_and(|ecr| {
            let sent = self.ts_now.wrapping_sub(now.since(sent_at).as_millis() as u32);
            Seq(ecr).before(Seq(sent.wrapping_sub(1)))
        })
    }
}

impl Sender {
    /// Takes an acknowledgment in. Acknowledgments for data never sent are the
    /// caller's to answer (RFC 9293 §3.10.7.4) and do nothing here.
    #[inline]
    pub fn on_ack(&mut self, now: Instant, a: &AckInput<'_>) -> AckOutcome {
        self.wnd_edge = a.ack.latest(self.snd_una) + a.snd_wnd.0;
        if self.irregular || a.ece || !a.sack.is_empty() || !a.ack.after(self.snd_una) {
            return self.on_irregular_ack(now, a);
        }
        if a.ack.after(self.snd_nxt) {
            return AckOutcome::default();
        }
        self.on_plain_ack(now, a)
    }

    /// New data acknowledged, nothing lost, nothing repeated.
    #[inline]
    fn on_plain_ack(&mut self, now: Instant, a: &AckInput<'_>) -> AckOutcome {
        let flight = self.in_flight();
        let newly_acked = a.ack.0.wrapping_sub(self.snd_una.0);
        let mut sent_at = now;
        while let Some(front) = self.flight.front() {
            sent_at = front.sent_at;
            if front.end.after(a.ack) {
                break;
            }
            self.flight.pop_front();
            if front.end == a.ack {
                break;
            }
        }
        self.snd_una = a.ack;
        let rtt = now.since(sent_at);
        self.rtt.sample(now, rtt, share_of_flight(newly_acked, flight));
        self.rack.on_plain(now, sent_at, a.ack);
        self.grow(now, a, newly_acked, newly_acked, Some(rtt), false);
        // RFC 6298 §5.3: an ACK of new data restarts the timer.
        self.rto_base = now;
        self.arm(now);
        AckOutcome { newly_acked, ..AckOutcome::default() }
    }

    /// Lets congestion control grow the window for `bytes` out of the `whole` newly
    /// acknowledged, as far as they were sent while the window was the limit.
    /// `after_timeout`: in the recovery from one, where the window is the limit always.
    #[inline]
    pub(super) fn grow(
        &mut self,
        now: Instant,
        a: &AckInput<'_>,
        bytes: u32,
        whole: u32,
        rtt: Option<Duration>,
        after_timeout: bool,
    ) {
        let mut counted = bytes;
        if !after_timeout && self.snd_una.after(self.limited_end) {
            counted = bytes.saturating_sub(self.snd_una.0.wrapping_sub(self.limited_end.0));
            self.limited_end = self.snd_una - 1;
            self.cc.on_unlimited_ack();
        }
        if counted == 0 {
            return;
        }
        self.cc.on_ack(&Acked {
            now,
            bytes: counted,
            acks: a.acks_for(counted, whole),
            mss: self.mss,
            srtt: self.rtt.srtt(),
            rtt,
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            after_timeout,
        });
    }

    /// Everything that is not plain: the handshake, duplicates, SACK, ECE, and all
    /// acknowledgments while something is lost or being probed.
    fn on_irregular_ack(&mut self, now: Instant, a: &AckInput<'_>) -> AckOutcome {
        if a.ack.after(self.snd_nxt) {
            return AckOutcome::default();
        }
        let mut out = AckOutcome::default();
        let mut tally = self.take_in(now, a);
        out.newly_acked = tally.newly_acked;
        let rtt = self.take_sample(now, a, &tally);
        let (dsack, probe_answered) = self.take_blocks(now, a, &mut tally);
        if tally.newly_acked > 0 && self.data == Data::Handshake {
            self.on_handshake_done(tally.newly_acked);
        }
        if tally.newly_acked > 0 && matches!(self.probe, Probe::NewAllowed | Probe::Due) {
            self.probe = Probe::None;
        }
        if probe_answered {
            self.on_probe_answer(a, dsack, &tally, &mut out);
        }
        self.detect_spurious(now, a, dsack, &tally, &mut out);
        let reorder_at = self.find_losses(now, &mut tally);
        self.change_phase(a, &mut tally, &mut out);
        self.spend_or_grow(now, a, &tally, rtt, &out);
        self.restart_timer(now, &tally);
        self.settle();
        self.rearm(now, reorder_at);
        out
    }

    /// Drops what the cumulative acknowledgment covers from the flight.
    fn take_in(&mut self, now: Instant, a: &AckInput<'_>) -> Tally {
        let mut tally = Tally { prior_pipe: self.pipe(), prior_flight: self.in_flight(), ..Tally::default() };
        // RFC 5681 §2: data outstanding, no data with it, the same acknowledgment
        // number, the same window.
        tally.duplicate = a.ack == self.snd_una && self.snd_nxt != self.snd_una && !a.has_data && !a.wnd_changed;
        if !a.ack.after(self.snd_una) {
            return tally;
        }
        tally.newly_acked = a.ack.0.wrapping_sub(self.snd_una.0);
        let mut start = self.snd_una;
        while let Some(front) = self.flight.front() {
            let end = front.end.earliest(a.ack);
            let bytes = end.0.wrapping_sub(start.0);
            if bytes == 0 {
                break;
            }
            if front.has(SACKED) {
                self.sacked -= bytes;
            } else {
                tally.delivered += bytes;
                self.lost -= if front.has(LOST) { bytes } else { 0 };
                if front.has(RETRANSMITTED) {
                    tally.repeated = true;
                } else {
                    tally.original += bytes;
                    tally.sample_at = Some(front.sent_at);
                }
                let maybe_first = self.in_frto() || a.echoes_before(now, front.sent_at);
                self.rack.on_delivered(now, &Delivered { burst: front, end, maybe_first }, self.rtt.min());
            }
            start = end;
            if front.end.after(a.ack) {
                break;
            }
            self.flight.pop_front();
        }
        self.snd_una = a.ack;
        if !self.sack {
            self.deflate(&mut tally);
        }
        tally
    }

    /// Without SACK, each duplicate ACK stood for a segment that arrived; now that
    /// the hole is filled, the acknowledged ones among them no longer do.
    fn deflate(&mut self, tally: &mut Tally) {
        let mss = u32::from(self.mss);
        let counted = self.sacked.min(tally.newly_acked.saturating_sub(mss));
        self.sacked = (self.sacked - counted).min(self.in_flight() - self.lost);
        tally.delivered -= counted.min(tally.delivered);
    }

    /// One RTT sample: by our own record of sending, or, if repeated data was acknowledged, by
    /// the timestamp (Karn's algorithm, RFC 6298 §3; RFC 7323 §4.1). Data behind a hole that
    /// was filled had waited for it, so it does not count either.
    fn take_sample(&mut self, now: Instant, a: &AckInput<'_>, tally: &Tally) -> Option<Duration> {
        if tally.newly_acked == 0 {
            return None;
        }
        let rtt = match (tally.sample_at, a.ts_ecr) {
            (Some(sent_at), _) if !tally.repeated => now.since(sent_at),
            (_, Some(ecr)) if self.timestamps && tally.delivered > 0 => {
                let ms = a.ts_now.wrapping_sub(ecr);
                if ms > i32::MAX as u32 {
                    return None;
                }
                // Within one tick of the clock only the tick is known.
                Duration::from_millis(u64::from(ms.max(1)))
            }
            _ => return None,
        };
        self.rtt.sample(now, rtt, share_of_flight(tally.newly_acked, tally.prior_flight));
        Some(rtt)
    }

    /// Reads SACK blocks; tells of a D-SACK and whether a tail loss probe is answered.
    fn take_blocks(&mut self, now: Instant, a: &AckInput<'_>, tally: &mut Tally) -> (Option<(Seq, Seq)>, bool) {
        let mut dsack = None;
        if self.sack && !a.sack.is_empty() {
            let blocks = self.read_blocks(a);
            self.mark_sacked(now, &blocks, tally);
            dsack = blocks.dsack;
        }
        let answered = self.probe_sent() && a.ack.after_eq(self.tlp_end);
        if let Some((_, end)) = dsack
            && !(answered && end == self.tlp_end)
        {
            self.rack.on_dsack(self.snd_una, self.snd_nxt);
        }
        (dsack, answered)
    }

    /// The SYN is acknowledged.
    fn on_handshake_done(&mut self, newly_acked: u32) {
        self.data = Data::Ours;
        self.limited_end = self.snd_una - newly_acked;
        if self.retransmits > 0 {
            // RFC 5681 §3.1: after a lost SYN the initial window is one segment.
            self.cc.cwnd = u32::from(self.mss);
            self.rtt.on_syn_loss();
        }
    }

    /// By RACK with SACK, by counting duplicates without. Returns when to look again.
    fn find_losses(&mut self, now: Instant, tally: &mut Tally) -> Option<Instant> {
        if self.sack {
            let (lost, next) = self.detect_loss(now);
            tally.lost = lost;
            return next;
        }
        None
    }

    /// Restarts the retransmission timer after progress.
    fn restart_timer(&mut self, now: Instant, tally: &Tally) {
        if tally.newly_acked == 0 {
            return;
        }
        self.retransmits = 0;
        // RFC 6582 §3.2 step 3: without SACK, only the first partial ACK of a
        // recovery restarts the timer.
        let partial = !self.sack && self.phase == Phase::Recovery;
        if !partial || self.first_partial_ack() {
            self.rto_base = now;
        }
    }

    /// Without SACK: counts duplicates, each of which says that a segment left the
    /// network (RFC 5681 §3.2). While they stay below the threshold pipe shrinks by
    /// a segment each, so that new data follows: limited transmit (RFC 3042).
    pub(super) fn count_duplicates(&mut self, a: &AckInput<'_>, tally: &mut Tally) -> bool {
        if tally.newly_acked > 0 {
            self.dupacks = 0;
            return false;
        }
        if !tally.duplicate || self.phase == Phase::Loss {
            return false;
        }
        let acks = a.segments.max(1);
        self.dupacks = self.dupacks.saturating_add(acks);
        let mss = u32::from(self.mss);
        // At least the segment that is missing has not arrived.
        let most = self.in_flight().saturating_sub(mss).saturating_sub(self.lost);
        let grown = self.sacked.saturating_add(mss.saturating_mul(u32::from(acks))).min(most);
        tally.delivered += grown.saturating_sub(self.sacked);
        self.sacked = self.sacked.max(grown);
        self.dupacks >= DUP_THRESH
    }
}

/// How many samples of this kind a round trip holds, as a power of two rounded
/// down: flight divided by what this one acknowledges (RFC 7323 Appendix G).
#[inline]
fn share_of_flight(newly_acked: u32, flight: u32) -> u32 {
    newly_acked.max(1).leading_zeros().saturating_sub(flight.leading_zeros())
}
