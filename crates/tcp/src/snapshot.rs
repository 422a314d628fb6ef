//! A connection's protocol state while neither side runs it: what crosses when it
//! moves between the kernel and the engine.
//!
//! Plain data with no descriptor, no clock and no payload. The mover carries the bytes of the
//! two queues separately; their places in sequence space are here:
//!
//! ```text
//!  send      snd_una            snd_nxt             write_seq
//!          ----|=================|...................|-----------
//!              |  sent, unacked  |  unsent           |
//!              |<------------- send queue ---------->|   (less our FIN)
//!
//!  receive  copied_seq          rcv_nxt            right_edge
//!          ----|=================|...................|-----------
//!              |  unread         |  window           |
//!              |<-- rcv. queue ->|       (less the peer's FIN)
//! ```
//!
//! A FIN takes the last number of its queue: ours once the state is FIN-WAIT-1 or
//! FIN-WAIT-2 (`write_seq` counts it, `snd_nxt` too once it was sent), the peer's
//! once it is CLOSE-WAIT (`rcv_nxt` counts it).
//!
//! The rest is dropped, as if lost by the network: payload beyond a gap (the peer sends it
//! again, RFC 2018 §8), which of our bytes the peer reported by SACK, the state of loss
//! recovery and running timers.

mod words;

use crate::state::State;
use crate::time::Duration;
use baton_wire::seq::{Seq, WindowScale};
use core::fmt;
pub use words::Words;

/// The protocol state of a connection that is on neither side. Sizes and windows
/// are in bytes, windows are expanded.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// ESTABLISHED, CLOSE-WAIT, FIN-WAIT-1 or FIN-WAIT-2; no other state moves.
    pub state: State,
    /// Oldest sequence number sent and not acknowledged.
    pub snd_una: Seq,
    /// Next sequence number to send; all before it was sent at least once.
    pub snd_nxt: Seq,
    /// End of what the consumer wrote, and of our FIN if it closed.
    pub write_seq: Seq,
    /// SND.WND: the peer's window, counted from `snd_una`.
    pub snd_wnd: u32,
    /// SND.WL1: sequence number of the segment that last changed `snd_wnd`.
    pub snd_wl1: Seq,
    /// MAX.SND.WND of RFC 5961 §5: the largest window that the peer ever offered.
    pub max_wnd: u32,
    /// Next byte that the consumer will read.
    pub copied_seq: Seq,
    /// RCV.NXT: next sequence number expected; the peer's FIN counted.
    pub rcv_nxt: Seq,
    /// Last.ACK.sent of RFC 7323 §4.3 (Linux `rcv_wup`).
    pub last_ack_sent: Seq,
    /// End of the window that the peer was promised. It may never move back: Linux
    /// drops, from 6.17 on, what a peer sends into a window that was taken back.
    pub right_edge: Seq,
    /// The MSS that the peer announced, as bounded by us (Linux `mss_clamp`): without
    /// the room that options take.
    pub peer_mss: u16,
    /// The MSS that we announced; of the kernel's, without the room that timestamps take.
    pub advmss: u16,
    /// Largest packet that the path is taken to carry.
    pub path_mtu: u16,
    /// The connection runs over IPv6.
    pub ipv6: bool,
    /// Window shifts; `None` if not agreed on, so that both are 0.
    pub scales: Option<Scales>,
    /// SACK was agreed on.
    pub sack: bool,
    /// ECN was agreed on.
    pub ecn: bool,
    /// Timestamps, if agreed on.
    pub timestamps: Option<Timestamps>,
    /// Values that the next side starts its estimates from.
    pub seeds: Seeds,
}

/// The window shifts of RFC 7323 §2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scales {
    /// Snd.Wind.Shift: of the windows that the peer sends.
    pub snd: WindowScale,
    /// Rcv.Wind.Shift: of the windows that we send.
    pub rcv: WindowScale,
}

/// The timestamps option of RFC 7323 §3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamps {
    /// At the time of the snapshot, no TSval of ours was later than this, and the
    /// next one may be this. The clock goes on at 1 ms a tick while the connection
    /// moves, or stands still: both are within the peer's rules.
    pub tsval: u32,
    /// A tick of our clock so far was 1 µs, not 1 ms (Linux `tcp_usec_ts`). The engine's
    /// is always 1 ms, which RFC 7323 §5.4 allows; a return to Linux keeps the flag.
    pub microseconds: bool,
    /// TS.Recent, or `None` if unknown: Linux does not tell. Then the next acceptable
    /// segment sets it whatever its TSval, and 0 is echoed until it comes.
    pub ts_recent: Option<u32>,
}

/// Measurements of the path. Zero where nothing is known, unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Its mean deviation (RFC 6298).
    pub rttvar: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Duration,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow start threshold, bytes; `u32::MAX` before the first congestion.
    pub ssthresh: u32,
    /// Payload of the peer's full segments, bytes, as far as seen.
    pub rcv_mss: u16,
    /// Round-trip time as the receiving side sees it (Linux `rcv_rtt_est`).
    pub rcv_rtt: Duration,
    /// Bytes that the consumer read in the last round trip (Linux `rcvq_space`).
    pub rcv_space: u32,
}

impl Seeds {
    /// With the round trip as it was known `before`, where none was measured since.
    pub fn or_round_trip_of(self, before: &Seeds) -> Seeds {
        if self.srtt != Duration::ZERO {
            return self;
        }
        Seeds { srtt: before.srtt, rttvar: before.rttvar, min_rtt: before.min_rtt, ..self }
    }
}

impl Default for Seeds {
    /// Nothing known: ten segments of 1460 bytes to begin with (RFC 6928 §2).
    fn default() -> Seeds {
        Seeds {
            srtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            min_rtt: Duration::ZERO,
            cwnd: 14_600,
            ssthresh: u32::MAX,
            rcv_mss: 536,
            rcv_rtt: Duration::ZERO,
            rcv_space: 0,
        }
    }
}

/// Which rule a snapshot breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Inconsistent {
    /// The state is not one that moves.
    State,
    /// Not `snd_una <= snd_nxt <= write_seq`, or more than 1 GiB between them, or no
    /// room for a FIN that the state speaks of.
    Send,
    /// Not `copied_seq <= rcv_nxt <= right_edge`, or more than 1 GiB between them, or
    /// no room for a FIN that the state speaks of.
    Receive,
    /// `last_ack_sent` is after `rcv_nxt`, or more than 1 GiB before it.
    Acknowledged,
    /// `snd_wnd` exceeds `max_wnd`, or `snd_wl1` the receive window, or a window 1 GiB.
    Window,
    /// An MSS or the path's MTU below what IP allows.
    Mss,
}

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Inconsistent::State => "a connection in this state does not move",
            Inconsistent::Send => "the send queue's sequence numbers contradict each other",
            Inconsistent::Receive => "the receive queue's sequence numbers contradict each other",
            Inconsistent::Acknowledged => "more was acknowledged than received",
            Inconsistent::Window => "a window contradicts another or is too large",
            Inconsistent::Mss => "a segment size is too small to be one",
        })
    }
}

impl core::error::Error for Inconsistent {}

/// Largest distance between two sequence numbers of a snapshot, bytes: the largest
/// window that RFC 7323 §2.3 can express.
const FARTHEST: i32 = 1 << 30;

/// True if `from <= to` and not farther apart than a window can be.
fn near(from: Seq, to: Seq) -> bool {
    (0..=FARTHEST).contains(&to.since(from))
}

impl Snapshot {
    /// Whether the numbers can be those of a connection. Both sides ask before they act on a
    /// snapshot: it may have been in memory that another process can write to.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), Inconsistent> {
        if !matches!(self.state, State::Established | State::CloseWait | State::FinWait1 | State::FinWait2) {
            return Err(Inconsistent::State);
        }
        let fin_acked = self.state == State::FinWait2 && self.snd_una != self.write_seq;
        let fin_unsaid = self.state == State::FinWait1 && self.snd_una == self.write_seq;
        if !near(self.snd_una, self.snd_nxt)
            || !near(self.snd_nxt, self.write_seq)
            || !near(self.snd_una, self.write_seq)
            || fin_acked
            || fin_unsaid
        {
            return Err(Inconsistent::Send);
        }
        let no_fin = self.state == State::CloseWait && self.copied_seq == self.rcv_nxt;
        if !near(self.copied_seq, self.rcv_nxt) || !near(self.rcv_nxt, self.right_edge) || no_fin {
            return Err(Inconsistent::Receive);
        }
        if !near(self.last_ack_sent, self.rcv_nxt) {
            return Err(Inconsistent::Acknowledged);
        }
        let largest = FARTHEST as u32;
        if self.snd_wnd > self.max_wnd || self.max_wnd > largest || self.snd_wl1.after(self.right_edge) {
            return Err(Inconsistent::Window);
        }
        let least_mtu = if self.ipv6 { 1280 } else { 68 };
        if self.peer_mss < crate::path::MIN_MSS || self.path_mtu < least_mtu {
            return Err(Inconsistent::Mss);
        }
        Ok(())
    }

    /// Our FIN was written: it is the last number before `write_seq`.
    pub fn has_our_fin(&self) -> bool {
        matches!(self.state, State::FinWait1 | State::FinWait2)
    }

    /// The peer's FIN was received: it is the last number before `rcv_nxt`.
    pub fn has_peer_fin(&self) -> bool {
        self.state == State::CloseWait
    }

    /// Payload bytes sent and not acknowledged: the front of the send queue.
    pub fn unacked_bytes(&self) -> u32 {
        let fin = self.has_our_fin() && self.snd_nxt == self.write_seq && self.snd_una != self.snd_nxt;
        distance(self.snd_una, self.snd_nxt).saturating_sub(u32::from(fin))
    }

    /// Payload bytes written and not sent: the rest of the send queue.
    pub fn unsent_bytes(&self) -> u32 {
        let fin = self.has_our_fin() && self.snd_nxt != self.write_seq;
        distance(self.snd_nxt, self.write_seq).saturating_sub(u32::from(fin))
    }

    /// Payload bytes received and not read: the receive queue.
    pub fn unread_bytes(&self) -> u32 {
        distance(self.copied_seq, self.rcv_nxt).saturating_sub(u32::from(self.has_peer_fin()))
    }

    /// Bytes that the peer may still send.
    pub fn rcv_wnd(&self) -> u32 {
        distance(self.rcv_nxt, self.right_edge)
    }
}

fn distance(from: Seq, to: Seq) -> u32 {
    to.since(from).max(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        Snapshot {
            state: State::Established,
            snd_una: Seq(u32::MAX - 10),
            snd_nxt: Seq(89),
            write_seq: Seq(289),
            snd_wnd: 65_535,
            snd_wl1: Seq(5_000),
            max_wnd: 65_535,
            copied_seq: Seq(4_900),
            rcv_nxt: Seq(5_000),
            last_ack_sent: Seq(4_950),
            right_edge: Seq(70_000),
            peer_mss: 1460,
            advmss: 1460,
            path_mtu: 1500,
            ipv6: false,
            scales: Some(Scales::default()),
            sack: true,
            ecn: false,
            timestamps: None,
            seeds: Seeds::default(),
        }
    }

    #[test]
    fn a_round_trip_is_known_until_another_is_measured() {
        let ms = Duration::from_millis;
        let before = Seeds { srtt: ms(9), rttvar: ms(3), min_rtt: ms(5), cwnd: 4000, ..Seeds::default() };
        let since = Seeds { cwnd: 7000, ..Seeds::default() };
        assert_eq!(since.or_round_trip_of(&before), Seeds { cwnd: 7000, ..before });
        let measured = Seeds { srtt: ms(1), ..since };
        assert_eq!(measured.or_round_trip_of(&before), measured);
    }

    #[test]
    fn queues_are_the_distances_between_the_numbers() {
        let s = snapshot();
        assert_eq!(s.check(), Ok(()));
        assert_eq!((s.unacked_bytes(), s.unsent_bytes(), s.unread_bytes(), s.rcv_wnd()), (100, 200, 100, 65_000));
    }

    #[test]
    fn a_fin_is_a_number_and_not_a_byte() {
        let mut s = Snapshot { state: State::FinWait1, ..snapshot() };
        assert_eq!((s.unacked_bytes(), s.unsent_bytes()), (100, 199), "our FIN waits behind the data");
        s.snd_nxt = s.write_seq;
        assert_eq!((s.unacked_bytes(), s.unsent_bytes()), (299, 0), "our FIN was sent");
        s.state = State::FinWait2;
        assert_eq!(s.check(), Err(Inconsistent::Send), "its FIN is acknowledged, the data before it is not");
        s.snd_una = s.write_seq;
        assert_eq!((s.check(), s.unacked_bytes(), s.unsent_bytes()), (Ok(()), 0, 0));
        let s = Snapshot { state: State::CloseWait, ..snapshot() };
        assert_eq!((s.check(), s.unread_bytes()), (Ok(()), 99));
    }

    #[test]
    fn contradictions_are_found() {
        type Change = fn(&mut Snapshot);
        let table: [(Change, Inconsistent); 14] = [
            (|s| s.state = State::TimeWait, Inconsistent::State),
            (|s| s.snd_una = Seq(90), Inconsistent::Send),
            (|s| s.write_seq = Seq(88), Inconsistent::Send),
            (|s| s.write_seq = s.snd_una + (1 << 30) + 1, Inconsistent::Send),
            (|s| (s.state, s.snd_una, s.snd_nxt) = (State::FinWait1, Seq(289), Seq(289)), Inconsistent::Send),
            (|s| s.copied_seq = Seq(5_001), Inconsistent::Receive),
            (|s| s.right_edge = Seq(4_999), Inconsistent::Receive),
            (|s| (s.state, s.copied_seq) = (State::CloseWait, Seq(5_000)), Inconsistent::Receive),
            (|s| s.last_ack_sent = Seq(5_001), Inconsistent::Acknowledged),
            (|s| s.snd_wnd = 65_536, Inconsistent::Window),
            (|s| s.max_wnd = (1 << 30) + 1, Inconsistent::Window),
            (|s| s.snd_wl1 = Seq(70_001), Inconsistent::Window),
            (|s| s.peer_mss = 47, Inconsistent::Mss),
            (|s| (s.ipv6, s.path_mtu) = (true, 1279), Inconsistent::Mss),
        ];
        for (row, (change, why)) in table.into_iter().enumerate() {
            let mut s = snapshot();
            change(&mut s);
            assert_eq!(s.check(), Err(why), "row {row}");
        }
    }
}
