//! Types that may grow: configurations, events and errors that the crate `baton` re-exports are
//! `#[non_exhaustive]`, so that a new field or case breaks no program outside.

use super::{File, Finding};

/// The crate that programs outside import.
const FACADE: &str = "crates/baton/src/lib.rs";

/// How the names of such types end.
const ENDS: [&str; 4] = ["Config", "Options", "Event", "Error"];

/// Checks every type that the facade re-exports under such a name.
pub fn check(files: &[File], findings: &mut Vec<Finding>) {
    let Some(facade) = files.iter().find(|file| file.path == FACADE) else { return };
    for (package, name) in exported(&facade.text) {
        let sources = format!("crates/{package}/src/");
        let mut sources = files.iter().filter(|file| file.path.starts_with(&sources));
        let Some((file, line)) = sources.find_map(|file| Some((file, declared(&file.text, name)?))) else {
            findings.push(found(FACADE, 0, format!("there is no type {name} in the crate {package}")));
            continue;
        };
        if !is_open(&file.text, line) {
            findings.push(found(&file.path, line, format!("{name} is for programs outside: add #[non_exhaustive]")));
        }
    }
}

fn found(path: &str, line: usize, message: String) -> Finding {
    Finding { path: path.into(), line, rule: "growing", message }
}

/// Crate and name of each type that is re-exported and may grow.
fn exported(text: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    for statement in text.split("pub use baton_").skip(1).filter_map(|rest| rest.split(';').next()) {
        let Some((package, path)) = statement.split_once("::") else { continue };
        // `Config as TcpConfig` is declared as `Config`.
        let declared = path.split(['{', '}', ',', ':']).filter_map(|item| item.split_whitespace().next());
        all.extend(declared.filter(|name| ENDS.iter().any(|end| name.ends_with(end))).map(|name| (package, name)));
    }
    all
}

/// The line, from 1, on which a public struct or enum is declared.
fn declared(text: &str, name: &str) -> Option<usize> {
    let is_it = |line: &str| {
        let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
        rest.is_some_and(|rest| rest.split(|c: char| !c.is_alphanumeric()).next() == Some(name))
    };
    text.lines().position(is_it).map(|index| index + 1)
}

/// Whether the attributes above a declaration say that it may grow.
fn is_open(text: &str, line: usize) -> bool {
    let above: Vec<&str> = text.lines().take(line - 1).collect();
    above.iter().rev().take_while(|line| line.starts_with("#[")).any(|line| *line == "#[non_exhaustive]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(export: &str, source: &str) -> Vec<(String, usize)> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let mut findings = Vec::new();
        check(&[file(FACADE, export), file("crates/port/src/tap.rs", source)], &mut findings);
        findings.into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn a_type_that_may_grow_says_so() {
        let export = "pub mod port {\n    pub use baton_port::tap::{Tap, TapOptions as Options};\n}\n";
        let open = "/// How.\n#[derive(Debug)]\n#[non_exhaustive]\npub struct TapOptions {\n";
        let closed = "/// How.\n#[non_exhaustive]\npub struct Tap;\n\n#[derive(Debug)]\npub struct TapOptions {\n";
        assert_eq!(findings(export, open), []);
        assert_eq!(findings(export, closed), [("crates/port/src/tap.rs".into(), 6)]);
        assert_eq!(findings("pub use baton_port::tap::Tap;", closed), [], "a port is not a configuration");
        assert_eq!(findings(export, "pub struct TapOptionsOfOld;"), [(FACADE.into(), 0)]);
    }
}
