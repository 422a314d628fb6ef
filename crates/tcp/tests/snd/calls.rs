//! Arbitrary sequences of calls: nothing panics, pipe stays within the flight, a
//! flight has a deadline, and memory is bounded.

use baton_tcp::config::{Config, Congestion};
use baton_tcp::snd::{AckInput, Sender};
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::SackBlocks;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Call {
    Send { bytes: u32, queued: u32 },
    SendAgain { from: u32, bytes: u32 },
    Ack { back: u32, blocks: Vec<(u32, u32)>, ecr: u32, segments: u16, ece: bool, has_data: bool, wnd: u32 },
    Repeat,
    Wait { ns: u64 },
    Deadline,
    Mss(u16),
    SmallerMtu(u16),
    Congestion(bool),
}

fn calls() -> impl Strategy<Value = Call> {
    let block = (0u32..200_000, 0u32..60_000);
    prop_oneof![
        8 => (1u32..100_000, 0u32..3).prop_map(|(bytes, q)| Call::Send { bytes, queued: q * 5000 }),
        1 => (0u32..200_000, 0u32..50_000).prop_map(|(from, bytes)| Call::SendAgain { from, bytes }),
        8 => (
            0u32..200_000, prop::collection::vec(block, 0..5), any::<u32>(),
            0u16..50, prop::bool::weighted(0.05), prop::bool::weighted(0.1), 0u32..1_000_000
        )
            .prop_map(|(back, blocks, ecr, segments, ece, has_data, wnd)| {
                Call::Ack { back, blocks, ecr, segments, ece, has_data, wnd }
            }),
        4 => Just(Call::Repeat),
        4 => (0u64..400_000_000).prop_map(|ns| Call::Wait { ns }),
        3 => Just(Call::Deadline),
        1 => (0u16..9000).prop_map(Call::Mss),
        1 => (0u16..9000).prop_map(Call::SmallerMtu),
        1 => any::<bool>().prop_map(Call::Congestion),
    ]
}

struct Caller {
    s: Sender,
    now: Instant,
}

impl Caller {
    fn call(&mut self, call: Call) {
        let (s, now) = (&mut self.s, self.now);
        match call {
            Call::Send { bytes, queued } if s.in_flight() < 1 << 29 => {
                s.on_sent(now, s.snd_nxt(), s.snd_nxt() + bytes, false, queued);
            }
            Call::Send { .. } => {}
            Call::SendAgain { from, bytes } => {
                let from = s.snd_una() + from.min(s.in_flight());
                s.on_sent(now, from, (from + bytes).earliest(s.snd_nxt()), true, 0);
            }
            Call::Ack { back, blocks, ecr, segments, ece, has_data, wnd } => {
                // Mostly acknowledgments within the flight, some old, some too far.
                let ack = s.snd_nxt() + 2_000 - back;
                let mut sack = SackBlocks::new();
                for (offset, len) in blocks {
                    let start = s.snd_una() + offset - 20_000;
                    sack.push(start, start + len);
                }
                let ts_now = now.timestamp_ms();
                s.on_ack(
                    now,
                    &AckInput {
                        ack,
                        sack: &sack,
                        ts_ecr: (ecr % 2 == 0).then_some(ts_now.wrapping_sub(ecr % 1000)),
                        ts_now,
                        ece,
                        segments,
                        has_data,
                        wnd_changed: false,
                        snd_wnd: Window(wnd),
                    },
                );
            }
            Call::Repeat => {
                for _ in 0..16 {
                    let Some((seq, end)) = s.next_retransmit(now) else { break };
                    assert!(seq.before(end) && seq.after_eq(s.snd_una()) && end.before_eq(s.snd_nxt()));
                    s.on_sent(now, seq, end, true, 0);
                }
            }
            Call::Wait { ns } => self.now = now + Duration(ns),
            Call::Deadline => {
                if let Some(at) = s.deadline() {
                    self.now = Instant(at.0.max(now.0));
                    s.on_deadline(self.now);
                }
            }
            Call::Mss(mss) => s.set_mss(mss),
            Call::SmallerMtu(mss) => s.on_mtu_reduced(now, mss),
            Call::Congestion(reno) => {
                s.set_congestion(if reno { Congestion::Reno } else { Congestion::Cubic });
            }
        }
        self.check();
    }

    fn check(&self) {
        let s = &self.s;
        let info = s.info();
        assert!(s.pipe() <= s.in_flight());
        assert_eq!(info.pipe + info.sacked + info.lost, info.in_flight);
        assert!(s.in_flight() == 0 || s.deadline().is_some());
        assert!(s.records() <= 1024);
        assert!(s.rto() >= Config::default().rto_min && s.rto() <= Config::default().rto_max);
        let _ = s.limit(Window(1 << 20));
        s.assert_consistent();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_all_bounds_hold(
        sack: bool, timestamps: bool, reno: bool,
        calls in prop::collection::vec(calls(), 1..300),
    ) {
        let congestion = if reno { Congestion::Reno } else { Congestion::Cubic };
        let config = Config::default().with(|config| config.congestion = congestion);
        let iss = Seq(u32::MAX - 100_000);
        let mut s = Sender::new(&config, iss, 1000, Instant(0));
        s.set_sack(sack);
        s.set_timestamps(timestamps);
        let mut caller = Caller { s, now: Instant(0) };
        caller.call(Call::Send { bytes: 1, queued: 0 });
        for call in calls {
            caller.call(call);
        }
    }
}

#[test]
fn the_scoreboard_is_bounded_whatever_the_peer_says() {
    let mut s = Sender::new(&Config::default(), Seq(0), 100, Instant(0));
    s.set_sack(true);
    s.on_sent(Instant(0), Seq(0), Seq(1), false, 0);
    let mut caller = Caller { s, now: Instant(1_000_000) };
    let wnd = 1 << 29;
    let ack = |back, blocks| Call::Ack { back, blocks, ecr: 1, segments: 1, ece: false, has_data: false, wnd };
    caller.call(ack(2_000, vec![]));
    for _ in 0..3_000 {
        caller.call(Call::Wait { ns: 1_000 });
        caller.call(Call::Send { bytes: 1_000, queued: 0 });
    }
    // Every second hundred bytes SACKed, in the order that makes the most records.
    for n in 0..15_000u32 {
        let at = 20_000 + 200 * n;
        caller.call(ack(3_002_000, vec![(at, 100), (at, 100)]));
        if n % 100 == 0 {
            caller.call(Call::Repeat);
        }
    }
    assert!(caller.s.info().sacked > 0);
    for _ in 0..50 {
        caller.call(Call::Deadline);
        caller.call(Call::Repeat);
    }
}
