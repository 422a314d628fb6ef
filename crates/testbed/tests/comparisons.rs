//! Directions that CH states, on runs shorter than the paper's; rows; and that a seed replays a run.

use baton_testbed::ch::metric::Metric;
use baton_testbed::ch::runs::{Runs, configuration};
use baton_testbed::ch::statements::Statement;
use baton_testbed::ch::{IDS, experiments};
use baton_testbed::measure::Measured;
use baton_testbed::world::{Config, run};

fn short() -> Config {
    Config { warm_up: 150_000, measured: 200_000, ..Config::baseline() }
}

fn measure(shorthand: &str) -> Measured {
    let (config, mut selection) = configuration(shorthand, &short()).expect("a configuration");
    run(&config, selection.as_mut())
}

#[test]
fn naive_offload_loses_and_host_first_gains() {
    let base = short();
    let mut ignore = |_: &str| ();
    let mut runs = Runs::new(&base, &mut ignore);
    for letter in ["W", "I"] {
        let [none, naive, first] = ["0-N-N", "1024-N-N", "1024-P-N"].map(|rest| format!("{letter}-{rest}-FCFS-400"));
        // In so short a run I loses nothing yet.
        let gain = runs.gain(&naive, &none, Metric::RequestRate);
        assert!(letter != "W" || gain.is_some_and(|gain| gain < -2.0), "{naive}: {gain:?}");
        let gain = runs.gain(&first, &none, Metric::RequestRate);
        assert!(gain.is_some_and(|gain| gain > 12.0), "{first}: {gain:?}");
        let delays = [&none, &naive, &first].map(|name| runs.value(name, Metric::MeanDelay).expect("a run"));
        assert!(delays[0] < 10.0 && delays[1] > 300.0 && delays[2] < 20.0, "{letter}: {delays:?}");
        assert!(runs.value(&naive, Metric::HostIdle).is_some_and(|idle| idle > 10.0), "{naive}");
    }
}

#[test]
fn too_many_connections_lose_though_host_packets_go_first() {
    let (none, all) = (measure("W-0-N-N-FCFS-400"), measure("W-4096-P-N-FCFS-400"));
    assert!(all.request_rate() < 0.86 * none.request_rate());
    assert!(all.host_idle() > 20.0);
}

/// CH §5.2.
#[test]
fn a_threshold_brings_more_packets_than_first_come_and_the_oracle_more_than_that() {
    let share = |name| measure(name).nic_packet_share();
    let first = share("W-256-P-L-FCFS-400");
    let (threshold, oracle) = (share("W-256-P-L-T20-400"), share("W-256-P-L-oracle-400"));
    assert!(first < threshold && threshold < oracle, "{first} {threshold} {oracle}");
}

#[test]
fn predict_brings_no_fewer_packets_than_first_come_and_gives_places_away() {
    for places in ["W-204", "D-204", "S-409"] {
        let first = measure(&format!("{places}-P-L-FCFS-400"));
        let predict = measure(&format!("{places}-P-L-predict-400"));
        assert!(predict.nic_packet_share() > first.nic_packet_share(), "{places}");
        assert!(predict.restored > 0 && first.restored == 0, "{places}");
    }
}

/// Where clients ask at once, only responses tell connections apart; where they hold a rate, responses come in
/// bursts. Runs of full length gave 41, 65 and 61 %.
#[test]
fn responses_bring_several_times_the_packets_of_first_come_and_more_requests() {
    for (places, least) in [("W-204", 35.0), ("D-204", 55.0), ("S-409", 50.0)] {
        let [first, responses] = ["FCFS", "responses"].map(|by| measure(&format!("{places}-P-L-{by}-400")));
        let share = responses.nic_packet_share();
        assert!(share > least && share > 2.0 * first.nic_packet_share(), "{places}: {share}");
        assert!(responses.request_rate() > 1.05 * first.request_rate(), "{places}");
    }
}

/// CH §5.1 and §5.3: 12 % at 400 MIPS, and within 5 % of the limit set by hand; W gains 31 % at 800 MIPS.
#[test]
fn load_control_gains_and_more_instructions_gain_more() {
    let base = short();
    let mut ignore = |_: &str| ();
    let mut runs = Runs::new(&base, &mut ignore);
    for letter in ["W", "I", "D", "S"] {
        let [none, slow] = ["0-N-N", "4096-P-L"].map(|rest| format!("{letter}-{rest}-FCFS-400"));
        let gain = runs.gain(&slow, &none, Metric::RequestRate);
        assert!(gain.is_some_and(|gain| gain > 12.0), "{letter}: {gain:?}");
    }
    let fast = runs.gain("W-4096-P-L-FCFS-800", "W-0-N-N-FCFS-400", Metric::RequestRate);
    assert!(fast.is_some_and(|gain| gain > 31.0), "{fast:?}");
    let by_hand = runs.gain("W-4096-P-L-FCFS-400", "W-1024-P-N-FCFS-400", Metric::RequestRate);
    assert!(by_hand.is_some_and(|gain| gain > -5.0), "{by_hand:?}");
}

#[test]
fn a_seed_replays_a_run() {
    for name in ["W-4096-P-L-FCFS-400", "D-204-P-L-predict-400", "W-204-P-L-responses-400"] {
        let (one, two) = (measure(name), measure(name));
        assert_eq!((one.requests, one.span_ns, one.course), (two.requests, two.span_ns, two.course), "{name}");
    }
}

#[test]
fn one_experiment_runs_its_configurations_once_and_gives_their_rows() {
    let mut ran = Vec::new();
    let base = Config { warm_up: 1_000, measured: 2_000, ..Config::baseline() };
    let mut progress = |name: &str| ran.push(name.to_owned());
    let rows = experiments(&mut Runs::new(&base, &mut progress), |id| id == "ch-table-1");
    assert_eq!((ran.len(), rows.len()), (4, 20));
    let printed = rows.iter().filter(|row| row.paper.is_some()).count();
    assert_eq!(printed, 17, "the other three are those that the calibration reads");
    assert!(rows.iter().all(|row| row.id == "ch-table-1" && row.here.is_some()));
    let mut progress = |name: &str| panic!("{name} runs");
    let lifetimes = experiments(&mut Runs::new(&base, &mut progress), |id| id == "ch-figure-4");
    assert_eq!(lifetimes.len(), 8);
    assert!(IDS.iter().all(|id| id.starts_with("ch-")));
}

#[test]
fn a_statement_holds_within_its_bounds_and_nowhere_else() {
    let at = |here| Statement { claim: String::new(), unit: "%", paper: None, here, within: (12.0, f64::INFINITY) };
    assert!(at(12.0).holds() && !at(11.9).holds() && !at(f64::NAN).holds());
}

#[test]
fn a_shorthand_that_is_none_is_refused() {
    let base = Config::baseline();
    for wrong in ["", "W", "X-0-N-N-FCFS-400", "W-0-Q-N-FCFS-400", "W-0-N-N-T0-400", "W-0-N-N-FCFS-0"] {
        assert!(configuration(wrong, &base).is_none(), "{wrong}");
    }
}
