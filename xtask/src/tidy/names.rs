//! Names of crates: those in `tidy.toml` and in the table of `ARCHITECTURE.md` exist, and
//! each crate that exists is in both.

use std::collections::BTreeSet;

use super::metadata::Metadata;
use super::rules::{self, Rules};
use super::{File, Finding};

const TABLE_FILE: &str = "ARCHITECTURE.md";
const TABLE_HEADING: &str = "## Crates";

/// Checks the names of all crates.
pub fn check(rules: &Rules, metadata: &Metadata, files: &[File], findings: &mut Vec<Finding>) {
    let existing: BTreeSet<&str> = metadata
        .members()
        .filter_map(|member| member.manifest_path.strip_suffix("/Cargo.toml")?.rsplit_once("/crates/"))
        .map(|(_, directory)| directory)
        .collect();
    let page = files.iter().find(|file| file.path == TABLE_FILE).map_or("", |file| file.text.as_str());
    let rows: Vec<&str> = rows(page).collect();
    let mut found = |path: &str, message: String| {
        findings.push(Finding { path: path.into(), line: 0, rule: "crates", message });
    };
    for name in rules.order.iter().chain(&rules.pure).chain(&rules.test_crates) {
        if !existing.contains(name.as_str()) {
            found(rules::PATH, format!("there is no crate {name}"));
        }
    }
    for name in &existing {
        if !rules.order.iter().chain(&rules.test_crates).any(|known| known == name) {
            found(rules::PATH, format!("the crate {name} has no place in the order"));
        }
    }
    if rows != rules.order {
        let differ = rows.iter().copied().zip(&rules.order).find(|(row, name)| row != name);
        let first = differ.map_or("the shorter of the two ends".to_owned(), |(row, name)| format!("{row}, not {name}"));
        found(
            TABLE_FILE,
            format!("its table of crates is not the order in {}; first difference: {first}", rules::PATH),
        );
    }
}

/// Crates in the page's table, in its order.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines()
        .skip_while(|line| *line != TABLE_HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::Package;

    fn found(order: &[&str], rows: &[&str], existing: &[&str]) -> usize {
        let package = |name: &&str| Package {
            name: format!("baton-{name}"),
            id: (*name).into(),
            license: None,
            manifest_path: format!("/x/crates/{name}/Cargo.toml"),
            dependencies: vec![],
            targets: vec![],
        };
        let metadata = Metadata {
            packages: existing.iter().map(package).collect(),
            workspace_members: existing.iter().map(|name| (*name).into()).collect(),
        };
        let rules = Rules {
            order: order.iter().map(|name| (*name).into()).collect(),
            test_crates: vec!["testkit".into()],
            ..Rules::default()
        };
        let table: String = rows.iter().map(|name| format!("| `{name}` | x |\n")).collect();
        let page = File { path: TABLE_FILE.into(), text: format!("a\n{TABLE_HEADING}\n{table}## Next\n| `z` | x |\n") };
        let mut findings = Vec::new();
        check(&rules, &metadata, &[page], &mut findings);
        findings.len()
    }

    #[test]
    fn order_table_and_crates_have_to_agree() {
        assert_eq!(found(&["wire", "tcp"], &["wire", "tcp"], &["tcp", "testkit", "wire"]), 0);
        // A crate that is named and does not exist.
        assert_eq!(found(&["wire", "lab"], &["wire", "lab"], &["wire", "testkit"]), 1);
        // One that exists and is not named.
        assert_eq!(found(&["wire"], &["wire"], &["tcp", "testkit", "wire"]), 1);
        // A table without it, with another, in another order.
        assert_eq!(found(&["wire", "tcp"], &["wire"], &["tcp", "testkit", "wire"]), 1);
        assert_eq!(found(&["wire"], &["wire", "lab"], &["testkit", "wire"]), 1);
        assert_eq!(found(&["wire", "tcp"], &["tcp", "wire"], &["tcp", "testkit", "wire"]), 1);
    }
}
