//! A short run of the whole demo, and its clean-up after it is interrupted or killed.

use baton_lab::report::{Report, Side};
use baton_testkit::{build_beside, need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn demo(report: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.args(["demo", "--rounds", "1", "--seconds", "0.3", "--json", "--report"]).arg(report);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Namespaces that the process with this id made.
fn namespaces_of(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("baton-") && name.contains(&format!("-{pid}-"))).collect()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a demo and waits until it has created its namespaces.
fn at_work(report: &std::path::Path) -> Child {
    let child = demo(report).spawn().unwrap();
    until("two namespaces", || namespaces_of(child.id()).len() == 2);
    child
}

#[test]
fn the_demo_measures_every_load_on_every_wire_and_leaves_nothing() {
    need_root!();
    for program in ["ip", "curl", "ethtool", "nginx", "wrk", "clang", "redis-server", "redis-benchmark", "iperf3"] {
        need_program!(program);
    }
    build_beside(env!("CARGO_BIN_EXE_baton").as_ref(), "baton-shim", env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("demo.html");
    let child = demo(&page).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let report: Result<Report, _> = serde_json::from_slice(&output.stdout);
    let wrong = report.iter().flat_map(|report| report.checks.iter().filter(|check| !check.ok)).collect::<Vec<_>>();
    assert!(output.status.success(), "{wrong:?}{}", String::from_utf8_lossy(&output.stderr));
    let report = report.unwrap();
    assert!(report.all_right() && !report.checks.is_empty(), "{:?}", report.checks);
    assert_eq!(report.not_shown, [""; 0]);
    let wires: Vec<&str> = report.wires.iter().map(|wire| wire.id.as_str()).collect();
    assert_eq!(wires, ["veth", "tap", "veth-plain", "tap-plain", "xdp"]);
    assert_eq!(report.cells.len(), report.wires.len() * report.loads.len());
    for cell in &report.cells {
        assert_eq!(cell.runs.len(), 1, "{cell:?}");
        let (run, requests) = (&cell.runs[0], report.loads.iter().any(|load| load.id == cell.load && load.requests));
        assert!(run.bytes > 0 && run.seconds > 0.0, "{cell:?}");
        let baton = report.wires.iter().any(|wire| wire.id == cell.wire && wire.side == Side::Baton);
        assert_eq!(run.tce.is_some(), baton, "{cell:?}");
        assert_eq!((run.requests > 0, run.latency_ns.is_some()), (requests, requests), "{cell:?}");
    }
    moved(&report);
    joined(&report);
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("data-plot=\"throughput\"") && page.contains("data-plot=\"moves-service-xdp\""));
    assert!(page.contains("data-plot=\"here-requests\""));
    assert_eq!(namespaces_of(pid), [""; 0]);
}

/// Checks that downloads moved, lost their engines, and arrived whole.
#[track_caller]
fn moved(report: &Report) {
    let ways = &report.moves.as_ref().unwrap().ways;
    assert_eq!(
        ways.iter().map(|way| way.wire.id.as_str()).collect::<Vec<_>>(),
        ["kernel", "service-tc", "direct-tc", "kernel-xdp", "service-xdp"]
    );
    for way in ways {
        assert_eq!((way.runs.len(), way.requests.len(), &way.missing), (1, 1, &None), "{way:?}");
        assert!(way.runs[0].bytes > 0 && way.requests[0].requests > 0, "{way:?}");
        let live = way.live.as_ref();
        // An engine inside a program dies only with the program.
        assert_eq!(live.is_some(), way.wire.id.starts_with("service"), "{way:?}");
        let checks = report.checks.iter().filter(|check| check.wire == way.wire.name).count();
        assert_eq!(
            checks,
            if live.is_some() { 3 } else { usize::from(way.wire.side == Side::Baton) },
            "{:?}",
            report.checks
        );
        let Some(live) = live else { continue };
        assert!(live.equal && live.bytes > 0 && live.bytes == live.sent, "{live:?}");
        assert!(live.moves >= 2 && live.killed.home_us > 0 && live.killed.again_us > live.killed.home_us, "{live:?}");
        assert_eq!(live.slices.iter().map(|slice| slice.bytes).sum::<u64>(), live.bytes);
    }
}

/// Checks that the connections of programs of one machine were pairs, and that each load ran on every way that
/// it knows.
#[track_caller]
fn joined(report: &Report) {
    let here = report.both_ends.as_ref().unwrap();
    let seen: Vec<[&str; 2]> = here.cells.iter().map(|cell| [cell.load.as_str(), &cell.wire]).collect();
    let (every, over_lo) = (["kernel", "pair", "unix"].as_slice(), ["kernel", "pair"].as_slice());
    let loads = [("ping-pong", every), ("redis-get", every), ("nginx-1k", over_lo), ("iperf3-1", over_lo)];
    let expected: Vec<[&str; 2]> = loads.iter().flat_map(|(load, ways)| ways.iter().map(|way| [*load, *way])).collect();
    assert_eq!(seen, expected);
    for cell in &here.cells {
        let [run] = cell.runs.as_slice() else { panic!("{cell:?}") };
        assert_eq!((run.requests > 0, run.bytes > 0), (cell.load != "iperf3-1", cell.load == "iperf3-1"), "{cell:?}");
        assert_eq!(run.latency_ns.is_some(), run.requests > 0, "{cell:?}");
    }
    let of_pairs = report.checks.iter().filter(|check| check.what.ends_with("are pairs")).count();
    assert_eq!(of_pairs, loads.len(), "{:?}", report.checks);
}

#[test]
fn a_demo_that_is_asked_to_end_cleans_up() {
    need_root!();
    let dir = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = at_work(&dir.path().join("demo.html"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(namespaces_of(child.id()), [""; 0]);
    }
}

#[test]
fn what_a_killed_demo_leaves_the_next_one_removes() {
    need_root!();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("demo.html");
    let mut killed = at_work(&page);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // There is no check before this point: a demo of another test may already have removed them.
    let mut next = at_work(&page);
    assert_eq!(namespaces_of(killed.id()), [""; 0]);
    kill_process(Pid::from_child(&next), Signal::TERM).unwrap();
    next.wait().unwrap();
}

#[test]
fn without_privileges_the_demo_runs_in_memory_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(&dir.path().join("demo.html")).arg("--in-memory").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.all_right() && report.checks.len() == 6, "{:?}", report.checks);
    assert!(
        report.cells.iter().all(|cell| cell.runs.len() == 1 && cell.runs[0].bytes > 0 && cell.runs[0].tce.is_some())
    );
    assert!(report.not_shown.iter().any(|what| what.contains("AF_XDP")), "{:?}", report.not_shown);
}
