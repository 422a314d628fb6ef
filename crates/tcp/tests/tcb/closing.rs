//! CLOSE, release, ABORT, TIME-WAIT.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, Notice};
use baton_tcp::config::Config;
use baton_tcp::options::SocketOption;
use baton_tcp::segment::ParkId;
use baton_tcp::state::State;
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

#[test]
fn close_lets_the_data_go_first() {
    let mut rig = Rig::established();
    rig.call(|t, cx, out| t.shutdown(cx, out));
    assert_eq!((rig.take(), rig.tcb.state()), (vec![Command::Fin], State::FinWait1));
    rig.sent(100);
    rig.arrive(&seg(Flags::ACK, RCV, SND + 100, 0));
    assert_eq!(rig.tcb.state(), State::FinWait1, "the FIN has not been sent");
    rig.sent_fin();
    rig.take();
    rig.arrive(&seg(Flags::ACK, RCV, SND + 101, 0));
    assert_eq!((rig.tcb.state(), rig.notices()), (State::FinWait2, vec![Notice::SendDone]));
}

#[test]
fn half_close_goes_on_receiving() {
    let mut rig = Rig::in_state(State::FinWait2);
    rig.placed(&seg(Flags::ACK, RCV, SND + 1, 500), RCV + 500);
    assert_eq!(rig.info().rcv_nxt, RCV + 500);
    rig.take();
    let out = rig.arrive(&seg(FIN_ACK, RCV + 500, SND + 1, 0)).to_vec();
    assert!(out.contains(&Command::PeerFin { seq: RCV + 500 }));
    assert_eq!(acks(&out), [RCV + 501]);
    assert_eq!(rig.tcb.state(), State::TimeWait);
    assert_eq!(rig.notices(), [Notice::PeerFin, Notice::Closed(CloseReason::Normal)]);
}

#[test]
fn a_fin_waits_for_what_is_missing_before_it() {
    let mut rig = Rig::established();
    rig.call(|t, cx, out| t.set_option(cx, SocketOption::QuickAck(false), out));
    let out = rig.arrive(&seg(FIN_ACK, RCV + 100, SND, 0)).to_vec();
    assert_eq!((rig.tcb.state(), acks(&out)), (State::Established, vec![RCV]));
    let out = rig.placed(&seg(Flags::ACK, RCV, SND, 100), RCV + 100).to_vec();
    assert_eq!((rig.tcb.state(), acks(&out)), (State::CloseWait, vec![RCV + 101]));
}

#[test]
fn a_fin_with_parked_text() {
    let mut rig = Rig::established();
    let out = rig.parked(1, &seg(FIN_ACK, RCV, SND, 30)).to_vec();
    assert_eq!(out[0], Command::Place { park: ParkId(1), seq: RCV, skip: 0, len: 30, rest: false });
    assert!(out.contains(&Command::PeerFin { seq: RCV + 30 }));
    assert_eq!(acks(&out), [RCV + 31]);
}

// tests: MUST-13
#[test]
fn time_wait_lasts_two_msl_and_starts_again_with_a_repeated_fin() {
    let mut rig = Rig::in_state(State::FinWait2);
    let start = rig.now;
    rig.arrive(&seg(FIN_ACK, RCV, SND + 1, 0));
    let two_msl = Config::default().time_wait;
    assert_eq!(rig.tcb.deadline(), Some(start + two_msl));
    rig.after(Duration::from_secs(20)).take();
    assert_eq!(acks(rig.arrive(&seg(FIN_ACK, RCV, SND + 1, 0))), [RCV + 1]);
    assert_eq!(rig.tcb.deadline(), Some(start + Duration::from_secs(20) + two_msl));
    rig.take();
    rig.expire();
    assert_eq!((rig.take(), rig.tcb.is_closed()), (vec![Command::Release], true));
}

// tests: MAY-2
#[test]
fn a_new_syn_may_end_time_wait() {
    let rig = Rig::in_state(State::TimeWait);
    let mut fresh = seg(Flags::SYN, RCV + 100, Seq(0), 0);
    assert_eq!(rig.tcb.reopens_for(&fresh), Some(SND + 1 + 65_537));
    fresh.seq = RCV - 100;
    assert_eq!(rig.tcb.reopens_for(&fresh), None);
    fresh.seq = RCV + 100;
    fresh.flags = SYN_ACK;
    assert_eq!(rig.tcb.reopens_for(&fresh), None);
    assert_eq!(Rig::established().tcb.reopens_for(&seg(Flags::SYN, RCV + 100, Seq(0), 0)), None);
}

// tests: SHLD-4
#[test]
fn with_timestamps_they_decide() {
    let mut rig = Rig::connecting(plain().with(|config| config.timestamps = true));
    let stamped = |s, val| baton_tcp::segment::Segment { timestamps: ts(val, 77), ..s };
    rig.arrive(&stamped(syn(SYN_ACK, SND), 5_000));
    rig.call(|t, cx, out| t.shutdown(cx, out));
    rig.sent_fin();
    rig.arrive(&stamped(seg(FIN_ACK, RCV, SND + 1, 0), 5_001));
    assert_eq!(rig.tcb.state(), State::TimeWait);
    // (SEG.SEQ beyond `rcv_nxt`, TSval) and whether it may open.
    for (later, val, opens) in
        [(true, 5_002, true), (false, 5_002, true), (true, 5_000, false), (true, 5_001, true), (false, 5_001, false)]
    {
        let seq = if later { RCV + 100 } else { RCV - 100 };
        let fresh = stamped(seg(Flags::SYN, seq, Seq(0), 0), val);
        assert_eq!(rig.tcb.reopens_for(&fresh).is_some(), opens, "{later} {val}");
    }
}

#[test]
fn an_orphan_does_not_stay_in_fin_wait_2() {
    let mut rig = Rig::in_state(State::FinWait2);
    assert_eq!(rig.tcb.deadline(), None, "a consumer may wait as long as it likes");
    rig.call(|t, cx, out| t.release(cx, out));
    assert_eq!(rig.tcb.deadline(), Some(rig.now + Config::default().fin_wait2));
    rig.expire();
    assert!(rig.tcb.is_closed());
}

// tests: SHLD-3
#[test]
fn data_that_nobody_will_read_is_answered_with_a_reset() {
    let mut rig = Rig::established();
    rig.call(|t, cx, out| t.release(cx, out));
    rig.sent_fin();
    rig.arrive(&seg(Flags::ACK, RCV, SND + 1, 0));
    assert_eq!(rig.tcb.state(), State::FinWait2);
    rig.take();
    let out = rig.parked(4, &seg(Flags::ACK, RCV, SND + 1, 10)).to_vec();
    assert_eq!(out[0], Command::Drop { park: ParkId(4) });
    assert_eq!(controls(&out), [(RST_ACK, SND + 1, RCV)]);
    assert!(rig.tcb.is_closed());
    // Also what was parked and never read.
    let mut rig = Rig::established_with(plain().with(|config| config.unposted_window = 5_000));
    let full = RCV + (1 << 16);
    rig.placed(&seg(Flags::ACK, RCV, SND, 1 << 16), full);
    rig.take();
    rig.call(|t, cx, out| t.release(cx, out));
    assert_eq!(rig.take(), [Command::Fin], "read or not is the caller's to know");
}

#[test]
fn abort_resets_where_the_rfc_says_so() {
    for (state, resets) in [
        (State::SynSent, false),
        (State::SynReceived, true),
        (State::Established, true),
        (State::FinWait1, true),
        (State::FinWait2, true),
        (State::CloseWait, true),
        (State::Closing, false),
        (State::LastAck, false),
        (State::TimeWait, false),
    ] {
        let mut rig = Rig::in_state(state);
        rig.call(|t, cx, out| t.abort(cx, out));
        let reset = controls(&rig.out).iter().any(|(f, ..)| f.contains(Flags::RST));
        assert_eq!(reset, resets, "{state:?}");
        assert_eq!(rig.out.last(), Some(&Command::Release), "{state:?}");
        assert_eq!(rig.tcb.deadline(), None, "{state:?}");
        rig.take();
        rig.call(|t, cx, out| {
            t.abort(cx, out);
            t.shutdown(cx, out);
            t.release(cx, out);
            t.on_deadline(cx, out);
        });
        assert_eq!(rig.take(), [], "{state:?}: what is gone stays quiet");
    }
}

#[test]
fn close_before_the_connection_is_open() {
    let mut rig = Rig::in_state(State::SynSent);
    rig.call(|t, cx, out| t.shutdown(cx, out));
    assert!(rig.tcb.is_closed());
    // In SYN-RECEIVED it is queued (RFC 9293 §3.10.4).
    let mut rig = Rig::in_state(State::SynReceived);
    rig.call(|t, cx, out| t.shutdown(cx, out));
    assert_eq!(rig.take(), []);
    let out = rig.arrive(&seg(Flags::ACK, RCV, SND, 0)).to_vec();
    assert_eq!(out.last(), Some(&Command::Fin));
    assert_eq!(rig.tcb.state(), State::FinWait1);
}
