//! Signals of the network: ICMP errors, path MTU, congestion marks, urgent data.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, Notice};
use baton_tcp::icmp::{IcmpError, IcmpKind};
use baton_tcp::manner::Manner;
use baton_tcp::segment::{ParkId, Segment};
use baton_tcp::state::State;
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

fn icmp(rig: &mut Rig, seq: Seq, kind: IcmpKind) -> Vec<Command> {
    rig.take();
    rig.call(|t, cx, out| t.on_icmp(cx, &IcmpError { seq, kind }, out));
    rig.take()
}

// tests: MUST-47, MUST-54, MUST-56
#[test]
fn unreachable_is_soft_once_the_connection_is_open() {
    for (kind, reason) in [
        (IcmpKind::NetworkUnreachable, CloseReason::NetworkUnreachable),
        (IcmpKind::HostUnreachable, CloseReason::HostUnreachable),
        (IcmpKind::TimeExceeded, CloseReason::HostUnreachable),
        (IcmpKind::ParameterProblem, CloseReason::HostUnreachable),
        (IcmpKind::PortUnreachable, CloseReason::Refused),
    ] {
        let mut rig = Rig::established();
        rig.sent(100);
        assert_eq!(icmp(&mut rig, SND + 50, kind), [Command::Notify(Notice::SoftError(reason))]);
        assert_eq!(rig.tcb.state(), State::Established);
        for stale in [SND - 1, SND + 100, Seq(7)] {
            assert_eq!(icmp(&mut rig, stale, kind), [], "what is not in flight is not believed");
        }
    }
}

// tests: MUST-56, SHLD-26
#[test]
fn while_opening_soft_errors_are_told_and_hard_ones_end_it() {
    let mut rig = Rig::connecting(plain());
    let soft = icmp(&mut rig, ISS, IcmpKind::HostUnreachable);
    assert_eq!(soft, [Command::Notify(Notice::SoftError(CloseReason::HostUnreachable))]);
    icmp(&mut rig, ISS, IcmpKind::PortUnreachable);
    assert!(rig.tcb.is_closed());
}

/// RFC 1191 §4, §6.3.
#[test]
fn a_smaller_path_is_used_at_once_and_a_larger_one_tried_later() {
    let mut rig = Rig::established();
    rig.sent(2_920);
    let out = icmp(&mut rig, SND, IcmpKind::TooBig { mtu: 1_000 });
    assert_eq!(transmit(&out).map(|t| t.mss), Some(960));
    assert_eq!(retransmits(&out).first().map(|r| r.0), Some(SND));
    assert_eq!(icmp(&mut rig, SND, IcmpKind::TooBig { mtu: 1_200 }), [], "never up");
    icmp(&mut rig, SND, IcmpKind::TooBig { mtu: 20 });
    assert_eq!(rig.info().pmtu, 552);
    rig.arrive(&seg(Flags::ACK, RCV, SND + 2_920, 0));
    rig.after(Duration::from_secs(600)).take();
    let out = rig.expire().to_vec();
    assert_eq!(transmit(&out).map(|t| t.mss), Some(1_460));
}

#[test]
fn a_router_that_does_not_say_gets_the_next_plateau() {
    let mut rig = Rig::established();
    rig.sent(1_460);
    icmp(&mut rig, SND, IcmpKind::TooBig { mtu: 0 });
    assert_eq!(rig.info().pmtu, 1_492);
    icmp(&mut rig, SND, IcmpKind::TooBig { mtu: 0 });
    assert_eq!(rig.info().pmtu, 1_006);
}

#[test]
fn full_segments_that_keep_vanishing_are_made_smaller() {
    let mut rig = Rig::established();
    rig.sent(1_460);
    let mut sizes = Vec::new();
    for _ in 0..8 {
        rig.expire();
        sizes.push(rig.info().pmtu);
    }
    assert_eq!(sizes, [1500, 1500, 750, 750, 552, 552, 1500, 1500], "and back if that does not help");
    let mut rig = Rig::established();
    rig.sent(100);
    for _ in 0..6 {
        rig.expire();
    }
    assert_eq!(rig.info().pmtu, 1500, "a small segment does not vanish for its size");
}

/// RFC 3168 §6.1.3, §6.1.2.
#[test]
fn congestion_marks_are_echoed_until_cwr() {
    let mut rig = Rig::connecting(plain().with(|config| config.ecn = true));
    rig.arrive(&syn(SYN_ACK | Flags::ECE, SND));
    rig.take();
    let mut marked = seg(Flags::ACK, RCV, SND, 100);
    marked.ce = true;
    let out = rig.placed(&marked, RCV + 100).to_vec();
    assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::ECE)), Some(true));
    assert_eq!(acks(&out), [RCV + 100]);
    rig.take();
    rig.placed(&seg(Flags::ACK, RCV + 100, SND, 100), RCV + 200);
    assert_eq!(transmit(&rig.take()), None, "still echoing");
    let out = rig.placed(&seg(Flags::ACK | Flags::CWR, RCV + 200, SND, 100), RCV + 300).to_vec();
    assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::ECE)), Some(false));
}

/// RFC 3168 §6.1.2.
#[test]
fn an_echo_is_answered_with_cwr_once() {
    let mut rig = Rig::connecting(plain().with(|config| config.ecn = true));
    rig.arrive(&syn(SYN_ACK | Flags::ECE, SND));
    rig.sent(14_600);
    rig.take();
    // The peer's window is what limits us, and does not move below.
    let mut echo = seg(Flags::ACK | Flags::ECE, RCV, SND + 13_140, 0);
    echo.wnd = 2_000;
    let out = rig.arrive(&echo).to_vec();
    assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::CWR)), Some(true));
    rig.take();
    let out = rig.sent(10).to_vec();
    assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::CWR)), Some(false));
}

// tests: MUST-31, MUST-32, MUST-33, MUST-62
#[test]
fn urgent_data_is_announced_when_its_end_moves() {
    let mut rig = Rig::established();
    let mut urgent = seg(Flags::ACK | Flags::URG, RCV, SND, 10);
    urgent.urgent = 1_000;
    rig.parked(1, &urgent);
    assert_eq!(rig.notices(), [Notice::Urgent(RCV + 1_000)], "the octet after the urgent data");
    rig.take();
    urgent.seq = RCV + 10;
    urgent.urgent = 990;
    rig.parked(2, &urgent);
    assert_eq!(rig.notices(), [], "the same end is not told again");
    // It may go on as long as it likes, 64 KiB at a time.
    for i in 1..5u32 {
        rig.take();
        urgent.seq = rig.info().rcv_nxt;
        urgent.urgent = 0xffff;
        let end = urgent.seq + 0xffff;
        rig.parked(10 + i, &urgent);
        assert_eq!(rig.notices(), [Notice::Urgent(end)]);
    }
}

/// Linux takes the last urgent byte out of the stream, and announces it by POLLPRI. A stack
/// that can give the connection back to Linux must not have taken the segment.
#[test]
fn urgent_data_that_is_refused_is_sent_again() {
    let mut rig = Rig::established_with(plain().with(|config| config.refuse_urgent = true));
    rig.sent(10);
    let mut urgent = seg(Flags::ACK | Flags::URG | Flags::FIN, RCV, SND + 10, 10);
    urgent.urgent = 10;
    for park in 1..4 {
        rig.take();
        let out = rig.parked(park, &urgent).to_vec();
        assert!(out.contains(&Command::Drop { park: ParkId(park) }), "{out:?}");
        assert_eq!((rig.notices(), acks(&out)), (vec![Notice::UrgentRefused], vec![]), "as if it had been lost");
        assert_eq!((rig.info().rcv_nxt, rig.tcb.state()), (RCV, State::Established));
    }
    assert_eq!(rig.info().snd_una, SND + 10, "what it acknowledges is true all the same");
    // Announced ahead of its data, as by a probe of a closed window.
    rig.take();
    let mut announced = seg(Flags::ACK | Flags::URG, RCV, SND + 10, 0);
    announced.urgent = 500;
    rig.arrive(&announced);
    assert_eq!(rig.notices(), [Notice::UrgentRefused]);
}

#[test]
fn a_pointer_to_what_was_received_refuses_nothing() {
    let mut rig = Rig::established_with(plain().with(|config| config.refuse_urgent = true));
    rig.parked(1, &seg(Flags::ACK, RCV, SND, 10));
    let pointing = |seq, len, to| Segment { urgent: to, ..seg(Flags::ACK | Flags::URG, seq, SND, len) };
    for (case, segment, refused) in [
        ("received already", pointing(RCV, 10, 10), false),
        ("received already, and more behind it", pointing(RCV, 20, 10), false),
        ("the next byte", pointing(RCV + 20, 5, 1), true),
        ("far outside the window", pointing(RCV - (1 << 20), 5, 10), false),
        ("beyond the window", pointing(RCV + (1 << 20), 5, 5), false),
        ("an acknowledgment far off", Segment { ack: SND + (1 << 29), ..pointing(RCV + 20, 5, 5) }, false),
    ] {
        rig.take();
        rig.parked(2, &segment);
        assert_eq!(rig.notices() == [Notice::UrgentRefused], refused, "{case}");
    }
}
