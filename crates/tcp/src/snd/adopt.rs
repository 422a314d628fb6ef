//! A sender that continues where another stack's stopped.
//!
//! The time at which the data in flight was sent is unknown: it counts as one burst, sent now
//! and more than once. So by Karn's algorithm only a timestamp that comes back gives a
//! round-trip time, RACK (RFC 8985 §6.2 step 2) does not infer the path's state from its
//! delivery, and none of it is deemed lost too early. A probe or timeout repeats the part that
//! stays unacknowledged.

use super::flight::{Burst, RETRANSMITTED};
use super::{Data, Sender};
use crate::cc::Cc;
use crate::config::Config;
use crate::time::{Duration, Instant};
use baton_wire::seq::{Seq, Window};

/// Initial values of a sender. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    pub snd_una: Seq,
    pub snd_nxt: Seq,
    pub snd_wnd: Window,
    /// Bytes that wait behind `snd_nxt`.
    pub queued: u32,
    pub mss: u16,
    /// Zero if it was never measured.
    pub srtt: Duration,
    pub rttvar: Duration,
    /// Zero if nobody knows.
    pub min_rtt: Duration,
    pub cwnd: u32,
    pub ssthresh: u32,
    pub sack: bool,
    pub timestamps: bool,
}

impl Sender {
    /// A sender past its handshake.
    pub(crate) fn adopt(config: &Config, seed: &Seed, now: Instant) -> Sender {
        let mut sender = Sender::new(config, seed.snd_una, seed.mss, now);
        sender.data = Data::Ours;
        sender.sack = seed.sack;
        sender.timestamps = seed.timestamps;
        sender.queued = seed.queued;
        sender.wnd_edge = seed.snd_una + seed.snd_wnd.0;
        sender.cc = Cc::seeded(config.congestion, sender.mss, seed.cwnd, seed.ssthresh);
        sender.rtt.seed(now, seed.srtt, seed.rttvar, seed.min_rtt);
        if seed.snd_nxt.after(seed.snd_una) {
            sender.flight.push(Burst { sent_at: now, end: seed.snd_nxt, marks: RETRANSMITTED }, 0);
            sender.snd_nxt = seed.snd_nxt;
            sender.note_limited();
            sender.data = Data::Inherited;
            sender.recover = seed.snd_nxt;
        }
        sender.settle();
        sender.arm(now);
        sender
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snd::{AckInput, Expired};
    use baton_wire::tcp::SackBlocks;

    fn seed() -> Seed {
        Seed {
            snd_una: Seq(u32::MAX - 3_000),
            snd_nxt: Seq(u32::MAX - 3_000) + 10_000,
            snd_wnd: Window(60_000),
            queued: 0,
            mss: 1_000,
            srtt: Duration::from_millis(20),
            rttvar: Duration::from_millis(2),
            min_rtt: Duration::from_millis(15),
            cwnd: 20_000,
            ssthresh: 30_000,
            sack: true,
            timestamps: true,
        }
    }

    fn ack<'a>(ack: Seq, sack: &'a SackBlocks, ts_ecr: Option<u32>) -> AckInput<'a> {
        AckInput {
            ack,
            sack,
            ts_ecr,
            ts_now: 500,
            ece: false,
            segments: 1,
            has_data: false,
            wnd_changed: false,
            snd_wnd: Window(60_000),
        }
    }

    const NOW: Instant = Instant(1_000_000_000_000);

    #[test]
    fn an_inherited_flight_gives_a_round_trip_only_by_its_timestamp() {
        let soon = NOW + Duration::from_micros(300);
        let none = SackBlocks::new();
        let mut sender = Sender::adopt(&Config::default(), &seed(), NOW);
        let srtt = sender.srtt();
        // Two ACKs at once after the adoption, the second on what could be the plain path.
        sender.on_ack(soon, &ack(seed().snd_una + 2_000, &none, None));
        sender.on_ack(soon, &ack(seed().snd_una + 4_000, &none, None));
        assert_eq!((sender.srtt(), sender.min_rtt()), (srtt, Some(Duration::from_millis(15))));
        sender.on_ack(soon, &ack(seed().snd_una + 6_000, &none, Some(440)));
        assert!(sender.srtt() > srtt, "60 ms by the timestamp: {:?}", sender.srtt());
        sender.assert_consistent();
    }

    #[test]
    fn data_sent_after_it_is_plain_again() {
        let none = SackBlocks::new();
        let mut sender = Sender::adopt(&Config::default(), &seed(), NOW);
        let end = seed().snd_nxt;
        sender.on_sent(NOW, end, end + 1_000, false, 0);
        sender.on_ack(NOW + Duration::from_millis(20), &ack(end, &none, None));
        let before = sender.srtt();
        sender.on_ack(NOW + Duration::from_millis(60), &ack(end + 1_000, &none, None));
        assert!(sender.srtt() > before);
    }

    #[test]
    fn what_stays_unacknowledged_is_sent_again() {
        for sack in [true, false] {
            let mut sender = Sender::adopt(&Config::default(), &Seed { sack, ..seed() }, NOW);
            let mut repeated = Vec::new();
            while repeated.is_empty() {
                let at = sender.deadline().expect("a timer runs for what is in flight");
                assert!(at > NOW && at < NOW + Duration::from_secs(1));
                assert_ne!(sender.on_deadline(at), Expired::None);
                repeated.extend(sender.next_retransmit(at));
            }
            // A loss probe repeats the last segment, a timeout the first.
            let first = (seed().snd_una, seed().snd_una + 1_000);
            let last = (seed().snd_nxt - 1_000, seed().snd_nxt);
            assert_eq!(repeated, [if sack { last } else { first }]);
            sender.assert_consistent();
        }
    }

    #[test]
    fn it_is_asked_after_before_the_connection_can_move_once_more() {
        let lone = Seed { snd_nxt: seed().snd_una + 1_000, ..seed() };
        let unknown = Seed { srtt: Duration::ZERO, rttvar: Duration::ZERO, min_rtt: Duration::ZERO, ..seed() };
        for seed in [seed(), lone, unknown] {
            let mut sender = Sender::adopt(&Config::default(), &seed, NOW);
            let at = NOW + Duration::from_millis(10);
            assert_eq!((sender.deadline(), sender.on_deadline(at)), (Some(at), Expired::Tlp));
            assert_eq!(sender.next_retransmit(at), Some((seed.snd_nxt - 1_000, seed.snd_nxt)));
        }
    }

    /// The state while the connection is about to leave, or Nagle's algorithm waits.
    #[test]
    fn new_data_that_is_held_back_is_no_probe() {
        let mut sender = Sender::adopt(&Config::default(), &Seed { queued: 5_000, ..seed() }, NOW);
        let at = sender.deadline().unwrap();
        assert_eq!((sender.on_deadline(at), sender.next_retransmit(at)), (Expired::Tlp, None), "new data may go");
        let later = at + Duration::from_millis(2);
        assert_eq!((sender.deadline(), sender.on_deadline(later)), (Some(later), Expired::Tlp));
        assert_eq!(sender.next_retransmit(later), Some((seed().snd_nxt - 1_000, seed().snd_nxt)));
        assert!(sender.deadline().unwrap() > later + Duration::from_millis(100), "and then the timeout");
    }

    #[test]
    fn window_and_threshold_go_on_as_they_were() {
        let sender = Sender::adopt(&Config::default(), &seed(), NOW);
        assert_eq!((sender.cwnd(), sender.ssthresh(), sender.pipe()), (20_000, 30_000, 10_000));
        assert_eq!(sender.limit(Window(60_000)), seed().snd_nxt + 10_000);
        assert_eq!(sender.limit(Window(12_000)), seed().snd_una + 12_000);
        let idle = Sender::adopt(&Config::default(), &Seed { snd_nxt: seed().snd_una, ..seed() }, NOW);
        assert_eq!((idle.in_flight(), idle.srtt()), (0, Duration::from_millis(20)));
        // Without a flight the window of an idle connection decays (RFC 5681 §4.1).
        assert!(idle.deadline().is_some());
    }
}
