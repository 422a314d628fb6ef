//! Debug information, kept apart from what runs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

/// Puts a program or library at `place`, without symbols and debug information. These go below
/// `debug` into a file that is named after the build id, where gdb and others look for it.
pub fn split(built: &Path, place: &Path, debug: &Path) -> Result<()> {
    let id = build_id(built)?;
    let (first, rest) = id.split_at_checked(2).context("a build id has more than one byte")?;
    let directory = debug.join(first);
    fs::create_dir_all(&directory)?;
    let apart = directory.join(format!("{rest}.debug"));
    run::succeed(run::program("objcopy", &["--only-keep-debug", "--compress-debug-sections"]).arg(built).arg(&apart))?;
    // A library keeps its dynamic symbols, and so does a program.
    run::succeed(run::program("objcopy", &["--strip-unneeded"]).arg(built).arg(place))
}

/// The note by which a program and its debug information find each other.
fn build_id(file: &Path) -> Result<String> {
    let notes = run::capture(run::program("readelf", &["--notes"]).arg(file))?;
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    Ok(id.with_context(|| format!("{} has no build id: the linker was run without --build-id", file.display()))?.into())
}
