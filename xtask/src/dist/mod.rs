//! `cargo xtask dist` and `cargo xtask install`: the files that users get.
//!
//! ```text
//!   cargo build --profile dist, or --from DIRECTORY
//!        │
//!      tree      every file at its place          library   libbaton.so, with versions
//!        │                                        notices   licences of dependencies
//!        ├── archive  tarballs: the tree, and its debug information
//!        ├── debian   a .deb of the tree
//!        └── install  the tree, copied into DESTDIR
//! ```
//!
//! All three have the same files at the same places. Files carry the time of the last commit,
//! so that the same programs give the same packages.

mod archive;
mod debian;
mod install;
mod library;
mod notices;
mod symbols;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, process};

use anyhow::{Context, Result, bail};

use crate::run::{self, cargo};
use crate::tidy::metadata::Metadata;
use tree::Tree;

/// The release: all crates of the workspace have one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cargo xtask dist [--from DIRECTORY] [--to DIRECTORY]`.
pub fn dist(arguments: &[String]) -> Result<ExitCode> {
    let [from, to] = options(arguments, ["--from", "--to"])?;
    let built = built(from)?;
    let to = to.map_or_else(|| run::target().join("dist"), PathBuf::from);
    let tree = Tree::make(&built, &to.join("tree"), "/usr")?;
    let time = commit_time()?;
    let mut packages = archive::make(&tree, &to, &time)?;
    packages.push(debian::make(&tree, &to, &time)?);
    for package in packages {
        println!("{:>8} KB  {}", fs::metadata(&package)?.len().div_ceil(1000), package.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask install [--from DIRECTORY] [--destdir DIRECTORY] [--prefix DIRECTORY]`.
pub fn install(arguments: &[String]) -> Result<ExitCode> {
    let [from, destdir, prefix] = options(arguments, ["--from", "--destdir", "--prefix"])?;
    let prefix = prefix.unwrap_or_else(|| "/usr/local".into());
    if !prefix.starts_with('/') || prefix.ends_with('/') {
        bail!("--prefix {prefix}: must be an absolute path without a slash at its end, such as /usr/local");
    }
    let built = built(from)?;
    let scratch = run::target().join(format!("install-{}", process::id()));
    let tree = Tree::make(&built, &scratch, &prefix)?;
    install::copy(&tree, Path::new(&destdir.unwrap_or_default()))?;
    tree.remove()?;
    Ok(ExitCode::SUCCESS)
}

/// The values of options that each take one.
fn options<const N: usize>(arguments: &[String], known: [&str; N]) -> Result<[Option<String>; N]> {
    let mut values = [const { None }; N];
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        let Some(place) = known.iter().position(|name| name == option) else {
            bail!("unknown argument {option}; known: {}", known.join(" "));
        };
        values[place] = Some(rest.next().with_context(|| format!("{option} needs a value"))?.clone());
    }
    Ok(values)
}

/// Where the programs and libraries are: built now, unless the caller names a directory.
fn built(from: Option<String>) -> Result<PathBuf> {
    if let Some(directory) = from {
        return Ok(directory.into());
    }
    let mut command = cargo();
    command.args(["build", "--locked", "--profile", "dist"]);
    for package in packages(&Metadata::load()?)? {
        command.args(["--package", &package]);
    }
    run::succeed(&mut command)?;
    Ok(run::target().join("dist"))
}

/// The packages that make what is shipped, found by what they build.
fn packages(metadata: &Metadata) -> Result<[String; 3]> {
    let of = |kind: &str, target: &str| -> Result<String> {
        let found = metadata.members().find(|package| package.targets_of_kind(kind).any(|name| name == target));
        Ok(found.with_context(|| format!("no package builds the {kind} {target}"))?.name.clone())
    };
    Ok([of("bin", "baton")?, of("cdylib", "baton_shim")?, of("staticlib", "baton")?])
}

/// When the last commit was made, in seconds since 1970: the time of every file in a package.
/// `SOURCE_DATE_EPOCH` goes before it, as reproducible builds have it.
fn commit_time() -> Result<String> {
    if let Ok(time) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(time);
    }
    let time = run::capture(&mut run::program("git", &["log", "-1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_take_a_value_each() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let known = ["--from", "--to"];
        assert_eq!(options(&words("--to a"), known).unwrap(), [None, Some("a".into())]);
        assert_eq!(options(&[], known).unwrap(), [None, None]);
        for bad in ["--to", "a", "--form a"] {
            assert!(options(&words(bad), known).is_err(), "{bad}");
        }
    }
}
