//! Parts of pages that are made from other files: the table of dependencies, from `tidy.toml`, and the
//! picture of crates, from cargo's metadata.
//!
//! Each stands between two marks, so that the rest of its page is written by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::metadata::{Metadata, Package};
use super::rules::Rules;
use super::{File, Finding};

/// A part of a page.
struct Part {
    /// The page, from the top of the workspace.
    path: &'static str,
    /// The name in its two marks.
    name: &'static str,
    /// The text between the marks.
    text: String,
}

/// Checks that each part is as it would be made now.
pub fn check(rules: &Rules, metadata: &Metadata, files: &[File], findings: &mut Vec<Finding>) {
    for part in parts(rules, metadata) {
        let page = files.iter().find(|file| file.path == part.path).map_or("", |file| file.text.as_str());
        let message = match between(page, part.name) {
            None => format!("has no marks for its {}", part.name),
            Some((_, found, _)) if found != part.text => {
                format!("its {} are not up to date: cargo xtask tidy --write", part.name)
            }
            Some(_) => continue,
        };
        findings.push(Finding { path: part.path.into(), line: 0, rule: "made", message });
    }
}

/// Puts each part into its page.
pub fn write(rules: &Rules, metadata: &Metadata) -> Result<()> {
    for part in parts(rules, metadata) {
        let page = fs::read_to_string(part.path).with_context(|| format!("cannot read {}", part.path))?;
        let (before, _, after) =
            between(&page, part.name).with_context(|| format!("{} has no marks for its {}", part.path, part.name))?;
        fs::write(part.path, format!("{before}{}{after}", part.text))?;
    }
    Ok(())
}

fn parts(rules: &Rules, metadata: &Metadata) -> [Part; 2] {
    [
        Part { path: "docs/reference/dependencies.md", name: "dependencies", text: dependencies(rules) },
        Part { path: "ARCHITECTURE.md", name: "crates", text: picture(rules, metadata) },
    ]
}

/// The text before, between and behind two marks, the marks outside.
fn between<'a>(page: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let begin = format!("<!-- {name}: written by cargo xtask tidy --write -->\n");
    let begin = page.find(&begin)? + begin.len();
    let end = begin + page[begin..].find(&format!("<!-- end of {name} -->\n"))?;
    Some((&page[..begin], &page[begin..end], &page[end..]))
}

fn dependencies(rules: &Rules) -> String {
    let mut text = String::from("| dependency | used by | in tests by | why |\n| --- | --- | --- | --- |\n");
    for d in &rules.dependencies {
        text.push_str(&format!("| `{}` | {} | {} | {} |\n", d.name, d.crates.join(", "), d.tests.join(", "), d.why));
    }
    text
}

/// A line for each crate: it is indented by how many crates lie below it, one above the other, and
/// names those that it uses, without those that these use.
fn picture(rules: &Rules, metadata: &Metadata) -> String {
    let members: BTreeMap<&str, &Package> = metadata.members().map(|member| (member.short_name(), member)).collect();
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut floors: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    // In this order each crate comes behind those that it uses; `crates` reports where it does not.
    for name in rules.order.iter().map(String::as_str) {
        let Some(member) = members.get(name) else { continue };
        let direct: BTreeSet<&str> = member
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.is_none())
            .filter_map(|dependency| {
                let used = members.values().find(|member| member.name == dependency.name)?;
                Some(used.short_name())
            })
            .collect();
        let below: BTreeSet<&str> = direct.iter().filter_map(|used| all.get(used)).flatten().copied().collect();
        let floor = direct.iter().filter_map(|used| floors.get(used)).max().map_or(0, |floor| floor + 1);
        let named: BTreeSet<&str> = direct.difference(&below).copied().collect();
        all.insert(name, direct.union(&below).copied().collect());
        floors.insert(name, floor);
        let shown: Vec<&str> = rules.order.iter().map(String::as_str).filter(|used| named.contains(used)).collect();
        lines.push([
            format!("{}{name}", "  ".repeat(floor)),
            shown.join(" "),
            member.description.clone().unwrap_or_default(),
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0) + 2;
    let (first, second) = (width(0), width(1));
    let text: Vec<String> = lines
        .iter()
        .map(|[name, used, what]| format!("{name:<first$}{used:<second$}{what}").trim_end().into())
        .collect();
    format!("```text\n{}\n```\n", text.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata;
    use crate::tidy::rules::Dependency;

    fn rules() -> Rules {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Rules {
            order: list(&["wire", "tcp", "engine", "lost"]),
            dependencies: vec![Dependency {
                name: "libc".into(),
                crates: list(&["engine"]),
                tests: list(&["tcp"]),
                why: "system calls".into(),
            }],
            ..Rules::default()
        }
    }

    fn metadata() -> Metadata {
        let package = |name: &str, uses: &[&str]| Package {
            name: name.into(),
            id: name.into(),
            description: Some(format!("{name}.")),
            dependencies: uses
                .iter()
                .map(|name| metadata::Dependency { name: (*name).into(), kind: None, rename: None })
                .collect(),
            ..Package::default()
        };
        Metadata {
            packages: vec![
                package("baton-engine", &["baton-wire", "baton-tcp", "libc"]),
                package("baton-tcp", &["baton-wire"]),
                package("baton-wire", &[]),
                package("libc", &[]),
            ],
            workspace_members: ["baton-engine", "baton-tcp", "baton-wire"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn the_picture_leaves_out_what_follows() {
        let lines: Vec<String> = picture(&rules(), &metadata())
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines, ["```text", "wire baton-wire.", "tcp wire baton-tcp.", "engine tcp baton-engine.", "```"]);
        assert!(picture(&rules(), &metadata()).contains("\n    engine"));
    }

    #[test]
    fn parts_are_compared_between_their_marks() {
        let page = |part: &Part, text: &str| File {
            path: part.path.into(),
            text: format!(
                "a\n<!-- {0}: written by cargo xtask tidy --write -->\n{text}<!-- end of {0} -->\nb\n",
                part.name
            ),
        };
        let found = |files: &[File]| {
            let mut findings = Vec::new();
            check(&rules(), &metadata(), files, &mut findings);
            findings.len()
        };
        let [one, two] = parts(&rules(), &metadata());
        assert_eq!(found(&[page(&one, &one.text), page(&two, &two.text)]), 0);
        assert_eq!(found(&[page(&one, "| other |\n"), page(&two, &two.text)]), 1);
        assert_eq!(found(&[]), 2);
    }
}
