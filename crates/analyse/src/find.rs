//! Captures below a directory, known by their contents and not by their names.

use crate::read::{self, Input};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The outcome of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Captures, ordered by path, and everything that cannot be looked at, which reading will name.
    pub captures: Vec<PathBuf>,
    /// Files that are no captures.
    pub others: u64,
    /// One of these, as an example.
    pub example: Option<PathBuf>,
}

/// Looks for captures in a directory and all below it. Links are followed; a file or directory that is reached on
/// several ways counts once, so circles end. Devices, pipes and sockets are left out.
pub fn captures(directory: &Path) -> Found {
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(path) = rest.pop() {
        let Ok(facts) = fs::metadata(&path) else {
            // A link to nothing is no file; anything else is to be named.
            if fs::symlink_metadata(&path).is_ok_and(|link| !link.is_symlink()) {
                found.captures.push(path);
            }
            continue;
        };
        if !seen.insert((facts.dev(), facts.ino())) {
            continue;
        }
        if facts.is_dir() {
            match fs::read_dir(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
                Ok(entries) => rest.extend(entries.iter().map(fs::DirEntry::path)),
                Err(_) => found.captures.push(path),
            }
        } else if facts.is_file() {
            // Reading will name one that cannot be opened.
            if Input::open(&path, &Arc::default()).map_or(true, read::is_capture) {
                found.captures.push(path);
            } else {
                found.others += 1;
                found.example.get_or_insert(path);
            }
        }
    }
    found.captures.sort_unstable();
    found
}
