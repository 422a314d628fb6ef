//! Worlds in which hosts want to go without checksums: every fault, moves, and damage that passes for a
//! segment without.

use baton_sim::chance::Ppm;
use baton_sim::config::WorldConfig;
use baton_sim::plain::{exchange, world};
use baton_sim::swarm;
use baton_sim::unsummed::without_checksums;
use baton_sim::world::{Summary, World};
use baton_tcp::time::Duration;

fn run(config: WorldConfig) -> Summary {
    let seed = config.seed;
    World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

fn agrees(config: &WorldConfig) -> bool {
    config.hosts.iter().all(|host| host.engine.tcp.unsummed)
}

/// The world checks every byte that a program reads.
#[test]
fn nothing_wrong_is_read_where_one_host_wants_checksums() {
    let worlds = (0..150).map(|seed| without_checksums(swarm::world(seed))).filter(|config| !agrees(config));
    let damaged: u64 = worlds.map(|config| run(config).links.unsummed).sum();
    assert!(damaged > 100, "{damaged}");
}

#[test]
fn two_hosts_without_checksums_get_everything_through_loss_and_disorder() {
    let worlds = (0..150).map(|seed| without_checksums(swarm::world(seed))).filter(agrees);
    let bytes: u64 = worlds.map(|config| run(config).bytes).sum();
    assert!(bytes > 1_000_000, "{bytes}");
}

/// An engine that takes a connection over has checksums, as the kernel has; the peer finds out.
#[test]
fn connections_without_checksums_survive_moves_and_the_deaths_of_engines() {
    let worlds = (0..150).map(|seed| without_checksums(swarm::moving_world(seed))).filter(agrees);
    let (moved, survived) =
        worlds.map(run).fold((0, 0), |(moved, survived), summary| (moved + summary.moved, survived + summary.survived));
    assert!(moved > 20 && survived > 0, "{moved} moves, {survived} deaths");
}

/// That marked segments are taken as they are, and that the world would notice.
#[test]
fn an_unsound_link_is_seen_where_both_hosts_trust_it() {
    let mut config = world(vec![exchange(Duration::ZERO, 300_000, 300_000)]);
    config.links.iter_mut().for_each(|link| link.unsummed = Ppm(100_000));
    run(config.clone());
    config.hosts.iter_mut().for_each(|host| host.engine.tcp.unsummed = true);
    let violation = World::new(config).and_then(World::run).expect_err("bytes are wrong");
    assert!(violation.to_string().contains("byte"), "{violation}");
}
