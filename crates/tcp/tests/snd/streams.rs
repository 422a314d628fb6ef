//! Streams across the model network: they complete, and as fast as they should.

use crate::net::{CLEAN, Path, World};
use baton_tcp::config::{Config, Congestion};
use baton_tcp::time::Duration;

fn configs() -> impl Iterator<Item = (Config, bool, bool)> {
    let mut all = Vec::new();
    for congestion in [Congestion::Reno, Congestion::Cubic] {
        for sack in [false, true] {
            for timestamps in [false, true] {
                all.push((Config { congestion, ..Config::default() }, sack, timestamps));
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
