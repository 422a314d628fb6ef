//! The output of `cargo metadata`: the few fields that are used.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run::{self, cargo};

/// Packages, and which of them are ours.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    /// Ours and those that we depend on, directly or not.
    pub packages: Vec<Package>,
    /// Ids of ours.
    pub workspace_members: Vec<String>,
}

/// A package of the workspace, or one that it depends on.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Package {
    /// Its name on crates.io, or in our workspace.
    pub name: String,
    /// An opaque id.
    pub id: String,
    /// SPDX expression.
    pub license: Option<String>,
    /// Its purpose, in a sentence.
    pub description: Option<String>,
    /// The version in its manifest.
    pub version: String,
    /// Path of the page that a registry shows.
    pub readme: Option<String>,
    /// Words by which a registry finds it.
    pub keywords: Vec<String>,
    /// The registry's categories.
    pub categories: Vec<String>,
    /// The oldest Rust that builds it.
    pub rust_version: Option<String>,
    /// Registries that may have it: none of them if empty, any without a list.
    pub publish: Option<Vec<String>>,
    /// Absolute path of its `Cargo.toml`.
    pub manifest_path: String,
    /// Edges to the packages that it depends on.
    pub dependencies: Vec<Dependency>,
    /// Libraries, binaries, tests and benches that it builds.
    pub targets: Vec<Target>,
}

/// An edge to another package.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The other's name.
    pub name: String,
    /// `dev`, `build`, or none.
    pub kind: Option<String>,
    /// The name that the package uses for it, if not its own.
    pub rename: Option<String>,
}

/// A library, binary, test or bench.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// The name that cargo uses for it.
    pub name: String,
    /// `lib`, `bin`, `bench`, …
    pub kind: Vec<String>,
}

impl Metadata {
    /// Asks cargo, for Linux on this machine's architecture.
    ///
    /// # Errors
    /// If cargo fails, for example because `Cargo.lock` is not up to date.
    pub fn load() -> Result<Metadata> {
        serde_json::from_str(&ask()?).context("cannot understand cargo metadata")
    }

    /// Our own packages.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// All that cargo says of the workspace, as JSON.
///
/// # Errors
/// If cargo fails.
pub fn ask() -> Result<String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    run::capture(cargo().args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform]))
}

impl Package {
    /// The directory's name: `tcp` for `baton-tcp`.
    pub fn short_name(&self) -> &str {
        self.name.strip_prefix("baton-").unwrap_or(&self.name)
    }

    /// Names of its targets of a kind.
    pub fn targets_of_kind(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.targets.iter().filter(move |t| t.kind.iter().any(|k| k == kind)).map(|t| t.name.as_str())
    }
}
