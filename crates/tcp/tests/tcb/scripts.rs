//! Faults that scripts of other stacks' tests found; each test is named after what was wrong.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, Notice};
use baton_tcp::handshake::Open;
use baton_tcp::manner::Manner;
use baton_tcp::options::SocketOption;
use baton_tcp::segment::Placement;
use baton_tcp::state::State;
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

const MSS: u32 = 1460;

/// A connection whose peer sends SACK blocks, if `sack`; with ECN, if `ecn`.
fn connected(sack: bool, ecn: bool, room: u32) -> Rig {
    let config = plain().with(|config| {
        config.sack = true;
        config.ecn = true;
        config.unposted_window = 64 << 10;
    });
    let mut rig = Rig::with(config, |cx, out| Tcb::connect(cx, &Open { rcv_space: room, ..open() }, out));
    rig.after(Duration::from_millis(50));
    let mut answer = syn(SYN_ACK | if ecn { Flags::ECE } else { Flags::NONE }, SND);
    answer.syn.sack_permitted = sack;
    rig.arrive(&answer);
    rig.take();
    rig
}

fn data(seq: Seq, len: u32) -> baton_tcp::segment::Segment {
    seg(Flags::ACK, seq, SND, len)
}

/// SACK blocks of each ACK, relative to the first byte.
fn sacks(commands: &[Command]) -> Vec<Vec<(u32, u32)>> {
    let relative = |&(s, e): &(Seq, Seq)| (s.since(RCV) as u32, e.since(RCV) as u32);
    let blocks = |command: &Command| match command {
        Command::Ack { sack, .. } => Some(sack.as_slice().iter().map(relative).collect()),
        _ => None,
    };
    commands.iter().filter_map(blocks).collect()
}

/// RFC 3168 §6.1.2: CWR answers ECE, and so belongs to connections that agreed on ECN.
#[test]
fn cwr_is_for_connections_that_agreed_on_ecn() {
    for ecn in [false, true] {
        let mut rig = connected(true, ecn, 1 << 16);
        rig.sent(10 * MSS);
        let mut ack = data(RCV, 0);
        ack.sack.push(SND + MSS, SND + 9 * MSS);
        let out = rig.arrive(&ack).to_vec();
        assert_eq!(retransmits(&out), [(SND, SND + MSS)]);
        assert!(transmit(&out).is_some_and(|t| t.manner.has(Manner::CWR) == ecn), "ECN {ecn}: {out:?}");
    }
}

/// RFC 3168 §6.1.2: whatever cut the window, the next new data says so.
#[test]
fn a_timeout_is_followed_by_cwr_with_ecn() {
    for ecn in [false, true] {
        let mut rig = connected(false, ecn, 1 << 16);
        rig.sent(4 * MSS);
        let out = rig.expire().to_vec();
        assert_eq!(retransmits(&out), [(SND, SND + MSS)]);
        assert!(transmit(&out).is_some_and(|t| t.manner.has(Manner::CWR) == ecn), "ECN {ecn}: {out:?}");
    }
}

/// RFC 5681 §4.2: one duplicate for one segment; RFC 2018 §4: with the block that it adds.
#[test]
fn the_first_data_out_of_order_is_answered_once() {
    for sack in [false, true] {
        let mut rig = connected(sack, false, 0);
        let mut out = rig.parked(1, &data(RCV + 100, 100)).to_vec();
        rig.call(|t, cx, out| t.on_posted(cx, RCV + (1 << 16), out));
        out.extend(rig.take().drain(out.len()..));
        assert_eq!(acks(&out), [RCV], "SACK {sack}");
        assert_eq!(sacks(&out), [if sack { vec![(100, 200)] } else { vec![] }]);
    }
}

/// As many duplicates as segments (RFC 5681 §3.2 counts them), also before there is room.
#[test]
fn each_segment_out_of_order_is_answered_once() {
    for segments in 2..6 {
        let mut rig = connected(true, false, 0);
        for n in 0..segments {
            rig.parked(n, &data(RCV + 100 + 200 * n, 100));
        }
        rig.call(|t, cx, out| t.on_posted(cx, RCV + (1 << 16), out));
        let out = rig.take();
        assert_eq!(acks(&out).len(), segments as usize);
        assert_eq!(sacks(&out).last().map(Vec::len), Some(segments.min(4) as usize));
    }
}

/// Should no room be posted, the duplicate goes out all the same.
#[test]
fn a_duplicate_waits_for_a_buffer_no_longer_than_an_ack_may() {
    let mut rig = connected(true, false, 0);
    assert_eq!(acks(rig.parked(1, &data(RCV + 100, 100))), []);
    let parked_at = rig.now;
    assert_eq!(acks(rig.expire()), [RCV]);
    assert!(rig.now.since(parked_at) <= Duration::from_millis(40));
}

/// RFC 9293 §3.10.7.4 first, RFC 5961 §3.2: `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`, with
/// the window.
#[test]
fn an_ack_of_a_half_open_connection_says_its_numbers() {
    let far = seg(Flags::ACK, RCV + (1 << 20), SND, 10);
    let reset = seg(Flags::RST, RCV + 10, Seq(0), 0);
    for (segment, parked) in [(far, true), (reset, false)] {
        let mut rig = Rig::in_state(State::SynReceived);
        let out = if parked { rig.parked(1, &segment) } else { rig.arrive(&segment) }.to_vec();
        assert_eq!(controls(&out), [(Flags::ACK, SND, RCV)], "{segment:?}");
        assert!(out.iter().any(|c| matches!(c, Command::Control { wnd: 0xffff, syn: None, .. })), "{out:?}");
        assert_eq!(acks(&out), [], "the Streamer does not know of its numbers yet");
        assert_eq!(rig.tcb.state(), State::SynReceived);
    }
}

/// tcp(7), TCP_NODELAY: "setting this option forces an explicit flush of pending output,
/// even if TCP_CORK is currently set".
#[test]
fn nodelay_flushes_what_the_cork_holds() {
    let mut rig = Rig::established();
    let mut set = |option| {
        rig.call(|t, cx, out| t.set_option(cx, option, out));
        transmit(&rig.take()).map(|t| (t.manner.has(Manner::CORK), t.push))
    };
    assert_eq!(set(SocketOption::Cork(true)), Some((true, false)));
    assert_eq!(set(SocketOption::NoDelay(true)), Some((true, true)));
    assert_eq!(set(SocketOption::NoDelay(false)), Some((true, false)));
}

/// RFC 5681 §3.1: in slow start each ACK of new data lets the window grow, the one that
/// ends the recovery from a timeout too.
#[test]
fn the_ack_that_ends_a_timeout_lets_the_window_grow() {
    for sack in [false, true] {
        let mut rig = connected(sack, false, 1 << 16);
        rig.sent(MSS);
        while rig.info().sender.retransmits == 0 {
            rig.expire();
        }
        assert_eq!(rig.info().sender.cwnd, MSS);
        rig.after(Duration::from_millis(50));
        rig.arrive(&seg(Flags::ACK, RCV, SND + MSS, 0));
        assert_eq!(rig.info().sender.cwnd, 2 * MSS, "SACK {sack}");
    }
}

/// An ACK that was overtaken tells of blocks that the later one may not have had room for
/// (as Linux; RFC 2018 §4 asks for the most recent blocks, not for all).
#[test]
fn blocks_on_an_older_ack_count() {
    let mut rig = connected(true, false, 1 << 16);
    rig.sent(10 * MSS);
    rig.arrive(&seg(Flags::ACK, RCV, SND + MSS, 0));
    assert_eq!(rig.info().sender.sacked, 0);
    let mut old = data(RCV, 0);
    old.sack.push(SND + 2 * MSS, SND + 4 * MSS);
    rig.arrive(&old);
    assert_eq!(rig.info().sender.sacked, 2 * MSS);
    assert_eq!(rig.info().snd_una, SND + MSS);
    old.sack.push(SND + 5 * MSS, SND + 7 * MSS);
    let holes = [1, 4].map(|n| (SND + n * MSS, SND + (n + 1) * MSS));
    assert_eq!(retransmits(rig.arrive(&old)), holes, "what it tells is acted upon");
}

/// As Linux: a reset says that what was sent, the FIN included, may not have arrived.
#[test]
fn a_reset_before_our_fin_is_acknowledged_is_told() {
    for state in [State::LastAck, State::Closing] {
        let mut rig = Rig::in_state(state);
        rig.arrive(&seg(Flags::RST, RCV + 1, SND, 0));
        assert_eq!(rig.notices(), [Notice::Closed(CloseReason::Reset)], "{state:?}");
    }
}

/// RFC 9293 §3.10.7.4 fifth: without ACK a segment is dropped; what is old was answered
/// before that step (first), and TIME-WAIT does not begin again.
#[test]
fn a_fin_without_ack_does_not_prolong_time_wait() {
    let mut rig = Rig::in_state(State::TimeWait);
    let end = rig.tcb.deadline();
    rig.after(Duration::from_secs(20));
    assert_eq!(acks(rig.arrive(&seg(Flags::FIN, RCV, Seq(0), 0))), [RCV + 1]);
    assert_eq!(rig.tcb.deadline(), end);
    assert_eq!(rig.arrive(&seg(Flags::FIN, RCV + 1, Seq(0), 0)), []);
    assert_eq!(rig.tcb.deadline(), end);
}

/// RFC 2883 §4.2: the part of a segment that is held is told of first.
#[test]
fn a_partial_duplicate_above_rcv_nxt_is_told_of() {
    let placed = |new_bytes, rcv_nxt: u32| Placement::Placed { rcv_nxt: RCV + rcv_nxt, new_bytes };
    let mut rig = connected(true, false, 1 << 16);
    rig.placed(&data(RCV + 200, 100), RCV);
    rig.take();
    assert_eq!(sacks(rig.arrive_as(&data(RCV + 100, 175), placed(100, 0))), [[(200, 275), (100, 300)]]);
    rig.take();
    // On the slow path too.
    assert_eq!(sacks(rig.parked(1, &data(RCV + 250, 100))), [[(250, 300), (100, 350)]]);
    rig.take();
    // Over two holes: one block is all that there is for it (§4), and the first is told.
    rig.placed(&data(RCV + 400, 100), RCV);
    rig.take();
    assert_eq!(sacks(rig.arrive_as(&data(RCV + 340, 110), placed(50, 0))), [[(340, 350), (100, 500)]]);
    rig.take();
    // And where the hole before it is filled.
    assert_eq!(sacks(rig.arrive_as(&data(RCV, 150), placed(100, 500))), [[(100, 150)]]);
    rig.take();
    // New data is no duplicate.
    assert_eq!(sacks(rig.placed(&data(RCV + 600, 100), RCV + 500)), [[(600, 700)]]);
}
