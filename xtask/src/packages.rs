//! `cargo xtask packages`: the crates that can be published, as they would be uploaded.
//!
//! * cargo packs them all without a complaint, as one set: a crate of the set may need another that no
//!   registry has yet.
//! * Each says what a registry shows of it.
//! * Each package has every file of its crate except tests and benchmarks, which need crates that are
//!   not published; and every file that its sources include.
//! * Dependencies of theirs and of the programs build with the oldest Rust that the workspace names.
//!
//! With `--build`, each package is also built from its own files, and so are the examples of `baton`,
//! which takes minutes. Cargo's own check would unpack them into the user's cache, and find the old
//! files there the next time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::graph::Graph;
use crate::run::{self, cargo};
use crate::tidy::metadata::{Metadata, Package};

/// Folders of a crate that its package leaves out (`exclude` in the workspace's `Cargo.toml`).
const LEFT_OUT: [&str; 3] = ["benches", "tests", "proptest-regressions"];

/// Warnings of cargo that are meant: tests are left out, and there is no public repository yet.
const MEANT: [&str; 3] =
    ["ignoring test `", "ignoring benchmark `", "manifest has no documentation, homepage or repository"];

/// `cargo xtask packages [--build]`.
///
/// # Errors
/// If cargo or tar fails.
pub fn command(flags: &[&str]) -> Result<ExitCode> {
    let findings = check()?;
    if findings == 0 && flags.contains(&"--build") {
        build(&published(&Metadata::load()?))?;
    }
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks all packages without building them, prints the findings and returns their number.
///
/// # Errors
/// If cargo or tar fails.
pub fn check() -> Result<usize> {
    let metadata = Metadata::load()?;
    let packages = published(&metadata);
    let mut findings = complaints(&packages)?;
    for package in &packages {
        let told =
            shown(package).into_iter().map(|what| format!("{}: {what} is missing from Cargo.toml", package.name));
        findings.extend(told);
        let missing = missing(package)?.into_iter().map(|file| format!("{}: its package lacks {file}", package.name));
        findings.extend(missing);
    }
    findings.extend(too_new(&metadata.members().collect::<Vec<_>>())?);
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("{} packages, {} findings", packages.len(), findings.len());
    Ok(findings.len())
}

/// Our packages that `Cargo.toml` does not keep from being published.
fn published(metadata: &Metadata) -> Vec<&Package> {
    metadata.members().filter(|package| package.publish.is_none()).collect()
}

/// Packs all packages and returns what cargo warns of.
fn complaints(packages: &[&Package]) -> Result<Vec<String>> {
    let mut command = cargo();
    command.args(["package", "--no-verify", "--offline", "--locked", "--allow-dirty"]);
    for package in packages {
        command.args(["--package", &package.name]);
    }
    let out = command.env("CARGO_TERM_COLOR", "never").output().context("cannot start cargo")?;
    let told = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        bail!("{}: {}\n{told}", run::line(&command), out.status);
    }
    Ok(warnings(&told).map(str::to_owned).collect())
}

/// Builds each package by itself, where the others are what was packed too.
fn build(packages: &[&Package]) -> Result<()> {
    let top = run::target().join("packages");
    let members: Vec<String> = packages.iter().map(|package| full_name(package)).collect();
    let mut manifest = format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[patch.crates-io]\n");
    for package in packages {
        let full = full_name(package);
        let directory = top.join(&full);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&top)?;
        run::succeed(
            run::program("tar", &["--extract", "--gzip", "--file"]).arg(packed(package)).arg("--directory").arg(&top),
        )?;
        manifest.push_str(&format!("{} = {{ path = \"{full}\" }}\n", package.name));
    }
    fs::write(top.join("Cargo.toml"), manifest)?;
    fs::copy("Cargo.lock", top.join("Cargo.lock"))?;
    for package in packages {
        let mut command = cargo();
        command.args(["check", "--offline", "--lib", "--examples", "--package", &package.name]);
        run::succeed(command.current_dir(&top).arg("--target-dir").arg("target"))?;
    }
    Ok(())
}

/// The name of a package with its version.
fn full_name(package: &Package) -> String {
    format!("{}-{}", package.name, package.version)
}

/// The file that cargo packs a package into.
fn packed(package: &Package) -> PathBuf {
    run::target().join("package").join(format!("{}.crate", full_name(package)))
}

/// The warnings in cargo's output that are not meant.
fn warnings(told: &str) -> impl Iterator<Item = &str> {
    let warnings = told.lines().filter_map(|line| line.strip_prefix("warning: "));
    warnings.filter(|warning| !MEANT.iter().any(|start| warning.starts_with(start)))
}

/// The fields missing of those that a registry shows of a package.
fn shown(package: &Package) -> Vec<&'static str> {
    let given = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("readme", package.readme.is_some()),
        ("keywords", !package.keywords.is_empty()),
        ("categories", !package.categories.is_empty()),
        ("rust-version", package.rust_version.is_some()),
    ];
    given.into_iter().filter(|(_, is_given)| !is_given).map(|(what, _)| what).collect()
}

/// Files that a package needs and lacks, as paths in its crate.
fn missing(package: &Package) -> Result<Vec<String>> {
    let name = full_name(package);
    let list = run::capture(run::program("tar", &["--list", "--gzip", "--file"]).arg(packed(package)))?;
    let has: BTreeSet<PathBuf> =
        list.lines().filter_map(|path| Path::new(path).strip_prefix(&name).ok()).map(Into::into).collect();
    let directory = Path::new(&package.manifest_path).parent().context("a manifest is in a directory")?;
    let mut needs: BTreeSet<PathBuf> = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"].map(Into::into).into();
    for path in files(directory)? {
        if let Ok(text) = fs::read_to_string(directory.join(&path)) {
            needs.extend(included(&text).map(|name| plain(&path.with_file_name("").join(name))));
        }
        needs.insert(path);
    }
    Ok(needs.difference(&has).map(|path| path.display().to_string()).collect())
}

/// The files of a crate that git knows or would take, except those that its package leaves out.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut command = run::program("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = run::capture(command.current_dir(directory))?;
    let files = list.split('\0').filter(|path| !path.is_empty() && directory.join(path).exists()).map(PathBuf::from);
    Ok(files.filter(|path| !LEFT_OUT.iter().any(|folder| path.starts_with(folder))).collect())
}

/// Names of the files that a source in Rust or C includes, as it writes them.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let starts = ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \"", "#include \""];
    starts.into_iter().flat_map(move |start| text.split(start).skip(1)).filter_map(|rest| rest.split('"').next())
}

/// A path without `..` as far as that goes: one that leaves the crate keeps it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Packages from outside that a build of ours compiles and that need a newer Rust than ours name.
fn too_new(packages: &[&Package]) -> Result<Vec<String>> {
    let names: Vec<String> = packages.iter().map(|package| package.name.clone()).collect();
    let oldest = packages.iter().filter_map(|package| package.rust_version.as_deref()).min_by_key(|v| numbers(v));
    let oldest = oldest.context("no package names its oldest Rust")?;
    let graph = Graph::load()?;
    let compiled = graph.outside(&names, |kind, _| kind != Some("dev"));
    let newer = compiled.into_iter().filter_map(|package| {
        let needs = package.rust_version.as_deref().filter(|needs| numbers(needs) > numbers(oldest))?;
        Some(format!("{} {} needs Rust {needs}, and we name {oldest}", package.name, package.version))
    });
    Ok(newer.collect())
}

/// A version as numbers, to be compared.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_that_is_not_meant_is_told() {
        let told = "   Packaging baton-wire v0.2.0\n\
                    warning: ignoring test `parts` as `tests/parts/main.rs` is not included in the published package\n\
                    warning: manifest has no documentation, homepage or repository\n  |\n\
                    warning: readme `x` appears to be a path outside of the package\n    Packaged 3 files\n";
        let told: Vec<&str> = warnings(told).collect();
        assert_eq!(told, ["readme `x` appears to be a path outside of the package"]);
    }

    #[test]
    fn included_files_are_found_where_the_source_names_them() {
        let text = "const A: &str = include_str!(\"a.txt\");\n#include \"bpf.h\"\n#include <linux/bpf.h>\n";
        let named: Vec<PathBuf> = included(text).map(|name| plain(&Path::new("src/x").join(name))).collect();
        assert_eq!(named, [Path::new("src/x/a.txt"), Path::new("src/x/bpf.h")]);
        assert_eq!(plain(Path::new("src/../programs/./bpf.h")), Path::new("programs/bpf.h"));
        assert_eq!(plain(Path::new("src/../../engine/x")), Path::new("../engine/x"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("1.88") < numbers("1.100.0"));
        assert_eq!(numbers("1.88"), numbers("1.88.0"));
    }
}
