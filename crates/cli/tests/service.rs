//! `baton service`: its options for the configuration.

use baton_cli::config::DEFAULT;
use baton_testkit::output;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn service(arguments: &[&str]) -> Output {
    output(Command::new(env!("CARGO_BIN_EXE_baton")).arg("service").args(arguments))
}

fn check(path: &Path) -> (Option<i32>, String) {
    let out = service(&["--config", path.to_str().unwrap(), "--check-config"]);
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn it_prints_a_configuration_that_it_takes() {
    let out = service(&["--print-config"]);
    assert!(out.status.success());
    assert_eq!(out.stdout, DEFAULT.as_bytes());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("baton.toml");
    fs::write(&path, DEFAULT).unwrap();
    let (code, words) = check(&path);
    assert_eq!(code, Some(2), "an interface must be named: {words}");
    assert!(words.contains("no interface is named; give --interface"), "{words}");
    fs::write(&path, DEFAULT.replace("\ninterfaces = []", "\ninterfaces = [\"eth0\"]")).unwrap();
    assert_eq!(check(&path), (Some(0), String::new()));
    fs::write(&path, "steer.interfaces = [\"eth0\"]\nengine.congestion = \"reno\"\n").unwrap();
    assert_eq!(check(&path), (Some(0), String::new()));
}

#[test]
fn what_is_wrong_is_one_line_with_its_place_and_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("baton.toml");
    fs::write(&path, "log = \"info\"\n[sockte]\n").unwrap();
    let (code, words) = check(&path);
    assert_eq!(code, Some(2));
    let expected = format!("baton: {}:2: unknown key 'sockte'; did you mean 'socket'?", path.display());
    assert!(words.starts_with(&expected) && words.lines().count() == 1, "{words}");
    let (code, words) = check(&directory.path().join("nowhere.toml"));
    assert_eq!(code, Some(2));
    assert!(words.contains("baton service --print-config"), "{words}");
}
