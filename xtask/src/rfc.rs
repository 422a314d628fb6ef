//! `cargo xtask rfc`: which requirements of RFC 9293 and RFC 5961 are met.
//!
//! `crates/tcp/requirements.toml` lists them. Where the code decides one, a
//! comment cites it: `// MUST-13 (RFC 9293 §3.6.1): …`, `// RFC5961-3.2-1: …`;
//! the test that proves it says `// tests: MUST-13`. One that is not met has an
//! `exception` that says why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::tidy::{self, File};

const PATH: &str = "crates/tcp/requirements.toml";

/// The beginnings of ids.
const PREFIXES: &[&str] = &["MUST-", "SHLD-", "MAY-", "REC-", "RFC5961-"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Specification {
    requirement: Vec<Requirement>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    id: String,
    rfc: u16,
    section: String,
    text: String,
    exception: Option<String>,
}

/// The state of a requirement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Standing {
    Tested,
    Met,
    Excepted,
    Unaccounted,
}

impl Standing {
    fn words(self) -> &'static str {
        match self {
            Standing::Tested => "met and tested",
            Standing::Met => "met",
            Standing::Excepted => "not met, with a reason",
            Standing::Unaccounted => "NOT ACCOUNTED FOR",
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    id: String,
    rfc: u16,
    section: String,
    text: String,
    standing: Standing,
    /// Where the code decides it, as `file:line`.
    decided: Vec<String>,
    /// Where it is tested.
    tested: Vec<String>,
    exception: Option<String>,
}

#[derive(Debug, Default)]
struct Citations {
    decided: BTreeMap<String, Vec<String>>,
    tested: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Report {
    rows: Vec<Row>,
    /// Citations of ids that no requirement has, and requirements that are both
    /// met and excepted.
    problems: Vec<String>,
}

/// `cargo xtask rfc [--json] [--check]`.
pub fn command(flags: &[&str]) -> Result<ExitCode> {
    let report = report()?;
    if flags.contains(&"--json") {
        println!("{}", serde_json::to_string_pretty(&report.rows)?);
    } else {
        print_table(&report);
    }
    let wrong = flags.contains(&"--check") && report.wrong() > 0;
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the totals and the faults; returns the number of faults.
pub fn check() -> Result<usize> {
    let report = report()?;
    for row in report.rows.iter().filter(|row| row.standing == Standing::Unaccounted) {
        println!("{} (RFC {} §{}) has neither citation nor exception: {}", row.id, row.rfc, row.section, row.text);
    }
    print_totals(&report);
    Ok(report.wrong())
}

fn report() -> Result<Report> {
    let text = fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    let specification: Specification = toml::from_str(&text).with_context(|| format!("cannot understand {PATH}"))?;
    let mut files = tidy::files()?;
    // xtask's own examples are not citations.
    files.retain(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"));
    Ok(judge(&specification.requirement, &citations(&files)))
}

fn citations(files: &[File]) -> Citations {
    let mut citations = Citations::default();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            let (decided, tested) = cited(comment);
            let place = format!("{}:{}", file.path, index + 1);
            for id in decided {
                citations.decided.entry(id).or_default().push(place.clone());
            }
            for id in tested {
                citations.tested.entry(id).or_default().push(place.clone());
            }
        }
    }
    citations
}

/// The ids that a comment cites, as decided and as tested. After `tests:` all
/// ids are tested; else an id of RFC 9293 counts only with `(RFC 9293` behind
/// it, so that prose may speak of it.
fn cited(comment: &str) -> (Vec<String>, Vec<String>) {
    if let Some((_, list)) = comment.split_once("tests:") {
        return (Vec::new(), ids(list));
    }
    let decided =
        ids(comment).into_iter().filter(|id| id.starts_with("RFC") || comment.contains("(RFC 9293")).collect();
    (decided, Vec::new())
}

/// All ids in a text, each once.
fn ids(text: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.') {
        let number = PREFIXES.iter().find_map(|prefix| word.strip_prefix(prefix));
        if number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit())) {
            found.insert(word.trim_end_matches(['.', '-']).to_owned());
        }
    }
    found.into_iter().collect()
}

fn judge(requirements: &[Requirement], citations: &Citations) -> Report {
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    let known: BTreeSet<&str> = requirements.iter().map(|r| r.id.as_str()).collect();
    if known.len() < requirements.len() {
        problems.push(format!("{PATH} has an id twice"));
    }
    for (id, places) in citations.decided.iter().chain(&citations.tested) {
        if !known.contains(id.as_str()) {
            problems.push(format!("{}: cites {id}, which {PATH} does not have", places.join(", ")));
        }
    }
    for r in requirements {
        let decided = citations.decided.get(&r.id).cloned().unwrap_or_default();
        let tested = citations.tested.get(&r.id).cloned().unwrap_or_default();
        let standing = match (decided.is_empty(), tested.is_empty(), &r.exception) {
            (false, false, None) => Standing::Tested,
            (false, true, None) => Standing::Met,
            (true, _, Some(_)) => Standing::Excepted,
            (true, _, None) => Standing::Unaccounted,
            (false, _, Some(_)) => {
                problems.push(format!("{} is cited as met at {}, but has an exception", r.id, decided.join(", ")));
                Standing::Excepted
            }
        };
        rows.push(Row {
            id: r.id.clone(),
            rfc: r.rfc,
            section: r.section.clone(),
            text: r.text.clone(),
            standing,
            decided,
            tested,
            exception: r.exception.clone(),
        });
    }
    Report { rows, problems }
}

impl Report {
    fn number(&self, standing: Standing) -> usize {
        self.rows.iter().filter(|row| row.standing == standing).count()
    }

    fn wrong(&self) -> usize {
        self.number(Standing::Unaccounted) + self.problems.len()
    }
}

fn print_table(report: &Report) {
    for row in &report.rows {
        println!("{:<14} RFC {} §{:<9} {}", row.id, row.rfc, row.section, row.standing.words());
        println!("    {}", row.text);
        for place in &row.decided {
            println!("    decided at {place}");
        }
        for place in &row.tested {
            println!("    tested at  {place}");
        }
        if let Some(why) = &row.exception {
            println!("    because {why}");
        }
    }
    print_totals(report);
}

fn print_totals(report: &Report) {
    for problem in &report.problems {
        println!("{problem}");
    }
    for standing in [Standing::Tested, Standing::Met, Standing::Excepted, Standing::Unaccounted] {
        println!("{:>4} {}", report.number(standing), standing.words());
    }
    println!("{:>4} requirements", report.rows.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "crates/tcp/src/a.rs".into(), text: text.into() }
    }

    fn requirement(id: &str, exception: Option<&str>) -> Requirement {
        Requirement {
            id: id.into(),
            rfc: 9293,
            section: "3".into(),
            text: "x".into(),
            exception: exception.map(str::to_owned),
        }
    }

    #[test]
    fn comments_cite_and_prose_does_not() {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(cited(" MUST-13 (RFC 9293 §3.6.1): linger"), (owned(&["MUST-13"]), vec![]));
        assert_eq!(cited(" MUST-4, SHLD-2 (RFC 9293 §3.1)."), (owned(&["MUST-4", "SHLD-2"]), vec![]));
        assert_eq!(cited(" RFC5961-3.2-1: exact match resets"), (owned(&["RFC5961-3.2-1"]), vec![]));
        assert_eq!(cited(" tests: MUST-13, RFC5961-4.2-2."), (vec![], owned(&["MUST-13", "RFC5961-4.2-2"])));
        assert_eq!(cited(" as MUST-13 would have it"), (vec![], vec![]));
        assert_eq!(cited(" a MUST-have (RFC 9293)"), (vec![], vec![]));
    }

    #[test]
    fn requirements_are_judged_by_their_citations() {
        let requirements = [
            requirement("MUST-1", None),
            requirement("MUST-2", None),
            requirement("MUST-3", Some("no urgent data")),
            requirement("MUST-4", None),
        ];
        let citations = citations(&[file(
            "// MUST-1 (RFC 9293 §3.1): a\nlet x = 1; // MUST-2 (RFC 9293 §3.2)\n// tests: MUST-1\n// tests: MUST-4\n",
        )]);
        let report = judge(&requirements, &citations);
        let standings: Vec<Standing> = report.rows.iter().map(|row| row.standing).collect();
        // A test alone does not say where the code decides.
        assert_eq!(standings, [Standing::Tested, Standing::Met, Standing::Excepted, Standing::Unaccounted]);
        assert_eq!(report.rows[1].decided, ["crates/tcp/src/a.rs:2"]);
        assert_eq!(report.wrong(), 1);
    }

    #[test]
    fn unknown_ids_and_contradictions_are_problems() {
        let citations = citations(&[file("// MUST-99 (RFC 9293 §9)\n// MUST-3 (RFC 9293 §3)\n// tests: MUST-98\n")]);
        let report = judge(&[requirement("MUST-3", Some("why"))], &citations);
        assert_eq!(report.problems.len(), 3, "{:?}", report.problems);
        let twice = judge(&[requirement("MUST-3", Some("a")), requirement("MUST-3", Some("a"))], &Citations::default());
        assert_eq!(twice.wrong(), 1);
    }
}
