//! Fast recovery, recovery after a timeout, and taking both back.
//!
//! An [`Episode`] is what a reduction must remember; it is boxed because most
//! connections, most of the time, have none. It outlives recovery by the flight
//! that was out at its end, since a D-SACK that shows the reduction to have been
//! spurious may come that late.

use super::ack::{AckInput, AckOutcome, Tally};
use super::flight::{LOST, SACKED};
use super::{Phase, Probe, Sender};
use crate::cc::{Cc, MAX_CWND, Signal};
use crate::time::{Duration, Instant};
use baton_wire::seq::Seq;

/// Where F-RTO stands (RFC 5682 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frto {
    /// Not running: the timeout is taken as real.
    Off,
    /// Step 1 done: the first segment was repeated.
    Repeated,
    /// Step 2b done: new data may go, nothing else is repeated.
    NewData,
}

/// A reduction of the window and what came of it.
#[derive(Debug)]
pub(super) struct Episode {
    /// Congestion control as it was (RFC 4015 §3.2, RFC 9438 §4.9).
    saved: Cc,
    /// `snd_una` when it began: D-SACKs below are of another time.
    undo_marker: Seq,
    /// Once data beyond this is acknowledged the episode is history; set when recovery ends.
    undo_until: Option<Seq>,
    /// Bytes sent again, and bytes that D-SACK told were so in vain.
    pub retransmitted: u32,
    dsacked: u32,
    /// Earliest moment at which data may have been sent again.
    pub first_retransmit: Option<Instant>,
    /// PRR (RFC 6937 §3): bytes delivered and sent since it began, and the pipe then.
    prr_delivered: u32,
    pub prr_out: u32,
    recover_fs: u32,
    /// The first partial ACK has come (RFC 6582 §3.2 step 3).
    partial_seen: bool,
    /// When the retransmission timer last ran out.
    timeout_at: Instant,
    /// Eifel detection is still possible: no ACK of new data since (RFC 3522 §3.2).
    eifel: bool,
    pub frto: Frto,
}

impl Episode {
    fn new(saved: Cc, snd_una: Seq, pipe: u32) -> Episode {
        Episode {
            saved,
            undo_marker: snd_una,
            undo_until: None,
            retransmitted: 0,
            dsacked: 0,
            first_retransmit: None,
            prr_delivered: 0,
            prr_out: 0,
            recover_fs: pipe.max(1),
            partial_seen: false,
            timeout_at: Instant(0),
            eifel: true,
            frto: Frto::Off,
        }
    }
}

impl Sender {
    /// Leaves, enters or stays in recovery after an acknowledgment.
    pub(super) fn change_phase(&mut self, a: &AckInput<'_>, tally: &mut Tally, out: &mut AckOutcome) {
        if tally.newly_acked > 0 {
            tally.left = self.leave_if_recovered(out);
        }
        let threshold = !self.sack && self.count_duplicates(a, tally);
        match self.phase {
            Phase::Open | Phase::Reduced => {
                // RFC 6582 §3.2 step 2: duplicates that earlier repeats may have
                // caused do not start another recovery.
                let barred = self.recover_bars && !self.snd_una.after(self.recover);
                if tally.lost > 0 || (threshold && !barred) {
                    self.enter_recovery(tally);
                    out.recovery_entered = true;
                    out.cwr_needed = true;
                } else if a.ece && self.phase == Phase::Open && self.in_flight() > 0 {
                    self.reduce_for_ece();
                    out.cwr_needed = true;
                }
            }
            Phase::Recovery if !self.sack && tally.newly_acked > 0 => {
                // RFC 6582 §3.2 step 3: a partial ACK; the next hole is repeated at once.
                self.mark_first_lost();
                self.forced = true;
            }
            Phase::Loss => self.step_frto(tally),
            Phase::Recovery => {}
        }
    }

    /// Ends a phase whose data is all acknowledged; the one that ended.
    fn leave_if_recovered(&mut self, out: &mut AckOutcome) -> Option<Phase> {
        if self.recover_bars && self.phase == Phase::Open && self.snd_una.after(self.recover) {
            self.recover_bars = false;
        }
        if let Some(episode) = &self.episode
            && episode.undo_until.is_some_and(|until| self.snd_una.after(until))
        {
            self.episode = None;
        }
        if self.phase == Phase::Open || self.snd_una.before(self.recover) {
            return None;
        }
        let left = self.phase;
        // RFC 6675 §5 (A), RFC 6582 §3.2 step 3: all that was out when recovery
        // began is acknowledged.
        if self.phase == Phase::Recovery {
            self.cc.cwnd = self.cc.ssthresh.max(u32::from(self.mss));
        }
        if self.phase != Phase::Reduced {
            out.recovered = true;
            self.rack.on_recovered();
            self.recover_bars = !self.sack;
        }
        self.phase = Phase::Open;
        self.forced = false;
        self.dupacks = 0;
        if !self.sack {
            self.sacked = 0;
        }
        let until = self.snd_nxt;
        match &mut self.episode {
            Some(episode) if self.sack && episode.retransmitted > 0 => {
                episode.undo_until = Some(until);
            }
            other => *other = None,
        }
        Some(left)
    }

    /// RFC 5681 §3.2 steps 2 and 3, RFC 6675 §5 step 4.
    pub(super) fn enter_recovery(&mut self, tally: &Tally) {
        self.episode = Some(Box::new(Episode::new(self.cc, self.snd_una, tally.prior_pipe)));
        // RFC 3168 §6.1.2: loss in a window that ECE has reduced does not reduce again.
        if self.phase != Phase::Reduced {
            self.cc.on_congestion(Signal::Congestion, tally.prior_flight, self.mss);
        }
        self.recover = self.snd_nxt;
        self.phase = Phase::Recovery;
        self.probe = Probe::None;
        // The first repeat goes out at once, whatever the new window.
        self.forced = true;
        if !self.sack {
            self.mark_first_lost();
        }
    }

    /// RFC 3168 §6.1.2: ECE is answered like a loss, at most once a window.
    fn reduce_for_ece(&mut self) {
        // SHLD-8 (RFC 9293 §3.8.2): the sender's part of ECN.
        self.cc.on_congestion(Signal::Congestion, self.in_flight(), self.mss);
        self.recover = self.snd_nxt;
        self.phase = Phase::Reduced;
    }

    /// Marks the first segment as lost: all that is known without SACK.
    pub(super) fn mark_first_lost(&mut self) {
        if self.flight.is_full() {
            self.make_room();
        }
        let first_end = self.snd_una + u32::from(self.mss);
        match self.flight.front() {
            Some(front) if !front.has(LOST | SACKED) => {
                if front.end.after(first_end) {
                    self.flight.split(0, first_end);
                }
            }
            _ => return,
        }
        if let Some(first) = self.flight.get_mut(0) {
            first.marks |= LOST;
            self.lost += first.end.0.wrapping_sub(self.snd_una.0);
        }
        if !self.sack {
            self.sacked = self.sacked.min(self.in_flight() - self.lost);
        }
    }

    /// In recovery, PRR decides what `cwnd` allows (RFC 6937 §3); otherwise the
    /// window may grow: after fast recovery for what lies beyond it, in the slow start
    /// after a timeout with each ACK of new data, the last one included (RFC 5681 §3.1).
    pub(super) fn spend_or_grow(
        &mut self,
        now: Instant,
        a: &AckInput<'_>,
        tally: &Tally,
        rtt: Option<Duration>,
        out: &AckOutcome,
    ) {
        match self.phase {
            Phase::Recovery => self.reduce_proportionally(tally),
            Phase::Reduced => {}
            Phase::Open if out.undone => {}
            Phase::Open if tally.left.is_some_and(|left| left != Phase::Loss) => {
                let beyond = (self.snd_una.0.wrapping_sub(self.recover.0)).min(tally.newly_acked);
                self.grow(now, a, beyond, tally.newly_acked, rtt, false);
            }
            Phase::Open | Phase::Loss if tally.newly_acked > 0 => {
                let after_timeout = self.phase == Phase::Loss || tally.left == Some(Phase::Loss);
                self.grow(now, a, tally.newly_acked, tally.newly_acked, rtt, after_timeout);
            }
            Phase::Open | Phase::Loss => {}
        }
    }

    /// PRR with the slow start reduction bound (RFC 6937 §3): while pipe is above
    /// ssthresh, send ssthresh/RecoverFS of what is delivered; below it, catch up,
    /// by a segment more if the ACK made progress without telling of new loss.
    fn reduce_proportionally(&mut self, tally: &Tally) {
        let (pipe, ssthresh, mss) = (self.pipe(), self.cc.ssthresh, u32::from(self.mss));
        let Some(episode) = &mut self.episode else { return };
        if tally.delivered == 0 && tally.lost == 0 {
            return;
        }
        episode.prr_delivered = episode.prr_delivered.saturating_add(tally.delivered);
        let owed = if pipe > ssthresh {
            let target =
                (u64::from(episode.prr_delivered) * u64::from(ssthresh)).div_ceil(u64::from(episode.recover_fs));
            (target.min(u64::from(u32::MAX)) as u32).saturating_sub(episode.prr_out)
        } else {
            let conservative = episode.prr_delivered.saturating_sub(episode.prr_out).max(tally.delivered);
            let safe = tally.newly_acked > 0 && tally.lost == 0;
            (conservative + if safe { mss } else { 0 }).min(ssthresh - pipe)
        };
        self.cc.cwnd = pipe.saturating_add(owed).min(MAX_CWND);
    }

    /// The first partial ACK of this recovery?
    pub(super) fn first_partial_ack(&mut self) -> bool {
        self.episode.as_mut().is_some_and(|episode| !core::mem::replace(&mut episode.partial_seen, true))
    }

    /// Counts new data that left during recovery.
    pub(super) fn on_sent_irregular(&mut self, bytes: u32) {
        if self.phase == Phase::Recovery
            && let Some(episode) = &mut self.episode
        {
            episode.prr_out = episode.prr_out.saturating_add(bytes);
        }
        if self.probe == Probe::NewAllowed {
            self.probe = Probe::NewSent;
            self.tlp_end = self.snd_nxt;
        }
    }

    /// Bytes of new data that may follow `snd_nxt` when things are not plain.
    pub(super) fn irregular_room(&self) -> u32 {
        let mss = u32::from(self.mss);
        let open = self.cc.cwnd.saturating_sub(self.pipe());
        match (&self.episode, self.probe) {
            // RFC 5682 §2.1 step 2b: two segments of new data.
            (Some(episode), _) if episode.frto == Frto::NewData => {
                (self.recover + 2 * mss).since(self.snd_nxt).max(0) as u32
            }
            // RFC 8985 §7.3: one segment beyond cwnd.
            (_, Probe::NewAllowed) => open.max(mss),
            // RFC 6675 §5 (4.3): what is lost goes before what is new.
            _ if self.lost > 0 => 0,
            _ => open,
        }
    }

    /// The retransmission timer ran out: RFC 6298 §5.4 to §5.6, RFC 5681 §3.1.
    pub(super) fn enter_loss(&mut self, now: Instant) {
        let first_time = self.phase != Phase::Loss;
        // RFC 5681 §3.1: ssthresh is held when the same data times out again, and
        // when this window has lowered it already.
        if matches!(self.phase, Phase::Open | Phase::Reduced) {
            self.episode = Some(Box::new(Episode::new(self.cc, self.snd_una, self.pipe())));
        }
        if self.phase == Phase::Open {
            self.cc.on_congestion(Signal::Timeout, self.in_flight(), self.mss);
        } else {
            self.cc.cwnd = u32::from(self.mss);
        }
        let lost_before = self.lost;
        self.dupacks = 0;
        if !self.sack {
            self.sacked = 0;
        }
        // RFC 5682 §2.1 step 1: F-RTO for the first timeout only, and only if no
        // recovery is under way.
        let frto = first_time && self.phase != Phase::Recovery && lost_before == 0;
        let renege = self.sack && (!first_time || self.flight.front().is_some_and(|b| b.has(SACKED)));
        if renege {
            // RFC 2018 §8: the receiver may have dropped what it had reported.
            self.mark_all_lost(true);
        } else if frto {
            self.mark_first_lost();
        } else if self.sack {
            self.mark_first_lost();
            // RFC 8985 §6.3: and what was sent an RTT or longer ago.
            let age = self.rack_age();
            self.mark_lost_if(|burst| burst.sent_at + age <= now);
        } else {
            self.mark_all_lost(false);
        }
        if let Some(episode) = &mut self.episode {
            episode.frto = if frto { Frto::Repeated } else { Frto::Off };
            episode.timeout_at = now;
            if !first_time {
                episode.eifel = false;
            }
        }
        self.phase = Phase::Loss;
        self.recover = self.snd_nxt;
        self.recover_bars = !self.sack;
        self.forced = true;
    }

    /// F-RTO (RFC 5682 §2.1 steps 2 and 3), for when timestamps cannot tell.
    fn step_frto(&mut self, tally: &Tally) {
        let Some(episode) = &mut self.episode else { return };
        match episode.frto {
            Frto::Off => {}
            Frto::Repeated if tally.newly_acked > 0 && self.snd_una.before(self.recover) => {
                // Step 2b, unless there is nothing new to send or no room for it.
                let room = self.wnd_edge.since(self.snd_nxt) >= i32::from(self.mss);
                if self.queued > 0 && room {
                    episode.frto = Frto::NewData;
                } else {
                    self.give_up_frto();
                }
            }
            // Step 2a and 3a: a duplicate: the timeout was real.
            Frto::Repeated if tally.duplicate || tally.newly_sacked > 0 => self.give_up_frto(),
            Frto::NewData if tally.newly_acked == 0 && (tally.duplicate || tally.newly_sacked > 0) => {
                self.give_up_frto();
            }
            Frto::Repeated | Frto::NewData => {}
        }
    }

    /// The timeout was real: what was sent before it and did not arrive is lost.
    fn give_up_frto(&mut self) {
        if let Some(episode) = &mut self.episode {
            if episode.frto == Frto::NewData {
                // RFC 5682 §2.1 step 3a: two segments more were sent.
                self.cc.cwnd = 3 * u32::from(self.mss);
            }
            episode.frto = Frto::Off;
            let at = episode.timeout_at;
            self.mark_lost_if(|burst| burst.sent_at < at);
        }
    }

    /// F-RTO has not decided yet: until then nothing but the first segment is taken
    /// for lost, and an ACK of what was repeated may be due to either copy.
    pub(super) fn in_frto(&self) -> bool {
        self.episode.as_ref().is_some_and(|episode| episode.frto != Frto::Off)
    }

    /// Was the reduction spurious? By timestamps (Eifel, RFC 3522), by F-RTO (RFC
    /// 5682), by D-SACK (RFC 3708 §3, RFC 2883).
    pub(super) fn detect_spurious(
        &mut self,
        now: Instant,
        a: &AckInput<'_>,
        dsack: Option<(Seq, Seq)>,
        tally: &Tally,
        out: &mut AckOutcome,
    ) {
        let Some(episode) = &mut self.episode else { return };
        let mut spurious = false;
        if let Some((start, end)) = dsack
            && start.after_eq(episode.undo_marker)
            && end.before_eq(self.recover)
        {
            episode.dsacked = episode.dsacked.saturating_add(end.0.wrapping_sub(start.0));
            spurious = episode.retransmitted > 0 && episode.dsacked >= episode.retransmitted;
        }
        if tally.newly_acked > 0 && episode.eifel && self.timestamps {
            // RFC 3522 §3.2 steps 4 and 5: the first acceptable ACK since echoes a
            // timestamp from before the first repeat.
            episode.eifel = false;
            if let (Some(ecr), Some(at)) = (a.ts_ecr, episode.first_retransmit) {
                let repeat = a.ts_now.wrapping_sub(now.since(at).as_millis() as u32);
                spurious |= Seq(ecr).before(Seq(repeat));
            }
        }
        // RFC 5682 §2.1 step 3b: the second ACK, too, acknowledges data that was not
        // sent again.
        if self.phase == Phase::Loss && episode.frto == Frto::NewData && tally.newly_acked > 0 && tally.original > 0 {
            spurious = true;
        }
        if spurious {
            self.undo();
            out.undone = true;
        }
    }

    /// RFC 4015 §3.2, RFC 9438 §4.9: the window is what it was.
    fn undo(&mut self) {
        let Some(episode) = self.episode.take() else { return };
        let cwnd = self.cc.cwnd.max(episode.saved.cwnd);
        self.cc = episode.saved;
        self.cc.cwnd = cwnd;
        self.rtt.end_backoff();
        self.unmark_lost();
        self.phase = Phase::Open;
        self.forced = false;
        self.recover_bars = false;
        self.dupacks = 0;
        if !self.sack {
            self.sacked = 0;
        }
    }
}
