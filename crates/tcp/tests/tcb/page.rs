//! `docs/reference/conformance.md` names files and tests that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the tests are that the page names.
const FOLDERS: [&str; 4] = ["crates/tcp/src", "crates/tcp/tests", "crates/socket/tests", "crates/engine/src"];

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

/// Names of test functions: those under `#[test]`.
fn tests(top: &Path) -> BTreeSet<String> {
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| rust_files(&top.join(folder), &mut files));
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).expect("a source file");
        let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "#[test]");
        while let Some(line) = lines.next() {
            if line == "#[test]"
                && let Some(rest) = lines.next().and_then(|line| line.strip_prefix("fn "))
            {
                names.insert(rest.split('(').next().unwrap_or_default().to_owned());
            }
        }
    }
    names
}

#[test]
fn the_page_of_conformance_names_what_there_is() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/reference/conformance.md")).expect("the page");
    let known = tests(&top);
    let (mut files, mut named) = (0, 0);
    for quoted in page.split('`').skip(1).step_by(2) {
        if quoted.ends_with(".rs") {
            let path = if quoted.starts_with("crates/") { quoted.into() } else { format!("crates/tcp/src/{quoted}") };
            assert!(top.join(&path).is_file(), "there is no {path}");
            files += 1;
        } else if quoted.matches('_').count() > 2 && !quoted.starts_with("tcpi_") {
            assert!(known.contains(quoted), "there is no test {quoted}");
            named += 1;
        }
    }
    assert!(files > 40 && named > 40, "{files} files, {named} tests");
}
