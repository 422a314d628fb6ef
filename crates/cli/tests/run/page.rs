//! The page for users explains every reason, and no source spells one out.

use baton_policy::Reason;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_reason_is_on_the_page() {
    let page = fs::read_to_string(top().join("docs/reference/reasons.md")).unwrap();
    let missing: Vec<Reason> = Reason::all().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/reasons.md does not explain {missing:?}");
}

/// A code between quotes could differ from the table's; a `Reason` cannot.
#[test]
fn sources_name_reasons_by_their_type() {
    let mut sources = Vec::new();
    for directory in ["crates/shim/src", "crates/service/src/broker"] {
        collect(&top().join(directory), &mut sources);
    }
    assert!(sources.len() > 40, "{sources:?}");
    let mut spelled = Vec::new();
    for path in sources {
        let source = fs::read_to_string(&path).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            // One word alone may be a word of the language.
            let quoted = line.split('"').skip(1).step_by(2).filter(|word| word.contains('-'));
            spelled.extend(quoted.filter_map(Reason::from_code).map(|reason| (path.clone(), reason)));
        }
    }
    assert!(spelled.is_empty(), "{spelled:?}");
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn collect(directory: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}
