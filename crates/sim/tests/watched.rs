//! Watched connections do exactly what they do when nobody watches, whatever happens to them.

use baton_latency::{Layer, WatchMemory};
use baton_sim::swarm;
use baton_sim::world::{Summary, World, WorldConfig};
use std::sync::Arc;

fn run(config: WorldConfig) -> Summary {
    World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("{violation}"))
}

/// Runs a world twice, the second time with both hosts watched. Returns how many messages of the second run
/// were recorded, or missed.
fn both_alike(make: fn(u64) -> WorldConfig, seed: u64) -> u64 {
    let unseen = run(make(seed));
    let memories = [WatchMemory::heap(), WatchMemory::heap()];
    let mut config = make(seed);
    for (host, memory) in config.hosts.iter_mut().zip(&memories) {
        host.watch = Some(Arc::clone(memory));
    }
    let seen = run(config);
    assert_eq!(seen.digest, unseen.digest, "seed {seed}: a frame differs once its connection is watched");
    memories.iter().map(|memory| memory.all().layer(Layer::Stack).count + memory.missed()).sum()
}

#[test]
fn frames_are_the_same_whether_anybody_watches_or_not() {
    let messages: u64 = (1..60).map(|seed| both_alike(swarm::world, seed)).sum();
    assert!(messages > 1000, "{messages} messages");
}

#[test]
fn moves_and_deaths_of_engines_are_the_same_whether_anybody_watches_or_not() {
    let messages: u64 = (1..60).map(|seed| both_alike(swarm::moving_world, seed)).sum();
    assert!(messages > 1000, "{messages} messages");
}
