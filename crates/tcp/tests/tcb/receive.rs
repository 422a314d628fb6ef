//! Acknowledging, selective acknowledgments, parked payload.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, MAX_RANGES, Notice, PLACE_RANGES};
use baton_tcp::handshake::Open;
use baton_tcp::options::SocketOption;
use baton_tcp::segment::{Lengths, ParkId, Placement, Segment};
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

fn data(seq: Seq, len: u32) -> baton_tcp::segment::Segment {
    seg(Flags::ACK, seq, SND, len)
}

/// No quick ACKs, and a peer known to send 1460 bytes a segment.
fn settled() -> Rig {
    let mut rig = Rig::established();
    rig.call(|t, cx, out| t.set_option(cx, SocketOption::QuickAck(false), out));
    rig.placed(&data(RCV, 1_460), RCV + 1_460);
    rig.expire();
    rig.take();
    rig
}

const AT: Seq = Seq(RCV.0 + 1_460);

// tests: MUST-40
#[test]
fn a_lone_segment_is_acknowledged_before_half_a_second() {
    for (configured, expected) in [(40, 40), (499, 499), (3_000, 499)] {
        let config = plain().with(|config| config.delayed_ack = Duration::from_millis(configured));
        let mut rig = Rig::established_with(config);
        rig.call(|t, cx, out| t.set_option(cx, SocketOption::QuickAck(false), out));
        let start = rig.now;
        assert_eq!(acks(rig.placed(&data(RCV, 10), RCV + 10)), []);
        assert_eq!(acks(rig.expire()), [RCV + 10]);
        assert_eq!(rig.now.since(start), Duration::from_millis(expected));
    }
}

// tests: SHLD-19
#[test]
fn every_second_full_segment_is_acknowledged_alone_or_in_a_run() {
    let mut rig = settled();
    assert_eq!(acks(rig.placed(&data(AT, 1_460), AT + 1_460)), []);
    assert_eq!(acks(rig.placed(&data(AT + 1_460, 1_460), AT + 2_920)), [AT + 2_920]);
    let mut run = data(AT + 2_920, 14_600);
    run.lengths = Lengths { len: 14_600, size: 1_460, count: 10 };
    assert_eq!(acks(rig.placed(&run, AT + 17_520)), [AT + 17_520]);
}

// tests: MUST-58
#[test]
fn data_that_goes_out_carries_the_acknowledgment() {
    let mut rig = settled();
    rig.placed(&data(AT, 100), AT + 100);
    rig.sent(50);
    rig.take();
    let at = rig.now + Duration::from_millis(45);
    while rig.tcb.deadline().is_some_and(|d| d <= at) {
        rig.expire();
    }
    assert_eq!(acks(&rig.take()), []);
}

// tests: MUST-59
#[test]
fn one_ack_for_all_that_a_segment_releases() {
    let mut rig = Rig::established();
    rig.placed(&data(RCV + 100, 100), RCV);
    rig.placed(&data(RCV + 300, 100), RCV);
    rig.take();
    assert_eq!(acks(rig.placed(&data(RCV, 100), RCV + 200)), [RCV + 200]);
    rig.take();
    assert_eq!(acks(rig.placed(&data(RCV + 200, 100), RCV + 400)), [RCV + 400]);
}

fn with_sack() -> Rig {
    let mut rig = Rig::connecting(plain().with(|config| config.sack = true));
    let mut answer = syn(SYN_ACK, SND);
    answer.syn.sack_permitted = true;
    rig.arrive(&answer);
    rig.take();
    rig
}

fn blocks(commands: &[Command]) -> Vec<(u32, u32)> {
    let sack = commands.iter().rev().find_map(|c| if let Command::Ack { sack, .. } = c { Some(*sack) } else { None });
    sack.expect("an ACK").as_slice().iter().map(|&(s, e)| (s.since(RCV) as u32, e.since(RCV) as u32)).collect()
}

/// RFC 2018 §4.
#[test]
fn gaps_are_told_of_at_once_the_latest_block_first() {
    let mut rig = with_sack();
    assert_eq!(blocks(rig.placed(&data(RCV + 100, 100), RCV)), [(100, 200)]);
    assert_eq!(blocks(rig.placed(&data(RCV + 300, 100), RCV)), [(300, 400), (100, 200)]);
    assert_eq!(blocks(rig.placed(&data(RCV + 200, 50), RCV)), [(100, 250), (300, 400)]);
    assert_eq!(blocks(rig.placed(&data(RCV, 100), RCV + 250)), [(300, 400)]);
}

/// RFC 2883 §4: duplicates below the acknowledgment, and within a block.
#[test]
fn duplicates_are_told_of_first() {
    let mut rig = with_sack();
    rig.placed(&data(RCV, 100), RCV + 100);
    let dup = Placement::Placed { rcv_nxt: RCV + 100, new_bytes: 0 };
    assert_eq!(blocks(rig.arrive_as(&data(RCV, 100), dup)), [(0, 100)]);
    assert_eq!(blocks(rig.parked(1, &data(RCV, 100))), [(0, 100)], "also on the slow path");
    rig.placed(&data(RCV + 200, 100), RCV + 100);
    assert_eq!(blocks(rig.arrive_as(&data(RCV + 200, 50), dup)), [(200, 250), (200, 300)]);
    let overlap = Placement::Placed { rcv_nxt: RCV + 150, new_bytes: 50 };
    assert_eq!(blocks(rig.arrive_as(&data(RCV + 50, 100), overlap)), [(50, 100), (200, 300)]);
}

/// A connection whose consumer has posted nothing.
fn unposted(window: u32) -> Rig {
    let config = plain().with(|config| config.unposted_window = window);
    let mut rig = Rig::with(config, |cx, out| Tcb::connect(cx, &Open { rcv_space: 0, ..open() }, out));
    rig.arrive(&syn(SYN_ACK, SND));
    rig.take();
    rig
}

#[test]
fn payload_without_a_buffer_waits_for_one() {
    let mut rig = unposted(4_000);
    assert_eq!(rig.info().rcv_wnd, 4_000);
    assert_eq!(rig.parked(1, &data(RCV, 1_000)), []);
    assert_eq!(rig.parked(2, &data(RCV + 1_000, 1_000)), []);
    assert_eq!(rig.parked(3, &data(RCV, 1_000))[0], Command::Drop { park: ParkId(3) }, "it is held already");
    rig.take();
    rig.call(|t, cx, out| t.on_posted(cx, RCV + 10_000, out));
    let out = rig.take();
    assert_eq!(
        out,
        [
            Command::Receive { right_edge: RCV + 10_000, ts_recent: 0 },
            Command::Place { park: ParkId(1), seq: RCV, skip: 0, len: 1_000, rest: false },
            Command::Place { park: ParkId(2), seq: RCV + 1_000, skip: 0, len: 1_000, rest: false },
            Command::Ack { ack: RCV + 2_000, sack: Default::default() },
        ]
    );
}

#[test]
fn a_reset_takes_nothing_away_that_waits_for_a_buffer() {
    let closed = Command::Notify(Notice::Closed(CloseReason::Reset));
    // Numbered as the peer's that knows of no acknowledgment, and as its that counts what it sent.
    for number in [RCV, RCV + 1_500] {
        let mut rig = unposted(4_000);
        rig.parked(1, &data(RCV, 1_000));
        rig.parked(2, &data(RCV + 1_000, 500));
        rig.take();
        rig.arrive(&Segment { flags: Flags::RST | Flags::ACK, ..data(number, 0) });
        assert_eq!(rig.take(), []);
        rig.call(|t, cx, out| t.on_posted(cx, RCV + 1_200, out));
        let out = rig.take();
        assert!(out.iter().any(|command| matches!(command, Command::Place { len: 200, rest: true, .. })), "{out:?}");
        assert!(!out.contains(&closed), "300 bytes wait still");
        rig.call(|t, cx, out| t.on_posted(cx, RCV + 5_000, out));
        let out = rig.take();
        let place = out.iter().position(|command| matches!(command, Command::Place { len: 300, rest: false, .. }));
        let end = out.iter().position(|command| *command == closed);
        assert!(place.is_some() && place < end, "{out:?}");
    }
}

#[test]
fn a_connection_that_was_reset_does_not_move() {
    let mut rig = unposted(4_000);
    rig.parked(1, &data(RCV, 1_000));
    rig.take();
    rig.arrive(&Segment { flags: Flags::RST, ..data(RCV, 0) });
    rig.call(|t, cx, out| assert_eq!(t.suspend(cx, out), None));
    let out = rig.take();
    assert!(out.contains(&Command::Notify(Notice::Closed(CloseReason::Reset))), "{out:?}");
}

#[test]
fn a_buffer_too_small_takes_what_fits() {
    let mut rig = unposted(4_000);
    rig.parked(1, &data(RCV, 1_000));
    rig.parked(2, &data(RCV + 1_000, 500));
    rig.call(|t, cx, out| t.on_posted(cx, RCV + 300, out));
    let place = |park, at, skip, len, rest| Command::Place { park: ParkId(park), seq: RCV + at, skip, len, rest };
    assert_eq!(rig.take()[0], place(1, 0, 0, 300, true));
    assert_eq!(rig.info().rcv_nxt, RCV + 300);
    assert_eq!(rig.info().rcv_wnd, 3_700, "what was promised stays promised");
    // The rest is not asked for again, and goes where room is, piece by piece.
    assert_eq!(rig.parked(3, &data(RCV + 300, 700))[0], Command::Drop { park: ParkId(3) });
    rig.take();
    rig.call(|t, cx, out| t.on_posted(cx, RCV + 400, out));
    assert_eq!(rig.take()[0], place(1, 300, 300, 100, true));
    rig.call(|t, cx, out| t.on_posted(cx, RCV + 1_200, out));
    assert_eq!(rig.take()[..2], [place(1, 400, 400, 600, false), place(2, 1_000, 0, 200, true)]);
    // The payload that is parked at the end is given up.
    rig.call(|t, cx, out| t.abort(cx, out));
    assert!(rig.take().contains(&Command::Drop { park: ParkId(2) }));
}

#[test]
fn parked_payload_is_trimmed_to_what_is_new() {
    let mut rig = Rig::established();
    rig.placed(&data(RCV, 600), RCV + 600);
    rig.take();
    let out = rig.parked(1, &data(RCV, 1_000)).to_vec();
    assert_eq!(out[0], Command::Place { park: ParkId(1), seq: RCV + 600, skip: 600, len: 400, rest: false });
    let edge = RCV + (1 << 16);
    let out = rig.parked(2, &data(edge - 10, 100)).to_vec();
    assert_eq!(out[0], Command::Place { park: ParkId(2), seq: edge - 10, skip: 0, len: 10, rest: false });
}

#[test]
fn parked_payloads_that_overlap_are_placed_once() {
    let mut rig = unposted(4_000);
    rig.parked(1, &data(RCV, 1_000));
    rig.parked(2, &data(RCV + 500, 1_000));
    rig.take();
    rig.call(|t, cx, out| t.on_posted(cx, RCV + 10_000, out));
    let places: Vec<_> = rig.take().into_iter().filter(|c| matches!(c, Command::Place { .. })).collect();
    assert_eq!(
        places,
        [
            Command::Place { park: ParkId(1), seq: RCV, skip: 0, len: 1_000, rest: false },
            Command::Place { park: ParkId(2), seq: RCV + 1_000, skip: 500, len: 500, rest: false },
        ]
    );
}

#[test]
fn too_much_parked_loses_what_is_farthest() {
    let mut rig = unposted(40_000);
    let mut dropped = Vec::new();
    for i in 0..20 {
        for command in rig.parked(i, &data(RCV + 1_000 * (20 - i), 1_000)) {
            if let Command::Drop { park } = command {
                dropped.push(park.0);
            }
        }
    }
    assert_eq!(dropped, (0..8).collect::<Vec<_>>());
    rig.take();
    rig.call(|t, cx, out| t.abort(cx, out));
    let left = rig.take().iter().filter(|c| matches!(c, Command::Drop { .. })).count();
    assert_eq!(left, 12, "and the end loses the rest");
}

#[test]
fn with_many_ranges_nothing_is_placed_ahead_of_its_turn() {
    // The Streamer may have no place for one range more, and what is placed counts.
    let mut rig = Rig::established();
    let hole = |i: u32| RCV + 100 * i;
    for i in 1..=PLACE_RANGES as u32 {
        rig.placed(&data(hole(2 * i), 100), RCV);
    }
    let far = hole(2 * PLACE_RANGES as u32 + 2);
    let places = |out: &[Command]| out.iter().filter(|c| matches!(c, Command::Place { .. })).count();
    assert_eq!(places(rig.parked(1, &data(far, 100))), 0);
    assert_eq!(rig.info().rcv_nxt, RCV);
    // One range less, and there is a place for it again.
    let out = rig.placed(&data(RCV, 200), RCV + 300).to_vec();
    assert!(out.contains(&Command::Place { park: ParkId(1), seq: far, skip: 0, len: 100, rest: false }), "{out:?}");
    // In order is always possible.
    rig.placed(&data(far + 200, 100), RCV + 300);
    assert_eq!(places(rig.parked(2, &data(far + 400, 100))), 0);
    assert_eq!(places(rig.parked(3, &data(RCV + 300, 100))), 1);
    assert_eq!(rig.info().rcv_nxt, RCV + 500);
}

#[test]
fn every_range_that_the_streamer_has_is_known() {
    // A range forgotten would be passed only by the Streamer: a FIN behind it waits for ever.
    let mut rig = Rig::established();
    let fin = RCV + 200 * MAX_RANGES as u32;
    for i in 1..MAX_RANGES as u32 {
        rig.placed(&data(RCV + 200 * i, 100), RCV);
    }
    for i in 1..MAX_RANGES as u32 {
        rig.placed(&data(RCV + 200 * i + 100, 100), RCV);
    }
    rig.parked(1, &data(RCV, 200));
    assert_eq!(rig.info().rcv_nxt, fin);
}
