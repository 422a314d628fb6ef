//! `baton bench programs --local`: a short run, whose connections are pairs.

use baton_testkit::{build_beside, need_program, need_root};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Runs the command, and returns what it found.
fn bench(words: &[&str]) -> Value {
    build_beside(env!("CARGO_BIN_EXE_baton").as_ref(), "baton-shim", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.args(["bench", "programs", "--local", "--json", "--rounds", "1"]).args(words).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The only run of a load on a way.
#[track_caller]
fn run<'v>(found: &'v Value, load: &str, way: &str) -> &'v Value {
    let series = found["series"].as_array().unwrap().iter();
    let mut series = series.filter(|series| series["load"] == load && series["way"] == way);
    let (Some(one), None) = (series.next(), series.next()) else { panic!("{load}, {way}: {found}") };
    assert_eq!(one["runs"].as_array().unwrap().len(), 1, "{one}");
    &one["runs"][0]
}

#[test]
fn a_byte_goes_to_and_fro_on_every_way_and_pairs_are_made() {
    need_root!();
    for program in ["ip", "ethtool", "curl"] {
        need_program!(program);
    }
    let found = bench(&["--only", "ping-pong"]);
    for key in ["machine", "series", "idle", "shares", "not_here", "goals"] {
        assert!(found.get(key).is_some(), "{key}: {found}");
    }
    assert_eq!(found["not_here"], serde_json::json!([]), "{found}");
    assert_eq!(found["series"].as_array().unwrap().len(), 4, "{found}");
    for way in ["kernel", "kernel-again", "pair", "unix"] {
        let run = run(&found, "ping-pong", way);
        assert!(run["requests"].as_u64() > Some(0) && run["p50_ns"].as_u64() > Some(0), "{way}: {run}");
        assert!(run["seconds"].is_f64() && run["cpu"]["busy"].is_f64(), "{way}: {run}");
        let account = (way == "pair").then(|| serde_json::json!({ "moved": 1, "paired": 1, "all": 1 }));
        assert_eq!(run.get("account"), account.as_ref(), "{way}: {run}");
    }
    let served = serde_json::json!([{ "way": "pair", "program": "baton", "moved": 1, "all": 1 }]);
    assert_eq!(found["shares"], served);
    assert!(found["goals"].as_array().unwrap().iter().all(|goal| goal["load"] == "ping-pong"), "{found}");
}

#[test]
fn redis_and_its_benchmark_run_on_every_way_and_pairs_are_made() {
    need_root!();
    for program in ["ip", "ethtool", "curl", "redis-server", "redis-benchmark"] {
        need_program!(program);
    }
    let found = bench(&["--only", "redis-get-1", "--way", "pair,unix,pipelined"]);
    assert_eq!(found["not_here"], serde_json::json!([]), "{found}");
    for way in ["kernel", "pair", "unix", "pipelined"] {
        let run = run(&found, "redis-get-1", way);
        assert!(run["requests"].as_u64() > Some(0), "{way}: {run}");
        // With many requests at once, each waits for the others.
        assert_eq!(run["p50_ns"] == 0, way == "pipelined", "{way}: {run}");
    }
    let account = &run(&found, "redis-get-1", "pair")["account"];
    assert!(account["paired"].as_u64() >= Some(1), "{account}");
}
