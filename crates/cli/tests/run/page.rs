//! The page for users explains every reason.

use baton_policy::Refusal;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Calls of the shim that take a reason, up to where it is quoted.
const GIVEN: [&str; 8] =
    ["bring_home(", "bring_slot_home(", "stop(", "Never(", "Err(Some(", "return Some(", "map_err(|_| ", "ok_or("];

#[test]
fn every_reason_is_on_the_page() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/reference/reasons.md")).unwrap();
    let mut reasons: BTreeSet<String> = Refusal::ALL.iter().map(|refusal| refusal.code().to_owned()).collect();
    for directory in ["crates/shim/src", "crates/shim/src/abi", "crates/shim/src/os"] {
        for entry in fs::read_dir(top.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                reasons.extend(fs::read_to_string(path).unwrap().lines().flat_map(given));
            }
        }
    }
    let broker = fs::read_dir(top.join("crates/service/src/broker")).unwrap().map(|entry| entry.unwrap().path());
    for path in broker.filter(|path| path.is_file()) {
        reasons.extend(of_broker(&fs::read_to_string(path).unwrap()));
    }
    for reason in ["failed", "homeless", "bypassed", "engine-hung", "stop", "no-memory"] {
        assert!(reasons.contains(reason), "{reason}: {reasons:?}");
    }
    assert!(reasons.len() > 30 && reasons.contains("epoll-shared") && reasons.contains("io-uring"), "{reasons:?}");
    let missing: Vec<&String> = reasons.iter().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/reasons.md does not explain {missing:?}");
}

/// The reason that a line gives.
fn given(line: &str) -> Option<String> {
    let call = GIVEN.iter().find_map(|call| line.split_once(call))?.1;
    let word = call.split('"').nth(1)?;
    let is_word = !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it == '-');
    is_word.then(|| word.to_owned())
}

/// What the broker's source has between quotes that is no reason: where a connection is, and a
/// thread's name.
const OTHERS: [&str; 6] = ["kernel", "engine", "to-engine", "to-kernel", "closing", "baton-close"];

/// The reasons in a file of the broker's: words of several parts, and those that are the last
/// argument of a call, or go before a sentence.
fn of_broker(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let parts: Vec<&str> = line.split('"').collect();
        for at in (1..parts.len() - 1).step_by(2) {
            let (before, word, after) = (parts[at - 1], parts[at], parts[at + 1]);
            let is_word = !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it == '-');
            let is_given = word.contains('-')
                || before.ends_with(", ") && after.starts_with(')')
                || before.ends_with('(') && after.starts_with(", ") && !before.ends_with("System(");
            if is_word && is_given && !OTHERS.contains(&word) {
                found.push(word.to_owned());
            }
        }
    }
    found
}
