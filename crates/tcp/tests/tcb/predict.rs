//! Header prediction (LA §3.2): which segments each rule takes, and that all rules decide the same.

use crate::rig::*;
use baton_tcp::command::Command;
use baton_tcp::config::Prediction;
use baton_tcp::kind::Kind;
use baton_tcp::segment::{Lengths, Placement, Segment};
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;
use proptest::prelude::*;

const RULES: [Prediction; 3] = [Prediction::Off, Prediction::Bsd, Prediction::Full];

fn placement_of(segment: &Segment) -> Placement {
    match segment.lengths.len {
        0 => Placement::Empty,
        len => Placement::Placed { rcv_nxt: segment.seq + len, new_bytes: len },
    }
}

/// A segment's kind, and whether the rules above take it, for a peer that has 1,000 bytes of ours
/// to acknowledge.
fn judged(segment: &Segment) -> (Kind, [bool; 3]) {
    let mut rig = Rig::established();
    rig.sent(1_000);
    let taken = RULES.map(|rule| rig.tcb.is_predicted(rule, segment, placement_of(segment)));
    (rig.tcb.kind_of(segment), taken)
}

#[test]
fn the_rule_of_bsd_takes_either_data_or_an_acknowledgment() {
    let data = seg(Flags::ACK, RCV, SND, 500);
    assert_eq!(judged(&data), (Kind::Data, [false, true, true]));
    let ack = seg(Flags::ACK, RCV, SND + 1_000, 0);
    assert_eq!(judged(&ack), (Kind::Ack, [false, true, true]));
    let both = seg(Flags::ACK, RCV, SND + 1_000, 500);
    assert_eq!(judged(&both), (Kind::DataAck, [false, false, true]));
    let neither = seg(Flags::ACK, RCV, SND, 0);
    assert_eq!(judged(&neither), (Kind::Other, [false, false, true]));
}

#[test]
fn the_rule_of_bsd_wants_the_window_to_stay() {
    for wnd in [0, WND - 1, WND + 1] {
        for (ack, len) in [(SND, 500), (SND + 1_000, 0)] {
            let segment = Segment { wnd, ..seg(Flags::ACK, RCV, ack, len) };
            assert_eq!(judged(&segment).1, [false, false, true], "window {wnd}, {len} bytes");
        }
    }
}

#[test]
fn no_rule_takes_what_is_not_next_or_not_plain() {
    let data = seg(Flags::ACK, RCV, SND, 500);
    for (segment, kind) in [
        (Segment { flags: FIN_ACK, ..data }, Kind::Other),
        (Segment { ce: true, ..data }, Kind::Data),
        (Segment { ack: SND + 1_001, ..data }, Kind::Data),
        (seg(Flags::ACK, RCV + 1, SND + 1_000, 0), Kind::Ack),
    ] {
        assert_eq!(judged(&segment), (kind, [false; 3]), "{segment:?}");
    }
    let rig = Rig::established();
    for rule in RULES {
        let hole = Placement::Placed { rcv_nxt: RCV, new_bytes: 500 };
        assert!(!rig.tcb.is_predicted(rule, &seg(Flags::ACK, RCV + 500, SND, 500), hole));
    }
}

/// The next segments of a peer.
#[derive(Clone, Debug)]
struct Step {
    /// Payload of a segment, and how many of them come as a run.
    size: u16,
    count: u16,
    /// How many of the bytes that we sent are acknowledged.
    acked: u32,
    /// By how much the window shrinks.
    closed: u16,
    /// How far the peer's clock went on.
    ticks: u32,
    /// How many bytes we send before.
    sent: u32,
    wait: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![2 => Just(0u16), 3 => Just(1_448u16), 1 => 1..2_000u16];
    let wait = prop_oneof![Just(0u64), 0..60u64];
    (size, 1..6u16, 0..4u32, prop_oneof![3 => Just(0u16), 1 => 0..1_000u16], 0..3u32, 0..3u32, wait).prop_map(
        |(size, count, acked, closed, ticks, sent, wait)| Step {
            size,
            count: if size == 0 { 1 } else { count },
            acked,
            closed,
            ticks,
            sent,
            wait,
        },
    )
}

/// The contexts of receiving and sending are told in another order on each way.
fn in_any_order(commands: &[Command]) -> Vec<String> {
    let mut texts: Vec<String> = commands.iter().map(|command| format!("{command:?}")).collect();
    texts.sort_unstable();
    texts
}

proptest! {
    #[test]
    fn every_rule_decides_the_same(steps in prop::collection::vec(step(), 1..30)) {
        let mut rigs = RULES.map(|rule| {
            let config = plain().with(|config| (config.timestamps, config.prediction) = (true, rule));
            let mut rig = Rig::connecting(config);
            rig.after(Duration::from_millis(50));
            rig.arrive(&Segment { timestamps: ts(100, 77), ..syn(SYN_ACK, SND) });
            rig.take();
            rig
        });
        let (mut seq, mut una, mut nxt, mut clock): (Seq, Seq, Seq, u32) = (RCV, SND, SND, 100);
        let mut taken = [0; 3];
        for step in steps {
            clock += step.ticks;
            nxt += step.sent * 700;
            una += (step.acked * 500).min(nxt.since(una) as u32);
            let len = u32::from(step.size) * u32::from(step.count);
            let segment = Segment {
                lengths: Lengths { len, size: step.size, count: step.count },
                wnd: WND - step.closed,
                timestamps: ts(clock, 77),
                ..seg(Flags::ACK, seq, una, 0)
            };
            seq += len;
            let mut answers = Vec::new();
            for (rig, taken) in rigs.iter_mut().zip(&mut taken) {
                rig.after(Duration::from_millis(step.wait));
                if step.sent > 0 {
                    rig.sent(step.sent * 700);
                }
                rig.call(|tcb, cx, out| tcb.on_posted(cx, seq + (1 << 20), out));
                let placement = placement_of(&segment);
                *taken += u32::from(rig.call(|tcb, cx, out| tcb.handle_segment(cx, &segment, placement, out)).predicted);
                answers.push((in_any_order(&rig.take()), rig.tcb.deadline(), format!("{:?}", rig.info())));
            }
            prop_assert_eq!(&answers[0], &answers[1], "{:?}", segment);
            prop_assert_eq!(&answers[0], &answers[2], "{:?}", segment);
        }
        prop_assert!(taken[0] == 0 && taken[1] <= taken[2], "{taken:?}");
    }
}
