//! Errors in a configuration file: the place, the fault and the remedy, on one line.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Points to the explanation of every key.
const SEE: &str = "`baton service --print-config` explains every key";

/// A configuration that was refused. Displayed as `FILE:LINE: what; remedy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    file: PathBuf,
    /// Counted from 1; `None` if the error concerns the whole file.
    line: Option<usize>,
    /// In characters, counted from 1; `None` if only the line is known.
    column: Option<usize>,
    what: String,
    remedy: String,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what_and_where(), self.remedy)
    }
}

impl ConfigError {
    /// The faulty line, counted from 1; `None` if the error concerns the whole file.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The faulty column, in characters counted from 1, if it is known.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// The fault, without its place.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// `FILE:LINE:COLUMN: what`
    pub fn place_and_what(&self) -> String {
        let place = [self.line, self.column].into_iter().flatten().map(|number| format!("{number}:"));
        format!("{}:{} {}", self.file.display(), place.collect::<String>(), self.what)
    }

    /// `FILE:LINE: what`
    pub fn what_and_where(&self) -> String {
        let line = self.line.map(|line| format!("{line}:")).unwrap_or_default();
        format!("{}:{line} {}", self.file.display(), self.what)
    }

    /// How to fix the error.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Builds the error from the parser's message. Messages of our own value types carry the remedy
    /// after a semicolon.
    pub(super) fn new(file: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
        let line = error.span().map(|span| line_of(text, span.start));
        let column = error.span().map(|span| column_of(text, span.start));
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let (what, remedy) = match unknown(&message) {
            Some((key, known)) => (format!("unknown key '{key}'"), instead(key, &known)),
            None => match message.split_once("; ") {
                Some((what, remedy)) => (what.to_owned(), remedy.to_owned()),
                None => (message, SEE.to_owned()),
            },
        };
        ConfigError { file: file.to_owned(), line, column, what, remedy }
    }

    pub(super) fn at_key(file: &Path, text: &str, key: (&str, &str), what: &str, remedy: &str) -> ConfigError {
        ConfigError {
            file: file.to_owned(),
            line: find_key(text, key),
            column: None,
            what: what.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    pub(super) fn unreadable(file: &Path, error: &io::Error) -> ConfigError {
        ConfigError {
            file: file.to_owned(),
            line: None,
            column: None,
            what: format!("cannot be read: {error}"),
            remedy: "`baton service --print-config` writes one to begin with".to_owned(),
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

fn column_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    1 + before.rsplit('\n').next().map_or(0, |line| line.chars().count())
}

/// The line of a key in a section, or of the section's header if the key is not found. Returns
/// `None` if the file writes both in another way, such as an inline table.
fn find_key(text: &str, (section, key): (&str, &str)) -> Option<usize> {
    let mut inside = false;
    let mut header = None;
    for (line, words) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(name) = words.strip_prefix('[') {
            inside = name.split(']').next().is_some_and(|name| name.trim() == section);
            header = header.or(inside.then_some(line));
        } else if inside && words.split('=').next().is_some_and(|name| name.trim() == key) {
            return Some(line);
        }
    }
    header
}

/// The unknown key and the known ones, taken from serde's message, which has the form "unknown
/// field `a`, expected one of `b`, `c`".
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, rest) = rest.split_once('`')?;
    Some((key, rest.split('`').skip(1).step_by(2).collect()))
}

fn instead(key: &str, known: &[&str]) -> String {
    let nearest = known.iter().min_by_key(|name| distance(key, name));
    match nearest {
        Some(name) if distance(key, name) <= 2 => format!("did you mean '{name}'? {SEE}"),
        _ => format!("known here: {}; {SEE}", known.join(", ")),
    }
}

/// Number of letters to insert, delete or change to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(100).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_near_or_far() {
        let table = [("", "abc", 3), ("abc", "abc", 0), ("path", "paht", 2), ("mode", "mod", 1), ("drain", "train", 1)];
        for (a, b, letters) in table {
            assert_eq!(distance(a, b), letters, "{a} {b}");
            assert_eq!(distance(b, a), letters, "{b} {a}");
        }
    }

    #[test]
    fn keys_are_found_in_their_section() {
        let text = "log = 1\n[a]\n# mode = 1\n[socket]\npath = 1\n mode = 2\n[b]\nmode = 3\n";
        assert_eq!(find_key(text, ("socket", "mode")), Some(6));
        assert_eq!(find_key(text, ("socket", "user")), Some(4));
        assert_eq!(find_key(text, ("c", "mode")), None);
    }
}
