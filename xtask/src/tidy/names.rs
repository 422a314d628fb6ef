//! Names of crates: those in `tidy.toml` exist, and each crate that exists has a place in its order.

use std::collections::BTreeSet;

use super::Finding;
use super::metadata::Metadata;
use super::rules::{self, Rules};

/// Checks the names of all crates.
pub fn check(rules: &Rules, metadata: &Metadata, findings: &mut Vec<Finding>) {
    let existing: BTreeSet<&str> = metadata
        .members()
        .filter_map(|member| member.manifest_path.strip_suffix("/Cargo.toml")?.rsplit_once("/crates/"))
        .map(|(_, directory)| directory)
        .collect();
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::Package;

    fn found(order: &[&str], existing: &[&str]) -> usize {
        let package = |name: &&str| Package {
            name: format!("baton-{name}"),
            id: (*name).into(),
            manifest_path: format!("/x/crates/{name}/Cargo.toml"),
            dependencies: vec![],
            ..Package::default()
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
        let mut findings = Vec::new();
        check(&rules, &metadata, &mut findings);
        findings.len()
    }

    #[test]
    fn order_and_crates_have_to_agree() {
        assert_eq!(found(&["wire", "tcp"], &["tcp", "testkit", "wire"]), 0);
        // A crate that is named and does not exist.
        assert_eq!(found(&["wire", "lab"], &["wire", "testkit"]), 1);
        // One that exists and is not named.
        assert_eq!(found(&["wire"], &["tcp", "testkit", "wire"]), 1);
    }
}
