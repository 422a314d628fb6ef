//! A snapshot as words: for rings, shared memory and sockets.
//!
//! ```text
//!  word 0   state | facts << 8 | shifts << 16 | rcv_mss << 32 | peer_mss << 48
//!       1   advmss | path_mtu << 16 | rcv_space << 32
//!       2   snd_una, snd_nxt        3  write_seq, snd_wnd     low half first
//!       4   snd_wl1, max_wnd        5  copied_seq, rcv_nxt
//!       6   last_ack_sent, right_edge
//!       7   tsval, ts_recent        8  cwnd, ssthresh
//!    9 10 11 12   srtt, rttvar, min_rtt, rcv_rtt in ns
//!      13   0
//! ```

use super::{Scales, Seeds, Snapshot, Timestamps};
use crate::state::State;
use crate::time::Duration;
use baton_wire::seq::{Seq, WindowScale};

/// A snapshot as words.
pub type Words = [u64; 14];

const IPV6: u8 = 1;
const SACK: u8 = 2;
const ECN: u8 = 4;
const SCALES: u8 = 8;
const TIMESTAMPS: u8 = 16;
const MICROSECONDS: u8 = 32;
const TS_RECENT: u8 = 64;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Snapshot {
    /// The snapshot as words.
    pub fn to_words(&self) -> Words {
        let scales = self.scales.unwrap_or_default();
        let ts = self.timestamps.unwrap_or(Timestamps { tsval: 0, microseconds: false, ts_recent: None });
        let seeds = &self.seeds;
        let head = u64::from(self.state as u8)
            | u64::from(self.facts()) << 8
            | u64::from(scales.snd.shift()) << 16
            | u64::from(scales.rcv.shift()) << 24
            | u64::from(seeds.rcv_mss) << 32
            | u64::from(self.peer_mss) << 48;
        [
            head,
            u64::from(self.advmss) | u64::from(self.path_mtu) << 16 | u64::from(seeds.rcv_space) << 32,
            pair(self.snd_una.0, self.snd_nxt.0),
            pair(self.write_seq.0, self.snd_wnd),
            pair(self.snd_wl1.0, self.max_wnd),
            pair(self.copied_seq.0, self.rcv_nxt.0),
            pair(self.last_ack_sent.0, self.right_edge.0),
            pair(ts.tsval, ts.ts_recent.unwrap_or(0)),
            pair(seeds.cwnd, seeds.ssthresh),
            seeds.srtt.0,
            seeds.rttvar.0,
            seeds.min_rtt.0,
            seeds.rcv_rtt.0,
            0,
        ]
    }

    fn facts(&self) -> u8 {
        let fact = |on: bool, bit: u8| if on { bit } else { 0 };
        fact(self.ipv6, IPV6)
            | fact(self.sack, SACK)
            | fact(self.ecn, ECN)
            | fact(self.scales.is_some(), SCALES)
            | fact(self.timestamps.is_some(), TIMESTAMPS)
            | fact(self.timestamps.is_some_and(|ts| ts.microseconds), MICROSECONDS)
            | fact(self.timestamps.is_some_and(|ts| ts.ts_recent.is_some()), TS_RECENT)
    }

    /// Decodes a snapshot; `None` if the first word names no state. [`Snapshot::check`] checks
    /// its numbers.
    pub fn from_words(words: &Words) -> Option<Snapshot> {
        let [
            head,
            sizes,
            una_nxt,
            write_wnd,
            wl1_max,
            copied_rcv,
            ack_edge,
            ts,
            windows,
            srtt,
            rttvar,
            min_rtt,
            rcv_rtt,
            _,
        ] = *words;
        let facts = (head >> 8) as u8;
        let has = |bit: u8| facts & bit != 0;
        let (tsval, ts_recent) = halves(ts);
        let (cwnd, ssthresh) = halves(windows);
        let seq = |word: u64| (Seq(halves(word).0), Seq(halves(word).1));
        let mixed = |word: u64| (Seq(halves(word).0), halves(word).1);
        let (snd_una, snd_nxt) = seq(una_nxt);
        let ((write_seq, snd_wnd), (snd_wl1, max_wnd)) = (mixed(write_wnd), mixed(wl1_max));
        let ((copied_seq, rcv_nxt), (last_ack_sent, right_edge)) = (seq(copied_rcv), seq(ack_edge));
        Some(Snapshot {
            state: State::ALL.into_iter().find(|state| *state as u8 == head as u8)?,
            snd_una,
            snd_nxt,
            write_seq,
            snd_wnd,
            snd_wl1,
            max_wnd,
            copied_seq,
            rcv_nxt,
            last_ack_sent,
            right_edge,
            peer_mss: (head >> 48) as u16,
            advmss: sizes as u16,
            path_mtu: (sizes >> 16) as u16,
            ipv6: has(IPV6),
            scales: has(SCALES).then(|| Scales {
                snd: WindowScale::new((head >> 16) as u8),
                rcv: WindowScale::new((head >> 24) as u8),
            }),
            sack: has(SACK),
            ecn: has(ECN),
            timestamps: has(TIMESTAMPS).then(|| Timestamps {
                tsval,
                microseconds: has(MICROSECONDS),
                ts_recent: has(TS_RECENT).then_some(ts_recent),
            }),
            seeds: Seeds {
                srtt: Duration(srtt),
                rttvar: Duration(rttvar),
                min_rtt: Duration(min_rtt),
                cwnd,
                ssthresh,
                rcv_mss: (head >> 32) as u16,
                rcv_rtt: Duration(rcv_rtt),
                rcv_space: (sizes >> 32) as u32,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_and_snapshots_say_the_same(mut words in any::<Words>(), state in 0..11u8) {
            words[0] = words[0] & !0xff | u64::from(state);
            let snapshot = Snapshot::from_words(&words).expect("a state");
            let again = Snapshot::from_words(&snapshot.to_words());
            prop_assert_eq!(again, Some(snapshot.clone()));
            // Checking does not panic either.
            let _ = (snapshot.check(), snapshot.unacked_bytes(), snapshot.unsent_bytes(), snapshot.unread_bytes());
        }

        #[test]
        fn every_field_has_its_place(word in 1..13usize, bit in 0..64u32) {
            // All facts on, so that no field is left out.
            let mut words = [0; 14];
            words[0] = u64::from(State::Established as u8) | 0x7f << 8;
            let plain = Snapshot::from_words(&words);
            words[word] |= 1 << bit;
            prop_assert_ne!(Snapshot::from_words(&words), plain);
        }
    }

    #[test]
    fn no_state_is_no_snapshot() {
        assert_eq!(Snapshot::from_words(&[0xff; 14]), None);
    }
}
