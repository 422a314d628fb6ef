//! The sender's figures, and what must hold between them.

use super::flight::{LOST, RETRANSMITTED, SACKED};
use super::{Phase, Sender};
use crate::time::Duration;

/// The sender's figures for TCP_INFO and reports. Times in ns, sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderInfo {
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// Minimum round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// Retransmission timeout, backoff included.
    pub rto: Duration,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow start threshold, bytes; `u32::MAX` before the first congestion.
    pub ssthresh: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Of these, bytes deemed to be in the network.
    pub pipe: u32,
    /// Of these, bytes reported by SACK (or inferred from duplicate ACKs).
    pub sacked: u32,
    /// Of these, bytes deemed lost and not yet sent again.
    pub lost: u32,
    /// Of these, bytes sent again whose acknowledgment is awaited (RFC 6675 §4: between
    /// HighACK and HighRxt).
    pub repeated: u32,
    /// Bytes posted and never sent, as last told.
    pub queued: u32,
    /// Segment size, bytes.
    pub mss: u16,
    /// Consecutive timeouts.
    pub retransmits: u8,
    /// Segments sent again since the connection began, modulo 2^32.
    pub total_retransmits: u32,
    /// The phase of loss recovery.
    pub phase: Phase,
    /// Something was found missing, or duplicate, and nothing was concluded from it yet.
    pub disordered: bool,
    /// Reordering was seen (RFC 8985 §6.2).
    pub reordering_seen: bool,
}

impl Sender {
    /// All figures.
    pub fn info(&self) -> SenderInfo {
        SenderInfo {
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rtt.min().unwrap_or(Duration::ZERO),
            rto: self.rtt.rto(),
            cwnd: self.cc.cwnd,
            ssthresh: self.cc.ssthresh,
            in_flight: self.in_flight(),
            pipe: self.pipe(),
            sacked: self.sacked,
            lost: self.lost,
            repeated: self.repeated(),
            queued: self.queued,
            mss: self.mss,
            retransmits: self.retransmits,
            total_retransmits: self.total_retransmits,
            phase: self.phase,
            disordered: self.sacked > 0 || self.dupacks > 0,
            reordering_seen: self.rack.reordering_seen,
        }
    }

    /// Bytes that were sent again and are neither acknowledged nor found lost since.
    fn repeated(&self) -> u32 {
        let (mut start, mut bytes) = (self.snd_una, 0);
        for burst in self.flight.iter() {
            if burst.has(RETRANSMITTED) && !burst.has(SACKED | LOST) {
                bytes += burst.end.0.wrapping_sub(start.0);
            }
            start = burst.end;
        }
        bytes
    }

    /// Asserts what always holds between the scoreboard and its sums. For tests; its
    /// cost grows with [`Sender::records`].
    ///
    /// # Panics
    ///
    /// If an invariant is broken, which is a bug of this module.
    pub fn assert_consistent(&self) {
        let (mut start, mut sacked, mut lost) = (self.snd_una, 0, 0);
        for burst in self.flight.iter() {
            assert!(start.before(burst.end), "an empty record");
            let bytes = burst.end.0.wrapping_sub(start.0);
            start = burst.end;
            assert!(!(burst.has(SACKED) && burst.has(LOST)), "SACKed and lost");
            sacked += if burst.has(SACKED) { bytes } else { 0 };
            lost += if burst.has(LOST) { bytes } else { 0 };
        }
        assert_eq!(start, self.snd_nxt, "the flight has a gap");
        assert_eq!(lost, self.lost);
        assert!(sacked == self.sacked || (!self.sack && sacked == 0));
        assert!(self.sacked + self.lost <= self.in_flight());
    }
}
