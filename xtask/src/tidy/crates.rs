//! Crates: their direction, what they may depend on, and its licences.

use std::fs;

use super::metadata::{Metadata, Package};
use super::rules::{self, Rules};
use super::{Finding, licence};

/// Checks every package.
pub fn check(rules: &Rules, metadata: &Metadata, findings: &mut Vec<Finding>) {
    let members: Vec<&Package> = metadata.members().collect();
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    for member in &members {
        check_lints(member, findings);
        for dependency in &member.dependencies {
            let dev = dependency.kind.as_deref() == Some("dev");
            let problem = if is_member(&dependency.name) {
                direction(rules, member.short_name(), short(&dependency.name), dev)
            } else {
                listed(rules, member.short_name(), &dependency.name, dev)
            };
            findings.extend(problem.map(|(rule, message)| Finding { path: manifest(member), line: 0, rule, message }));
        }
    }
    for name in unused(rules, &members) {
        findings.push(in_rules(format!("nothing uses {name} as it is listed: remove it")));
    }
    for package in metadata.packages.iter().filter(|package| !is_member(&package.name)) {
        let expression = package.license.as_deref().unwrap_or("none");
        if !licence::allowed(expression, &rules.licences) {
            findings.push(in_rules(format!("{}: its licence is not an allowed one: {expression}", package.name)));
        }
    }
}

fn in_rules(message: String) -> Finding {
    Finding { path: rules::PATH.into(), line: 0, rule: "dependency", message }
}

fn short(name: &str) -> &str {
    name.strip_prefix("baton-").unwrap_or(name)
}

fn manifest(package: &Package) -> String {
    let mut parts: Vec<&str> = package.manifest_path.rsplit('/').take(3).collect();
    parts.reverse();
    if parts.first() == Some(&"crates") { parts.join("/") } else { parts[1..].join("/") }
}

/// The workspace's lints hold in each crate only if it says so.
fn check_lints(member: &Package, findings: &mut Vec<Finding>) {
    let text = fs::read_to_string(&member.manifest_path).unwrap_or_default();
    if !inherits_lints(&text) {
        findings.push(Finding {
            path: manifest(member),
            line: 0,
            rule: "lints",
            message: "does not take the workspace's lints: add [lints] workspace = true".into(),
        });
    }
}

fn inherits_lints(manifest: &str) -> bool {
    manifest
        .parse::<toml::Table>()
        .is_ok_and(|t| t.get("lints").and_then(|l| l.get("workspace")) == Some(&toml::Value::Boolean(true)))
}

/// Whether one of our crates may use another.
fn direction(rules: &Rules, user: &str, used: &str, dev: bool) -> Option<(&'static str, String)> {
    let place = |name: &str| rules.order.iter().position(|n| n == name);
    let is_test_crate = |name: &str| rules.test_crates.iter().any(|n| n == name);
    if dev && is_test_crate(used) {
        return None;
    }
    let fine = match (place(user), place(used)) {
        (Some(user), Some(used)) => used < user,
        // Crates outside the order, such as xtask, keep to themselves.
        _ => false,
    };
    (!fine).then(|| ("direction", format!("{user} may not use {used}: only what is above it in {}", rules::PATH)))
}

/// Whether one of our crates may use one from outside.
fn listed(rules: &Rules, user: &str, used: &str, dev: bool) -> Option<(&'static str, String)> {
    let fine = rules
        .dependencies
        .iter()
        .filter(|d| d.name == used)
        .any(|d| d.crates.iter().any(|name| name == user) || dev && d.tests.iter().any(|name| name == user));
    let place = if dev { "tests" } else { "crates" };
    (!fine).then(|| {
        (
            "dependency",
            format!("{used} is not on the list for {user}: with a reason, add it in {} ({place})", rules::PATH),
        )
    })
}

/// Entries of the list that no crate makes use of, as `dependency (crate)`.
fn unused(rules: &Rules, members: &[&Package]) -> Vec<String> {
    let uses = |user: &str, used: &str, dev: bool| {
        members
            .iter()
            .filter(|m| m.short_name() == user)
            .any(|m| m.dependencies.iter().any(|d| d.name == used && (d.kind.as_deref() == Some("dev")) == dev))
    };
    let mut names = Vec::new();
    for dependency in &rules.dependencies {
        let normal = dependency.crates.iter().map(|user| (user, false));
        let tests = dependency.tests.iter().map(|user| (user, true));
        for (user, dev) in normal.chain(tests) {
            if !uses(user, &dependency.name, dev) {
                names.push(format!("{} ({user})", dependency.name));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules::Dependency;

    fn rules() -> Rules {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Rules {
            order: list(&["wire", "tcp", "engine", "port"]),
            test_crates: list(&["testkit"]),
            licences: list(&["MIT"]),
            dependencies: vec![Dependency {
                name: "libc".into(),
                crates: list(&["port"]),
                tests: list(&["tcp"]),
                why: "system calls".into(),
            }],
            ..Rules::default()
        }
    }

    #[test]
    fn crates_use_only_those_above_them() {
        assert_eq!(direction(&rules(), "port", "engine", false), None);
        assert_eq!(direction(&rules(), "port", "testkit", true), None);
        for (user, used, dev) in [
            ("wire", "tcp", false),
            ("tcp", "tcp", false),
            // A test that needs what is below it belongs below.
            ("wire", "tcp", true),
            ("port", "testkit", false),
            ("xtask", "wire", false),
            ("port", "xtask", false),
        ] {
            assert!(direction(&rules(), user, used, dev).is_some(), "{user} {used}");
        }
    }

    #[test]
    fn dependencies_are_listed_by_crate_and_use() {
        assert_eq!(listed(&rules(), "port", "libc", false), None);
        assert_eq!(listed(&rules(), "port", "libc", true), None);
        assert_eq!(listed(&rules(), "tcp", "libc", true), None);
        assert!(listed(&rules(), "tcp", "libc", false).is_some());
        assert!(listed(&rules(), "port", "nix", false).is_some());
    }

    fn package(name: &str, license: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.into(),
            id: name.into(),
            license: Some(license.into()),
            manifest_path: format!("{}/../crates/wire/Cargo.toml", env!("CARGO_MANIFEST_DIR")),
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| crate::tidy::metadata::Dependency {
                    name: (*name).into(),
                    kind: kind.map(str::to_owned),
                    rename: None,
                })
                .collect(),
            ..Package::default()
        }
    }

    #[test]
    fn the_whole_check_finds_licence_direction_list_and_leftover() {
        let metadata = Metadata {
            packages: vec![
                package("baton-wire", "MIT", &[("baton-tcp", None), ("evil", None)]),
                package("baton-tcp", "MIT", &[]),
                package("evil", "GPL-3.0", &[]),
            ],
            workspace_members: vec!["baton-wire".into(), "baton-tcp".into()],
        };
        let mut findings = Vec::new();
        check(&rules(), &metadata, &mut findings);
        let text: Vec<String> = findings.iter().map(|f| format!("{} {}", f.rule, f.message)).collect();
        assert_eq!(text.len(), 5, "{text:#?}");
        assert!(text[0].starts_with("direction wire may not use tcp"));
        assert!(text[1].starts_with("dependency evil is not on the list for wire"));
        assert!(text[2].contains("libc (port)"));
        assert!(text[3].contains("libc (tcp)"));
        assert!(text[4].contains("GPL-3.0"));
        assert_eq!(findings[0].path, "crates/wire/Cargo.toml");
    }

    #[test]
    fn lints_are_inherited_or_reported() {
        assert!(inherits_lints("[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[lints.rust]\nunused = \"allow\"\n"));
        assert!(!inherits_lints("[package]\n"));
    }
}
