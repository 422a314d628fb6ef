//! The line ratchet: files stay small, long ones only shrink.
//!
//! A Rust file has at most 800 lines. One of more than 500 is recorded in
//! `xtask/ratchet.toml` with its length, which may only fall: `cargo xtask tidy
//! --write` lowers the record, never raises it. Adding a file to the record is
//! done by hand, and seen in review.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::{File, Finding};

const PATH: &str = "xtask/ratchet.toml";
const FREE: usize = 500;
const MOST: usize = 800;

/// Recorded lengths, by file.
pub type Record = BTreeMap<String, usize>;

/// Reads the record.
///
/// # Errors
/// If it cannot be read or understood.
pub fn load() -> Result<Record> {
    let text = fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    toml::from_str(&text).with_context(|| format!("cannot understand {PATH}"))
}

/// Checks all files against the record.
pub fn check(record: &Record, files: &[File], findings: &mut Vec<Finding>) {
    let mut found = |path: &str, message: String| {
        findings.push(Finding { path: path.into(), line: 0, rule: "length", message });
    };
    for (path, lines) in lengths(files) {
        if lines > MOST {
            found(path, format!("{lines} lines, more than {MOST}: split it by concept"));
        }
        match record.get(path) {
            None if lines > FREE => {
                found(path, format!("{lines} lines, more than {FREE}: split it, or record it in {PATH}"));
            }
            Some(&recorded) if lines > recorded => {
                found(path, format!("{lines} lines; it may only shrink from its {recorded} in {PATH}"));
            }
            Some(&recorded) if lines < recorded => {
                found(path, format!("{lines} lines, fewer than its {recorded} in {PATH}: cargo xtask tidy --write"));
            }
            _ => {}
        }
    }
    for path in record.keys() {
        if !lengths(files).any(|(known, _)| known == path) {
            found(path, format!("in {PATH}, but there is no such file: cargo xtask tidy --write"));
        }
    }
}

/// Lowers the record to what the files are now.
///
/// # Errors
/// If it cannot be written.
pub fn write(record: &Record, files: &[File]) -> Result<()> {
    let mut text = String::from(
        "# Rust files of more than 500 lines, with their lengths, which may only fall.\n\
         # `cargo xtask tidy --write` lowers them; see xtask/src/tidy/ratchet.rs.\n",
    );
    for (path, lines) in lowered(record, files) {
        text.push_str(&format!("\"{path}\" = {lines}\n"));
    }
    fs::write(PATH, text).with_context(|| format!("cannot write {PATH}"))
}

fn lowered(record: &Record, files: &[File]) -> Record {
    lengths(files)
        .filter(|(_, lines)| *lines > FREE)
        .filter_map(|(path, lines)| Some((path.to_owned(), lines.min(*record.get(path)?))))
        .collect()
}

fn lengths(files: &[File]) -> impl Iterator<Item = (&str, usize)> {
    files.iter().filter(|f| f.path.ends_with(".rs")).map(|f| (f.path.as_str(), f.text.lines().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, lines: usize) -> File {
        File { path: path.into(), text: "x\n".repeat(lines) }
    }

    fn count(record: &[(&str, usize)], files: &[File]) -> usize {
        let mut findings = Vec::new();
        let record = record.iter().map(|&(path, lines)| (path.to_owned(), lines)).collect();
        check(&record, files, &mut findings);
        findings.len()
    }

    #[test]
    fn files_stay_small_and_long_ones_only_shrink() {
        assert_eq!(count(&[], &[file("a.rs", 500)]), 0);
        assert_eq!(count(&[], &[file("a.rs", 501)]), 1);
        assert_eq!(count(&[("a.rs", 600)], &[file("a.rs", 600)]), 0);
        assert_eq!(count(&[("a.rs", 600)], &[file("a.rs", 601)]), 1);
        assert_eq!(count(&[("a.rs", 600)], &[file("a.rs", 599)]), 1);
        assert_eq!(count(&[("a.rs", 801)], &[file("a.rs", 801)]), 1);
        assert_eq!(count(&[("gone.rs", 600)], &[]), 1);
        assert_eq!(count(&[], &[file("a.csv", 5000)]), 0);
    }

    #[test]
    fn writing_lowers_and_forgets_but_never_raises_or_adds() {
        let record = [("a.rs", 600), ("b.rs", 600), ("c.rs", 600), ("gone.rs", 600)];
        let record: Record = record.iter().map(|&(path, lines)| (path.to_owned(), lines)).collect();
        let files = [file("a.rs", 550), file("b.rs", 650), file("c.rs", 400), file("new.rs", 700)];
        let expected: Record = [("a.rs".to_owned(), 550), ("b.rs".to_owned(), 600)].into();
        assert_eq!(lowered(&record, &files), expected);
    }
}
