//! Properties of the load control's transition table (CH figure 3).

use baton_policy::load::{LoadControl, Observed, State, Watermarks, most_moves, pause_s};
use proptest::prelude::*;
use std::collections::HashSet;
use std::num::NonZeroU32;

fn control(hard: u32, low: u32, high: u32) -> LoadControl {
    LoadControl::new(NonZeroU32::new(hard).unwrap(), Watermarks::new(low, high).unwrap())
}

fn at(queued: u32, connections: u32) -> Observed {
    Observed { queued, connections, roomy: false }
}

#[test]
fn each_arrow_of_figure_3() {
    let mut load = control(64, 4, 16);
    assert!(!load.observe(at(0, 10)), "there is nothing to raise at the hard limit");
    assert_eq!(load.state(), State::Monitor);
    assert!(load.observe(at(17, 64)));
    assert_eq!((load.state(), load.soft_limit()), (State::Decrease, 56));
    assert!(!load.observe(at(100, 56)), "DECREASE waits, however long the queue is");
    assert_eq!((load.state(), load.excess(56)), (State::Decrease, 1));
    assert!(!load.observe(at(100, 55)));
    assert_eq!(load.state(), State::Monitor);
    assert!(load.observe(at(3, 55)));
    assert_eq!((load.state(), load.soft_limit()), (State::Increase, 57));
    assert!(!load.observe(at(0, 56)));
    assert_eq!(load.state(), State::Increase, "INCREASE waits for connections");
    assert!(!load.observe(at(0, 57)));
    assert_eq!(load.state(), State::Monitor);
    assert!(load.observe(at(3, 57)));
    assert!(load.observe(at(17, 57)));
    assert_eq!((load.state(), load.soft_limit()), (State::Decrease, 50));
}

#[test]
fn steps_are_long_far_from_the_right_limit() {
    let mut load = control(64, 4, 16);
    load.observe(at(32, 64));
    assert_eq!(load.soft_limit(), 56, "twice Hiwat is not far");
    load.count(0);
    load.observe(at(33, 56));
    assert_eq!(load.soft_limit(), 42);
    load.count(0);
    load.observe(Observed { roomy: true, ..at(0, 42) });
    assert_eq!(load.soft_limit(), 52);
    load.count(52);
    load.observe(Observed { roomy: true, ..at(4, 52) });
    assert_eq!(load.soft_limit(), 52, "between the watermarks nothing moves");
}

#[test]
fn an_engine_with_a_long_queue_keeps_one_connection() {
    let mut load = control(8, 0, 0);
    assert!(!load.observe(at(1, 0)) && !load.observe(at(1, 1)), "one connection is not too many");
    assert_eq!(load.state(), State::Monitor);
    assert!(load.observe(at(1, 2)));
    assert_eq!((load.state(), load.soft_limit(), load.excess(2)), (State::Decrease, 2, 1));
    load.count(1);
    assert_eq!(load.state(), State::Monitor);
}

#[test]
fn connections_that_come_and_go_change_the_state_but_not_the_limit() {
    let mut load = control(64, 4, 16);
    load.observe(at(17, 64));
    load.count(56);
    assert_eq!((load.state(), load.soft_limit()), (State::Decrease, 56));
    load.count(55);
    assert_eq!((load.state(), load.soft_limit()), (State::Monitor, 56));
    load.observe(at(3, 55));
    load.count(57);
    assert_eq!((load.state(), load.soft_limit()), (State::Monitor, 57));
}

#[test]
fn pauses_double_and_bound_the_moves() {
    assert_eq!([0, 1, 2, 3, 8, 9, 10, u32::MAX].map(pause_s), [0, 1, 2, 4, 128, 256, 256, 256]);
    // Alternating as fast as the pauses allow.
    for seconds in [0, 1, 10, 600, 3600] {
        let (mut moves, mut now, mut shed) = (1, 0, 0);
        while now <= seconds {
            moves += 1;
            shed += 1;
            now += pause_s(shed);
            moves += u64::from(now <= seconds);
        }
        assert_eq!(moves, most_moves(seconds), "in {seconds} s");
    }
    assert_eq!(most_moves(600), 20);
}

#[test]
fn watermarks_in_the_wrong_order_are_refused() {
    assert_eq!(Watermarks::new(5, 4), None);
}

/// The connections of an engine, trigger by trigger, whose queue is as long as its connections are
/// over its capacity, while `demand` connections want to be there.
fn play(load: &mut LoadControl, capacity: u32, demand: u32, triggers: usize) -> Vec<u32> {
    let mut connections = demand.min(load.soft_limit());
    let mut seen = Vec::new();
    for _ in 0..triggers {
        let roomy = 2 * connections <= capacity;
        load.observe(Observed { roomy, ..at(connections.saturating_sub(capacity), connections) });
        connections -= load.excess(connections).min(connections);
        if load.admits(connections) && connections < demand {
            connections += 1;
        }
        seen.push(connections);
    }
    seen
}

proptest! {
    #[test]
    fn limits_hold_and_every_state_can_be_left(
        hard in 1u32..5_000, low in 0u32..64, span in 0u32..64, seen in prop::collection::vec((0u32..200, 0u32..6_000), 1..200)
    ) {
        let mut load = control(hard, low, low + span);
        for (queued, connections) in seen {
            let (state, limit) = (load.state(), load.soft_limit());
            let told = load.observe(at(queued, connections));
            prop_assert!((1..=hard).contains(&load.soft_limit()));
            prop_assert_eq!(told, load.soft_limit() != limit);
            if (low..=low + span).contains(&queued) {
                prop_assert_eq!(load.soft_limit(), limit, "between the watermarks the limit stays, from {:?}", state);
            }
        }
        // From wherever it is: no connections end DECREASE, a full engine ends INCREASE.
        load.observe(at(low, 0));
        load.observe(at(low, hard));
        prop_assert_eq!(load.state(), State::Monitor);
    }

    #[test]
    fn the_queue_settles_below_the_high_watermark(capacity in 8u32..2_000, demand in 8u32..4_000) {
        let mut load = control(4_096, 8, 64);
        let seen = play(&mut load, capacity, demand, 4_000);
        let settled = &seen[2_000..];
        // It overshoots by one step up (a thirty-second) and falls by one step down (an eighth).
        let most = (capacity + 64).max(capacity * 34 / 32) + 2;
        prop_assert!(settled.iter().all(|it| *it <= most), "{:?} of {}", settled.iter().max(), capacity);
        let least = demand.min(capacity) * 3 / 4;
        prop_assert!(settled.iter().all(|it| *it + 1 >= least), "{:?} of {}", settled.iter().min(), capacity);
    }
}

#[test]
fn every_state_is_reached() {
    let mut load = control(4_096, 8, 64);
    let mut states = HashSet::new();
    let mut connections = 0;
    for (capacity, demand) in [(1_000, 2_048), (2_000, 2_048), (500, 2_048)] {
        for _ in 0..2_000 {
            load.observe(at(u32::saturating_sub(connections, capacity), connections));
            states.insert(load.state());
            connections -= load.excess(connections);
            connections += u32::from(load.admits(connections) && connections < demand);
        }
        assert!(connections <= capacity + 65, "{connections} of {capacity}");
    }
    assert_eq!(states.len(), State::ALL.len());
}

/// A look at an engine's load, as a live run recorded it.
struct Recorded {
    observed: Observed,
    watermarks: Watermarks,
}

/// Recorded runs of `baton bench run ch-load`: the first line names each.
const RECORDED: [&str; 1] = [include_str!("data/load-400.csv")];

fn recorded(text: &str) -> Vec<Recorded> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let fields: Vec<u32> = line.split(',').map(|field| field.parse().unwrap()).collect();
        let [_at_ms, queued, high, connections, _limit] = fields[..] else { panic!("{line}") };
        Recorded { observed: at(queued, connections), watermarks: Watermarks::new(high / 4, high).unwrap() }
    };
    lines.map(read).collect()
}

/// The load of a live run, each look with the watermarks that were measured then: the limit changes only for
/// a queue outside them, and turns around no more often than the queue does.
#[test]
fn a_recorded_load_moves_the_limit_only_as_its_queue_says() {
    for text in RECORDED {
        let looks = recorded(text);
        let hard = looks.iter().map(|look| look.observed.connections).max().unwrap();
        let mut load = control(hard, 0, u32::MAX);
        let (mut limit_turns, mut queue_turns) = (Turns::default(), Turns::default());
        let mut lowest = hard;
        for Recorded { observed, watermarks } in looks {
            load.set_watermarks(watermarks);
            let (before, state) = (load.soft_limit(), load.state());
            let (long, short) = (observed.queued > watermarks.high(), observed.queued < watermarks.low());
            load.observe(observed);
            let after = load.soft_limit();
            assert!(after >= before || (long && state != State::Decrease), "{before} to {after} at {observed:?}");
            assert!(after <= before || (short && state == State::Monitor), "{before} to {after} at {observed:?}");
            assert!((2..=hard).contains(&after));
            limit_turns.note(after > before, after < before);
            queue_turns.note(short, long);
            lowest = lowest.min(after);
        }
        assert!(lowest < hard, "the load was too much at some time");
        assert!(limit_turns.count <= queue_turns.count, "{} and {}", limit_turns.count, queue_turns.count);
    }
}

/// How often something that goes up and down turns around.
#[derive(Default)]
struct Turns {
    up: Option<bool>,
    count: u32,
}

impl Turns {
    fn note(&mut self, up: bool, down: bool) {
        if up || down {
            self.count += u32::from(self.up.is_some_and(|before| before != up));
            self.up = Some(up);
        }
    }
}
