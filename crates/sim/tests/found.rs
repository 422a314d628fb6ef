//! Bugs that the simulator found, each as the smallest world that shows it.

use baton_sim::chance::Ppm;
use baton_sim::host::HostConfig;
use baton_sim::link::LinkConfig;
use baton_sim::path::PathMtu;
use baton_sim::plain::{exchange, script, world};
use baton_sim::script::{Act, Dialogue};
use baton_sim::swarm;
use baton_sim::world::{Summary, World, WorldConfig};
use baton_tcp::time::Duration;

fn run(config: WorldConfig) -> Summary {
    World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("{violation}"))
}

/// The same world with both hosts changed.
fn with_hosts(mut config: WorldConfig, change: impl Fn(&mut HostConfig)) -> WorldConfig {
    config.hosts.iter_mut().for_each(change);
    config
}

fn set_mtu(host: &mut HostConfig, mtu: u16) {
    host.engine.interface.mtu = mtu;
    host.port.capabilities.mtu = mtu;
}

const NOW: Duration = Duration::ZERO;

#[test]
fn a_calm_world_moves_bytes_and_comes_to_rest() {
    let summary = run(world(vec![exchange(NOW, 1_000_000, 500_000)]));
    assert_eq!((summary.bytes, summary.retransmitted), (1_500_000, 0));
    assert!(summary.took < Duration::from_millis(100), "{:?}", summary.took);
}

#[test]
fn a_seed_replays_to_the_bit() {
    for seed in 1..20 {
        let (one, two) = (run(swarm::world(seed)), run(swarm::world(seed)));
        assert_eq!(one, two, "seed {seed}");
        assert_ne!(one.digest, run(swarm::world(seed + 1)).digest);
    }
}

#[test]
fn a_fin_is_sent_once() {
    let summary = run(world(vec![exchange(NOW, 10, 10)]));
    assert!(summary.links.sent < 30, "{} frames", summary.links.sent);
}

#[test]
fn data_waits_for_a_program_that_is_slow_to_accept() {
    // Parked until the program posts buffers; the sequence numbers of half of all
    // streams lie below 2^31, so several tuples are tried.
    let dialogues = (0..20).map(|i| exchange(Duration::from_millis(i), 5_000, 100)).collect();
    run(with_hosts(world(dialogues), |host| host.program = Duration::from_millis(3)));
}

#[test]
fn a_buffer_smaller_than_a_segment_keeps_its_window_open() {
    for (buffer, pieces) in [(3_000, 1 << 20), (3_000, 500), (65_536, 500)] {
        let mut dialogue = exchange(NOW, 100_000, 100_000);
        dialogue.client.piece = pieces;
        dialogue.server.piece = pieces;
        run(with_hosts(world(vec![dialogue]), |host| {
            set_mtu(host, 9000);
            host.buffers = (buffer, buffer);
            host.queue_depth = 2;
        }));
    }
}

#[test]
fn a_syn_that_arrives_twice_in_a_burst_opens_one_connection() {
    let mut config = world((0..10).map(|_| exchange(NOW, 100, 100)).collect());
    config.links = [LinkConfig { doubled: Ppm(1_000_000), ..LinkConfig::default() }; 2];
    let summary = run(with_hosts(config, |host| host.wake = Duration::from_millis(2)));
    assert_eq!(summary.accepted, 10);
}

#[test]
fn data_right_behind_a_cookie_is_taken() {
    let mut config = world((0..40).map(|_| exchange(NOW, 1_000, 1_000)).collect());
    config.listen.1 = 1;
    let summary = run(with_hosts(config, |host| host.wake = Duration::from_millis(2)));
    assert_eq!(summary.accepted, 40);
}

#[test]
fn what_a_cork_holds_back_leaves_before_long_and_is_not_more_than_there_is() {
    let mut acts = vec![Act::Cork(true)];
    acts.extend((0..40).map(|_| Act::Send(300)));
    acts.push(Act::Shutdown);
    let dialogue = Dialogue { client: script(acts), ..exchange(NOW, 0, 0) };
    // The queues hold fewer extents than there are writes.
    let summary = run(with_hosts(world(vec![dialogue]), |host| host.queue_depth = 2));
    assert_eq!(summary.bytes, 40 * 300);
}

#[test]
fn a_black_hole_swallows_a_last_segment_shorter_than_a_full_one() {
    for (mtu, length) in [(908, 1_021), (832, 1_021), (1_400, 100_000)] {
        let mut config = with_hosts(world(vec![exchange(NOW, 10, length)]), |host| set_mtu(host, 4_000));
        config.path_mtu = Some(PathMtu { mtu, tells: false, delay: Duration::ZERO });
        run(config);
    }
}

#[test]
fn a_narrow_path_that_tells_costs_one_flight() {
    let mut config = world(vec![exchange(NOW, 1_000_000, 10)]);
    config.path_mtu = Some(PathMtu { mtu: 1_000, tells: true, delay: Duration::from_micros(100) });
    let summary = run(config);
    assert!(summary.took < Duration::from_secs(1), "{:?}", summary.took);
}

#[test]
fn opens_that_cross_make_one_connection() {
    let mut dialogue = exchange(Duration::from_millis(100), 100_000, 100_000);
    (dialogue.from_port, dialogue.port, dialogue.crossed) = (4_000, 5_000, true);
    let mut config = world(vec![dialogue]);
    config.links = [LinkConfig { delay: Duration::from_millis(20), ..LinkConfig::default() }; 2];
    run(config);
}

/// Dialogues whose ends ask for their buffers back after each that they post.
fn unposting(count: u64, bytes: u64, piece: u32) -> Vec<Dialogue> {
    let dialogue = |i| {
        let mut dialogue = exchange(Duration::from_millis(i), bytes, bytes);
        for script in [&mut dialogue.client, &mut dialogue.server] {
            (script.unposts, script.piece) = (1, piece);
        }
        dialogue
    };
    (0..count).map(dialogue).collect()
}

#[test]
fn a_buffer_is_not_taken_back_while_the_peer_sees_a_closed_window() {
    // It would send nothing that asks for another.
    for (mtu, piece) in [(1_500, 500), (1_500, 2_000), (9_000, 500), (9_000, 3_000)] {
        let mut config = with_hosts(world(unposting(20, 20_000, piece)), |host| {
            set_mtu(host, mtu);
            host.queue_depth = 2;
            host.wake = Duration::from_micros(200);
            host.buffers = (65_536, 4_000);
            host.engine.tcp.unposted_window = 2_000;
        });
        config.safety = Duration::from_secs(1000);
        assert_eq!(run(config).bytes, 20 * 40_000);
    }
}

#[test]
fn a_buffer_is_not_taken_back_while_the_data_of_a_cookie_waits_for_it() {
    // Seldom are the halves as far apart as it takes: these worlds are out of a few thousand.
    for seed in [557, 608, 1272] {
        run(swarm::world(seed));
    }
}

#[test]
fn a_handful_of_swarms() {
    for seed in 1..=100 {
        let config = swarm::world(seed);
        World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}
