//! Watermarks from the measured rate, and the queue of a window.

use baton_policy::load::Watermarks;
use baton_policy::watermarks::{Choice, Meter, ROOMY_PERMILLE, WINDOW_NS, Window, watermarks};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn the_high_watermark_is_what_is_served_in_ten_milliseconds() {
    for (frames, busy_ns, high) in [
        (100_000, SECOND, 1_000),
        (20_000, SECOND / 2, 400),
        (1_000, SECOND, 64),         // a burst
        (10_000_000, SECOND, 3_072), // three quarters of the ring
        (1, 0, 3_072),
        (0, 0, 64),
        (u64::MAX, u64::MAX, 3_072),
    ] {
        let marks = watermarks(frames, busy_ns, 64, 4_096);
        assert_eq!((marks.low(), marks.high()), (high / 4, high), "{frames} in {busy_ns}");
    }
}

#[test]
fn choices_read_as_they_are_written() {
    for text in ["auto", "off", "64-256", "0-0"] {
        assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
    }
    for text in ["", "on", "256-64", "64", "-5-7", "1-99999999999"] {
        let error = text.parse::<Choice>().unwrap_err().to_string();
        assert!(error.contains("auto, off, or LOW-HIGH"), "{error}");
    }
}

#[test]
fn a_window_ends_with_the_first_burst_after_its_time() {
    let mut meter = Meter::new(0);
    assert_eq!(meter.on_burst(WINDOW_NS, 64, 700), None, "one window shows too little");
    assert_eq!(meter.on_burst(2 * WINDOW_NS, 64, 600), None);
    assert_eq!(meter.on_burst(2 * WINDOW_NS + 1, 64, 500), None);
    meter.slept(WINDOW_NS / 2);
    meter.was_delayed(WINDOW_NS / 4);
    let window = meter.on_burst(3 * WINDOW_NS, 6, 0).unwrap();
    let idle_ns = WINDOW_NS / 4;
    assert_eq!(
        window,
        Window {
            shortest: 500,
            longest: 700,
            frames: 70,
            busy_ns: WINDOW_NS - idle_ns,
            idle_ns,
            least_idle_permille: 0
        }
    );
    assert_eq!(window.idle_permille(), 250);
    assert_eq!(meter.on_burst(3 * WINDOW_NS + 1, 1, 9), None, "the next one has begun");
    let window = meter.on_burst(4 * WINDOW_NS, 1, 8).unwrap();
    assert_eq!((window.shortest, window.longest), (9, 600), "the oldest is past");
    meter.clear();
    assert_eq!(meter.on_burst(5 * WINDOW_NS, 1, 1_000), None, "the past does not count twice");
}

fn window(shortest: u32, longest: u32, least_idle_permille: u16) -> Window {
    Window { shortest, longest, frames: 0, busy_ns: 0, idle_ns: 0, least_idle_permille }
}

#[test]
fn an_engine_that_sleeps_for_half_of_each_window_has_room_unless_its_queue_stands() {
    let marks = Watermarks::new(16, 64).unwrap();
    let queued = |shortest, idle| window(shortest, 900, idle).queued(marks);
    assert_eq!((queued(64, ROOMY_PERMILLE), queued(64, ROOMY_PERMILLE - 1)), (0, 64));
    assert_eq!(queued(65, 1000), 65);
    // Each window is a quarter, a half and three quarters of sleep in turn.
    let mut meter = Meter::new(0);
    let mut least = Vec::new();
    for (at, quarters) in (1..).zip([1, 2, 3, 2, 2, 1]) {
        meter.slept(WINDOW_NS / 4 * quarters);
        least.extend(meter.on_burst(at * WINDOW_NS, 1, 100).map(|window| window.least_idle_permille));
    }
    assert_eq!(least, [250, 500, 500, 250]);
}

#[test]
fn only_a_queue_that_stands_is_too_long_and_only_one_that_never_grew_is_short() {
    let marks = Watermarks::new(16, 64).unwrap();
    let queued = |shortest, longest| window(shortest, longest, 0).queued(marks);
    assert_eq!(queued(65, 900), 65, "it stands above the high watermark");
    assert_eq!(queued(0, 900), 64, "it was long, then served: no reason to move anything");
    assert_eq!(queued(0, 40), 40);
    assert_eq!(queued(0, 15), 15, "there is room");
}

proptest! {
    #[test]
    fn watermarks_are_within_burst_and_ring(frames: u64, busy: u64, burst in 1u32..256, ring: u32) {
        let marks = watermarks(frames, busy, burst, ring);
        prop_assert!(marks.high() >= burst && marks.high() <= ring.max(burst));
        prop_assert!(marks.low() <= marks.high() / 4);
    }

    #[test]
    fn a_queue_is_between_the_shortest_and_the_longest(a: u32, b: u32, low in 0u32..100, span in 0u32..1_000) {
        let window = window(a.min(b), a.max(b), 0);
        let queued = window.queued(Watermarks::new(low, low + span).unwrap());
        prop_assert!((window.shortest..=window.longest).contains(&queued));
    }
}
