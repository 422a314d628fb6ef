//! Streams across the model network: they complete, and as fast as they should.

use crate::net::{CLEAN, Path, World};
use baton_tcp::config::{Config, Congestion};
use baton_tcp::time::Duration;

fn configs() -> impl Iterator<Item = (Config, bool, bool)> {
    let mut all = Vec::new();
    for congestion in [Congestion::Reno, Congestion::Cubic] {
        for sack in [false, true] {
            for timestamps in [false, true] {
                all.push((Config::default().with(|config| config.congestion = congestion), sack, timestamps));
            }
        }
    }
    all.into_iter()
}

#[test]
fn every_variant_completes_on_a_clean_path_without_repeating_anything() {
    for (config, sack, timestamps) in configs() {
        let mut world = World::new(&config, CLEAN, 4 << 20, sack, timestamps, 1);
        let took = world.run(Duration::from_secs(3));
        assert_eq!((world.segments_resent, world.rtos), (0, 0), "{config:?} {sack} {timestamps} {took:?}");
    }
}

#[test]
fn every_variant_completes_whatever_the_path_does() {
    let bad = Path { queue_bytes: 60_000, loss: 20, ack_loss: 20, reorder: 50, duplicate: 20, ..CLEAN };
    for (config, sack, timestamps) in configs() {
        for seed in 1..=20 {
            let mut world = World::new(&config, bad, 1 << 20, sack, timestamps, seed * 7919);
            let took = world.run(Duration::from_secs(120));
            if seed == 1 {
                println!(
                    "{:?} sack {sack} ts {timestamps}: {} ms, {} resent of {}, {} rto, {} tlp, {} undone, {} rec",
                    config.congestion,
                    took.as_millis(),
                    world.segments_resent,
                    world.segments_sent,
                    world.rtos,
                    world.probes,
                    world.undone,
                    world.recoveries
                );
            }
        }
    }
}

#[test]
fn heavy_loss_only_slows_it_down() {
    let awful = Path { loss: 200, ack_loss: 200, reorder: 200, duplicate: 100, ..CLEAN };
    for (config, sack, timestamps) in configs() {
        for seed in 1..=5 {
            let mut world = World::new(&config, awful, 100_000, sack, timestamps, seed * 104_729);
            world.run(Duration::from_secs(3600));
        }
    }
}

#[test]
fn a_bottleneck_is_kept_busy() {
    // 100 Mb/s, 20 ms: a queue of one bandwidth-delay product. 50 MB take 4.2 s.
    let path = Path { queue_bytes: 250_000, ..CLEAN };
    for (config, sack, timestamps) in configs() {
        let mut world = World::new(&config, path, 50_000_000, sack, timestamps, 3);
        let took = world.run(Duration::from_secs(60));
        println!(
            "{:?} sack {sack} ts {timestamps}: {} ms, {} resent, {} rto, {} recoveries",
            config.congestion,
            took.as_millis(),
            world.segments_resent,
            world.rtos,
            world.recoveries
        );
        // Without SACK, NewReno mends the overflow of slow start hole by hole.
        let limit = if sack { 4_700 } else { 15_000 };
        assert!(took < Duration::from_millis(limit), "{config:?} sack {sack}: {} ms", took.as_millis());
        assert_eq!(world.rtos, 0);
    }
}

#[test]
fn one_lost_segment_is_sent_again_once_wherever_it_was() {
    for (config, sack, timestamps) in configs() {
        for lost in [0, 3, 20, 100, 400, 600] {
            let mut world = World::new(&config, CLEAN, 1 << 20, sack, timestamps, 5);
            world.drop_segments.insert(lost);
            world.run(Duration::from_secs(3));
            assert_eq!((world.segments_resent, world.rtos), (1, 0), "{config:?} {sack} {timestamps}, segment {lost}");
        }
    }
}

#[test]
fn a_lost_tail_costs_no_timeout_with_sack() {
    for (config, _, timestamps) in configs().filter(|c| c.1) {
        for tail in 1..=10 {
            let mut world = World::new(&config, CLEAN, 1460 * 40, true, timestamps, 5);
            world.drop_segments.extend(40 - tail..40);
            let took = world.run(Duration::from_secs(3));
            assert_eq!(world.rtos, 0, "{tail} segments");
            assert!(world.probes > 0 && took < Duration::from_millis(600), "{} ms", took.as_millis());
        }
    }
}

#[test]
fn a_delay_spike_does_not_repeat_the_window() {
    for (config, sack, timestamps) in configs() {
        let mut world = World::new(&config, CLEAN, 8 << 20, sack, timestamps, 5);
        let start = world.now.0;
        world.freeze = Some((start + 300_000_000, start + 1_000_000_000));
        world.run(Duration::from_secs(20));
        println!(
            "{:?} sack {sack} ts {timestamps}: {} resent, {} rto, {} tlp, {} undone",
            config.congestion, world.segments_resent, world.rtos, world.probes, world.undone
        );
        assert!(world.undone > 0 && world.segments_resent <= 10, "{} resent", world.segments_resent);
    }
}
