//! Responses found in what connections send, and takeovers by them.

use baton_policy::places::Prices;
use baton_policy::responses::{Course, Prospect};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// A move pays for more than six packets.
const PRICES: Prices = Prices { saving_ns: 10, move_ns: 60 };

/// One that has sent ten packets a second in responses of `response` packets, for ten seconds.
fn steady(response: u64) -> Course {
    let mut course = Course::default();
    for packet in 0..=100 {
        course.add(packet * SECOND / 10, 1, packet / response);
    }
    course
}

#[test]
fn a_response_ends_with_the_next_message_of_the_peer() {
    let mut course = Course::default();
    assert_eq!(course.add(5, 3, 300), None);
    assert_eq!(course.add(6, 20, 300), None);
    assert_eq!((course.packets(), course.response()), (23, 23));
    assert_eq!(course.add(7, 1, 600), Some(23));
    assert_eq!((course.packets(), course.response()), (24, 1));
    // The peer asks three times, and is answered with nothing.
    assert_eq!(course.add(8, 0, 900), Some(1));
    assert_eq!(course.add(9, 0, 1200), Some(0));
    assert_eq!((course.packets(), course.response()), (24, 0));
}

#[test]
fn one_in_a_long_response_takes_the_place_of_one_that_sends_as_much_in_its_life() {
    let now = 10 * SECOND;
    let holder = steady(2).prospect(2, 1_000, now);
    let mut long = steady(2);
    long.add(now, 40, 1_000);
    let newcomer = long.prospect(40, 1_000, now + SECOND / 10);
    assert_eq!(newcomer.takes_over([('a', holder)], PRICES), Some('a'));
    assert_eq!(holder.takes_over([('b', newcomer)], PRICES), None);
    // The rest of the response does not pay for the move.
    let ends = long.prospect(3, 1_000, now + SECOND / 10);
    assert_eq!(ends.takes_over([('a', holder)], PRICES), None);
}

#[test]
fn one_whose_response_has_ended_long_ago_gives_way_before_one_that_sends() {
    let now = 30 * SECOND;
    let mut pauses = Course::default();
    pauses.add(20 * SECOND, 300, 1);
    let mut sends = Course::default();
    sends.add(29 * SECOND, 300, 1);
    sends.add(now, 100, 1);
    let [pauses, sends] = [pauses, sends].map(|course| course.prospect(300, 300, now));
    let mut new = Course::default();
    new.add(now - SECOND / 10, 100, 1);
    let newcomer = new.prospect(200, 200, now);
    assert_eq!(newcomer.takes_over([('s', sends), ('p', pauses)], PRICES), Some('p'));
}

#[test]
fn of_nobody_nobody_is_named_and_no_saving_pays_for_no_move() {
    let newcomer = steady(50).prospect(1_000, 1_000, 10 * SECOND);
    let idle = Course::default().prospect(0, 0, 10 * SECOND);
    assert_eq!(newcomer.takes_over([] as [((), Prospect); 0], PRICES), None);
    assert_eq!(newcomer.takes_over([((), idle)], PRICES), Some(()));
    assert_eq!(newcomer.takes_over([((), idle)], Prices { saving_ns: 0, ..PRICES }), None);
}

proptest! {
    #[test]
    fn any_course_gives_numbers_and_two_alike_never_change_places(
        mut steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..50),
        response: u64, life: u64, after: u64, time in 0.0f64..1e9)
    {
        steps.sort_unstable();
        let mut course = Course::default();
        for &(at, packets, received) in &steps {
            course.add(at, packets, received);
        }
        let prospect = course.prospect(response, life, steps[steps.len() - 1].0.saturating_add(after));
        prop_assert!(prospect.within(time) >= 0.0 && prospect.within(time) <= response.max(life) as f64);
        prop_assert!(prospect.more_than(&prospect) == 0.0);
        let free = Prices { move_ns: 0, ..PRICES };
        prop_assert_eq!(prospect.takes_over([((), prospect)], free), None);
    }
}
