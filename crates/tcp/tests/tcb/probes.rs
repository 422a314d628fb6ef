//! Timeouts of data, closed windows and their probes.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, Notice};
use baton_tcp::config::Config;
use baton_tcp::state::State;
use baton_wire::tcp::Flags;

fn blocked(rig: &mut Rig, queued: u32) {
    rig.call(|t, cx, out| t.on_blocked(cx, queued, out));
}

/// A connection whose peer has closed its window, with data waiting.
fn closed() -> Rig {
    let mut rig = Rig::established();
    let mut zero = seg(Flags::ACK, RCV, SND, 0);
    zero.wnd = 0;
    rig.arrive(&zero);
    rig.take();
    blocked(&mut rig, 5_000);
    rig
}

// tests: MUST-35, MUST-36, SHLD-29, SHLD-30
#[test]
fn a_closed_window_is_probed_after_an_rto_and_then_ever_more_slowly() {
    let mut rig = closed();
    let mut last = rig.now;
    let mut gaps = Vec::new();
    for _ in 0..12 {
        assert_eq!(controls(rig.expire()), [(Flags::ACK, SND - 1, RCV)]);
        gaps.push(rig.now.since(last).as_millis());
        last = rig.now;
        rig.take();
    }
    assert_eq!(gaps[0], rig.info().sender.rto.as_millis());
    assert!(gaps.windows(2).all(|g| g[1] == (g[0] * 2).min(120_000)), "{gaps:?}");
}

// tests: MUST-37
#[test]
fn an_answered_probe_keeps_the_connection_for_ever() {
    let mut rig = closed();
    for _ in 0..100 {
        rig.expire();
        let mut zero = seg(Flags::ACK, RCV, SND, 0);
        zero.wnd = 0;
        rig.arrive(&zero);
    }
    assert_eq!(rig.tcb.state(), State::Established);
    rig.take();
    let out = rig.arrive(&seg(Flags::ACK, RCV, SND, 0)).to_vec();
    assert_eq!(transmit(&out).map(|t| t.limit), Some(SND + 14_600));
    assert_eq!(rig.tcb.deadline(), None, "an open window needs no probe");
}

#[test]
fn unanswered_probes_end_it() {
    let mut rig = closed();
    let mut probes = 0;
    while !rig.tcb.is_closed() {
        probes += controls(rig.expire()).iter().filter(|(f, ..)| *f == Flags::ACK).count();
    }
    assert_eq!(probes, 16);
    assert_eq!(rig.notices(), [Notice::Closed(CloseReason::TimedOut)]);
}

#[test]
fn an_orphan_is_not_held_by_a_closed_window() {
    let mut rig = closed();
    rig.call(|t, cx, out| t.release(cx, out));
    for _ in 0..20 {
        if rig.tcb.is_closed() {
            return;
        }
        rig.expire();
        let mut zero = seg(Flags::ACK, RCV, SND, 0);
        zero.wnd = 0;
        rig.arrive(&zero);
    }
    panic!("still there");
}

// tests: MUST-34, MUST-37, SHLD-17
#[test]
fn a_window_that_shrinks_over_data_in_flight_is_survived() {
    let mut rig = Rig::established();
    rig.sent(10_000);
    let mut zero = seg(Flags::ACK, RCV, SND + 1_000, 0);
    zero.wnd = 0;
    let out = rig.arrive(&zero).to_vec();
    assert!(transmit(&out).is_some_and(|t| t.limit.before_eq(SND + 1_000)), "nothing new may be sent");
    for _ in 0..40 {
        assert!(!retransmits(rig.expire()).is_empty());
        rig.arrive(&zero);
    }
    assert_eq!(rig.tcb.state(), State::Established);
    assert_eq!(rig.info().pmtu, 1_500, "nor is it taken for a path that loses large packets");
}

// tests: MUST-38
#[test]
fn a_small_window_is_used_up_after_a_while() {
    let mut rig = Rig::established();
    let mut small = seg(Flags::ACK, RCV, SND, 0);
    small.wnd = 100;
    let out = rig.arrive(&small).to_vec();
    assert_eq!(transmit(&out).map(|t| (t.max_wnd, t.limit)), Some((u32::from(WND), SND + 100)));
    rig.take();
    blocked(&mut rig, 5_000);
    let start = rig.now;
    assert_eq!(retransmits(rig.expire()), [(SND, SND + 100)]);
    let waited = rig.now.since(start).as_millis();
    assert!((100..=1_000).contains(&waited), "{waited}");
}

#[test]
fn a_window_that_opens_a_little_is_not_waited_for_long() {
    let mut rig = closed();
    for _ in 0..8 {
        rig.expire();
    }
    let mut small = seg(Flags::ACK, RCV, SND, 0);
    small.wnd = 100;
    rig.arrive(&small);
    let start = rig.now;
    assert_eq!(retransmits(rig.expire()), [(SND, SND + 100)]);
    assert!(rig.now.since(start).as_millis() <= 1_000);
}

#[test]
fn a_fin_alone_can_be_blocked_too() {
    let mut rig = Rig::established();
    let mut zero = seg(Flags::ACK, RCV, SND, 0);
    zero.wnd = 0;
    rig.arrive(&zero);
    blocked(&mut rig, 0);
    assert_eq!(rig.tcb.deadline(), None, "nothing waits");
    rig.call(|t, cx, out| t.shutdown(cx, out));
    blocked(&mut rig, 0);
    assert!(rig.tcb.deadline().is_some());
}

// tests: MUST-20, SHLD-9, SHLD-10
#[test]
fn data_is_repeated_up_to_r2_and_the_consumer_told_at_r1() {
    let mut rig = Rig::established();
    rig.sent(100);
    rig.take();
    let mut timeouts = 0;
    loop {
        let out = rig.expire().to_vec();
        if rig.tcb.is_closed() {
            assert_eq!(controls(&out), [(RST_ACK, SND + 100, RCV)]);
            break;
        }
        timeouts += 1;
        assert_eq!(retransmits(&out), [(SND, SND + 100)]);
        let told = out.contains(&Command::Notify(Notice::SoftError(CloseReason::TimedOut)));
        assert_eq!(told, timeouts == 3);
    }
    assert_eq!(timeouts, u32::from(Config::default().retries));
    assert_eq!(rig.notices().last(), Some(&Notice::Closed(CloseReason::TimedOut)));
}
