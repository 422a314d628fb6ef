//! Which packages depend on which, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::tidy::metadata::{self, Target};

/// The part of cargo's answer that [`metadata::Metadata`] leaves out.
#[derive(Deserialize)]
pub struct Graph {
    packages: Vec<Package>,
    resolve: Resolve,
}

/// A package, ours or from outside.
#[derive(Deserialize)]
pub struct Package {
    id: String,
    /// As the registry has it: `aya`.
    pub name: String,
    /// The version that cargo resolved.
    pub version: String,
    /// SPDX expression.
    pub license: Option<String>,
    /// Address of its source.
    pub repository: Option<String>,
    /// The authors that its manifest names.
    pub authors: Vec<String>,
    /// The oldest Rust that builds it, by its own word.
    pub rust_version: Option<String>,
    /// Absolute path of its `Cargo.toml`.
    pub manifest_path: String,
    /// `None` for ours.
    source: Option<String>,
    targets: Vec<Target>,
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

impl Graph {
    /// Asks cargo.
    ///
    /// # Errors
    /// If cargo fails.
    pub fn load() -> Result<Graph> {
        serde_json::from_str(&metadata::ask()?).context("cannot understand cargo metadata")
    }

    /// Packages from outside that those of ours with these names lead to, sorted by name. `follow`
    /// says which edges count: it gets the edge's kind (`dev`, `build`, or none) and where it leads.
    pub fn outside(&self, ours: &[String], follow: impl Fn(Option<&str>, &Package) -> bool) -> Vec<&Package> {
        let by_id: BTreeMap<&str, &Package> = self.packages.iter().map(|package| (&*package.id, package)).collect();
        let edges: BTreeMap<&str, &[Edge]> = self.resolve.nodes.iter().map(|node| (&*node.id, &*node.deps)).collect();
        let roots = self.packages.iter().filter(|p| p.source.is_none() && ours.contains(&p.name));
        let mut left: Vec<&str> = roots.map(|package| &*package.id).collect();
        let mut seen: BTreeSet<&str> = left.iter().copied().collect();
        while let Some(id) = left.pop() {
            for edge in edges.get(id).copied().unwrap_or_default() {
                let Some(to) = by_id.get(&*edge.pkg) else { continue };
                let counts = edge.dep_kinds.iter().any(|kind| follow(kind.kind.as_deref(), to));
                if counts && seen.insert(&edge.pkg) {
                    left.push(&edge.pkg);
                }
            }
        }
        let mut outside: Vec<&Package> =
            seen.iter().map(|id| by_id[id]).filter(|package| package.source.is_some()).collect();
        outside.sort_by_key(|package| (&package.name, &package.version));
        outside
    }
}

impl Package {
    /// True for a macro, which runs in the compiler and is not linked.
    pub fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
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
                rust_version: None,
                manifest_path: String::new(),
                source: (!id.starts_with("our")).then(|| "registry".into()),
                targets: vec![Target { name: id.into(), kind: vec![kind.into()] }],
            });
            graph.resolve.nodes.push(Node { id: id.into(), deps: edges.split_whitespace().map(edge).collect() });
        }
        graph
    }

    const GRAPH: &str = "our-program: our-library a a-macro b/build c/dev\n\
         our-library: d\n\
         our-test: e\n\
         a: f/build\na-macro: g\nb:\nc:\nd: a\ne:\nf:\ng:";

    fn names(follow: impl Fn(Option<&str>, &Package) -> bool) -> Vec<String> {
        let graph = graph(GRAPH);
        graph.outside(&["our-program".into()], follow).iter().map(|p| p.name.clone()).collect()
    }

    #[test]
    fn what_is_linked_leaves_out_macros_and_what_they_use() {
        assert_eq!(names(|kind, package| kind.is_none() && !package.is_macro()), ["a", "d"]);
    }

    #[test]
    fn what_a_build_compiles_leaves_out_only_what_tests_use() {
        assert_eq!(names(|kind, _| kind != Some("dev")), ["a", "a-macro", "b", "d", "f", "g"]);
    }
}
