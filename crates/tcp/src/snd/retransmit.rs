//! Retransmission of lost bytes, as far as the window allows.

use super::flight::{LOST, RETRANSMITTED, SACKED};
use super::{Data, Phase, Probe, Sender};
use crate::time::Instant;
use baton_wire::seq::Seq;

impl Sender {
    /// The next range to send again: a tail loss probe that is due, or lost data,
    /// lowest first (RFC 6675 §4 NextSeg (1)), as much of it as `cwnd` allows. The
    /// range counts as sent from now on; call again until `None`.
    ///
    /// Before the SYN is acknowledged there is none: the caller repeats it.
    pub fn next_retransmit(&mut self, now: Instant) -> Option<(Seq, Seq)> {
        if self.data == Data::Handshake {
            return None;
        }
        if self.probe == Probe::Due {
            return self.probe_range(now);
        }
        if self.lost == 0 {
            return None;
        }
        let (index, start, len) = self.first_lost()?;
        let mss = u32::from(self.mss);
        let segment = mss.min(len);
        let mut allowed = self.cc.cwnd.saturating_sub(self.pipe());
        if core::mem::take(&mut self.forced) {
            // RFC 5681 §3.2 step 3, RFC 6298 §5.4: the first repeat needs no room.
            allowed = allowed.max(segment);
        }
        if allowed < segment {
            return None;
        }
        let bytes = if allowed >= len { len } else { allowed - allowed % mss };
        let range = self.repeat(now, index, start, start + bytes);
        if index == 0 {
            // RFC 6675 §5 (4.4): the timer restarts with the first repeat.
            self.rto_base = now;
        }
        self.arm(now);
        range
    }

    /// Index, start and length of the first record that is marked lost.
    fn first_lost(&mut self) -> Option<(usize, Seq, u32)> {
        if self.flight.is_full() {
            self.make_room();
        }
        let mut start = self.snd_una;
        for (index, burst) in self.flight.iter().enumerate() {
            if burst.has(LOST) {
                return Some((index, start, burst.end.0.wrapping_sub(start.0)));
            }
            start = burst.end;
        }
        None
    }

    /// Marks `[start, end)`, the front of the record at `index`, as sent again.
    fn repeat(&mut self, now: Instant, index: usize, start: Seq, end: Seq) -> Option<(Seq, Seq)> {
        if self.flight.get(index)?.end.after(end) {
            self.flight.split(index, end);
        }
        let burst = self.flight.get_mut(index)?;
        let end = burst.end;
        let bytes = end.0.wrapping_sub(start.0);
        if burst.has(LOST) {
            self.lost -= bytes;
        }
        burst.marks = (burst.marks | RETRANSMITTED) & !LOST;
        burst.sent_at = now;
        self.total_retransmits = self.total_retransmits.wrapping_add(bytes.div_ceil(u32::from(self.mss)));
        if let Some(episode) = &mut self.episode {
            episode.retransmitted = episode.retransmitted.saturating_add(bytes);
            episode.first_retransmit.get_or_insert(now);
            if self.phase == Phase::Recovery {
                episode.prr_out = episode.prr_out.saturating_add(bytes);
            }
        }
        self.irregular = true;
        Some((start, end))
    }

    /// The last segment in flight, as a probe (RFC 8985 §7.3).
    fn probe_range(&mut self, now: Instant) -> Option<(Seq, Seq)> {
        self.probe = Probe::None;
        if self.flight.is_full() {
            self.make_room();
        }
        let mut index = self.flight.len().checked_sub(1)?;
        let mut start = match index.checked_sub(1) {
            Some(before) => self.flight.get(before)?.end,
            None => self.snd_una,
        };
        let from = self.snd_nxt - u32::from(self.mss);
        if start.before(from) {
            self.flight.split(index, from);
            index += 1;
            start = from;
        }
        self.probe = Probe::RepeatSent;
        self.tlp_end = self.snd_nxt;
        self.rto_base = now;
        let range = self.repeat(now, index, start, self.snd_nxt);
        self.arm(now);
        range
    }

    /// Path MTU discovery found that segments were too big (RFC 1191 §6.3, RFC
    /// 8201 §5.3): all in flight is to be sent again in segments of `mss` bytes,
    /// which says nothing about congestion.
    pub fn on_mtu_reduced(&mut self, now: Instant, mss: u16) {
        self.mss = mss.max(1);
        self.cc.cwnd = self.cc.cwnd.max(u32::from(self.mss));
        if self.data == Data::Handshake || self.flight.is_empty() {
            return;
        }
        if !self.sack {
            self.sacked = 0;
        }
        self.mark_all_lost(false);
        self.forced = true;
        self.probe = Probe::None;
        self.settle();
        self.arm(now);
    }

    /// The Streamer tells that `[seq, end)` left again: the time of sending is now.
    pub(super) fn on_sent_again(&mut self, now: Instant, seq: Seq, end: Seq) {
        let mut start = self.snd_una;
        for burst in self.flight.iter_mut() {
            if start.after_eq(end) {
                break;
            }
            // Whole records only: next_retransmit has cut them to fit; what the
            // caller repeats on its own (a SYN) is the whole flight.
            if start.after_eq(seq) && burst.end.before_eq(end) && !burst.has(SACKED | LOST) {
                burst.marks |= RETRANSMITTED;
                burst.sent_at = now;
            }
            start = burst.end;
        }
        self.irregular = true;
        self.arm(now);
    }
}
