//! Segment in, answer out: RFC 9293 §3.10.7 step by step, and RFC 5961.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, Notice};
use baton_tcp::reset::reset_for;
use baton_tcp::state::State;
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

const SYNCHRONIZED: [State; 6] =
    [State::Established, State::FinWait1, State::FinWait2, State::CloseWait, State::Closing, State::LastAck];

fn rcv_nxt(state: State) -> Seq {
    match state {
        State::CloseWait | State::Closing | State::LastAck | State::TimeWait => RCV + 1,
        _ => RCV,
    }
}

/// RFC 9293 §3.10.7.1.
#[test]
fn a_segment_to_nobody_is_reset_unless_it_is_a_reset() {
    let reset = |s| reset_for(&s).map(|c| controls(&[c])[0]);
    assert_eq!(reset(seg(Flags::RST, Seq(5), Seq(9), 0)), None);
    assert_eq!(reset(seg(Flags::ACK, Seq(5), Seq(9), 3)), Some((Flags::RST, Seq(9), Seq(0))));
    assert_eq!(reset(seg(Flags::SYN, Seq(5), Seq(9), 0)), Some((RST_ACK, Seq(0), Seq(6))));
    assert_eq!(reset(seg(Flags::FIN, Seq(5), Seq(9), 10)), Some((RST_ACK, Seq(0), Seq(16))));
}

// tests: RFC5961-3.2-1, RFC5961-3.2-2, RFC5961-3.2-3
#[test]
fn a_reset_counts_only_at_exactly_rcv_nxt() {
    for state in SYNCHRONIZED {
        let next = rcv_nxt(state);
        for (seq, answered) in [(next + 1, true), (next + 50_000, true), (next - 1, false), (next + (1 << 20), false)] {
            let mut rig = Rig::in_state(state);
            let out = rig.arrive(&seg(Flags::RST, seq, Seq(0), 0)).to_vec();
            assert_eq!(rig.tcb.state(), state, "{state:?} {seq:?}");
            assert_eq!(acks(&out), if answered { vec![next] } else { vec![] }, "{state:?} {seq:?}");
        }
        let mut rig = Rig::in_state(state);
        rig.arrive(&seg(Flags::RST, next, Seq(0), 0));
        assert!(rig.tcb.is_closed(), "{state:?}");
        assert_eq!(rig.out.last(), Some(&Command::Release));
    }
}

// tests: MUST-12
#[test]
fn the_consumer_learns_whether_the_end_was_a_reset() {
    let mut rig = Rig::established();
    rig.arrive(&seg(Flags::RST, RCV, SND, 0));
    assert_eq!(rig.notices(), [Notice::Closed(CloseReason::Reset)]);
    let mut rig = Rig::established();
    rig.arrive(&seg(FIN_ACK, RCV, SND, 0));
    assert_eq!(rig.notices(), [Notice::PeerFin]);
}

// tests: RFC5961-4.2-1, RFC5961-4.2-2
#[test]
fn a_syn_is_challenged_whatever_its_number() {
    for state in SYNCHRONIZED.into_iter().chain([State::TimeWait]) {
        for seq in [rcv_nxt(state), rcv_nxt(state) + 10, Seq(3)] {
            let mut rig = Rig::in_state(state);
            let out = rig.arrive(&seg(Flags::SYN | Flags::ACK, seq, SND, 0)).to_vec();
            assert_eq!((rig.tcb.state(), acks(&out)), (state, vec![rcv_nxt(state)]), "{state:?} {seq:?}");
        }
    }
}

// tests: RFC5961-5.2-1, RFC5961-5.2-2
#[test]
fn an_acknowledgment_far_off_makes_data_unacceptable() {
    for (ack, good) in
        [(SND, true), (SND - 40_000, true), (SND - 60_000, false), (SND + 1, false), (SND + (1 << 30), false)]
    {
        let mut rig = Rig::established();
        let out = rig.parked(1, &seg(Flags::ACK | Flags::URG, RCV, ack, 100)).to_vec();
        let placed = out.iter().any(|c| matches!(c, Command::Place { .. }));
        let dropped = out.iter().any(|c| matches!(c, Command::Drop { .. }));
        assert_eq!((placed, dropped), (good, !good), "{ack:?}");
        assert_eq!(acks(&out), [if good { RCV + 100 } else { RCV }], "{ack:?}");
    }
}

// tests: RFC5961-7-1
#[test]
fn challenges_are_bounded_for_a_connection_and_for_the_host() {
    let mut rig = Rig::established();
    for _ in 0..10 {
        rig.arrive(&seg(Flags::SYN, RCV + 5, Seq(0), 0));
        rig.after(Duration::from_millis(1));
    }
    assert_eq!(acks(&rig.take()).len(), 1);
    rig.after(Duration::from_millis(500));
    assert_eq!(acks(rig.arrive(&seg(Flags::SYN, RCV + 5, Seq(0), 0))).len(), 1);
    rig.limiter = baton_tcp::challenge::ChallengeLimiter::new(0, 1);
    rig.after(Duration::from_millis(500));
    assert_eq!(acks(rig.arrive(&seg(Flags::SYN, RCV + 5, Seq(0), 0))).len(), 0);
}

/// Table 6 of RFC 9293 §3.10.7.4; the answer to what is unacceptable.
#[test]
fn what_lies_outside_of_the_window_is_answered_and_dropped() {
    let edge = RCV + (1 << 16);
    let rows = [
        (RCV, 0, true),
        (edge - 1, 0, true),
        (edge, 0, true),
        (edge + 1, 0, false),
        (RCV - 1, 0, false),
        (RCV, 10, true),
        (RCV - 9, 10, true),
        (RCV - 10, 10, false),
        (edge - 1, 10, true),
        (edge, 10, false),
    ];
    for (seq, len, good) in rows {
        let mut rig = Rig::established();
        rig.sent(100);
        rig.out.clear();
        let segment = seg(Flags::ACK, seq, SND + 100, len);
        let out = if len > 0 { rig.parked(1, &segment) } else { rig.arrive(&segment) }.to_vec();
        let acknowledged = rig.info().snd_una == SND + 100;
        assert_eq!(acknowledged, good, "{seq:?} {len}");
        if !good {
            assert_eq!(acks(&out), [RCV], "{seq:?} {len}");
        }
    }
}

// tests: MUST-66
#[test]
fn with_a_closed_window_ack_rst_and_urg_still_count() {
    let closed = || {
        let mut rig = Rig::established();
        rig.placed(&seg(Flags::ACK, RCV, SND, 1 << 16), RCV + (1 << 16));
        assert_eq!(rig.info().rcv_wnd, 0);
        rig.sent(10);
        rig.take();
        rig
    };
    let edge = RCV + (1 << 16);
    let mut rig = closed();
    let mut urgent = seg(Flags::ACK | Flags::URG, edge, SND + 10, 1);
    urgent.urgent = 100;
    let out = rig.parked(3, &urgent).to_vec();
    assert_eq!(rig.notices(), [Notice::Urgent(edge + 100)]);
    assert_eq!(rig.info().snd_una, SND + 10);
    assert_eq!(acks(&out), [edge], "a probe of the closed window is answered");
    assert!(out.iter().any(|c| matches!(c, Command::Drop { .. })));
    let mut rig = closed();
    rig.arrive(&seg(Flags::RST, edge, SND, 0));
    assert!(rig.tcb.is_closed());
}

#[test]
fn without_ack_nothing_is_processed() {
    let mut rig = Rig::established();
    assert_eq!(
        rig.parked(1, &seg(Flags::NONE, RCV, Seq(0), 10)),
        [Command::Drop { park: baton_tcp::segment::ParkId(1) }]
    );
}

/// RFC 7323 §5.3, §3.2.
#[test]
fn old_timestamps_and_missing_ones() {
    let mut rig = Rig::connecting(baton_tcp::config::Config::default());
    let mut answer = syn(SYN_ACK, SND);
    answer.timestamps = ts(5_000, 77);
    answer.syn.window_scale = Some(3);
    answer.syn.sack_permitted = true;
    rig.arrive(&answer);
    rig.after(Duration::from_secs(3)).take();
    let data = |val| {
        let mut s = seg(Flags::ACK, RCV, SND, 10);
        s.timestamps = ts(val, 77);
        s
    };
    assert_eq!(acks(rig.parked(1, &data(4_999))), [RCV], "PAWS: answered");
    assert!(rig.take().iter().any(|c| matches!(c, Command::Drop { .. })), "and dropped");
    rig.parked(2, &seg(Flags::ACK, RCV, SND, 10));
    assert_eq!(rig.take(), [Command::Drop { park: baton_tcp::segment::ParkId(2) }], "no timestamp: silence");
    let out = rig.parked(3, &data(5_001)).to_vec();
    assert!(out.iter().any(|c| matches!(c, Command::Receive { ts_recent: 5_001, .. })), "{out:?}");
    // RFC 7323 §4.3: what lies beyond the last acknowledgment does not say what to echo.
    rig.take();
    let mut ahead = seg(Flags::ACK, RCV + 100, SND, 10);
    ahead.timestamps = ts(5_900, 77);
    let out = rig.placed(&ahead, RCV + 10).to_vec();
    assert!(!out.iter().any(|c| matches!(c, Command::Receive { .. })), "{out:?}");
    // After 24 days the comparison means nothing.
    rig.after(Duration::from_secs(25 * 86_400)).take();
    let mut later = seg(Flags::ACK, RCV + 10, SND, 10);
    later.timestamps = ts(4_000, 77);
    let out = rig.parked(4, &later).to_vec();
    assert!(out.iter().any(|c| matches!(c, Command::Place { .. })), "{out:?}");
    assert!(out.iter().any(|c| matches!(c, Command::Receive { ts_recent: 4_000, .. })), "{out:?}");
}
