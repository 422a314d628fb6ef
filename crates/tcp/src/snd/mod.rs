//! The sending side: what is in flight, which part of it is lost, how much more may go.
//!
//! A [`Sender`] learns of transmitted ranges ([`Sender::on_sent`]), of
//! acknowledgments ([`Sender::on_ack`]) and of time ([`Sender::on_deadline`]). It
//! answers three questions: up to where new data may be sent
//! ([`Sender::limit`]), what is to be sent again ([`Sender::next_retransmit`]), and
//! when it wants to be called next ([`Sender::deadline`]).
//!
//! ```text
//!   on_sent ──► flight ──► on_ack ─┬─ plain: pop, RTT, grow cwnd, re-arm
//!                 ▲                └─ irregular: SACK marks ► RACK or duplicate ACKs
//!                 │                     ► episode (recovery, undo, PRR) ► re-arm
//!   next_retransmit ◄── LOST marks ◄── on_deadline (RTO, TLP, reordering)
//! ```
//!
//! | file | RFC |
//! | --- | --- |
//! | `flight` | the scoreboard (2018, 6675) |
//! | `adopt` | a flight of another stack's |
//! | `ack` | acknowledgments; duplicate ACKs (5681, 6582) |
//! | `sack` | SACK and D-SACK blocks (2018, 2883) |
//! | `rack` | loss by time (8985) |
//! | `recovery` | fast recovery with PRR (6582, 6675, 6937), ECN (3168), undo (3522, 5682) |
//! | `timer` | RTO (6298), tail loss probe (8985), idle restart (5681) |
//! | `rtt` | RTT and RTO (6298, 7323) |
//!
//! The phases, and what leads from one to another:
//!
//! ```text
//!            3 duplicates / RACK                RTO
//!     Open ----------------------> Recovery ---------> Loss
//!      | ^ <--- snd_una = recover, undo --+               |
//!  ECE | | <--- snd_una = recover, undo ------------------+
//!      v |                            Open, Reduced -RTO-> Loss
//!     Reduced  (one window after ECE)   Reduced -loss-> Recovery
//! ```
//!
//! Invariants: the flight covers `[snd_una, snd_nxt)` without gaps; `pipe` is at
//! most the flight; while something is in flight there is a deadline; the records
//! are at most 1024, whatever the peer sends.

mod ack;
mod adopt;
mod flight;
mod info;
mod rack;
mod recovery;
mod retransmit;
mod rtt;
mod sack;
mod timer;

use crate::cc::{Cc, initial_window};
use crate::config::{Config, Congestion};
use crate::time::{Duration, Instant};
pub(crate) use adopt::Seed;
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::SackBlocks;
use flight::{Burst, Flight};
pub use info::SenderInfo;
use rack::Rack;
use recovery::Episode;
use rtt::Rtt;

/// The facts that the sender needs of a received segment, or run, with ACK set whose
/// acknowledgment number lies at or before `snd_nxt` (RFC 9293 §3.10.7.4).
#[derive(Clone, Copy, Debug)]
pub struct AckInput<'a> {
    /// Acknowledgment number.
    pub ack: Seq,
    /// SACK blocks, empty without SACK.
    pub sack: &'a SackBlocks,
    /// TSecr, if timestamps are in use and it is valid (RFC 7323 §3.2).
    pub ts_ecr: Option<u32>,
    /// Our TSval clock, offset included, at `now`.
    pub ts_now: u32,
    /// ECE was set and ECN is in use (RFC 3168 §6.1.2).
    pub ece: bool,
    /// Original acknowledgments that this stands for, at least 1 (RA §3.4).
    pub segments: u16,
    /// The segment carries data, SYN or FIN.
    pub has_data: bool,
    /// The advertised window differs from the last one.
    pub wnd_changed: bool,
    /// The window in effect after this acknowledgment.
    pub snd_wnd: Window,
}

/// The effects of an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckOutcome {
    /// Bytes (SYN and FIN counted) that `snd_una` moved by.
    pub newly_acked: u32,
    /// The window was reduced: with ECN, CWR goes on the next new data (RFC 3168
    /// §6.1.2).
    pub cwr_needed: bool,
    /// Fast recovery began.
    pub recovery_entered: bool,
    /// Recovery, fast or after a timeout, ended.
    pub recovered: bool,
    /// A reduction turned out to be spurious and was undone (RFC 3522, RFC 5682).
    pub undone: bool,
}

/// The purpose of a deadline that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expired {
    /// Nothing was due.
    None,
    /// The retransmission timer, for the `count`-th time in a row (RFC 6298 §5.4).
    /// Before the SYN is acknowledged the caller repeats it; later
    /// [`Sender::next_retransmit`] has the range.
    Rto {
        /// Consecutive timeouts, this one included.
        count: u8,
    },
    /// A tail loss probe: [`Sender::next_retransmit`] has it, or
    /// [`Sender::limit`] allows a segment of new data (RFC 8985 §7.3).
    Tlp,
    /// Segments were found lost by time (RFC 8985 §6.2).
    Reorder,
    /// The connection was idle for an RTO: `cwnd`, and so the limit, shrank (RFC
    /// 5681 §4.1).
    Idle,
}

/// A phase of the sender's loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing lost.
    #[default]
    Open,
    /// `cwnd` was reduced for ECE and does not grow until a window has passed.
    Reduced,
    /// Fast recovery (RFC 5681 §3.2, RFC 6675 §5).
    Recovery,
    /// Recovery after a retransmission timeout (RFC 6298 §5, RFC 5681 §3.1).
    Loss,
}

/// Why the deadline is what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    Off,
    Rto,
    Tlp,
    Reorder,
    Idle,
}

/// Where a tail loss probe stands (RFC 8985 §7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    None,
    /// New data may go beyond `cwnd`, one segment.
    NewAllowed,
    /// The last segment is to be sent again.
    Due,
    /// A probe of new data is out.
    NewSent,
    /// A probe that repeated data is out.
    RepeatSent,
}

/// The data in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Data {
    /// The SYN, which is not yet acknowledged.
    Handshake,
    /// Before `recover`, what another stack sent, nobody knows when.
    Inherited,
    /// Bytes that this stack sent.
    Ours,
}

/// The sending side of a connection. All sizes are bytes.
#[derive(Debug)]
pub struct Sender {
    flight: Flight,
    cc: Cc,
    rtt: Rtt,
    rack: Rack,
    episode: Option<Box<Episode>>,
    /// When the retransmission timer was last restarted (RFC 6298 §5).
    rto_base: Instant,
    deadline: Instant,
    snd_una: Seq,
    snd_nxt: Seq,
    /// End of the data outstanding when the last reduction began (RFC 6582 §3.2).
    recover: Seq,
    /// End of the data that was in flight when `cwnd` was last used up.
    limited_end: Seq,
    /// Right edge of the peer's window as of the last acknowledgment.
    wnd_edge: Seq,
    /// End of the tail loss probe.
    tlp_end: Seq,
    /// Bytes marked SACKED; without SACK, bytes that duplicate ACKs stand for.
    sacked: u32,
    /// Bytes marked LOST.
    lost: u32,
    /// Bytes waiting behind `snd_nxt` as last reported.
    queued: u32,
    total_retransmits: u32,
    mss: u16,
    dupacks: u16,
    /// Consecutive timeouts.
    retransmits: u8,
    phase: Phase,
    timer: Timer,
    probe: Probe,
    sack: bool,
    timestamps: bool,
    data: Data,
    /// `recover` still bars fast retransmit without SACK (RFC 6582 §3.2 step 2).
    recover_bars: bool,
    /// The next retransmission goes out whatever `cwnd` says.
    forced: bool,
    /// An acknowledgment needs more than the plain path.
    irregular: bool,
}

impl Sender {
    /// A sender that has sent nothing: `snd_una = snd_nxt = iss`. The SYN counts as
    /// one sequence number: tell `on_sent(now, iss, iss + 1, ..)`.
    pub fn new(config: &Config, iss: Seq, mss: u16, now: Instant) -> Sender {
        let mss = mss.max(1);
        Sender {
            flight: Flight::default(),
            cc: Cc::new(config.congestion, mss),
            rtt: Rtt::new(config),
            rack: Rack::new(iss),
            episode: None,
            rto_base: now,
            deadline: now,
            snd_una: iss,
            snd_nxt: iss,
            recover: iss,
            limited_end: iss,
            wnd_edge: iss,
            tlp_end: iss,
            sacked: 0,
            lost: 0,
            queued: 0,
            total_retransmits: 0,
            mss,
            dupacks: 0,
            retransmits: 0,
            phase: Phase::Open,
            timer: Timer::Off,
            probe: Probe::None,
            sack: false,
            timestamps: false,
            data: Data::Handshake,
            recover_bars: false,
            forced: false,
            irregular: true,
        }
    }

    /// Oldest sequence number not acknowledged.
    #[inline]
    pub fn snd_una(&self) -> Seq {
        self.snd_una
    }

    /// Just past the highest sequence number that was reported sent.
    #[inline]
    pub fn snd_nxt(&self) -> Seq {
        self.snd_nxt
    }

    /// Segment size, bytes of payload.
    #[inline]
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// Changes the segment size: as long as the window is the initial one, it
    /// follows (RFC 6928 §2); later only what is counted in segments does.
    pub fn set_mss(&mut self, mss: u16) {
        let untouched = self.cc.ssthresh == u32::MAX && self.cc.cwnd == initial_window(self.mss);
        self.mss = mss.max(1);
        self.cc.cwnd = if untouched { initial_window(self.mss) } else { self.cc.cwnd.max(u32::from(self.mss)) };
    }

    /// Whether the peer sends SACK blocks (RFC 2018 §2). RACK and TLP need them
    /// (RFC 8985 §3); without, losses are found by duplicate ACKs.
    pub fn set_sack(&mut self, sack: bool) {
        self.sack = sack;
    }

    /// Whether both sides send timestamps (RFC 7323 §3).
    pub fn set_timestamps(&mut self, timestamps: bool) {
        self.timestamps = timestamps;
    }

    /// Changes the congestion control; `cwnd` and `ssthresh` stay.
    pub fn set_congestion(&mut self, congestion: Congestion) {
        self.cc.set_kind(congestion);
    }

    /// Bytes sent and not acknowledged (FlightSize, RFC 5681 §2).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.snd_nxt.0.wrapping_sub(self.snd_una.0)
    }

    /// Bytes deemed to be in the network (RFC 6675 §3).
    #[inline]
    pub fn pipe(&self) -> u32 {
        self.in_flight() - self.sacked - self.lost
    }

    /// Congestion window, bytes.
    #[inline]
    pub fn cwnd(&self) -> u32 {
        self.cc.cwnd
    }

    /// Slow start threshold, bytes; `u32::MAX` before the first congestion.
    pub fn ssthresh(&self) -> u32 {
        self.cc.ssthresh
    }

    /// Retransmission timeout, backoff included.
    pub fn rto(&self) -> Duration {
        self.rtt.rto()
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        self.rtt.srtt()
    }

    /// Mean deviation of the round-trip time.
    pub fn rttvar(&self) -> Duration {
        self.rtt.rttvar()
    }

    /// Minimum round-trip time of the last minutes, if one was measured.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.rtt.min()
    }

    /// Consecutive timeouts without an acknowledgment of new data.
    pub fn retransmits(&self) -> u8 {
        self.retransmits
    }

    /// The current phase of loss recovery.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Records that the flight takes up, at most 1024.
    pub fn records(&self) -> usize {
        self.flight.len()
    }

    /// `[seq, end)` was handed to the port. A range that starts at `snd_nxt` is new
    /// data; whatever lies before it was sent again. `queued` bytes wait behind it.
    pub fn on_sent(&mut self, now: Instant, seq: Seq, end: Seq, retransmit: bool, queued: u32) {
        self.queued = queued;
        if retransmit || seq.before(self.snd_nxt) {
            self.on_sent_again(now, seq, end.earliest(self.snd_nxt));
        }
        if !end.after(self.snd_nxt) {
            return;
        }
        if self.flight.is_empty() {
            // RFC 6298 §5.1: sending starts the timer if it is not running.
            self.rto_base = now;
        } else if self.flight.is_full() {
            self.make_room();
        }
        self.flight.push(Burst { sent_at: now, end, marks: 0 }, self.rtt.srtt().0 / 64);
        let bytes = end.0.wrapping_sub(self.snd_nxt.0);
        self.snd_nxt = end;
        self.note_limited();
        if self.irregular {
            self.on_sent_irregular(bytes);
        }
        self.arm(now);
    }

    /// Remembers that `cwnd`, not the application, limits the flight: only then
    /// may it grow (RFC 9438 §5.8, RFC 7661 §4). In slow start, a flight of half
    /// the window will do, for it can double in a round trip.
    #[inline]
    fn note_limited(&mut self) {
        let mss = u32::from(self.mss);
        let threshold = if self.cc.in_slow_start() { self.cc.cwnd / 2 } else { self.cc.cwnd.saturating_sub(mss) };
        if self.pipe() >= threshold {
            self.limited_end = self.snd_nxt;
        }
    }

    /// New data may be sent up to here: what `snd_wnd`, counted from `snd_una`, and
    /// the congestion window allow. It is a position, so that what the Streamer
    /// sent without our knowing yet uses it up and does not add to it.
    #[inline]
    pub fn limit(&self, snd_wnd: Window) -> Seq {
        let wnd_edge = self.snd_una + snd_wnd.0.min(crate::cc::MAX_CWND);
        let room = if self.irregular { self.irregular_room() } else { self.cc.cwnd.saturating_sub(self.pipe()) };
        wnd_edge.earliest(self.snd_nxt + room)
    }

    /// Sums up whether the next acknowledgment can take the plain path.
    fn settle(&mut self) {
        if self.data == Data::Inherited && self.snd_una.after_eq(self.recover) {
            self.data = Data::Ours;
        }
        self.irregular = self.data != Data::Ours
            || self.phase != Phase::Open
            || self.sacked != 0
            || self.lost != 0
            || self.dupacks != 0
            || self.probe != Probe::None
            || self.retransmits != 0
            || self.recover_bars
            || self.episode.is_some()
            || self.rtt.is_backed_off();
    }

    /// Coarsens a full scoreboard.
    fn make_room(&mut self) {
        if self.flight.make_room() {
            let mut start = self.snd_una;
            (self.sacked, self.lost) = (0, 0);
            for burst in self.flight.iter() {
                let bytes = burst.end.0.wrapping_sub(start.0);
                start = burst.end;
                self.sacked += if burst.has(flight::SACKED) { bytes } else { 0 };
                self.lost += if burst.has(flight::LOST) { bytes } else { 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_state_is_small() {
        // An idle connection has no episode and no spilled flight: this is all.
        assert!(size_of::<Sender>() <= 248, "{}", size_of::<Sender>());
        assert!(size_of::<Cc>() <= 64, "{}", size_of::<Cc>());
        assert!(size_of::<Burst>() == 16);
    }
}
