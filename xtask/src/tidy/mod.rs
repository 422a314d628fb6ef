//! `cargo xtask tidy`: the project's rules that a machine can check.
//!
//! * `crates`: a crate uses only crates above it; every dependency is on the
//!   allow-list with a reason and has an allowed licence.
//! * `source`: `unsafe` is only in files for it; pure crates do not call the operating system;
//!   no unfinished work is left.
//! * `names`, `used`: crates that are named exist; dependencies are used.
//! * `citations`: what is cited can be found from here.
//! * `growing`: public configurations, events and errors are open to new fields and cases.
//! * `english`: comments are in plain English, crate by crate.
//! * `circles`: no two modules of a folder import each other.
//! * `text`: paths of one machine, tabs, stray blanks.
//! * `made`: the dependency table and the picture of crates are up to date.
//! * `links`: links between pages lead somewhere.
//! * `ratchet`: files stay small, long ones only shrink.
//!
//! `xtask/tidy.toml` lists what the rules allow. Matters of taste are not checked.

pub mod metadata;

mod circles;
mod citations;
mod crates;
mod english;
mod growing;
mod licence;
mod links;
mod made;
mod names;
mod ratchet;
mod rules;
mod source;
mod text;
mod tokens;
mod used;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::run;
use metadata::Metadata;
use rules::Rules;

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The file, from the top of the workspace.
    pub path: String,
    /// Its line, from 1; 0 for the whole file.
    pub line: usize,
    /// The rule's name, as exceptions use it.
    pub rule: &'static str,
    /// The fault and its remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.message)
    }
}

/// A file under version control, or about to be.
#[derive(PartialEq, Eq, Debug)]
pub struct File {
    /// From the top of the workspace.
    pub path: String,
    /// Everything in it, as UTF-8.
    pub text: String,
}

/// `cargo xtask tidy [--write]`.
pub fn command(flags: &[&str]) -> Result<ExitCode> {
    if flags.contains(&"--write") {
        write()?;
    }
    Ok(if check()? == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks everything, prints the findings and returns their number.
pub fn check() -> Result<usize> {
    let rules = Rules::load()?;
    let files = files()?;
    let metadata = Metadata::load()?;
    let mut findings = Vec::new();
    crates::check(&rules, &metadata, &mut findings);
    made::check(&rules, &metadata, &files, &mut findings);
    links::check(&files, &mut findings);
    for file in &files {
        text::check(file, &mut findings);
        if file.path.ends_with(".rs") {
            source::check(&rules, file, &mut findings);
        }
    }
    names::check(&rules, &metadata, &mut findings);
    used::check(&metadata, &files, &mut findings);
    circles::check(&files, &mut findings);
    citations::check(&files, &mut findings);
    growing::check(&files, &mut findings);
    english::check(&rules, &files, &mut findings);
    ratchet::check(&ratchet::load()?, &files, &mut findings);
    let mut findings = excepted(&rules, findings);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} files, {} packages, {} findings", files.len(), metadata.packages.len(), findings.len());
    Ok(findings.len())
}

/// Removes the findings that `tidy.toml` excepts, and adds the exceptions that
/// nothing needs any more.
fn excepted(rules: &Rules, findings: Vec<Finding>) -> Vec<Finding> {
    let mut used = BTreeSet::new();
    let mut left: Vec<Finding> = findings
        .into_iter()
        .filter(|finding| {
            let by = rules.exceptions.iter().position(|e| e.rule == finding.rule && e.path == finding.path);
            used.extend(by);
            by.is_none()
        })
        .collect();
    for (index, exception) in rules.exceptions.iter().enumerate() {
        if !used.contains(&index) {
            left.push(Finding {
                path: rules::PATH.into(),
                line: 0,
                rule: "exception",
                message: format!(
                    "nothing needs the exception of {} from {}: remove it",
                    exception.path, exception.rule
                ),
            });
        }
    }
    left
}

/// Updates generated parts.
pub fn write() -> Result<()> {
    let rules = Rules::load()?;
    made::write(&rules, &Metadata::load()?)?;
    let files = files()?;
    english::write(&files)?;
    ratchet::write(&ratchet::load()?, &files)
}

/// All text files that git knows or would take.
pub fn files() -> Result<Vec<File>> {
    let list =
        run::capture(&mut run::program("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let mut files = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            // Deleted, but not yet from the index.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e).with_context(|| format!("cannot read {path}")),
        };
        // Files that are not text (captures, corpora) have no rules.
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str) -> Finding {
        Finding { path: path.into(), line: 1, rule: "pure", message: String::new() }
    }

    #[test]
    fn an_exception_takes_its_findings_and_must_be_needed() {
        let mut rules = Rules::default();
        rules.exceptions.push(rules::Exception { rule: "pure".into(), path: "a.rs".into(), why: "x".into() });
        assert_eq!(excepted(&rules, vec![finding("a.rs"), finding("a.rs"), finding("b.rs")]), [finding("b.rs")]);
        let unneeded = excepted(&rules, vec![]);
        assert_eq!(unneeded.len(), 1);
        assert_eq!(unneeded[0].rule, "exception");
    }
}
