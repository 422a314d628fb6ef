//! Programs that lend their engine a buffer for a connection's next bytes (posted receives, LC §3.3.1).

use baton_sim::plain::{exchange, world};
use baton_sim::swarm;
use baton_sim::world::{Summary, World, WorldConfig};
use baton_tcp::time::Duration;

fn run(mut config: WorldConfig) -> Summary {
    config.hosts.iter_mut().for_each(|host| host.lends = true);
    let seed = config.seed;
    World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

#[test]
fn nearly_all_bytes_of_a_program_that_waits_arrive_in_its_buffer() {
    let bytes = 1_000_000;
    let summary = run(world(vec![exchange(Duration::ZERO, bytes, 0)]));
    assert_eq!(summary.bytes, bytes);
    assert!(summary.lent > bytes / 2, "{summary:?}");
}

/// Every byte once and in order, whatever is lost, repeated, late, damaged or forged.
#[test]
fn every_byte_arrives_once_in_the_buffer_or_in_the_ring() {
    let (mut lent, mut bytes) = (0, 0);
    for seed in 1..=150 {
        let summary = run(swarm::world(seed));
        (lent, bytes) = (lent + summary.lent, bytes + summary.bytes);
    }
    assert!(lent > bytes / 20 && lent < bytes, "{lent} of {bytes}");
}

#[test]
fn connections_move_while_their_programs_lend_buffers() {
    let (mut lent, mut moved, mut survived) = (0, 0, 0);
    for seed in 1..=100 {
        let summary = run(swarm::moving_world(seed));
        (lent, moved, survived) = (lent + summary.lent, moved + summary.moved, survived + summary.survived);
    }
    assert!(lent > 0 && moved > 1000 && survived > 0, "{lent} bytes, {moved} moves, {survived} survived");
}
