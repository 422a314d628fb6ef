//! RACK: loss found by time, not by counting (RFC 8985 §6).
//!
//! A segment is lost once something sent sufficiently later was delivered:
//!
//! ```text
//!   sent_at + RACK.rtt + reo_wnd <= now   and   (sent_at, end) before RACK's
//! ```

use super::flight::{Burst, LOST, RETRANSMITTED, SACKED};
use super::{Phase, Sender};
use crate::time::{Duration, Instant};
use baton_wire::seq::Seq;

/// Duplicate threshold (RFC 5681 §3.2, RFC 8985 §6.1).
pub(super) const DUP_THRESH: u16 = 3;
/// Recoveries without D-SACK after which the window shrinks again (RFC 8985 §6.2).
const REO_WND_PERSIST: u8 = 16;

/// RACK's state (RFC 8985 §6.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    /// RACK.xmit_ts: when the most recently sent delivered data was sent.
    xmit_at: Instant,
    /// RACK.rtt in ns.
    rtt: u64,
    /// RACK.end_seq: where that data ends.
    end: Seq,
    /// RACK.fack: highest sequence number delivered.
    fack: Seq,
    /// RACK.dsack_round, meaningful if `in_dsack_round`.
    dsack_round: Seq,
    reo_wnd_mult: u8,
    reo_wnd_persist: u8,
    in_dsack_round: bool,
    pub(super) reordering_seen: bool,
}

/// Delivered data as RACK sees it.
#[derive(Clone, Copy)]
pub(super) struct Delivered {
    pub burst: Burst,
    /// Where the delivered part of the burst ends.
    pub end: Seq,
    /// The first copy may have triggered this: TSecr precedes the second, or F-RTO
    /// has not decided yet.
    pub maybe_first: bool,
}

/// RACK_sent_after (RFC 8985 §6.2): by time, and within a burst by position.
fn sent_after(at1: Instant, end1: Seq, at2: Instant, end2: Seq) -> bool {
    at1 > at2 || (at1 == at2 && end1.after(end2))
}

impl Rack {
    pub(super) fn new(iss: Seq) -> Rack {
        Rack {
            xmit_at: Instant(0),
            rtt: 0,
            end: iss,
            fack: iss,
            dsack_round: iss,
            reo_wnd_mult: 1,
            reo_wnd_persist: REO_WND_PERSIST,
            in_dsack_round: false,
            reordering_seen: false,
        }
    }

    /// Data sent once, all before it delivered: steps 2 and 3 of RFC 8985 §6.2 with
    /// nothing to decide.
    #[inline]
    pub(super) fn on_plain(&mut self, now: Instant, sent_at: Instant, end: Seq) {
        if sent_at >= self.xmit_at {
            self.xmit_at = sent_at;
            self.end = end;
            self.rtt = now.since(sent_at).0;
        }
        self.fack = end;
    }

    /// Steps 2 and 3 of RFC 8985 §6.2 for one piece of newly delivered data.
    pub(super) fn on_delivered(&mut self, now: Instant, d: &Delivered, min_rtt: Option<Duration>) {
        let retransmitted = d.burst.has(RETRANSMITTED);
        // Step 3: delivered below what was delivered before, at its first try.
        if d.end.after(self.fack) {
            self.fack = d.end;
        } else if d.end.before(self.fack) && !retransmitted {
            self.reordering_seen = true;
        }
        // Step 2: an ACK of repeated data may be due to the first try.
        let rtt = now.since(d.burst.sent_at);
        if retransmitted && (d.maybe_first || min_rtt.is_some_and(|min| rtt < min)) {
            return;
        }
        if sent_after(d.burst.sent_at, d.end, self.xmit_at, self.end) {
            self.xmit_at = d.burst.sent_at;
            self.end = d.end;
            self.rtt = rtt.0;
        }
    }

    /// Step 4: a D-SACK widens the window, once a round trip.
    pub(super) fn on_dsack(&mut self, snd_una: Seq, snd_nxt: Seq) {
        if self.in_dsack_round && snd_una.after_eq(self.dsack_round) {
            self.in_dsack_round = false;
        }
        if !self.in_dsack_round {
            self.in_dsack_round = true;
            self.dsack_round = snd_nxt;
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = REO_WND_PERSIST;
        }
    }

    /// Step 4: recovery ended; after 16 of them without D-SACK the window is small.
    pub(super) fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }
}

impl Sender {
    /// RACK_update_reo_wnd (RFC 8985 §6.2 step 4), in ns.
    fn reo_wnd(&self) -> u64 {
        let recovering = matches!(self.phase, Phase::Recovery | Phase::Loss);
        // RFC 6675 §4 IsLost: more than (DupThresh - 1) * SMSS bytes SACKed.
        let many_sacked = self.sacked > u32::from(DUP_THRESH - 1) * u32::from(self.mss);
        if !self.rack.reordering_seen && (recovering || many_sacked) {
            return 0;
        }
        let quarter = self.rtt.min().map_or(0, |min| min.0 / 4);
        (quarter * u64::from(self.rack.reo_wnd_mult)).min(self.rtt.srtt().0)
    }

    /// RACK_detect_loss (RFC 8985 §6.2 step 5): marks what is lost. Returns the
    /// bytes newly marked, and the moment at which more will be.
    pub(super) fn detect_loss(&mut self, now: Instant) -> (u32, Option<Instant>) {
        if self.in_frto() {
            return (0, None);
        }
        let age = self.rack_age();
        let (xmit_at, end) = (self.rack.xmit_at, self.rack.end);
        let mut lost = 0;
        let mut next: Option<Instant> = None;
        let mut start = self.snd_una;
        for burst in self.flight.iter_mut() {
            let bytes = burst.end.0.wrapping_sub(start.0);
            start = burst.end;
            if burst.has(SACKED | LOST) {
                continue;
            }
            if !sent_after(xmit_at, end, burst.sent_at, burst.end) {
                // Bursts that were never repeated stand in the order of sending.
                if burst.has(RETRANSMITTED) {
                    continue;
                }
                break;
            }
            let due = burst.sent_at + age;
            if due <= now {
                burst.marks |= LOST;
                lost += bytes;
            } else {
                next = Some(next.map_or(due, |n| n.max(due)));
            }
        }
        self.lost += lost;
        (lost, next)
    }

    /// How old data is when RACK takes it for lost.
    pub(super) fn rack_age(&self) -> Duration {
        Duration(self.rack.rtt + self.reo_wnd())
    }

    /// Marks as lost what is neither SACKED nor lost and meets `test`.
    pub(super) fn mark_lost_if(&mut self, test: impl Fn(&Burst) -> bool) {
        let mut start = self.snd_una;
        for burst in self.flight.iter_mut() {
            if !burst.has(SACKED | LOST) && test(burst) {
                burst.marks |= LOST;
                self.lost += burst.end.0.wrapping_sub(start.0);
            }
            start = burst.end;
        }
    }

    /// Marks all that is not SACKED as lost; forgets SACK marks first if `renege`
    /// (RFC 2018 §8).
    pub(super) fn mark_all_lost(&mut self, renege: bool) {
        let mut start = self.snd_una;
        let mut lost = 0;
        for burst in self.flight.iter_mut() {
            let bytes = burst.end.0.wrapping_sub(start.0);
            start = burst.end;
            if renege {
                burst.marks &= !SACKED;
            }
            if !burst.has(SACKED) {
                burst.marks |= LOST;
                lost += bytes;
            }
        }
        self.lost = lost;
        if renege {
            self.sacked = 0;
        }
    }

    /// Takes all loss marks back: the loss was none.
    pub(super) fn unmark_lost(&mut self) {
        for burst in self.flight.iter_mut() {
            burst.marks &= !LOST;
        }
        self.lost = 0;
    }
}
