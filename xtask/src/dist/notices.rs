//! `copyright`: Baton's licences, and those of what is linked into its programs.
//!
//! The list follows `cargo metadata` from the shipped packages along normal dependencies. Build
//! dependencies, test dependencies and macros, which run in the compiler, are not in the programs. Each
//! text is written once, with the names of those that it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::tidy::metadata::{self, Metadata};

/// How names of files with licences begin. `COPYING` is the GPL of a library that has a choice
/// of licences, of which we take the other.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The part of cargo's answer that [`Metadata`] leaves out.
#[derive(Deserialize)]
struct Graph {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    authors: Vec<String>,
    manifest_path: String,
    /// `None` for ours.
    source: Option<String>,
    targets: Vec<metadata::Target>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// The whole file.
pub fn text() -> Result<String> {
    let shipped = super::packages(&Metadata::load()?)?;
    let graph: Graph = serde_json::from_str(&metadata::ask()?).context("cannot understand cargo metadata")?;
    let mut text = String::from(
        "Baton: a TCP offload NIC in software.\n\n\
         Baton is licensed under the MIT licence or the Apache License 2.0, as you choose.\n\
         Both texts follow the list of the Rust crates that are linked into its programs.\n\
         Rust's standard library, which is linked into them too, has the same two licences:\n\
         Copyright The Rust Project contributors, https://www.rust-lang.org.\n\n",
    );
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let own = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        texts.entry(own.trim().to_owned()).or_default().insert("Baton".into());
    }
    for package in graph.linked(&shipped) {
        let name = format!("{} {}", package.name, package.version);
        text.push_str(&format!("{name}\n  licence: {}\n", package.license.as_deref().unwrap_or("see its text")));
        if !package.authors.is_empty() {
            text.push_str(&format!("  authors: {}\n", package.authors.join(", ")));
        }
        if let Some(repository) = &package.repository {
            text.push_str(&format!("  source: {repository}\n"));
        }
        let directory = Path::new(&package.manifest_path).parent().context("a manifest is in a directory")?;
        for licence in licences(directory)? {
            texts.entry(licence).or_default().insert(name.clone());
        }
    }
    for (licence, names) in texts {
        let names: Vec<String> = names.into_iter().collect();
        text.push_str(&format!("\n{}\n{}:\n\n{licence}\n", "-".repeat(78), names.join(", ")));
    }
    Ok(text)
}

impl Graph {
    /// Packages from outside that are linked into ours of these names, by name.
    fn linked(&self, ours: &[String]) -> Vec<&Package> {
        let by_id: BTreeMap<&str, &Package> = self.packages.iter().map(|package| (&*package.id, package)).collect();
        let edges: BTreeMap<&str, &[Edge]> = self.resolve.nodes.iter().map(|node| (&*node.id, &*node.deps)).collect();
        let roots = self.packages.iter().filter(|p| p.source.is_none() && ours.contains(&p.name));
        let mut left: Vec<&str> = roots.map(|package| &*package.id).collect();
        let mut seen: BTreeSet<&str> = left.iter().copied().collect();
        while let Some(id) = left.pop() {
            for edge in edges.get(id).copied().unwrap_or_default() {
                let is_linked = edge.dep_kinds.iter().any(|kind| kind.kind.is_none());
                if is_linked && by_id.get(&*edge.pkg).is_some_and(|p| !p.is_macro()) && seen.insert(&edge.pkg) {
                    left.push(&edge.pkg);
                }
            }
        }
        let mut linked: Vec<&Package> =
            seen.iter().map(|id| by_id[id]).filter(|package| package.source.is_some()).collect();
        linked.sort_by_key(|package| (&package.name, &package.version));
        linked
    }
}

impl Package {
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

/// The licence texts of a package, and of a library in another language that it brings in a
/// directory of its own.
fn licences(directory: &Path) -> Result<Vec<String>> {
    let mut texts = texts_in(directory)?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            texts.extend(texts_in(&path)?);
        }
    }
    Ok(texts)
}

fn texts_in(directory: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.path().is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            texts.push(fs::read_to_string(entry.path())?.trim().replace('\r', ""));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(text: &str) -> Graph {
        let mut graph = Graph { packages: vec![], resolve: Resolve { nodes: vec![] } };
        for line in text.lines() {
            let (id, edges) = line.split_once(':').unwrap();
            let edge = |word: &str| {
                let (pkg, kind) = word.split_once('/').map_or((word, None), |(pkg, kind)| (pkg, Some(kind.to_owned())));
                Edge { pkg: pkg.into(), dep_kinds: vec![Kind { kind }] }
            };
            let kind = if id.ends_with("macro") { "proc-macro" } else { "lib" };
            graph.packages.push(Package {
                id: id.into(),
                name: id.into(),
                version: "1".into(),
                license: None,
                repository: None,
                authors: vec![],
                manifest_path: String::new(),
                source: (!id.starts_with("our")).then(|| "registry".into()),
                targets: vec![metadata::Target { name: id.into(), kind: vec![kind.into()] }],
            });
            graph.resolve.nodes.push(Node { id: id.into(), deps: edges.split_whitespace().map(edge).collect() });
        }
        graph
    }

    #[test]
    fn only_what_is_linked_is_listed() {
        let graph = graph(
            "our-program: our-library a a-macro b/build c/dev\n\
             our-library: d\n\
             our-test: e\n\
             a: f/build\na-macro: g\nb:\nc:\nd: a\ne:\nf:\ng:",
        );
        let names: Vec<&str> = graph.linked(&["our-program".into()]).iter().map(|p| &*p.name).collect();
        assert_eq!(names, ["a", "d"]);
    }
}
