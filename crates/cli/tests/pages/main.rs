//! The pages for people: their commands run, and those made from the program are up to date.

mod commands;
mod experiments;
mod fences;
mod generated;
mod reasons;
mod sources;

use std::path::{Path, PathBuf};

/// The workspace's directory.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/NAME").to_owned()
}
