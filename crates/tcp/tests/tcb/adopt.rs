//! Connections that come from another stack and go on.

use crate::rig::{FIN_ACK, ISS, RCV, Rig, SND, acks, plain, retransmits, seg, transmit, ts};
use baton_tcp::command::{Command, Notice};
use baton_tcp::config::Config;
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::segment::Placement;
use baton_tcp::snapshot::{Inconsistent, Scales, Seeds, Snapshot, Timestamps};
use baton_tcp::state::State;
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Duration;
use baton_wire::seq::WindowScale;
use baton_wire::tcp::Flags;

const MTU: u16 = 1500;

/// A connection in mid-stream: 3,000 bytes in flight, 500 unsent, 100 unread of
/// which 50 were never acknowledged.
fn snapshot() -> Snapshot {
    Snapshot {
        state: State::Established,
        snd_una: SND,
        snd_nxt: SND + 3_000,
        write_seq: SND + 3_500,
        snd_wnd: 64_000,
        snd_wl1: RCV,
        max_wnd: 65_000,
        copied_seq: RCV,
        rcv_nxt: RCV + 100,
        last_ack_sent: RCV + 50,
        right_edge: RCV + 300_000,
        peer_mss: 1460,
        advmss: 1460,
        path_mtu: 1500,
        ipv6: false,
        scales: Some(Scales { snd: WindowScale::new(7), rcv: WindowScale::new(9) }),
        sack: true,
        ecn: false,
        timestamps: Some(Timestamps { tsval: 123_456, microseconds: false, ts_recent: Some(900) }),
        seeds: Seeds {
            srtt: Duration::from_millis(30),
            rttvar: Duration::from_millis(5),
            min_rtt: Duration::from_millis(20),
            cwnd: 40_000,
            ssthresh: 35_000,
            rcv_mss: 1448,
            ..Seeds::default()
        },
    }
}

fn adopted(from: &Snapshot) -> Rig {
    Rig::with(Config::default(), |cx, out| Tcb::adopt(cx, from, MTU, out).expect("it is consistent"))
}

fn position(commands: &[Command], of: impl Fn(&Command) -> bool) -> Option<usize> {
    commands.iter().position(of)
}

#[test]
fn an_adoption_tells_the_streamer_all_that_it_needs() {
    let rig = adopted(&snapshot());
    let Some(Command::Synchronized(sync)) = rig.out.first() else { panic!("{:?}", rig.out) };
    assert_eq!((sync.snd_una, sync.snd_nxt, sync.fin_sent), (SND, SND + 3_000, false));
    assert_eq!((sync.rcv_nxt, sync.rcv_wscale.shift(), sync.ts_recent), (RCV + 100, 9, Some(900)));
    let window = Command::Receive { right_edge: RCV + 300_000, ts_recent: 900 };
    assert!(rig.out.contains(&window), "the promised window stays: {:?}", rig.out);
    let context = transmit(&rig.out).expect("a transmit context");
    // cwnd allows 40,000 in all, 3,000 are out.
    assert_eq!((context.snd_una, context.limit, context.mss), (SND, SND + 40_000, 1448));
    assert_eq!(acks(&rig.out), [RCV + 100], "50 bytes were never acknowledged");
    assert_eq!(rig.notices(), [Notice::Established]);
}

#[test]
fn nothing_owed_is_nothing_sent() {
    let rig = adopted(&Snapshot { last_ack_sent: RCV + 100, ..snapshot() });
    assert_eq!(acks(&rig.out), []);
}

#[test]
fn a_path_narrower_than_the_link_is_tried_again_later() {
    let mut rig = adopted(&Snapshot { path_mtu: 1_000, ..snapshot() });
    assert_eq!(transmit(&rig.out).map(|context| context.mss), Some(948));
    rig.arrive(&seg(Flags::ACK, RCV + 100, SND + 3_000, 0));
    rig.after(Duration::from_secs(599)).expire();
    assert_eq!(rig.info().pmtu, 1_000);
    let out = rig.after(Duration::from_secs(1)).expire().to_vec();
    assert_eq!(transmit(&out).map(|context| context.mss), Some(1_448));
}

#[test]
fn our_timestamps_go_on_where_the_other_stack_left_off() {
    let mut rig = adopted(&snapshot());
    rig.after(Duration::from_millis(40));
    let now = rig.now;
    let later = rig.call(|t, cx, _| t.snapshot(cx)).and_then(|s| s.timestamps).expect("timestamps");
    assert_eq!(later.tsval, 123_456 + 40, "at {now:?}");
}

#[test]
fn an_unknown_ts_recent_is_what_the_next_segment_says() {
    for val in [5, 0x7fff_ffff, 0x9000_0000, u32::MAX] {
        let unknown = Some(Timestamps { tsval: 1, microseconds: false, ts_recent: None });
        let mut rig = adopted(&Snapshot { timestamps: unknown, last_ack_sent: RCV + 100, ..snapshot() });
        let mut data = seg(Flags::ACK, RCV + 100, SND, 10);
        data.timestamps = ts(val, 0);
        let out = rig.parked(1, &data).to_vec();
        assert!(!out.contains(&Command::Drop { park: baton_tcp::segment::ParkId(1) }), "{val:#x}: {out:?}");
        let recent = rig.call(|t, cx, _| t.snapshot(cx)).and_then(|s| s.timestamps).and_then(|t| t.ts_recent);
        assert_eq!(recent, Some(val));
        // From now on an older one is refused.
        data.timestamps = ts(val.wrapping_sub(10), 0);
        let out = rig.parked(2, &data).to_vec();
        assert!(out.contains(&Command::Drop { park: baton_tcp::segment::ParkId(2) }), "{val:#x}: {out:?}");
    }
}

#[test]
fn a_clock_of_microseconds_gives_no_round_trip_in_milliseconds() {
    let micros = Some(Timestamps { tsval: 5_000_000, microseconds: true, ts_recent: Some(900) });
    let mut rig = adopted(&Snapshot { timestamps: micros, ..snapshot() });
    rig.after(Duration::from_millis(10));
    let mut ack = seg(Flags::ACK, RCV + 100, SND + 3_000, 0);
    // Sent 30,000 ticks, which were microseconds, before the snapshot.
    ack.timestamps = ts(901, 4_970_000);
    rig.arrive(&ack);
    assert_eq!(rig.info().sender.srtt, Duration::from_millis(30), "not 30 s");
    let back = rig.call(|t, cx, _| t.snapshot(cx)).and_then(|s| s.timestamps);
    assert!(back.is_some_and(|ts| ts.microseconds), "a return keeps the flag");
}

#[test]
fn what_was_in_flight_is_sent_again_if_nobody_acknowledges_it() {
    let mut rig = adopted(&snapshot());
    let mut repeated = Vec::new();
    for _ in 0..4 {
        let out = rig.expire().to_vec();
        repeated.extend(retransmits(&out));
    }
    assert!(repeated.iter().any(|&(seq, _)| seq == SND), "{repeated:?}");
    assert!(repeated.iter().all(|&(seq, end)| seq.after_eq(SND) && end.before_eq(SND + 3_000)), "{repeated:?}");
}

#[test]
fn a_peer_that_finished_has_finished() {
    let from = Snapshot { state: State::CloseWait, last_ack_sent: RCV + 100, ..snapshot() };
    let rig = adopted(&from);
    let Some(Command::Synchronized(sync)) = rig.out.first() else { panic!("{:?}", rig.out) };
    assert_eq!(sync.rcv_nxt, RCV + 99, "the FIN is told of apart");
    assert!(rig.out.contains(&Command::PeerFin { seq: RCV + 99 }));
    assert_eq!(rig.notices(), [Notice::Established, Notice::PeerFin]);
}

#[test]
fn our_fin_goes_if_it_did_not_and_is_known_if_it_did() {
    let unsent = Snapshot { state: State::FinWait1, ..snapshot() };
    let mut rig = adopted(&unsent);
    let fin = position(&rig.out, |c| *c == Command::Fin).expect("the FIN is still to be sent");
    let context = position(&rig.out, |c| matches!(c, Command::Transmit(_))).expect("a context");
    assert!(context < fin);
    rig.call(|t, cx, out| t.shutdown(cx, out));
    assert_eq!(rig.tcb.state(), State::FinWait1, "closed once");

    let sent = Snapshot { state: State::FinWait1, write_seq: SND + 3_000, ..snapshot() };
    let mut rig = adopted(&sent);
    assert_eq!(position(&rig.out, |c| *c == Command::Fin), None);
    assert!(matches!(rig.out[0], Command::Synchronized(sync) if sync.fin_sent));
    let mut ack = seg(Flags::ACK, RCV + 100, SND + 3_000, 0);
    ack.timestamps = ts(901, 0);
    rig.arrive(&ack);
    assert_eq!(rig.tcb.state(), State::FinWait2);

    let acked = Snapshot { state: State::FinWait2, snd_una: SND + 3_000, write_seq: SND + 3_000, ..snapshot() };
    let mut rig = adopted(&acked);
    let mut fin = seg(FIN_ACK, RCV + 100, SND + 3_000, 0);
    fin.timestamps = ts(901, 0);
    rig.arrive(&fin);
    assert_eq!(rig.tcb.state(), State::TimeWait);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let table = [
        (Snapshot { state: State::LastAck, ..snapshot() }, Inconsistent::State),
        (Snapshot { snd_una: SND + 3_001, ..snapshot() }, Inconsistent::Send),
        (Snapshot { right_edge: RCV, ..snapshot() }, Inconsistent::Receive),
    ];
    for (from, why) in table {
        let mut out = Vec::new();
        let mut rig = Rig::established();
        let refused = rig.call(|_, cx, _| Tcb::adopt(cx, &from, MTU, &mut out).map(|_| ()));
        assert_eq!((refused, out), (Err(why), Vec::new()));
    }
}

#[test]
fn states_that_move_and_states_that_do_not() {
    for state in State::ALL {
        if matches!(state, State::Closed | State::Listen) {
            continue;
        }
        let mut rig = Rig::in_state(state);
        let moves = matches!(state, State::Established | State::CloseWait | State::FinWait1 | State::FinWait2);
        let snapshot = rig.call(|t, cx, _| t.snapshot(cx));
        assert_eq!(snapshot.is_some(), moves, "{state:?}");
        assert!(snapshot.is_none_or(|s| s.state == state && s.check() == Ok(())), "{state:?}");
    }
    let mut rig = Rig::established();
    rig.call(|t, cx, out| t.release(cx, out));
    assert_eq!(rig.call(|t, cx, _| t.snapshot(cx)), None, "nobody holds it");
}

#[test]
fn a_window_that_was_closed_opens_by_what_is_posted() {
    let closed = Snapshot { right_edge: RCV + 100, last_ack_sent: RCV + 100, ..snapshot() };
    let mut rig = adopted(&closed);
    rig.take();
    rig.call(|t, cx, out| t.on_posted(cx, RCV + 100 + 65_536, out));
    assert_eq!(acks(&rig.out), [RCV + 100], "the peer is told");
    assert_eq!(rig.info().rcv_wnd, 65_536);
}

#[test]
fn suspending_gives_up_what_is_parked_and_resuming_says_where_we_stand() {
    let mut rig = Rig::established_with(plain());
    let out = rig.parked(7, &seg(Flags::ACK, RCV + 1_000, SND, 70_000)).to_vec();
    assert!(!out.iter().any(|c| matches!(c, Command::Drop { .. } | Command::Place { .. })) || rig.info().parked == 0);
    let mut held = Rig::with(plain().with(|config| config.unposted_window = 10_000), |cx, out| {
        let mut tcb = Tcb::connect(cx, &baton_tcp::handshake::Open { rcv_space: 0, ..crate::rig::open() }, out);
        tcb.handle_segment(cx, &crate::rig::syn(crate::rig::SYN_ACK, ISS + 1), Placement::Empty, out);
        tcb
    });
    held.parked(9, &seg(Flags::ACK, RCV, SND, 500));
    assert_eq!(held.info().parked, 1);
    held.take();
    let snapshot = held.call(|t, cx, out| t.suspend(cx, out)).expect("it moves");
    assert_eq!(held.take(), [Command::Drop { park: baton_tcp::segment::ParkId(9) }]);
    assert_eq!(snapshot.rcv_nxt, RCV, "it was never acknowledged");
    held.call(|t, cx, out| t.resume(cx, out));
    assert_eq!(acks(&held.out), [RCV]);
}

#[test]
fn what_is_owed_is_acknowledged_before_it_leaves() {
    let mut rig = Rig::established_with(plain());
    rig.call(|t, cx, out| t.set_option(cx, SocketOption::QuickAck(false), out));
    rig.take();
    let waits = acks(rig.placed(&seg(Flags::ACK, RCV, SND, 100), RCV + 100));
    assert_eq!(waits, [], "it waits for company");
    rig.take();
    let snapshot = rig.call(|t, cx, out| t.suspend(cx, out)).expect("it moves");
    assert_eq!(acks(&rig.out), [RCV + 100]);
    assert_eq!((snapshot.rcv_nxt, snapshot.last_ack_sent), (RCV + 100, RCV + 100));
    // Once.
    rig.take();
    rig.call(|t, cx, out| t.resume(cx, out));
    rig.take();
    rig.call(|t, cx, out| t.suspend(cx, out)).expect("it moves");
    assert_eq!(acks(&rig.out), []);
}

#[test]
fn options_go_along() {
    let mut rig = Rig::established();
    assert_eq!(rig.tcb.options().count(), 0);
    let all = [
        SocketOption::NoDelay(true),
        SocketOption::Cork(true),
        SocketOption::KeepAlive(Some(KeepAlive { probes: 3, ..KeepAlive::default() })),
        SocketOption::UserTimeout(Some(Duration::from_secs(9))),
        SocketOption::Linger2(Some(Duration::from_secs(5))),
    ];
    for option in all {
        rig.call(|t, cx, out| t.set_option(cx, option, out));
    }
    assert_eq!(rig.tcb.options().collect::<Vec<_>>(), all);
}

#[test]
fn a_path_is_no_wider_than_our_interface() {
    let jumbo = Snapshot { path_mtu: 9_000, advmss: 8_960, peer_mss: 8_960, ..snapshot() };
    let mut rig = adopted(&jumbo);
    assert_eq!(rig.info().snd_mss, 1448);
}
