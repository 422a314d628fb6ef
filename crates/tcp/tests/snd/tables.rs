//! Windows, losses and recovery as the RFCs say, step by step.

use crate::rig::{MSS, Rig, reno, seg};
use baton_tcp::config::Config;
use baton_tcp::snd::{Expired, Phase, Sender};
use baton_tcp::time::Instant;
use baton_wire::seq::{Seq, Window};

#[test]
fn initial_window_is_ten_segments_within_bounds() {
    for (mss, cwnd) in [(536, 5360), (1460, 14600), (1000, 10_000), (5000, 14_600), (8960, 17_920)] {
        assert_eq!(Sender::new(&reno(), Seq(1), mss, Instant(0)).cwnd(), cwnd, "MSS {mss}");
    }
    let mut sender = Sender::new(&reno(), Seq(1), 536, Instant(0));
    sender.set_mss(1460);
    assert_eq!(sender.cwnd(), 14_600, "the SYN-ACK's MSS counts");
}

#[test]
fn three_duplicates_repeat_the_first_segment_and_partial_acks_the_next_holes() {
    // tests: MUST-19
    let mut rig = Rig::new(&reno(), false, 100);
    rig.send(0, 10);
    assert_eq!(rig.limit(), 10);
    // RFC 3042: the first two duplicates let one new segment go each.
    rig.at(100).ack(0);
    assert_eq!((rig.limit(), rig.repeats()), (11, vec![]));
    rig.ack(0);
    assert_eq!((rig.limit(), rig.repeats()), (12, vec![]));
    rig.send(10, 12);
    let out = rig.ack(0);
    assert!(out.recovery_entered && out.cwr_needed);
    assert_eq!(rig.repeats(), [(0, 1)]);
    assert_eq!((rig.s.phase(), rig.s.ssthresh()), (Phase::Recovery, 5 * MSS));
    for _ in 0..7 {
        rig.ack(0);
    }
    let sent_to = rig.limit();
    rig.send(12, sent_to);
    // Segment 4 is missing too: a partial ACK.
    rig.at(200).ack(4);
    assert_eq!((rig.repeats(), rig.s.phase()), (vec![(4, 5)], Phase::Recovery));
    let out = rig.at(300).ack(12);
    assert!(out.recovered);
    assert_eq!((rig.s.phase(), rig.cwnd()), (Phase::Open, 5));
}

#[test]
fn duplicates_need_all_five_marks_of_a_duplicate() {
    let mut rig = Rig::new(&reno(), false, 100);
    rig.send(0, 10).at(100);
    for _ in 0..5 {
        let none = baton_wire::tcp::SackBlocks::new();
        for (has_data, wnd_changed) in [(true, false), (false, true)] {
            let plain = crate::net::ack_of(seg(0), rig.now());
            let input = baton_tcp::snd::AckInput { has_data, wnd_changed, sack: &none, ..plain };
            rig.s.on_ack(rig.now(), &input);
        }
    }
    assert_eq!((rig.s.phase(), rig.s.pipe()), (Phase::Open, 10 * MSS));
}

#[test]
fn more_than_two_segments_sacked_above_make_the_first_lost() {
    // RFC 6675 §4 IsLost with DupThresh 3, through RACK without reordering.
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 10).at(100);
    rig.sack(0, &[(1, 2)]);
    rig.sack(0, &[(1, 3)]);
    assert_eq!((rig.s.phase(), rig.s.info().sacked), (Phase::Open, 2 * MSS));
    let out = rig.sack(0, &[(1, 4)]);
    assert!(out.recovery_entered);
    assert_eq!(rig.repeats(), [(0, 1)]);
    // pipe: 10 sent, 3 SACKed, 1 lost and sent again.
    assert_eq!((rig.s.pipe(), rig.s.info().lost), (7 * MSS, 0));
    // Two more holes become known at once; the window decides how fast they go.
    rig.at(110).sack(0, &[(9, 10), (6, 8), (1, 4)]);
    assert_eq!(rig.s.info().sacked, 6 * MSS);
    // Lost: 4, 5 and 8. PRR lets as much go as was delivered.
    let mut repeated = rig.repeats();
    assert!(!repeated.is_empty() && repeated[0].0 == 4, "{repeated:?}");
    for n in 1..10 {
        rig.at(200 + n).sack(1, &[(9, 10), (6, 8), (1, 4)]);
        repeated.extend(rig.repeats());
    }
    rig.at(300).ack(10);
    assert_eq!((rig.s.phase(), rig.cwnd()), (Phase::Open, 5));
}

#[test]
fn sack_blocks_outside_the_flight_are_not_believed() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 10).at(100).ack(4);
    rig.sack(4, &[(8, 12), (2, 6), (7, 6)]);
    assert_eq!(rig.s.info().sacked, 0);
    rig.sack(4, &[(6, 7), (6, 7), (6, 8)]);
    assert_eq!(rig.s.info().sacked, 2 * MSS, "overlaps count once");
}

#[test]
fn reordering_is_waited_for_once_it_was_seen() {
    let mut rig = Rig::new(&reno(), true, 100);
    for n in 0..10 {
        rig.at(u64::from(n)).send(n, n + 1);
    }
    rig.at(102).sack(0, &[(1, 3)]);
    assert_eq!(rig.deadline(), Some(100 + 25), "RFC 8985 §6.2: RACK.rtt and a quarter of min_RTT");
    rig.at(104).sack(3, &[]);
    assert!(rig.s.info().reordering_seen, "0 came after 2 at its first try");
    // Now even many SACKed segments wait for the reordering window.
    rig.at(109).sack(3, &[(4, 9)]);
    assert_eq!((rig.s.phase(), rig.repeats()), (Phase::Open, vec![]));
    rig.send(10, 11);
    assert_eq!(rig.expire(), Expired::Reorder, "sending more does not put it off");
    assert_eq!((rig.s.phase(), rig.repeats()), (Phase::Recovery, vec![(3, 4)]));
    assert!((126..=136).contains(&(rig.ms - 1000)), "{}", rig.ms - 1000);
}

#[test]
fn a_dsack_widens_the_reordering_window() {
    let run = |dsack: bool| {
        let mut rig = Rig::new(&reno(), true, 100);
        for n in 0..10 {
            rig.at(u64::from(n)).send(n, n + 1);
        }
        rig.at(103).sack(0, &[(1, 3)]);
        rig.sack(3, &[]);
        if dsack {
            rig.sack(3, &[(1, 2)]);
        }
        rig.at(108).sack(3, &[(4, 9)]);
        rig.deadline()
    };
    assert_eq!((run(true), run(false)), (Some(108 + 45), Some(108 + 20)));
}

#[test]
fn a_lost_retransmission_is_found_by_time() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 10).at(100).sack(0, &[(1, 5)]);
    assert_eq!(rig.repeats(), [(0, 1)]);
    let limit = rig.limit();
    rig.at(101).send(10, limit.max(11));
    // The segments sent after the repeat arrive, the repeat does not.
    rig.at(210).sack(0, &[(10, 11), (1, 10)]);
    assert_eq!(rig.repeats(), [(0, 1)]);
    assert_eq!(rig.s.retransmits(), 0);
}

#[test]
fn dsacks_for_all_that_was_repeated_undo_the_reduction() {
    let mut rig = Rig::new(&Config::default(), true, 100);
    rig.send(0, 10).at(100).sack(0, &[(1, 5)]);
    assert_eq!(rig.repeats(), [(0, 1)]);
    assert!(rig.s.ssthresh() < 10 * MSS);
    rig.at(105).ack(10);
    rig.send(10, 12);
    assert_eq!((rig.s.phase(), rig.cwnd()), (Phase::Open, 7));
    let out = rig.at(200).sack(10, &[(0, 1)]);
    assert!(out.undone);
    assert_eq!((rig.cwnd(), rig.s.ssthresh()), (10, u32::MAX));
}

#[test]
fn prr_spreads_the_reduction_over_the_round_trip() {
    let mut config = Config::default();
    for (congestion, share) in [(baton_tcp::config::Congestion::Reno, 50), (config.congestion, 70)] {
        config.congestion = congestion;
        let mut rig = Rig::new(&config, true, 100);
        rig.send(0, 10).at(100).ack(10);
        rig.send(10, 30).at(200);
        rig.s.set_mss(1000);
        let flight = rig.s.in_flight() / MSS;
        let mut sent = 0;
        let mut next = 30;
        for n in 12..=30 {
            rig.sack(10, &[(11, n)]);
            sent += rig.repeats().len() as u32;
            let limit = rig.limit();
            if limit > next {
                sent += limit - next;
                rig.send(next, limit);
                next = limit;
            }
        }
        // RFC 6937 §3: what was sent in recovery is to what was delivered as
        // ssthresh is to the flight at its start.
        let expected = flight * share / 100;
        assert!(sent.abs_diff(expected) <= 2, "{congestion:?}: {sent} of {flight}, expected {expected}");
        assert!(rig.s.pipe() <= rig.s.ssthresh() + MSS);
    }
}

#[test]
fn ece_reduces_once_a_window() {
    // tests: SHLD-8
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 10).at(100);
    let first = rig.ece(1);
    assert!(first.cwr_needed);
    assert_eq!(rig.cwnd(), 4, "half of the 9 in flight");
    assert!(!rig.ece(2).cwr_needed && !rig.ece(9).cwr_needed);
    assert_eq!(rig.cwnd(), 4, "and no growth meanwhile");
    rig.ack(10);
    rig.send(10, 14).at(200);
    assert!(rig.ece(12).cwr_needed);
}

#[test]
fn ece_and_loss_in_one_window_reduce_it_once() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 10).at(100);
    rig.ece(0);
    assert_eq!(rig.s.ssthresh(), 5 * MSS);
    let out = rig.sack(0, &[(1, 5)]);
    assert!(out.recovery_entered);
    assert_eq!((rig.s.ssthresh(), rig.repeats()), (5 * MSS, vec![(0, 1)]));
}

#[test]
fn the_limit_is_a_position_so_unreported_data_does_not_add_to_it() {
    let mut rig = Rig::new(&reno(), true, 100);
    assert_eq!(rig.limit(), 10);
    rig.send(0, 3);
    assert_eq!(rig.limit(), 10);
    rig.send(3, 10);
    assert_eq!(rig.limit(), 10);
    assert_eq!(rig.s.limit(Window(2500)), seg(2) + 500, "the peer's window, from snd_una");
}

#[test]
fn the_window_does_not_grow_for_an_application_that_does_not_use_it() {
    let mut rig = Rig::new(&reno(), true, 100);
    for n in 0..20 {
        rig.at(u64::from(n) * 100).send(n, n + 1);
        rig.at(u64::from(n) * 100 + 99).ack(n + 1);
    }
    assert_eq!(rig.cwnd(), 10);
}

#[test]
fn a_run_of_acknowledgments_grows_the_window_as_its_members_would() {
    for congestion in [baton_tcp::config::Congestion::Reno, baton_tcp::config::Congestion::Cubic] {
        let config = Config::default().with(|config| config.congestion = congestion);
        for sack in [false, true] {
            let (mut single, mut run) = (Rig::new(&config, sack, 100), Rig::new(&config, sack, 100));
            let (mut sent, mut acked, mut time) = (0, 0, 0);
            for round in 0..60u32 {
                let to = single.limit();
                assert_eq!(to, run.limit(), "{congestion:?}, round {round}");
                single.send(sent, to);
                run.send(sent, to);
                sent = to;
                time += 100;
                single.at(time);
                run.at(time);
                if round == 4 {
                    // One loss, so that congestion avoidance is seen too.
                    single.ece(acked);
                    run.ece(acked);
                }
                while acked < sent {
                    let k = (sent - acked).min(1 + round % 9);
                    for n in 1..=k {
                        single.ack(acked + n);
                    }
                    run.run(acked + k, k as u16);
                    acked += k;
                    assert_eq!(single.s.cwnd(), run.s.cwnd(), "{congestion:?}, round {round}, {acked}");
                }
            }
            assert!(single.cwnd() > 12);
        }
    }
}

#[test]
fn a_smaller_path_mtu_repeats_the_flight_without_reducing_the_window() {
    let mut rig = Rig::new(&reno(), true, 100);
    rig.send(0, 8);
    let cwnd = rig.s.cwnd();
    rig.s.on_mtu_reduced(rig.now(), 500);
    assert_eq!(rig.repeats(), [(0, 8)]);
    assert_eq!((rig.s.cwnd(), rig.s.phase(), rig.s.mss()), (cwnd, Phase::Open, 500));
}
