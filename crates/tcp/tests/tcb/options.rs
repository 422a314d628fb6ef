//! Options of a consumer: Nagle, cork, keepalive, user timeout, quick ACKs.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Notice};
use baton_tcp::manner::Manner;
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::state::State;
use baton_tcp::time::Duration;
use baton_wire::tcp::Flags;

fn set(rig: &mut Rig, option: SocketOption) {
    rig.call(|t, cx, out| t.set_option(cx, option, out));
}

// tests: MUST-17
#[test]
fn nagle_and_cork_reach_the_streamer() {
    let mut rig = Rig::established();
    set(&mut rig, SocketOption::NoDelay(true));
    assert_eq!(
        transmit(&rig.take()).map(|t| (t.manner.has(Manner::NODELAY), t.manner.has(Manner::CORK))),
        Some((true, false))
    );
    set(&mut rig, SocketOption::Cork(true));
    assert_eq!(
        transmit(&rig.take()).map(|t| (t.manner.has(Manner::NODELAY), t.manner.has(Manner::CORK))),
        Some((true, true))
    );
}

fn keepalive() -> KeepAlive {
    KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 }
}

// tests: MUST-24, MUST-25, MUST-27
#[test]
fn keepalive_is_on_request() {
    let mut rig = Rig::established();
    assert_eq!(rig.tcb.deadline(), None, "off by default");
    set(&mut rig, SocketOption::KeepAlive(Some(keepalive())));
    assert!(rig.tcb.deadline().is_some());
    set(&mut rig, SocketOption::KeepAlive(None));
    assert_eq!(rig.tcb.deadline(), None);
}

// tests: MUST-26, MUST-29, SHLD-12
#[test]
fn keepalive_probes_a_silent_peer_and_gives_up_after_several() {
    let mut rig = Rig::established();
    set(&mut rig, SocketOption::KeepAlive(Some(keepalive())));
    rig.after(Duration::from_secs(30));
    rig.arrive(&seg(Flags::ACK, RCV, SND, 0));
    let heard = rig.now;
    rig.take();
    // It was armed before that segment: nothing is sent, it waits on.
    assert_eq!(rig.expire(), []);
    assert_eq!(rig.tcb.deadline(), Some(heard + Duration::from_secs(60)));
    for _ in 0..3 {
        rig.take();
        assert_eq!(controls(rig.expire()), [(Flags::ACK, SND - 1, RCV)]);
    }
    // One answer, and the count starts again.
    rig.arrive(&seg(Flags::ACK, RCV, SND, 0));
    rig.take();
    rig.expire();
    for _ in 0..3 {
        assert_eq!(rig.tcb.state(), State::Established);
        rig.expire();
    }
    rig.expire();
    assert_eq!(rig.notices(), [Notice::Closed(CloseReason::TimedOut)]);
}

#[test]
fn an_answered_probe_counts_as_answered_however_late_the_timer_is_seen_to() {
    let mut rig = Rig::established();
    let five = Duration::from_secs(5);
    set(&mut rig, SocketOption::KeepAlive(Some(KeepAlive { idle: five, interval: five, probes: 3 })));
    for _ in 0..10 {
        // The turn comes a second late, when the silence is that of an idle peer again.
        rig.after(Duration::from_secs(6));
        rig.call(|t, cx, out| t.on_deadline(cx, out));
        assert_eq!(controls(&rig.take()), [(Flags::ACK, SND - 1, RCV)]);
        rig.arrive(&seg(Flags::ACK, RCV, SND, 0));
        rig.take();
    }
    assert_eq!(rig.tcb.state(), State::Established);
}

// tests: MUST-26
#[test]
fn keepalive_waits_while_data_is_outstanding() {
    let mut rig = Rig::established();
    set(&mut rig, SocketOption::KeepAlive(Some(keepalive())));
    rig.sent(10);
    rig.take();
    rig.after(Duration::from_secs(100));
    rig.call(|t, cx, out| t.on_deadline(cx, out));
    assert_eq!(controls(&rig.take()), []);
}

// tests: MUST-21
#[test]
fn the_user_timeout_ends_a_connection_without_progress() {
    let mut rig = Rig::established();
    set(&mut rig, SocketOption::UserTimeout(Some(Duration::from_secs(5))));
    rig.sent(100);
    let sent = rig.now;
    while !rig.tcb.is_closed() {
        rig.expire();
    }
    assert_eq!(rig.now.since(sent), Duration::from_secs(5));
    assert_eq!(rig.notices().last(), Some(&Notice::Closed(CloseReason::TimedOut)));
    // An acknowledgment in between starts it again; no data in flight, no timeout.
    let mut rig = Rig::established();
    set(&mut rig, SocketOption::UserTimeout(Some(Duration::from_secs(5))));
    rig.sent(100);
    rig.after(Duration::from_secs(4));
    rig.arrive(&seg(Flags::ACK, RCV, SND + 50, 0));
    rig.after(Duration::from_secs(4));
    rig.call(|t, cx, out| t.on_deadline(cx, out));
    assert_eq!(rig.tcb.state(), State::Established);
    rig.arrive(&seg(Flags::ACK, RCV, SND + 100, 0));
    rig.after(Duration::from_secs(100));
    rig.call(|t, cx, out| t.on_deadline(cx, out));
    assert_eq!(rig.tcb.state(), State::Established);
}

#[test]
fn quick_acks_on_request() {
    let mut rig = Rig::established();
    set(&mut rig, SocketOption::QuickAck(false));
    assert_eq!(acks(rig.placed(&seg(Flags::ACK, RCV, SND, 10), RCV + 10)), []);
    set(&mut rig, SocketOption::QuickAck(true));
    assert_eq!(acks(&rig.take()), [RCV + 10]);
    assert_eq!(acks(rig.placed(&seg(Flags::ACK, RCV + 10, SND, 10), RCV + 20)), [RCV + 20]);
}

#[test]
fn a_shorter_stay_of_orphans() {
    let mut rig = Rig::in_state(State::FinWait2);
    set(&mut rig, SocketOption::Linger2(Some(Duration::from_secs(3))));
    rig.call(|t, cx, out| t.release(cx, out));
    assert_eq!(rig.tcb.deadline(), Some(rig.now + Duration::from_secs(3)));
}
