//! Directions that CH states, on runs shorter than the paper's, and that a seed replays a run.

use baton_testbed::ch::runs::configuration;
use baton_testbed::measure::{Measured, median_us};
use baton_testbed::world::{Config, run};

fn measure(shorthand: &str) -> Measured {
    let base = Config { warm_up: 150_000, measured: 200_000, ..Config::baseline() };
    let (config, mut selection) = configuration(shorthand, &base).expect("a configuration");
    run(&config, selection.as_mut())
}

#[test]
fn host_first_gains_and_keeps_host_packets_fast() {
    let (none, first) = (measure("W-0-N-N-FCFS-400"), measure("W-1024-P-N-FCFS-400"));
    assert!(first.request_rate() > none.request_rate());
    let fcfs = measure("W-1024-N-N-FCFS-400");
    assert!(median_us(&first.receive_delays) < 13.0);
    assert!(median_us(&fcfs.receive_delays) > 100.0);
}

#[test]
fn too_many_connections_lose_though_host_packets_go_first() {
    let (none, all) = (measure("W-0-N-N-FCFS-400"), measure("W-4096-P-N-FCFS-400"));
    assert!(all.request_rate() < 0.9 * none.request_rate());
    assert!(all.host_idle() > 20.0);
}

/// CH §5.2. An oracle of lives knows no rates, and T20 finds connections in the middle of a large
/// response, so neither has to precede the other.
#[test]
fn a_threshold_and_an_oracle_bring_more_packets_than_first_come() {
    let share = |name| measure(name).nic_packet_share();
    let first = share("W-256-P-L-FCFS-400");
    let (threshold, oracle) = (share("W-256-P-L-T20-400"), share("W-256-P-L-oracle-400"));
    assert!(first < threshold && first < oracle, "{first} {threshold} {oracle}");
}

/// CH §5.1 and §5.3: 12 % at 400 MIPS, 31 % at 800, and within 5 % of the limit set by hand.
#[test]
fn load_control_gains_and_more_instructions_gain_more() {
    let rate = |name| measure(name).request_rate();
    let none = rate("W-0-N-N-FCFS-400");
    let (slow, fast) = (rate("W-4096-P-L-FCFS-400"), rate("W-4096-P-L-FCFS-800"));
    assert!(slow > 1.12 * none && fast > 1.31 * none, "{none} {slow} {fast}");
    assert!(slow > 0.95 * rate("W-1024-P-N-FCFS-400"));
}

#[test]
fn a_seed_replays_a_run() {
    let (one, two) = (measure("W-4096-P-L-FCFS-400"), measure("W-4096-P-L-FCFS-400"));
    assert_eq!((one.requests, one.span_ns, one.course), (two.requests, two.span_ns, two.course));
}

#[test]
fn a_shorthand_that_is_none_is_refused() {
    let base = Config::baseline();
    for wrong in ["", "W", "X-0-N-N-FCFS-400", "W-0-Q-N-FCFS-400", "W-0-N-N-T0-400", "W-0-N-N-FCFS-0"] {
        assert!(configuration(wrong, &base).is_none(), "{wrong}");
    }
}
