//! Rules on the text of any file.

use super::{File, Finding};

/// Words of unfinished work, put together here so that this file has none.
fn unfinished_words() -> [String; 3] {
    [["FIX", "ME"], ["TO", "DO"], ["XX", "X"]].map(|parts| parts.concat())
}

/// Directories of one machine.
const MACHINE_PATHS: &[[&str; 2]] = &[["/ho", "me/"], ["/ro", "ot/"], ["/Us", "ers/"], ["/wo", "rk/"], ["/tm", "p/"]];

/// Checks one file.
pub fn check(file: &File, findings: &mut Vec<Finding>) {
    // Licences are others' words; the lock file is cargo's.
    if file.path.starts_with("LICENSE-") || file.path.ends_with(".lock") {
        return;
    }
    let mut found = |line: usize, rule: &'static str, message: String| {
        findings.push(Finding { path: file.path.clone(), line, rule, message });
    };
    let source = [".rs", ".md", ".toml", ".sh", ".c", ".h"].iter().any(|end| file.path.ends_with(end));
    for (index, line) in file.text.lines().enumerate() {
        let number = index + 1;
        for path in MACHINE_PATHS.iter().map(|parts| parts.concat()) {
            if has_path(line, &path) {
                found(number, "machine", format!("a path of one machine: {path}…"));
            }
        }
        if !source {
            continue;
        }
        for word in unfinished_words() {
            if has_word(line, &word) {
                found(number, "unfinished", format!("{word} is left: do it, or say in prose what is not done"));
            }
        }
        if file.path.ends_with(".rs") && line.trim_start().starts_with(&["#[ig", "nore"].concat()) {
            found(
                number,
                "unfinished",
                "an ignored test is not a test: mend or remove it, or skip it with a reason".into(),
            );
        }
        if line.trim_end() != line {
            found(number, "blanks", "blanks at the end of the line".into());
        }
        if line.contains('\t') && !file.path.ends_with(".c") && !file.path.ends_with(".h") {
            found(number, "blanks", "a tab".into());
        }
    }
    if source && !file.text.is_empty() && !file.text.ends_with('\n') {
        found(file.text.lines().count(), "blanks", "no newline at the end of the file".into());
    }
}

/// Whether `word` stands alone in `line`.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part_of_word) && !line[at + word.len()..].starts_with(part_of_word))
}

/// Whether an absolute path begins with `path`; `docs/home/` and URLs do not.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}>".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_found(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let mut findings = Vec::new();
        check(&File { path: path.into(), text: text.into() }, &mut findings);
        findings.into_iter().map(|f| (f.rule, f.line)).collect()
    }

    #[test]
    fn unfinished_words_are_found_where_they_stand_alone() {
        for word in unfinished_words() {
            assert_eq!(rules_found("a.rs", &format!("// {word}: later\n")), [("unfinished", 1)]);
            assert_eq!(rules_found("a.rs", &format!("let {word}_A = 1;\n")), []);
        }
        assert_eq!(rules_found("a.rs", &format!("    #[ig{}]\n", "nore = \"slow\"")), [("unfinished", 1)]);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for parts in MACHINE_PATHS {
            let path = parts.concat();
            assert_eq!(rules_found("a.csv", &format!("see \"{path}someone/x\"\n")), [("machine", 1)]);
            assert_eq!(rules_found("a.csv", &format!("docs{path}x and https://host{path}x\n")), []);
        }
    }

    #[test]
    fn stray_blanks_are_found() {
        assert_eq!(rules_found("a.md", "a \nb\n"), [("blanks", 1)]);
        assert_eq!(rules_found("a.rs", "\ta\n"), [("blanks", 1)]);
        assert_eq!(rules_found("Makefile", "\ta\n"), []);
        assert_eq!(rules_found("a.toml", "a"), [("blanks", 1)]);
    }
}
