//! Segments handled in runs, compared with segments handled one by one.

use baton_sim::plain::{exchange, script, world};
use baton_sim::script::{Act, Dialogue};
use baton_sim::swarm;
use baton_sim::world::{Summary, World, WorldConfig};
use baton_tcp::config::Acks;
use baton_tcp::time::Duration;

fn run(config: WorldConfig) -> Summary {
    let seed = config.seed;
    World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

fn coalescing(mut config: WorldConfig, limit: u16, acks: Acks) -> WorldConfig {
    for host in &mut config.hosts {
        (host.engine.coalesce, host.engine.tcp.acks) = (limit, acks);
    }
    config
}

/// The hosts and links of a seed's swarm, and a single connection, so that nothing but
/// that connection's own frames has an order.
fn swarm_of_one(seed: u64) -> WorldConfig {
    let plain = world(vec![exchange(Duration::ZERO, 40_000 + seed * 1_000 % 400_000, seed * 7_777 % 300_000)]);
    let mut config = swarm::world(seed);
    let qps = config.hosts[0].qps.max(plain.hosts[0].qps);
    (config.dialogues, config.listen) = (plain.dialogues, plain.listen);
    for host in &mut config.hosts {
        // Without runs there are turns more, of timers that were armed between two
        // segments; so no turn may depend on the dice. Nor are threads in step.
        (host.wake, host.program, host.two_threads) = (Duration::ZERO, Duration::ZERO, false);
        host.qps = qps;
        host.port.join &= seed.is_multiple_of(4);
    }
    if !seed.is_multiple_of(4) {
        // Frames sent at once arrive at once.
        config.links.iter_mut().for_each(|link| link.rate = 0);
    }
    config
}

/// RA §4: what is on the wire, and when, is the same to the bit, whatever is lost, repeated,
/// damaged, held up or forged. Only the work behind it differs. In 440, where the network marks
/// frames (ECN), the area for parked payload was full of what came ahead of its turn, and what
/// was next was refused for ever.
#[test]
fn every_second_segment_acknowledged_is_the_same_on_the_wire_as_no_runs() {
    let mut coalesced = [0; 3];
    for seed in (1..=100).chain([440]) {
        let alone = run(coalescing(swarm_of_one(seed), 0, Acks::EverySecond));
        for (limit, coalesced) in [2, 20, 64].into_iter().zip(&mut coalesced) {
            let runs = run(coalescing(swarm_of_one(seed), limit, Acks::EverySecond));
            *coalesced += runs.coalesced;
            let like = Summary { coalesced: 0, turns: alone.turns, ..runs };
            assert_eq!(like, alone, "seed {seed}, runs of {limit}");
        }
    }
    assert!(coalesced[0] > 1_000 && coalesced[0] < coalesced[2], "{coalesced:?}");
}

/// A stretch ACK for each run, and fewer frames for it.
#[test]
fn an_ack_for_each_run_saves_frames_and_loses_nothing() {
    let config = || {
        let server = script(vec![Act::Await(2_000_000), Act::Shutdown]);
        let mut config = world(vec![Dialogue { server, ..exchange(Duration::ZERO, 2_000_000, 0) }]);
        config.hosts.iter_mut().for_each(|host| host.wake = Duration::from_millis(1));
        config
    };
    let each = run(coalescing(config(), 64, Acks::EverySecond));
    let per_run = run(coalescing(config(), 64, Acks::PerRun));
    assert_eq!((each.bytes, per_run.bytes), (2_000_000, 2_000_000));
    let saved = each.links.sent - per_run.links.sent;
    assert!(saved > 100, "{each:?} {per_run:?}");
}
