//! Connections that move between two engines of a host while they run.

use baton_sim::chance::Ppm;
use baton_sim::host::Moves;
use baton_sim::link::{LinkConfig, Loss};
use baton_sim::plain::{exchange, script, world};
use baton_sim::script::{Act, Dialogue};
use baton_sim::swarm;
use baton_sim::world::{Summary, World, WorldConfig};
use baton_tcp::time::Duration;

const NOW: Duration = Duration::ZERO;

fn run(config: WorldConfig) -> Summary {
    let what = format!("{:?}", config.hosts.each_ref().map(|host| host.moves));
    World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("{what}: {violation}"))
}

/// Every connection of host `i` begins to move in turn `at`.
fn moving_at(mut config: WorldConfig, i: usize, at: u64, two_threads: bool) -> WorldConfig {
    config.hosts[i].moves = Some(Moves { often: Ppm::NEVER, at_turn: Some(at), fails: Ppm::NEVER, dies: Ppm::NEVER });
    config.hosts[i].two_threads = two_threads;
    config
}

fn often(mut config: WorldConfig, often: u32, fails: u32) -> WorldConfig {
    for host in &mut config.hosts {
        host.moves = Some(Moves { often: Ppm(often), at_turn: None, fails: Ppm(fails), dies: Ppm::NEVER });
    }
    config
}

/// Both ends talk, wait for each other, and close one after the other.
fn short() -> Dialogue {
    let client = vec![Act::Send(3_000), Act::Await(5_000), Act::Send(2_000), Act::Shutdown];
    let server = vec![
        Act::Await(3_000),
        Act::Send(5_000),
        Act::Await(5_000),
        Act::Sleep(Duration::from_millis(5)),
        Act::Send(1_000),
        Act::Shutdown,
    ];
    Dialogue { client: script(client), server: script(server), ..exchange(NOW, 0, 0) }
}

#[test]
fn a_short_connection_moves_at_every_turn_of_its_life() {
    let mut moved = 0;
    for two_threads in [false, true] {
        for host in 0..2 {
            for at in 1..80 {
                moved += run(moving_at(world(vec![short()]), host, at, two_threads)).moved;
            }
        }
    }
    assert!(moved > 60, "{moved}");
}

#[test]
fn one_connection_moves_hundreds_of_times_to_and_fro() {
    let summary = run(often(world(vec![exchange(NOW, 20_000_000, 15_000_000)]), 50_000, 0));
    assert_eq!(summary.bytes, 35_000_000);
    assert!(summary.moved > 200, "{}", summary.moved);
}

#[test]
fn a_lossy_connection_moves_and_some_moves_fail() {
    let mut config = often(world(vec![exchange(NOW, 3_000_000, 3_000_000)]), 30_000, 300_000);
    config.links = [LinkConfig { loss: Loss::Random(Ppm(10_000)), ..LinkConfig::default() }; 2];
    config.safety = Duration::from_secs(60);
    let summary = run(config);
    assert!(summary.moved > 50 && summary.retransmitted > 0, "{summary:?}");
}

#[test]
fn a_move_costs_an_idle_connection_no_frame() {
    let pause = Act::Sleep(Duration::from_millis(50));
    let quiet = |often_ppm| {
        let client = vec![Act::Send(100), Act::Await(100), pause, Act::Send(100), Act::Shutdown];
        let server = vec![Act::Await(100), Act::Send(100), Act::Await(200), Act::Shutdown];
        let dialogue = Dialogue { client: script(client), server: script(server), ..exchange(NOW, 0, 0) };
        run(often(world(vec![dialogue]), often_ppm, 0))
    };
    let (still, moving) = (quiet(0), quiet(1_000_000));
    assert!(moving.moved > 0);
    // Its acknowledgments may be owed when it moves; the second engine looks for
    // the neighbour.
    assert!(moving.links.sent <= still.links.sent + 8, "{} and {}", moving.links.sent, still.links.sent);
}

#[test]
fn connections_go_on_after_their_engine_s_death() {
    let mut survived = 0;
    for seed in 0..20 {
        for two_threads in [false, true] {
            let mut config = often(world(vec![exchange(NOW, 2_000_000, 2_000_000), short()]), 50_000, 0);
            config.seed = seed;
            for host in &mut config.hosts {
                host.two_threads = two_threads;
                host.moves = host.moves.map(|moves| Moves { dies: Ppm(50_000), ..moves });
            }
            survived += run(config).survived;
        }
    }
    assert!(survived > 200, "{survived}");
}

/// The client closes at once and reads on for a while, in FIN-WAIT-2.
fn half_closed() -> Dialogue {
    let pause = Duration::from_millis(1);
    let mut server = vec![Act::Await(100)];
    server.extend((0..40).flat_map(|_| [Act::Send(100), Act::Sleep(pause)]));
    server.push(Act::Shutdown);
    let client = vec![Act::Send(100), Act::Shutdown];
    Dialogue { client: script(client), server: script(server), ..exchange(NOW, 0, 0) }
}

#[test]
fn a_fin_that_was_acknowledged_before_the_move_is_not_sent_again_after_the_engine_s_death() {
    let mut survived = 0;
    for seed in 0..40 {
        let mut config = world(vec![half_closed()]);
        config.seed = seed;
        config.hosts[0].moves =
            Some(Moves { often: Ppm(200_000), at_turn: None, fails: Ppm::NEVER, dies: Ppm(50_000) });
        survived += run(config).survived;
    }
    assert!(survived > 20, "{survived}");
}

#[test]
fn a_handful_of_moving_swarms() {
    let mut moved = 0;
    for seed in 1..=100 {
        let world = World::new(swarm::moving_world(seed)).and_then(World::run);
        moved += world.unwrap_or_else(|violation| panic!("seed {seed}: {violation}")).moved;
    }
    assert!(moved > 1_000, "{moved}");
}
