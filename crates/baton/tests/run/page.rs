//! The page for users says of every reason what it means.

use baton_host::Refusal;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Calls of the shim that take a reason, up to where it is quoted.
const GIVEN: [&str; 8] =
    ["bring_home(", "bring_home_named(", "stop(", "Never(", "Err(Some(", "return Some(", "map_err(|_| ", "ok_or("];

#[test]
fn every_reason_is_on_the_page() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/programs.md")).unwrap();
    let mut reasons: BTreeSet<String> = Refusal::ALL.iter().map(|refusal| refusal.code().to_owned()).collect();
    for directory in ["crates/shim/src", "crates/shim/src/sys"] {
        for entry in fs::read_dir(top.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                reasons.extend(fs::read_to_string(path).unwrap().lines().flat_map(given));
            }
        }
    }
    assert!(reasons.len() > 30 && reasons.contains("epoll-shared") && reasons.contains("io-uring"), "{reasons:?}");
    let missing: Vec<&String> = reasons.iter().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/programs.md does not explain {missing:?}");
}

/// The reason that a line gives.
fn given(line: &str) -> Option<String> {
    let call = GIVEN.iter().find_map(|call| line.split_once(call))?.1;
    let word = call.split('"').nth(1)?;
    let is_word = !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it == '-');
    is_word.then(|| word.to_owned())
}
