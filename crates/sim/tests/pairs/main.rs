//! Pairs and their ways home at every index of a schedule: two programs over memory of this process, the numbers that
//! go home, and a kernel that checks each byte by its number.

mod kernel;
mod program;
mod stream;
mod world;

use world::{Event, World};

/// Turns before which something happens.
const TURNS: usize = 120;

/// How much both programs write: much, little or nothing, so that an end finishes early, late, or at once.
const TOTALS: [[u64; 2]; 4] = [[30_000, 30_000], [30_000, 2_000], [0, 20_000], [9_000, 0]];

/// Writes that are under way when a pair is stopped, and how late each program hears of it.
const STOPS: [([usize; 2], [usize; 2]); 5] =
    [([0, 0], [0, 0]), ([5000, 0], [0, 7]), ([0, 5000], [7, 0]), ([300, 300], [3, 9]), ([5000, 5000], [20, 20])];

fn run(seed: u64, totals: [u64; 2], events: &[(usize, Event)]) -> World {
    let mut world = World::new(seed, totals);
    println!("seed {seed}, totals {totals:?}, {events:?}");
    world.run(events);
    world
}

#[test]
fn a_pair_goes_home_at_every_index() {
    let mut home = 0;
    for (seed, totals) in (0..).zip(TOTALS) {
        for at in 0..TURNS {
            for (under_way, later) in STOPS {
                home += run(seed, totals, &[(0, Event::Join), (at, Event::Home { under_way, later })]).home;
            }
        }
    }
    assert!(home > 1000, "{home}");
}

#[test]
fn a_pair_is_made_at_every_index_and_goes_home_later() {
    let mut home = 0;
    for (seed, totals) in (10..).zip(TOTALS) {
        for at in 0..TURNS {
            for (after, (under_way, later)) in [1, 5, 30].into_iter().zip(STOPS) {
                let events = [(at, Event::Join), (at + after, Event::Home { under_way, later })];
                home += run(seed, totals, &events).home;
            }
        }
    }
    assert!(home > 300, "{home}");
}

#[test]
fn a_pair_is_made_again_at_every_index_after_it_went_home() {
    let mut joined = 0;
    for (seed, totals) in (20..).zip(TOTALS) {
        for first in (1..TURNS).step_by(7) {
            for again in first..first + 40 {
                let (under_way, later) = STOPS[again % STOPS.len()];
                let home = Event::Home { under_way, later };
                let events = [(0, Event::Join), (first, home), (again, Event::Join), (again + 15, home)];
                joined += run(seed, totals, &events).joined;
            }
        }
    }
    assert!(joined > 2000, "{joined}");
}

#[test]
fn a_pair_goes_to_and_fro_at_every_step() {
    for step in 1..20 {
        for (seed, totals) in (30..).zip(TOTALS) {
            let event = |at: usize| {
                let (under_way, later) = STOPS[at / step % STOPS.len()];
                if (at / step).is_multiple_of(2) { Event::Join } else { Event::Home { under_way, later } }
            };
            let events: Vec<(usize, Event)> = (0..2000).step_by(step).map(|at| (at, event(at))).collect();
            let world = run(seed, totals, &events);
            assert!(world.joined > 0 && world.home > 0);
        }
    }
}

#[test]
fn a_program_dies_at_every_index() {
    for (seed, totals) in (40..).zip(TOTALS) {
        for at in 1..TURNS {
            for who in [0, 1] {
                for before in [&[(0, Event::Join)][..], &[(at / 2, Event::Join)]] {
                    run(seed, totals, &[before, &[(at, Event::Die(who))]].concat());
                }
            }
        }
    }
}

#[test]
fn a_program_dies_at_every_index_of_a_pair_that_was_made_again() {
    for (seed, totals) in (50..).zip(TOTALS) {
        for at in 0..TURNS {
            let (under_way, later) = STOPS[at % STOPS.len()];
            let events = [
                (0, Event::Join),
                (20, Event::Home { under_way, later }),
                (45, Event::Join),
                (45 + at, Event::Die(at % 2)),
            ];
            run(seed, totals, &events);
        }
    }
}
