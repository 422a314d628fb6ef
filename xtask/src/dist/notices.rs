//! `copyright`: Baton's licences, and those of what is linked into its programs.
//!
//! The list follows `cargo metadata` from the shipped packages along normal dependencies. Build
//! dependencies, test dependencies and macros, which run in the compiler, are not in the programs. Each
//! text is written once, with the names of those that it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::graph::Graph;
use crate::tidy::metadata::Metadata;

/// How names of files with licences begin. `COPYING` is the GPL of a library that has a choice
/// of licences, of which we take the other.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The whole file.
pub fn text() -> Result<String> {
    let shipped = super::packages(&Metadata::load()?)?;
    let graph = Graph::load()?;
    let linked = graph.outside(&shipped, |kind, package| kind.is_none() && !package.is_macro());
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
    for package in linked {
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
