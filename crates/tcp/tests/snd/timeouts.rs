//! Timers, probes and spurious timeouts as the RFCs say, step by step.

use crate::rig::{MSS, Rig, ms, reno};
use baton_tcp::config::Config;
use baton_tcp::snd::{Expired, Phase, Sender};
use baton_tcp::time::Instant;
use baton_wire::seq::Seq;

#[test]
fn rto_follows_rfc_6298() {
    // tests: MUST-18
    let config = reno();
    let mut sender = Sender::new(&config, Seq(7), 1000, Instant(0));
    assert_eq!(sender.rto(), ms(1000), "§2.1: one second before any sample");
    sender.on_sent(Instant(0), Seq(7), Seq(8), false, 0);
    let mut rig = Rig::new(&config, true, 400);
    // First sample R: SRTT = R, RTTVAR = R/2, RTO = R + 4·R/2.
    assert_eq!((rig.s.srtt(), rig.s.rttvar(), rig.rto_ms()), (ms(400), ms(200), 1200));
    // Second, of 200 ms: RTTVAR = 3/4·200 + 1/4·200, SRTT = 7/8·400 + 1/8·200.
    rig.send(0, 1).at(200).ack(1);
    assert_eq!((rig.s.srtt(), rig.s.rttvar(), rig.rto_ms()), (ms(375), ms(200), 1175));
    // One of four ACKs of a flight weighs a quarter (RFC 7323 appendix G).
    rig.send(1, 5).at(400).ack(2);
    assert_eq!(rig.s.srtt().0, 375_000_000 - 175_000_000 / 32);
}

#[test]
fn timeouts_double_up_to_the_maximum_and_keep_the_first_segment_coming() {
    // tests: MUST-18, MUST-19
    let mut rig = Rig::new(&reno(), false, 100);
    rig.send(0, 4);
    let mut gaps = Vec::new();
    let mut last = rig.ms;
    for count in 1..=12 {
        assert_eq!(rig.expire(), Expired::Rto { count });
        gaps.push(rig.ms - last);
        last = rig.ms;
        assert_eq!(rig.repeats(), [(0, 1)]);
        assert_eq!(rig.cwnd(), 1);
    }
    assert_eq!(gaps, [300, 600, 1200, 2400, 4800, 9600, 19200, 38400, 76800, 120_000, 120_000, 120_000]);
    // §5.5 with Karn: an ACK of repeated data tells nothing; the backoff stays.
    rig.ack(1);
    assert_eq!((rig.s.retransmits(), rig.rto_ms()), (0, 120_000));
}

#[test]
fn a_timestamp_makes_repeated_data_count_for_the_rtt() {
    let mut rig = Rig::new(&reno(), false, 100);
    rig.s.set_timestamps(true);
    rig.send(0, 1);
    assert_eq!(rig.expire(), Expired::Rto { count: 1 });
    assert_eq!((rig.repeats(), rig.rto_ms()), (vec![(0, 1)], 600));
    rig.echo = Some(300);
    rig.at(420).ack(1);
    assert_eq!((rig.s.srtt().as_micros(), rig.rto_ms()), (102_500, 302), "120 ms entered the estimate");
}

#[test]
fn a_timestamp_within_one_tick_does_not_pretend_to_be_exact() {
    let mut rig = Rig::new(&reno(), false, 2);
    rig.s.set_timestamps(true);
    rig.send(0, 1);
    rig.expire();
    assert_eq!(rig.repeats(), [(0, 1)]);
    rig.echo = Some(rig.ms - 1000);
    rig.ack(1);
    assert_eq!(rig.s.min_rtt(), Some(ms(1)));
}

#[test]
fn what_waited_behind_a_hole_is_no_rtt_sample() {
    let mut rig = Rig::new(&reno(), false, 100);
    rig.send(0, 5).at(100);
    for _ in 0..3 {
        rig.ack(0);
    }
    assert_eq!(rig.repeats(), [(0, 1)]);
    rig.at(200).ack(5);
    assert_eq!(rig.s.srtt(), ms(100), "1 to 4 arrived at 100 ms, not 200");
}

#[test]
fn a_lost_syn_leaves_one_segment_and_three_seconds() {
    let mut s = Sender::new(&reno(), Seq(9), 1000, Instant(0));
    s.on_sent(Instant(0), Seq(9), Seq(10), false, 0);
    assert_eq!(s.deadline(), Some(Instant(1_000_000_000)));
    let now = Instant(1_000_000_000);
    assert_eq!(s.on_deadline(now), Expired::Rto { count: 1 });
    assert_eq!(s.next_retransmit(now), None, "the SYN is the caller's");
    s.on_sent(now, Seq(9), Seq(10), true, 0);
    assert_eq!(s.deadline(), Some(Instant(3_000_000_000)));
    let now = Instant(1_100_000_000);
    s.on_ack(now, &crate::net::ack_of(Seq(10), now));
    // RFC 5681 §3.1; RFC 6298 §5.7.
    assert_eq!((s.cwnd(), s.rto()), (1000, ms(3000)));
}

#[test]
fn after_a_timeout_old_duplicates_do_not_start_another_recovery() {
    let mut rig = Rig::new(&reno(), false, 100);
    rig.queued = 0;
    rig.send(0, 8);
    assert_eq!(rig.expire(), Expired::Rto { count: 1 });
    assert_eq!(rig.repeats(), [(0, 1)]);
    rig.ack(8);
    assert_eq!(rig.s.phase(), Phase::Open);
    rig.send(8, 11);
    for _ in 0..4 {
        rig.ack(8);
    }
    assert_eq!((rig.s.phase(), rig.repeats()), (Phase::Open, vec![]), "RFC 6582 §3.2 step 2");
    rig.ack(9);
    rig.send(11, 14);
    for _ in 0..3 {
        rig.ack(9);
    }
    assert_eq!(rig.s.phase(), Phase::Recovery);
}

#[test]
fn a_lost_tail_is_probed_and_repaired_without_a_timeout() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.queued = 0;
    rig.send(0, 10);
    assert_eq!(rig.deadline(), Some(200), "PTO = 2 SRTT");
    assert_eq!(rig.expire(), Expired::Tlp);
    assert_eq!(rig.repeats(), [(9, 10)], "the last segment");
    assert_eq!(rig.deadline(), Some(500), "the RTO counts from the probe");
    // The probe arrives; the nine before it did not.
    rig.at(300).sack(0, &[(9, 10)]);
    assert_eq!((rig.s.phase(), rig.s.info().lost), (Phase::Recovery, 9 * MSS));
    assert_eq!(rig.repeats().first().map(|r| r.0), Some(0));
}

#[test]
fn a_probe_that_repaired_the_loss_halves_the_window() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.queued = 0;
    rig.send(0, 10).at(100).ack(9);
    let cwnd = rig.cwnd();
    assert_eq!(rig.expire(), Expired::Tlp);
    assert_eq!(rig.repeats(), [(9, 10)]);
    rig.send(10, 11);
    let out = rig.at(rig.ms - 1000 + 100).sack(11, &[]);
    assert!(out.cwr_needed && rig.cwnd() < cwnd, "RFC 8985 §7.4.2");
}

#[test]
fn a_probe_that_was_needless_costs_nothing() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.queued = 0;
    rig.send(0, 10).at(100).ack(9);
    let cwnd = rig.cwnd();
    rig.expire();
    assert_eq!(rig.repeats(), [(9, 10)]);
    rig.ack(10);
    rig.send(10, 11);
    let out = rig.sack(10, &[(9, 10)]);
    assert!(!out.cwr_needed && rig.cwnd() >= cwnd);
    rig.ack(11);
    assert_eq!(rig.s.phase(), Phase::Open);
}

#[test]
fn a_probe_is_new_data_if_there_is_any() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.queued = 5000;
    rig.send(0, 10);
    assert_eq!((rig.limit(), rig.expire()), (10, Expired::Tlp));
    assert_eq!((rig.repeats(), rig.limit()), (vec![], 11));
    rig.send(10, 11);
    assert_eq!(rig.limit(), 11, "one segment, once");
}

#[test]
fn a_spurious_timeout_is_undone_by_timestamps() {
    for sack in [false, true] {
        let mut rig = Rig::new(&Config::default(), sack, 100);
        rig.queued = 0;
        rig.s.set_timestamps(true);
        rig.at(10).send(0, 10);
        let cwnd = rig.s.cwnd();
        while !matches!(rig.expire(), Expired::Rto { .. }) {
            rig.repeats();
        }
        assert_eq!((rig.s.phase(), rig.cwnd(), rig.repeats()), (Phase::Loss, 1, vec![(0, 1)]));
        // The delayed original's ACK: it echoes what was sent at 10 ms.
        rig.echo = Some(10);
        let out = rig.at(rig.ms - 1000 + 20).ack(1);
        assert!(out.undone);
        assert_eq!((rig.s.phase(), rig.s.ssthresh(), rig.s.info().lost), (Phase::Open, u32::MAX, 0));
        assert!(rig.s.cwnd() >= cwnd);
        assert_eq!(rig.repeats(), [], "nothing more is repeated");
    }
}

#[test]
fn a_spurious_timeout_is_undone_by_frto() {
    let mut rig = Rig::new(&reno(), false, 100);
    rig.send(0, 10);
    assert_eq!(rig.expire(), Expired::Rto { count: 1 });
    assert_eq!(rig.repeats(), [(0, 1)]);
    let cwnd = rig.cwnd();
    assert_eq!(cwnd, 1);
    rig.ack(1);
    // RFC 5682 §2.1 step 2b: two new segments instead of a repeat.
    assert_eq!((rig.repeats(), rig.limit()), (vec![], 12));
    rig.send(10, 12);
    let out = rig.ack(2);
    assert!(out.undone);
    assert_eq!((rig.s.phase(), rig.cwnd()), (Phase::Open, 10));
}

#[test]
fn frto_takes_a_duplicate_for_a_real_loss() {
    let mut rig = Rig::new(&reno(), false, 100);
    rig.send(0, 10);
    rig.expire();
    assert_eq!(rig.repeats(), [(0, 1)]);
    rig.ack(1);
    rig.send(10, 12);
    let out = rig.ack(1);
    assert!(!out.undone);
    assert_eq!(rig.s.phase(), Phase::Loss);
    assert_eq!(rig.repeats().first().map(|r| r.0), Some(1), "everything outstanding goes again");
}

#[test]
fn reneging_is_survived() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.queued = 0;
    rig.send(0, 4).at(100).sack(0, &[(2, 4)]);
    let mut repeated = Vec::new();
    for _ in 0..4 {
        rig.expire();
        repeated.extend(rig.repeats());
    }
    // The receiver forgot 2..4; a second timeout forgets the marks (RFC 2018 §8).
    assert_eq!(rig.s.info().sacked, 0);
    rig.ack(1);
    repeated.extend(rig.repeats());
    rig.ack(2);
    repeated.extend(rig.repeats());
    assert!(repeated.iter().any(|r| r.0 <= 2 && r.1 > 2), "{repeated:?}");
}

#[test]
fn an_idle_rto_takes_the_window_back_to_the_restart_window() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 10).at(100).ack(10);
    rig.send(10, 30).at(200).ack(30);
    assert!(rig.cwnd() > 20);
    assert_eq!(rig.expire(), Expired::Idle);
    assert_eq!((rig.cwnd(), rig.deadline()), (10, None), "RFC 5681 §4.1");
}
