//! The timer wheel against a sorted map.

use baton_engine::wheel::{EXPIRE_LIMIT, Wheel};
use baton_tcp::time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

const TICK: u64 = 1 << 20;
const IDS: u32 = 12;

#[derive(Clone, Debug)]
enum Op {
    Arm(u32, u64),
    ArmPast(u32, u64),
    Cancel(u32),
    Pass(u64),
    SleepUntilNext,
}

/// Spans from nothing to centuries, each power of two as likely.
fn span() -> impl Strategy<Value = u64> {
    (0u32..63, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..IDS, span()).prop_map(|(id, span)| Op::Arm(id, span)),
        1 => (0..IDS, span()).prop_map(|(id, span)| Op::ArmPast(id, span)),
        2 => (0..IDS).prop_map(Op::Cancel),
        3 => (0u32..50, any::<u64>()).prop_map(|(bits, random)| Op::Pass(random & ((1 << bits) - 1))),
        3 => Just(Op::SleepUntilNext),
    ]
}

/// The tick at which a timer may fire.
fn due(at: u64) -> u64 {
    at.div_ceil(TICK)
}

fn expire_all(wheel: &mut Wheel, now: u64) -> Vec<u32> {
    let mut fired = Vec::new();
    while wheel.expire(Instant(now), &mut |id| fired.push(id)) {}
    fired
}

proptest! {
    #[test]
    fn fires_what_a_sorted_map_would(start in span(), ops in prop::collection::vec(op(), 1..200)) {
        let mut now = start;
        let mut wheel = Wheel::new(IDS, Instant(now));
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Arm(id, span) => {
                    wheel.arm(id, Instant(now) + Duration(span));
                    model.insert(id, now.saturating_add(span));
                }
                Op::ArmPast(id, span) => {
                    wheel.arm(id, Instant(now) - Duration(span));
                    model.insert(id, now.saturating_sub(span));
                }
                Op::Cancel(id) => {
                    wheel.cancel(id);
                    model.remove(&id);
                }
                Op::Pass(span) => now = now.saturating_add(span),
                Op::SleepUntilNext => {
                    if let Some(next) = wheel.next() {
                        now = now.max(next.0);
                    }
                }
            }
            if matches!(op, Op::Pass(_) | Op::SleepUntilNext) {
                let fired = expire_all(&mut wheel, now);
                let at: Vec<u64> = fired.iter().map(|id| model.remove(id).expect("an armed timer")).collect();
                prop_assert!(at.iter().all(|&at| at <= now), "none fires early");
                prop_assert!(model.values().all(|&at| due(at) > now / TICK), "none is left behind");
            }
            prop_assert_eq!(wheel.armed() as usize, model.len());
            prop_assert!((0..IDS).all(|id| wheel.is_armed(id) == model.contains_key(&id)));
            match (wheel.next(), model.values().min()) {
                (Some(next), Some(&first)) => {
                    prop_assert!(next.0 <= due(first).max(now / TICK).saturating_mul(TICK));
                }
                (None, None) => {}
                (next, first) => prop_assert!(false, "next {next:?}, first {first:?}"),
            }
        }
    }

    #[test]
    fn fires_in_order_of_ticks(spans in prop::collection::vec(0u64..1 << 34, 1..300)) {
        let mut wheel = Wheel::new(spans.len() as u32, Instant(12345 * TICK));
        for (id, &span) in spans.iter().enumerate() {
            wheel.arm(id as u32, Instant(12345 * TICK + span));
        }
        let fired = expire_all(&mut wheel, 12345 * TICK + (1 << 35));
        prop_assert_eq!(fired.len(), spans.len());
        prop_assert!(fired.is_sorted_by_key(|&id| due(spans[id as usize])));
    }
}

#[test]
fn sleeping_until_next_wakes_a_few_times_for_a_far_timer() {
    let mut wheel = Wheel::new(1, Instant(0));
    let at = 7 * 24 * 3600 * 1_000_000_000u64 + 77;
    wheel.arm(0, Instant(at));
    let mut wakeups = 0;
    while let Some(next) = wheel.next() {
        let mut fired = Vec::new();
        wheel.expire(next, &mut |id| fired.push(id));
        wakeups += 1;
        if !fired.is_empty() {
            assert!(next.0 >= at && next.0 < at + TICK);
        }
    }
    assert!(wakeups <= 8, "{wakeups} wake-ups");
}

/// A limit reached in the middle of a higher level's slot must not let timers of
/// a lower level overtake those that have not been moved down.
#[test]
fn a_bounded_call_leaves_the_rest_in_order() {
    let count = 3 * EXPIRE_LIMIT as u32 + 10;
    let mut wheel = Wheel::new(count + 2, Instant(0));
    // All in one slot of level 1, on its 64 ticks.
    let at = |id: u32| Instant((64 * 5 + u64::from(id * 7 % 64)) * TICK);
    for id in 0..count {
        wheel.arm(id, at(id));
    }
    let (mut fired, mut calls) = (Vec::new(), 0);
    loop {
        let before = fired.len();
        let more = wheel.expire(Instant(64 * 6 * TICK), &mut |id| fired.push(id));
        assert!(fired.len() - before <= EXPIRE_LIMIT);
        calls += 1;
        if calls == 1 {
            assert!(wheel.next().unwrap() <= at(0), "the lower bound holds halfway");
            wheel.arm(count, Instant(64 * 5 * TICK));
            wheel.arm(count + 1, Instant(1 << 40));
            wheel.cancel(1);
        }
        if !more {
            break;
        }
    }
    assert!(calls > 3, "the limit was never reached");
    assert_eq!(wheel.armed(), 1);
    assert_eq!(fired.len() as u32, count - 1 + 1);
    assert!(!fired.contains(&1) && fired.contains(&count));
    let ticks: Vec<_> = fired.iter().map(|&id| if id == count { at(0) } else { at(id) }).collect();
    assert!(ticks.is_sorted());
}
