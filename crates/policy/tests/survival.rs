//! The life tables against distributions whose mean residual life is known.

use baton_policy::survival::{Class, Expected, Lifetimes, MEMORY, Survival};
use proptest::prelude::*;

/// The quantiles of a distribution, one for each of many connections, in an order without a trend.
fn quantiles(of: impl Fn(f64) -> f64) -> impl Iterator<Item = u64> {
    (0..3001u64).map(move |n| of((((n * 1777) % 3001) as f64 + 0.5) / 3001.0).round() as u64)
}

fn near(found: Expected, right: f64, part: f64) {
    assert!((found.packets as f64 - right).abs() <= right * part + 1.0, "{found:?}, not {right}");
}

#[test]
fn before_any_ended_a_connection_is_expected_to_send_as_much_again() {
    let survival = Survival::default();
    for packets in [1, 3, 32, 1000, 123_456, 1 << 30] {
        near(survival.expected(packets), packets as f64, 0.13);
    }
    assert_eq!(survival.expected(40).ended, 0);
}

#[test]
fn connections_without_memory_have_the_same_to_come_at_any_age() {
    let mut survival = Survival::default();
    quantiles(|part| 1.0 - 200.0 * (1.0 - part).ln()).for_each(|packets| survival.ended(packets));
    for packets in [1, 10, 100, 400] {
        near(survival.expected(packets), 200.0, 0.1);
    }
}

#[test]
fn heavy_tails_have_more_to_come_the_older_they_are() {
    let mut survival = Survival::default();
    // Pareto with exponent 1.5, whose mean residual life is twice the age.
    quantiles(|part| 4.0 * (1.0 - part).powf(-1.0 / 1.5)).for_each(|packets| survival.ended(packets));
    let [young, old] = [8, 80].map(|packets| survival.expected(packets).packets);
    assert!(old > 6 * young, "{young} {old}");
    near(survival.expected(8), 16.0, 0.35);
}

#[test]
fn connections_of_one_length_have_the_rest_of_it_to_come() {
    let mut survival = Survival::default();
    (0..1000).for_each(|_| survival.ended(1024));
    near(survival.expected(24), 1000.0, 0.15);
    near(survival.expected(512), 512.0, 0.3);
}

#[test]
fn connections_lost_from_sight_count_as_long_as_they_were_seen() {
    let (mut with, mut as_ended) = (Survival::default(), Survival::default());
    for n in 0..1000 {
        with.ended(1000);
        as_ended.ended(1000);
        if n % 2 == 0 {
            with.left(10);
            as_ended.ended(10);
        }
    }
    near(with.expected(1), 1000.0, 0.15);
    assert!(as_ended.expected(1).packets < 750, "{:?}", as_ended.expected(1));
}

#[test]
fn old_connections_fade() {
    let mut survival = Survival::default();
    (0..MEMORY).for_each(|_| survival.ended(4000));
    let long = survival.expected(1).packets;
    (0..8 * MEMORY).for_each(|_| survival.ended(4));
    let short = survival.expected(1);
    assert!(long > 3500 && short.packets < 100, "{long} {short:?}");
    assert!(short.ended <= MEMORY, "{short:?}");
}

#[test]
fn the_class_not_used_for_longest_goes() {
    let mut lifetimes = Lifetimes::new(2);
    let class = |port| Class { rule: 0, port };
    (0..50).for_each(|_| lifetimes.ended(class(80), 5000));
    lifetimes.ended(class(443), 1);
    lifetimes.ended(class(80), 5000);
    lifetimes.ended(class(22), 1);
    assert_eq!(lifetimes.classes(), 2);
    assert_eq!(lifetimes.expected(class(443), 1).ended, 0);
    assert_eq!(lifetimes.expected(class(22), 1).ended, 1);
    let expected = lifetimes.expected(class(80), 1);
    assert!(expected.packets > 3000, "{expected:?}");
    assert_eq!(
        expected.to_string(),
        format!("it is expected to send {} packets more, from 51 connections like it that ended", expected.packets)
    );
}

proptest! {
    #[test]
    fn any_history_gives_an_estimate(ends in prop::collection::vec((any::<u64>(), any::<bool>()), 0..200), at in any::<u64>()) {
        let (mut one, mut other) = (Survival::default(), Survival::default());
        for (packets, ended) in ends {
            for survival in [&mut one, &mut other] {
                if ended { survival.ended(packets) } else { survival.left(packets) }
            }
        }
        prop_assert!(one.expected(at).packets <= 1 << 33);
        prop_assert_eq!(one.expected(at), other.expected(at));
    }
}
