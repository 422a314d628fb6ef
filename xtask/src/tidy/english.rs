//! English: turns of phrase that cost a reader more than they say, found in comments.
//!
//! `xtask/tidy.toml` has a number for each crate, of how many are left; it may only fall,
//! and `cargo xtask tidy --write` lowers it. A crate without a number has none left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::rules::{self, Rules};
use super::{File, Finding};

/// Comments that say nothing, word for word.
const EMPTY: &[&str] = &["Which.", "It.", "As there.", "Whose.", "See the file's head."];

/// Words that, with one other, make a comment that repeats the name of what it stands at:
/// `The table.`, `Its name.`
const DETERMINERS: &[&str] = &["A", "An", "The", "Its", "Their", "Our", "My", "Your", "His", "Her", "This", "That"];

/// Words that are never wanted; each stands alone.
const PHRASES: &[&str] =
    &["that is none", "likewise", "lest", "for whom", "whoever", "as there.", "as there,", "as there;"];

/// Openings of a sentence that put its subject or its verb where nobody looks for it.
const OPENINGS: &[&str] = &[
    "Of a ",
    "Of an ",
    "Of the ",
    "Of what ",
    "Of which ",
    "Of each ",
    "Of nothing ",
    "Who ",
    "Whose ",
    "Whom ",
    "So many ",
    "What ",
];

/// A place and what is wrong there.
type Fault = (usize, String);

/// Checks the comments of every file against the crates' numbers.
pub fn check(rules: &Rules, files: &[File], findings: &mut Vec<Finding>) {
    let faults = by_crate(files);
    for (name, found) in &faults {
        let allowed = rules.english.get(name).copied().unwrap_or(0);
        if found.len() > allowed {
            for (path, (line, message)) in found {
                let message = format!("{message} ({name} has {}, {allowed} allowed)", found.len());
                findings.push(Finding { path: path.clone(), line: *line, rule: "english", message });
            }
        }
    }
    for (name, &allowed) in &rules.english {
        let left = faults.get(name).map_or(0, Vec::len);
        if left < allowed {
            let message = format!("{name} has {left}, fewer than its {allowed}: cargo xtask tidy --write");
            findings.push(Finding { path: rules::PATH.into(), line: 0, rule: "english", message });
        }
    }
}

/// Lowers the numbers in `tidy.toml` to what is left.
///
/// # Errors
/// If it cannot be read or written.
pub fn write(files: &[File]) -> Result<()> {
    let faults = by_crate(files);
    let text = fs::read_to_string(rules::PATH).with_context(|| format!("cannot read {}", rules::PATH))?;
    let lowered = lowered(&text, |name| faults.get(name).map_or(0, Vec::len));
    fs::write(rules::PATH, lowered).with_context(|| format!("cannot write {}", rules::PATH))
}

/// `tidy.toml` with the numbers of its section `[english]` lowered to `left`; a number that
/// comes to 0 goes.
fn lowered(text: &str, left: impl Fn(&str) -> usize) -> String {
    let mut within = false;
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            within = line.trim_end() == "[english]";
        }
        match line.trim_end().split_once(" = ").filter(|_| within) {
            Some((name, number)) => match number.parse::<usize>().map(|number| number.min(left(name))) {
                Ok(0) => {}
                Ok(number) => out.push_str(&format!("{name} = {number}\n")),
                Err(_) => out.push_str(line),
            },
            None => out.push_str(line),
        }
    }
    out
}

fn by_crate(files: &[File]) -> BTreeMap<String, Vec<(String, Fault)>> {
    let mut faults: BTreeMap<String, Vec<(String, Fault)>> = BTreeMap::new();
    for file in files.iter().filter(|file| [".rs", ".c", ".h"].iter().any(|end| file.path.ends_with(end))) {
        let mut parts = file.path.split('/');
        let first = parts.next().unwrap_or_default();
        let name = if first == "crates" { parts.next().unwrap_or(first) } else { first };
        for fault in comments(&file.text).iter().flat_map(faults_of) {
            faults.entry(name.to_owned()).or_default().push((file.path.clone(), fault));
        }
    }
    faults
}

/// A comment of one or more lines, which follow each other; code blocks are left out.
struct Comment {
    /// Number of its first line.
    line: usize,
    lines: Vec<String>,
}

fn comments(text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let (mut open, mut code) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let markers = ["///", "//!", "//", "/**", "/*", "*/", "*"];
        let Some(marker) = markers.iter().find(|marker| line.starts_with(**marker)) else {
            (open, code) = (false, false);
            continue;
        };
        let words = line[marker.len()..].trim().trim_end_matches("*/").trim_end();
        if words.starts_with("```") {
            code = !code;
        }
        if code || words.starts_with("```") {
            open = false;
        } else if open {
            found.last_mut().expect("it is open").lines.push(words.to_owned());
        } else {
            found.push(Comment { line: index + 1, lines: vec![words.to_owned()] });
            open = true;
        }
    }
    found
}

fn faults_of(comment: &Comment) -> Vec<Fault> {
    let mut faults = Vec::new();
    let text = comment.lines.join(" ");
    if says_nothing(&text) {
        faults.push((comment.line, format!("says nothing: {text}")));
        return faults;
    }
    let line_of = |at: usize| comment.line + lines_before(&comment.lines, at);
    let lower = text.to_lowercase();
    for phrase in PHRASES {
        for (at, _) in lower.match_indices(phrase) {
            let part = |c: char| c.is_alphanumeric();
            if !lower[..at].ends_with(part) && !lower[at + phrase.len()..].starts_with(part) {
                faults.push((line_of(at), format!("say it in plain English: {phrase}")));
            }
        }
    }
    for start in sentences(&comment.lines, &text) {
        let sentence = &text[start..];
        let opening = OPENINGS.iter().find(|opening| sentence.starts_with(**opening));
        if let Some(opening) = opening.filter(|_| !is_question(sentence)) {
            faults.push((line_of(start), format!("begin with the subject, not with {:?}", opening.trim_end())));
        }
    }
    faults
}

/// How many lines end before a place in the text that they make, joined.
fn lines_before(lines: &[String], at: usize) -> usize {
    let mut end = 0;
    lines
        .iter()
        .take_while(|line| {
            end += line.len() + 1;
            end <= at
        })
        .count()
}

/// Where sentences begin, in ascending order: behind a full stop and the like, and at the start
/// of a paragraph or of a list's item.
fn sentences(lines: &[String], text: &str) -> BTreeSet<usize> {
    let behind = [". ", "? ", "! ", ": ", "| "];
    let mut starts: BTreeSet<usize> =
        behind.into_iter().flat_map(|stop| text.match_indices(stop).map(move |(at, _)| at + stop.len())).collect();
    let (mut at, mut fresh) = (0, true);
    for line in lines {
        let item = ["* ", "- "].iter().find(|bullet| line.starts_with(**bullet)).map_or(0, |bullet| bullet.len());
        if fresh || item > 0 {
            starts.insert(at + item);
        }
        fresh = line.is_empty() || line.starts_with('#');
        at += line.len() + 1;
    }
    starts
}

/// True if the first sentence of `text` ends with a question mark. A full stop within a word, as
/// in a path, ends none.
fn is_question(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let end = words
        .find_map(|word| word.trim_end_matches([')', '"', '`', '*']).chars().last().filter(|c| ".?!".contains(*c)));
    end == Some('?')
}

/// True if a comment is in the list, or is an article or a possessive with one word.
fn says_nothing(text: &str) -> bool {
    let words = text.trim_end_matches('.').split_once(' ');
    EMPTY.contains(&text) || words.is_some_and(|(first, rest)| DETERMINERS.contains(&first) && !rest.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        comments(text).iter().flat_map(faults_of).map(|(line, _)| line).collect()
    }

    #[test]
    fn empty_documentation_is_found() {
        for text in EMPTY {
            assert_eq!(found(&format!("    /// {text}\nfn f() {{}}")), [1], "{text}");
        }
        assert_eq!(found("/// The connection.\n/// Its name.\nfn f() {}").len(), 0);
    }

    #[test]
    fn a_comment_of_an_article_or_possessive_and_one_word_is_found() {
        for text in ["/// The table.", "//! A socket", "// Its name.", "/* An `Addr`. */", "/// Their read-ahead."] {
            assert_eq!(found(&format!("{text}\nfn f() {{}}")), [1], "{text}");
        }
        for text in ["/// The routing table.", "// Nothing.", "/// The", "/// Its name. Empty.", "/// Theirs alone."] {
            assert_eq!(found(&format!("{text}\nfn f() {{}}")).len(), 0, "{text}");
        }
    }

    #[test]
    fn clauses_with_what_are_found_and_questions_are_not() {
        for text in ["/// What it did.", "// It ends. What was sent\n// stays.", "//! * What a port can do"] {
            assert_eq!(found(text), [1], "{text}");
        }
        for text in ["/// # Errors\n/// What is missing.", "/// It ends\n///\n/// What a.rs is for."] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        for text in ["// What happens if `a.b` ends?", "// What now (or later?)", "//! # What holds", "// Somewhat so."]
        {
            assert_eq!(found(text).len(), 0, "{text}");
        }
    }

    #[test]
    fn phrases_are_found_in_comments_of_rust_and_c() {
        for text in ["// A handle\n// that is none\n", "/* x\n * Likewise, y. */", "let a;\n//! One, lest it fall"] {
            assert_eq!(found(text), [2], "{text}");
        }
        for text in ["\"likewise\"", "// the lowest, lestrade", "// ```\n// lest\n// ```"] {
            assert_eq!(found(text).len(), 0, "{text}");
        }
    }

    #[test]
    fn openings_are_found_where_a_sentence_begins() {
        for text in
            ["// Of a dead engine there is none.", "/// Who sends.", "//! It ends. Of the rest little is\n//! known."]
        {
            assert_eq!(found(text), [1], "{text}");
        }
        assert_eq!(found("// It ends.\n// Whose it is, is said."), [2]);
        for text in ["// Who sends?", "// One of the best.", "// It. Of these, two stay."] {
            assert_eq!(found(text).len(), 0, "{text}");
        }
    }

    fn counts(allowed: usize, faults: usize) -> usize {
        let rules = Rules { english: [("port".to_owned(), allowed)].into(), ..Rules::default() };
        let files = [File { path: "crates/port/src/a.rs".into(), text: "// Who sends.\nfn f();\n".repeat(faults) }];
        let mut findings = Vec::new();
        check(&rules, &files, &mut findings);
        findings.len()
    }

    #[test]
    fn the_number_of_a_crate_may_only_fall() {
        assert_eq!(counts(2, 2), 0);
        assert_eq!(counts(2, 3), 3);
        assert_eq!(counts(0, 1), 1);
        assert_eq!(counts(2, 1), 1);
    }

    #[test]
    fn writing_lowers_numbers_and_nothing_else() {
        let text = "a = 9\n[english]\n# x\nport = 5\nsim = 3\nwire = 1\n\n[[exception]]\nport = 9\n";
        let left = |name: &str| [("port", 7), ("sim", 2)].into_iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| n);
        assert_eq!(lowered(text, left), "a = 9\n[english]\n# x\nport = 5\nsim = 2\n\n[[exception]]\nport = 9\n");
    }
}
