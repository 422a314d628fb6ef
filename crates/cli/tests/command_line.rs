//! The program's messages and exit codes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use baton_testkit::{need_program, need_root};

fn baton(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_baton")).args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_usage_error_is_one_line_with_a_remedy_and_exit_code_2() {
    for args in [
        &["--no-such-flag"][..],
        &["no-such-command"],
        &["serve", "--port", "kernel", "echo", "--no-such-flag"],
        &["serve", "--port", "nonsense", "echo"],
        &["serve", "--port", "kernel", "gopher"],
        &["serve", "--port", "kernel", "http", "/no/such/directory"],
        &["serve", "--port", "kernel", "--addr", "192.0.2.1/24", "echo", "--listen", "0"],
        &["serve", "--port", "kernel", "--service", "echo@70", "--service", "discard@70"],
        &["serve", "--port", "tap:no-such-long-device-name", "--addr", "10.77.0.2/24", "echo"],
        &["serve", "--port", "xdp:nosuchdevice", "--addr", "10.77.0.2/24", "echo"],
        &["serve", "--port", "tap:batontest%d", "echo"],
        &["serve", "--port", "kernel", "--pcap", "x", "echo"],
        &["events", "--socket", "/no/such/socket"],
        &["events", "-n", "many"],
        &["run", "--log", "/no/such/directory/log", "--", "true"],
        &["run", "--log-level", "debug", "--", "true"],
        &["service", "--interface", "lo", "--log-level", "loud"],
        &["demo", "--seconds", "-1"],
        &["demo", "--rounds", "0"],
        &["bench", "tce", "--seconds", "nan"],
        &["bench", "tce", "--plan", "nonsense"],
        &["bench", "run", "nonsense"],
        &["lab", "ra", "--only", "fig99"],
        &["get", "--port", "kernel", "https://127.0.0.1/"],
        &["get", "--port", "kernel", "http://127.0.0.1/"],
        &["get", "--port", "kernel", "http://127.0.0.1/x", "-o", "/no/such/directory/x"],
    ] {
        let output = baton(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.starts_with("baton: ") && stderr.contains("; "), "{args:?}: no remedy in {stderr}");
    }
}

#[test]
fn an_address_in_use_names_its_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = baton(&["serve", "--port", "kernel", "--addr", "127.0.0.1", "echo", "--listen", &port]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--listen"));
}

#[test]
fn a_failed_fetch_is_exit_code_1() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = baton(&["get", "--port", "kernel", &format!("http://{free}/x"), "-o", "-"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        &["serve"][..],
        &["get"],
        &["run"],
        &["service"],
        &["ps"],
        &["handoff"],
        &["restore"],
        &["stop"],
        &["upgrade"],
        &["bump"],
        &["bump", "bench"],
        &["demo"],
        &["doctor"],
        &["trace"],
        &["trace", "sweep"],
        &["trace", "paper"],
        &["bench"],
        &["bench", "list"],
        &["bench", "run"],
        &["bench", "tce"],
        &["bench", "tap"],
        &["bench", "programs"],
        &["events"],
    ] {
        let output = baton(&[command, &["--help"]].concat());
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"), "{command:?}");
    }
    assert_eq!(baton(&[]).status.code(), Some(2));
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = baton(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["doctor", "--explain", "--print-config"] {
            // Fish takes a long option without its dashes.
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: no {word}");
        }
    }
}

#[test]
fn every_command_in_help_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let output = baton(&["man", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let help = String::from_utf8(baton(&["--help"]).stdout).unwrap();
    let listed = help.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty());
    for command in listed.map(|line| line.split_whitespace().next().unwrap()).filter(|command| *command != "help") {
        let page = std::fs::read_to_string(directory.path().join(format!("baton-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
    }
    assert!(!directory.path().join("baton-guardian.1").exists());
    let page = std::fs::read_to_string(directory.path().join("baton.1")).unwrap();
    assert!(page.contains("baton\\-doctor(1)"), "{page}");
}

#[test]
fn a_file_served_is_the_file_got() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3_000_000u32).flat_map(|i| i.to_le_bytes()).collect();
    std::fs::write(dir.path().join("file"), &content).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["serve", "--port", "kernel", "--addr", "127.0.0.1", "--json", "--control", "--listen", "0", "http"])
        .arg(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let ready: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let addr = ready["services"][0][1].as_str().unwrap().to_owned();
    let got = dir.path().join("got");
    let output =
        baton(&["get", "--port", "kernel", "--json", &format!("http://{addr}/file"), "-o", got.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(std::fs::read(&got).unwrap() == content);
    let sum = Command::new("sha256sum").arg(&got).output().unwrap();
    assert_eq!(outcome["sha256"].as_str().unwrap(), String::from_utf8_lossy(&sum.stdout).split(' ').next().unwrap());
    // The server prints counters on request, and ends when standard input closes.
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(b"stats\n").unwrap();
    let stats: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(stats["accepted"], 1);
    drop(stdin);
    assert!(server.wait().unwrap().success());
}

/// Returns whether `baton doctor` succeeded, and its findings.
fn findings(output: &Output) -> (bool, Vec<serde_json::Value>) {
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {}", String::from_utf8_lossy(&output.stderr));
    (code == Some(0), serde_json::from_slice(&output.stdout).unwrap())
}

fn missing(findings: &[serde_json::Value]) -> Vec<&str> {
    let missing = findings.iter().filter(|finding| finding["needed"] == true && finding["ok"] == false);
    missing.map(|finding| finding["name"].as_str().unwrap()).collect()
}

#[test]
fn doctor_has_a_remedy_for_every_no() {
    let (_, found) = findings(&baton(&["doctor", "--json"]));
    for name in ["network namespaces", "TAP", "curl", "steering"] {
        assert!(found.iter().any(|finding| finding["name"] == name), "{name} is missing in {found:?}");
    }
    for finding in &found {
        let (ok, remedy) = (finding["ok"].as_bool().unwrap(), finding["remedy"].as_str().unwrap());
        assert_eq!(ok, remedy.is_empty(), "{finding}");
    }
    for name in ["connection tracking", "address translation (NAT)", "io_uring", "left by a killed service"] {
        assert!(found.iter().any(|finding| finding["name"] == name), "{name} is missing in {found:?}");
    }
    let table = baton(&["doctor", "--all"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    for (word, ok, needed) in [("yes", true, None), ("no ", false, Some(false)), ("NO ", false, Some(true))] {
        assert_eq!(
            table.lines().filter(|line| line.strip_prefix("  ").is_some_and(|line| line.starts_with(word))).count(),
            found.iter().filter(|f| f["ok"] == ok && needed.is_none_or(|needed| f["needed"] == needed)).count(),
            "{table}"
        );
    }
}

#[test]
fn doctor_runs_the_probes_and_succeeds_here() {
    need_root!();
    need_program!("clang");
    let (content, found) = findings(&baton(&["doctor", "--json"]));
    assert!(content, "{:?}", missing(&found));
    for name in ["engines inside programs", "gaps in what was received"] {
        let seen = found.iter().find(|finding| finding["name"] == name);
        assert!(seen.is_some_and(|finding| finding["ok"] == true && finding["needed"] == false), "{name}: {found:?}");
    }
    // The table for users only counts the probes that hold.
    let said = String::from_utf8_lossy(&baton(&["doctor"]).stdout).into_owned();
    assert!(said.contains("behaviours that Baton relies on hold") && !said.contains("repair-shows-all"), "{said}");
    for name in ["repair-shows-all", "husk-is-silent", "restore-goes-on", "epoll-survives"] {
        let probe = found.iter().find(|finding| finding["name"] == name);
        assert!(probe.is_some_and(|probe| probe["ok"] == true && probe["needed"] == true), "{name}: {found:?}");
    }
}

#[test]
fn doctor_fails_where_something_needed_is_missing() {
    need_root!();
    need_program!("setpriv");
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set=-net_admin,-bpf,-sys_admin",
        "--inh-caps=-all",
        env!("CARGO_BIN_EXE_baton"),
        "doctor",
    ]);
    let output = command.arg("--json").output().unwrap();
    let (content, found) = findings(&output);
    assert!(!content);
    let missing = missing(&found);
    for name in ["CAP_NET_ADMIN", "CAP_BPF", "steering", "probes"] {
        assert!(missing.contains(&name), "{name}: {missing:?}");
    }
    // The single line on standard error names all of them.
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(missing.iter().all(|name| complaint.contains(name)), "{complaint}");
}

#[test]
fn bench_tce_measures_every_size_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (csv, page) = (path("tce.csv"), path("tce.html"));
    let output =
        baton(&["bench", "tce", "--in-memory", "--rounds", "2", "--seconds", "0.02", "--csv", &csv, "--report", &page]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |line: &&str| line.contains("Gb/s") && (line.starts_with("receive") || line.starts_with("transmit"));
    assert_eq!(table.lines().filter(row).count(), 14, "{table}");
    assert_eq!(table.matches("  paper: LC").count(), 2, "{table}");
    let csv = std::fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * 14, "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.split(',').nth(3).unwrap().parse::<u64>().unwrap() > 0), "{csv}");
    assert!(std::fs::read_to_string(page).unwrap().contains("data-plot=\"tce\""));
}

#[test]
fn lab_list_has_every_table_and_figure_without_rows() {
    let output = baton(&["lab", "list", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let experiments = list["experiments"].as_array().unwrap();
    for id in ["ra-figure-7", "rsc-figure-4", "lc-figure-3", "ch-table-1"] {
        let entry = experiments.iter().find(|entry| entry["id"] == id).unwrap();
        assert_eq!(entry["rows"], serde_json::json!([]), "{id}");
    }
    assert!(experiments.iter().any(|entry| entry["method"] == "not-possible" && entry["why"] != ""));
}

#[test]
fn lab_repeats_one_figure_in_every_form() {
    let out = tempfile::tempdir().unwrap();
    let (csv, html) = (out.path().join("lc.csv"), out.path().join("lc.html"));
    let files = [csv.to_str().unwrap(), html.to_str().unwrap()];
    let plan = ["lab", "lc", "--only", "fig4", "--plan", "quick", "--json", "--csv", files[0], "--html", files[1]];
    let output = baton(&plan);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [figure] = found["experiments"].as_array().unwrap().as_slice() else { panic!("{found}") };
    let yields = &figure["rows"][0];
    assert_eq!((&figure["id"], &yields["paper"]), (&"lc-figure-4".into(), &88.0.into()));
    assert!(yields["here"].as_f64().unwrap() > 0.0, "{yields}");
    let rows = std::fs::read_to_string(csv).unwrap();
    assert_eq!(rows.lines().count(), 1 + figure["rows"].as_array().unwrap().len(), "{rows}");
    assert!(std::fs::read_to_string(html).unwrap().contains("data-plot=\"lc-figure-4-bar-0\""));
}

#[test]
fn bench_run_measures_what_the_list_has_and_keeps_it() {
    need_root!();
    need_program!("ethtool");
    let list = baton(&["bench", "list"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.lines().any(|line| line == "rsc") && list.contains("repeats   RSC Figure 4: "), "{list}");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().display().to_string();
    let output = baton(&["bench", "run", "rsc", "--plan", "quick", "--out", &out]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    // The quick plan has all that the paper's statements are about.
    assert!(said.lines().last().unwrap().ends_with(", 0 not measured"), "{said}");
    let json = std::fs::read_to_string(dir.path().join("rsc.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let claims = json["claims"].as_array().unwrap();
    assert_eq!(said.matches("  paper: ").count(), claims.len());
    assert!(claims.iter().all(|claim| claim["holds"].is_boolean() && claim["source"].is_string()), "{json}");
    assert_eq!(json["cells"].as_array().unwrap().len(), 4);
    assert!(dir.path().join("rsc.csv").exists() && dir.path().join("rsc.html").exists());
}
