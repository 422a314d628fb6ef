//! A run is answered as its segments are, one by one (RA §3.4, §4).

use crate::rig::*;
use baton_tcp::command::Command;
use baton_tcp::config::{Acks, Config};
use baton_tcp::segment::{Lengths, Placement, Segment};
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;
use proptest::prelude::*;

fn each() -> Config {
    plain().with(|config| {
        config.acks = Acks::EverySecond;
        config.timestamps = true;
    })
}

/// The acknowledgment numbers that leave, templates expanded, and everything else.
fn expanded(commands: &[Command]) -> Vec<Command> {
    let each = |command: &Command| match *command {
        Command::Acks { first, step, count } => {
            (0..u32::from(count)).map(|n| Command::Ack { ack: first + step * n, sack: Default::default() }).collect()
        }
        other => vec![other],
    };
    commands.iter().flat_map(each).collect()
}

fn placed(rig: &mut Rig, segment: &Segment) {
    let len = segment.lengths.len;
    rig.arrive_as(segment, Placement::Placed { rcv_nxt: segment.seq + len, new_bytes: len });
}

/// The segments of a run.
fn alone(run: &Segment) -> Vec<Segment> {
    let Lengths { len, size, .. } = run.lengths;
    let cut = |at: u32| Segment { seq: run.seq + at, lengths: Lengths::single(u32::from(size).min(len - at)), ..*run };
    (0..len).step_by(usize::from(size)).map(cut).collect()
}

fn with_timestamps() -> Rig {
    let mut rig = Rig::connecting(each());
    rig.after(Duration::from_millis(50));
    rig.arrive(&Segment { timestamps: ts(100, 77), ..syn(SYN_ACK, SND) });
    rig.take();
    rig
}

#[test]
fn one_template_acknowledges_every_second_segment_and_the_odd_one_waits() {
    let mut rig = with_timestamps();
    rig.tcb.set_option(
        &mut baton_tcp::tcb::Context { now: rig.now, config: &rig.config, challenge: &mut rig.limiter },
        baton_tcp::options::SocketOption::QuickAck(false),
        &mut rig.out,
    );
    let mut run = Segment { timestamps: ts(100, 77), ..seg(Flags::ACK, RCV, SND, 1_460) };
    placed(&mut rig, &run);
    assert_eq!(acks(&rig.take()), []);
    run.seq += 1_460;
    run.lengths = Lengths { len: 10 * 1_460, size: 1_460, count: 10 };
    placed(&mut rig, &run);
    let out = rig.take();
    assert_eq!(out, [Command::Acks { first: run.seq + 1_460, step: 2 * 1_460, count: 5 }]);
    assert!(rig.tcb.deadline().is_some_and(|at| at > rig.now), "the eleventh waits");
}

#[test]
fn quick_acks_are_one_template_too() {
    let mut rig = with_timestamps();
    let lengths = Lengths { len: 6 * 1_000, size: 1_000, count: 6 };
    let run = Segment { lengths, timestamps: ts(100, 77), ..seg(Flags::ACK, RCV, SND, 0) };
    placed(&mut rig, &run);
    assert_eq!(rig.take(), [Command::Acks { first: RCV + 1_000, step: 1_000, count: 6 }]);
}

#[derive(Clone, Debug)]
struct Burst {
    count: u16,
    size: u16,
    last: u16,
    /// How far the peer's clock went on.
    ticks: u32,
    /// How many of the bytes that we sent are acknowledged.
    acked: u32,
    wait: u64,
}

fn burst() -> impl Strategy<Value = Burst> {
    let size = prop_oneof![Just(1_448u16), Just(536), 1..2_000u16];
    (1..64u16, size, 1..=100u16, 0..3u32, 0..3u32, prop_oneof![Just(0u64), 0..60u64]).prop_map(
        |(count, size, percent, ticks, acked, wait)| {
            let last = (u32::from(size) * u32::from(percent)).div_ceil(100) as u16;
            Burst { count, size, last, ticks, acked, wait }
        },
    )
}

proptest! {
    #[test]
    fn what_is_decided_of_a_run_is_what_is_decided_of_its_segments(bursts in prop::collection::vec(burst(), 1..20)) {
        let (mut one, mut many) = (with_timestamps(), with_timestamps());
        let (mut seq, mut ack, mut clock) = (RCV, SND, 100);
        for rig in [&mut one, &mut many] {
            rig.sent(40_000);
        }
        for burst in bursts {
            clock += burst.ticks;
            ack += burst.acked * 500;
            let len = u32::from(burst.size) * u32::from(burst.count - 1) + u32::from(burst.last);
            let size = if burst.count == 1 { burst.last } else { burst.size };
            let lengths = Lengths { len, size, count: burst.count };
            let run = Segment { lengths, timestamps: ts(clock, 77), ..seg(Flags::ACK, seq, ack, 0) };
            seq += len;
            for rig in [&mut one, &mut many] {
                rig.after(Duration::from_millis(burst.wait));
                rig.call(|tcb, cx, out| tcb.on_posted(cx, seq + (1 << 20), out));
            }
            one.take();
            many.take();
            placed(&mut one, &run);
            alone(&run).iter().for_each(|segment| placed(&mut many, segment));
            prop_assert_eq!(expanded(&one.take()), expanded(&many.take()));
            prop_assert_eq!(one.tcb.deadline(), many.tcb.deadline());
            prop_assert_eq!(format!("{:?}", one.tcb), format!("{:?}", many.tcb));
        }
        let _: Seq = seq;
    }
}
