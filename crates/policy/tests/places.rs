//! Gains of places, and takeovers.

use baton_policy::places::{Pace, Prices};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_move_pays_once_more_is_saved_than_it_costs() {
    let prices = Prices { saving_ns: 2_000, move_ns: 80_000 };
    assert!(!prices.pays(40) && prices.pays(41));
    assert_eq!((prices.break_even(), prices.gain(40, 1_000_000), prices.gain(0, 5)), (40, 0, 0));
    // Of 80 packets to come, half pay for the move.
    assert_eq!(prices.gain(80, 100), 100 * 1_000);
    assert_eq!(prices.gain_there(100), 100 * 2_000);
    let nothing = Prices { saving_ns: 0, ..prices };
    assert!(!nothing.pays(u64::MAX) && nothing.gain(u64::MAX, u64::MAX) == 0);
    assert_eq!(nothing.break_even(), u64::MAX);
}

#[test]
fn the_one_that_gains_least_loses_its_place_to_one_that_gains_much_more() {
    let prices = Prices::default();
    let there = [('a', 500_000), ('b', 100_000), ('c', 300_000)];
    assert_eq!(prices.takes_over(300_000, there), Some('b'));
    // Half as much again, and the price of the move within a second.
    assert_eq!(prices.takes_over(230_000, there), None);
    assert_eq!(prices.takes_over(230_001, there), Some('b'));
    assert_eq!(prices.takes_over(100_000, there), None);
    assert_eq!(prices.takes_over(u64::MAX, [('a', u64::MAX)]), None);
    assert_eq!(prices.takes_over(u64::MAX, [] as [(char, u64); 0]), None);
}

#[test]
fn two_that_gain_alike_never_take_the_place_of_each_other() {
    let prices = Prices { saving_ns: 2_000, move_ns: 0 };
    for gain in [1, 1000, u64::MAX] {
        assert_eq!(prices.takes_over(gain, [((), gain)]), None);
    }
}

#[test]
fn a_pace_is_of_late_or_of_the_whole_life() {
    let mut pace = Pace::default();
    for step in 0..100 {
        pace.add(5 * SECOND + step * SECOND / 10, 10);
    }
    let now = 15 * SECOND;
    assert!((95..=105).contains(&pace.per_second(now)), "{}", pace.per_second(now));
    // It pauses for as long as it has lived.
    assert!((45..=55).contains(&pace.per_second(now + 10 * SECOND)));
    pace.add(now + 10 * SECOND, 5_000);
    assert!(pace.per_second(now + 10 * SECOND) >= 5_000);
    assert_eq!(pace.packets(), 6_000);
    let mut young = Pace::default();
    young.add(now, 3);
    assert_eq!(young.per_second(now), 3);
}

proptest! {
    #[test]
    fn any_packets_give_a_pace_of_no_more_than_all_of_them(
        mut steps in prop::collection::vec((0u64..u64::MAX, 0u32..), 1..50), after: u32)
    {
        steps.sort_unstable();
        let mut pace = Pace::default();
        steps.iter().for_each(|&(at, packets)| pace.add(at, packets));
        let now = steps[steps.len() - 1].0.saturating_add(after.into());
        prop_assert!(pace.per_second(now) <= pace.packets());
    }
}
