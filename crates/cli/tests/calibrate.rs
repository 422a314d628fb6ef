//! `baton calibrate`: what it measures and writes, and which files `baton run` refuses.

use baton_testkit::{build_beside, need_program, need_root};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn baton(words: &[&str], file: &Path, option: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.args(words).arg(option).arg(file);
    if words[0] == "run" {
        command.args(["--explain", "--", "true"]);
    }
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_writes_what_it_measured_and_run_follows() {
    need_root!();
    ["ip", "ethtool", "curl", "clang"].iter().for_each(|program| need_program!(program));
    build_beside(env!("CARGO_BIN_EXE_baton").as_ref(), "baton-shim", env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calibration.toml");
    let output = baton(&["calibrate", "--rounds", "1", "--json"], &file, "--output");
    assert!(output.status.success(), "{}", said(&output));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    let placements = measured["calibration"]["placements"].as_array().unwrap();
    assert_eq!(placements.iter().map(|it| it["name"].as_str().unwrap()).collect::<Vec<_>>(), ["direct", "service"]);
    for placement in placements {
        let sizes = placement["sizes"].as_array().unwrap();
        assert_eq!(sizes.len(), 9, "{placement}");
        for (size, side) in sizes.iter().flat_map(|size| [(size, "kernel-ns"), (size, "engine-ns")]) {
            let costs = size[side].as_array().unwrap();
            assert!(costs.len() == 2 && costs.iter().all(|cost| cost.as_u64() > Some(0)), "{side}: {size}");
        }
        assert!(placement["move-ns"].as_u64() > Some(0), "{placement}");
    }
    let shown = baton(&["calibrate", "--show", "--json"], &file, "--output");
    assert_eq!(serde_json::from_slice::<Value>(&shown.stdout).unwrap(), measured);
    let table = String::from_utf8(baton(&["calibrate", "--show"], &file, "--output").stdout).unwrap();
    assert!(table.contains("16384 B") && table.contains("direct: "), "{table}");

    let when = measured["measured-at"].as_str().unwrap();
    let explained = said(&baton(&["run"], &file, "--calibration"));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(cpus == 1 || explained.contains(&format!("by the calibration of {when}, the default is ")), "{explained}");
}

#[test]
fn a_file_of_another_machine_is_refused_with_a_word() {
    need_root!();
    need_program!("clang");
    build_beside(env!("CARGO_BIN_EXE_baton").as_ref(), "baton-shim", env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calibration.toml");
    let text = "format = 2\nbaton = \"0.2.0\"\nmeasured-at = \"2026-01-01T00:00:00Z\"\n\
                machine = { cpu = \"Z80\", cpus = 1, kernel = \"2.0.40\" }\n\
                calibration = { rounds = 5, background = 0.0, placements = [] }\n";
    for (text, fault) in [(text, "of another machine (1 × Z80, Linux 2.0.40; this is "), ("format = 9", "has format 9")]
    {
        fs::write(&file, text).unwrap();
        let shown = baton(&["calibrate", "--show"], &file, "--output");
        assert_eq!(shown.status.code(), Some(2));
        assert!(said(&shown).contains(fault) && said(&shown).lines().count() == 1, "{}", said(&shown));
        let run = baton(&["run"], &file, "--calibration");
        let lines = said(&run);
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert!(run.status.success() && (cpus == 1 || lines.contains(fault)), "{lines}");
        assert!(cpus == 1 || lines.contains("the default is small;"), "{lines}");
    }
    let none = baton(&["calibrate", "--show"], Path::new("/nowhere/calibration.toml"), "--output");
    assert!(said(&none).contains("there is no calibration in /nowhere/calibration.toml; run: baton calibrate"));
}
