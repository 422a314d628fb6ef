//! Many connections at once on one engine.

use crate::wire::{BATON, HOST, Ip, Kind, Serve, Wire, counter};
use baton_apps::load::Outcome;
use baton_testkit::need_root;

const CONNECTIONS: usize = 10_000;

/// The kernel's clients and Baton's server over a TAP device. All connections are open at once,
/// and each repeatedly sends 64 bytes and receives them back.
#[test]
fn ten_thousand_connections_at_once_each_have_their_answers() {
    need_root!();
    let wire = Wire::new(Kind::TapVnet, 1500);
    wire.far.run(&format!("ip link set {} txqueuelen 10000", crate::wire::DEVICE));
    let mut serve = Serve::with(wire.baton("serve", None).args(["--connections", &CONNECTIONS.to_string()]));
    let line = format!(
        "ulimit -n 20000 && exec {BATON} load echo {}:7 --connections {CONNECTIONS} --size 64 --seconds 2 --verify",
        Ip::V4.addr(HOST)
    );
    let output = wire.far.command("bash").args(["-c", &line]).output().unwrap();
    let stats = serve.stats();
    assert!(output.status.success(), "{}{stats:#}", String::from_utf8_lossy(&output.stderr));
    let outcome: Outcome = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome.connections, CONNECTIONS);
    // No connection was closed and opened again.
    assert_eq!((stats["accepted"].as_u64(), stats["refused"].as_u64()), (Some(CONNECTIONS as u64), Some(0)));
    assert_eq!(counter(&stats, "streamer.no_queue_pair"), 0);
    println!("{CONNECTIONS} connections, {} requests in {:.1} s", outcome.requests, outcome.seconds);
}
