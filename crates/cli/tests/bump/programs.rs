//! curl, nginx and iperf3 through a bump: data arrives intact, no connection is reset, and nothing
//! is left behind.

use crate::faults::Faults;
use crate::world::{Bump, HOST, HOST6, SENDER, SENDER6, World, bytes, curl, digest_of, nginx};
use baton_testkit::{Running, need_program, need_root, wait_for};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// Faults, each out of a thousand frames.
const BAD: Faults = Faults { lost: 5, repeated: 5, late: 10 };
/// Size of the largest file in bytes. Larger totals take several downloads.
const FILE: u64 = 64 << 20;

/// Downloads `bytes` in total, alternately from sender to host and back and over both IP versions,
/// through a bump with these options, if any.
fn downloads(faults: Faults, options: Option<&str>) {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    let world = World::new(faults);
    let before = world.state();
    let size = FILE.min(bytes() / 4);
    let (path, expected) = world.file("file", size);
    let homes = [world.home.path().join("a"), world.home.path().join("b")];
    homes.iter().for_each(|home| fs::create_dir(home).unwrap());
    let _servers = [
        nginx(&world.sender, &homes[0], path.parent().unwrap()),
        nginx(&world.host, &homes[1], path.parent().unwrap()),
    ];
    let mut bump = options.map(|options| Bump::start(&world.host, options));
    let ways = [
        (&world.host, SENDER.to_owned()),
        (&world.sender, HOST.to_owned()),
        (&world.host, format!("[{SENDER6}]")),
        (&world.sender, format!("[{HOST6}]")),
    ];
    let got = world.home.path().join("got");
    let mut used = None;
    for _ in 0..(bytes() / 4 / size).max(1) {
        for (from, address) in &ways {
            curl(from, &format!("http://{address}/file"), &got);
            assert_eq!(digest_of(&got), expected, "{address}");
        }
        used = used.or_else(|| bump.as_mut().map(Bump::uses));
    }
    // A segment that this wire duplicates or delays may arrive after its connection has closed.
    // Any kernel answers such a segment with a reset.
    let [sent, ended] = world.resets();
    println!("resets: {sent} sent, {ended} of connections that were open");
    assert_eq!(ended, 0, "connections that a reset ended");
    let (Some(mut bump), Some((descriptors, memory))) = (bump, used) else { return };
    let (descriptors_now, memory_now) = bump.uses();
    assert_eq!(descriptors_now, descriptors, "descriptors");
    assert!(memory_now < memory + 4096, "{memory} KiB after the first turn, {memory_now} KiB after the last");
    let report = bump.end();
    assert!(report["wire_in_bytes"].as_u64().unwrap() > bytes() / 2, "all of it came through the bump: {report}");
    assert_eq!(world.state(), before, "what was there before is there again");
    assert!(!world.devices().iter().any(|device| device.starts_with("bump")), "{:?}", world.devices());
}

#[test]
fn files_arrive_whole_over_a_bad_wire() {
    downloads(BAD, Some(""));
}

#[test]
fn files_arrive_whole_over_the_same_wire_without_a_bump() {
    downloads(BAD, None);
}

#[test]
fn files_arrive_whole_with_the_rules_of_rsc_and_stretch_acks() {
    downloads(BAD, Some("--profile rsc --ack-offload off"));
}

#[test]
fn files_arrive_whole_over_a_good_wire() {
    downloads(Faults::NONE, Some("--limit 44"));
}

#[test]
fn frames_that_were_never_cut_pass_whole() {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    let world = World::new(Faults::NONE);
    for netns in [&world.sender, &world.host] {
        netns.run("ethtool -K wire tso on gso on");
    }
    let (path, expected) = world.file("file", FILE.min(bytes() / 4));
    let _server = nginx(&world.sender, world.home.path(), path.parent().unwrap());
    let bump = Bump::start(&world.host, "");
    let got = world.home.path().join("got");
    curl(&world.host, &format!("http://{SENDER}/file"), &got);
    assert_eq!(digest_of(&got), expected);
    assert!(bump.end()["wire_in_super"].as_u64().unwrap() > 0);
}

#[test]
fn iperf3_runs_both_ways_with_several_connections() {
    need_root!();
    need_program!("iperf3");
    let world = World::new(BAD);
    let bump = Bump::start(&world.host, "");
    for (address, way) in [(HOST, ""), (HOST, "-R"), (HOST6, ""), (HOST6, "-R")] {
        let mut server = world.host.command("iperf3");
        let _server = Running::start(server.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for("iperf3", || world.host.run("ss -ltn").contains(":5201 "));
        let amount = bytes() / 4;
        // With the kernel's default buffers the whole transfer could be inside them at the check.
        let said = world.sender.run(&format!("iperf3 -c {address} -n {amount} -P 4 -w 128K -J {way}"));
        let outcome: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(outcome["error"].is_null(), "{outcome}");
        let received = outcome["end"]["sum_received"]["bytes"].as_u64().unwrap();
        // The last bytes may still be in flight at the check.
        assert!(received > amount / 2, "{received} of {amount}");
    }
    let report = bump.end();
    assert!(report["eliminated"].as_u64().unwrap() > 0, "{report}");
}

/// A transfer that continues while a bump starts and ends.
fn transfer_goes_on(end: impl FnOnce(Bump)) {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    let world = World::new(Faults::NONE);
    let before = world.state();
    let (path, expected) = world.file("file", 24 << 20);
    let _server = nginx(&world.sender, world.home.path(), path.parent().unwrap());
    let got = world.home.path().join("got");
    let mut command = world.host.command("curl");
    command.args(["--silent", "--limit-rate", "8M", "--output"]).arg(&got).arg(format!("http://{SENDER}/file"));
    let mut client = Running::start(&mut command);
    let arrived = || fs::metadata(&got).map_or(0, |file| file.len());
    wait_for("the first bytes", || arrived() > 0);
    let bump = Bump::start(&world.host, "");
    let then = arrived();
    wait_for("bytes through the bump", || arrived() > then + (2 << 20));
    end(bump);
    assert!(!world.devices().iter().any(|device| device.starts_with("bump")), "{:?}", world.devices());
    assert_eq!(world.state(), before);
    assert!(client.child().wait().unwrap().success());
    assert_eq!(digest_of(&got), expected);
    assert_eq!(world.resets(), [0, 0]);
}

#[test]
fn a_connection_lives_through_start_and_end_of_a_bump() {
    transfer_goes_on(|bump| {
        let report = bump.end();
        assert!(report["host_in"].as_u64().unwrap() > 0, "{report}");
    });
}

#[test]
fn a_connection_lives_through_the_death_of_a_bump() {
    transfer_goes_on(|mut bump| {
        bump.running.signal(Signal::KILL);
        bump.running.child().wait().unwrap();
        // The kernel removes a device some time after its descriptor is closed.
        std::thread::sleep(Duration::from_millis(200));
    });
}
