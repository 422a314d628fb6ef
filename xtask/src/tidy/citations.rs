//! Citations: what a comment or page refers to can be found from within the repository.
//!
//! Papers are cited by letters, before the section's number; the table of papers in `ARCHITECTURE.md`
//! says which paper each stands for. Rules are cited in words, not by a number in a
//! document that is not here.

use std::collections::BTreeSet;

use super::{File, Finding};

const KEY_FILE: &str = "ARCHITECTURE.md";
const KEY_HEADING: &str = "### Papers";

/// Checks the citations of all files.
pub fn check(files: &[File], findings: &mut Vec<Finding>) {
    let page = files.iter().find(|file| file.path == KEY_FILE).map_or("", |file| file.text.as_str());
    let keys = keys(page);
    let ends = [".rs", ".md", ".c", ".h", ".toml"];
    for file in files.iter().filter(|file| ends.iter().any(|end| file.path.ends_with(end))) {
        for (index, line) in file.text.lines().enumerate() {
            let unknown = cited(line).filter(|key| !keys.contains(key));
            let messages = unknown
                .map(|key| format!("{key} is not in the table of papers ({KEY_HEADING} in {KEY_FILE})"))
                .chain(numbered_rule(line).then(|| "a rule by its number: say it in words".to_owned()));
            findings.extend(messages.map(|message| Finding {
                path: file.path.clone(),
                line: index + 1,
                rule: "citation",
                message,
            }));
        }
    }
}

/// Letters that the page's table of papers has.
fn keys(page: &str) -> BTreeSet<&str> {
    page.lines()
        .skip_while(|line| *line != KEY_HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .map(|(key, _)| key)
        .collect()
}

/// Letters before a section or a figure.
fn cited(line: &str) -> impl Iterator<Item = &str> {
    [" §", " Fig"].into_iter().flat_map(move |mark| line.match_indices(mark)).filter_map(|(at, _)| {
        let start = line[..at]
            .rfind(|c: char| !c.is_ascii_uppercase())
            .map_or(0, |before| before + line[before..].chars().next().map_or(1, char::len_utf8));
        let key = &line[start..at];
        let whole = !line[..start].ends_with(|c: char| c.is_alphanumeric());
        (whole && (2..=5).contains(&key.len())).then_some(key)
    })
}

/// Whether a rule is cited by its number.
fn numbered_rule(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.match_indices("rule ").any(|(at, word)| {
        let rest = line[at + word.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.len() - at - word.len()
            && (rest.is_empty() || rest == " of the" || rest.starts_with(" of the "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let page =
            "# A\n| XX | not a paper |\n### Papers\n\n| letters | paper |\n| RA | One (2008) |\n## Next\n| YY | no |\n";
        let files = [
            File { path: KEY_FILE.into(), text: page.into() },
            File { path: "crates/tcp/src/a.rs".into(), text: text.into() },
        ];
        let mut findings = Vec::new();
        check(&files, &mut findings);
        findings.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn letters_have_to_be_in_the_table() {
        for text in ["// (RA §3.1)", "// RA Fig. 11", "// RFC 9293 §3.8", "// see §3", "// A §1", "// ABCDEFG §1"]
        {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
        for text in ["// (YY #3.1)", "//! (XX #11) shows", "//–ZZ #2"] {
            assert_eq!(found(&text.replace('#', "§")).len(), 1, "{text}");
        }
    }

    #[test]
    fn rules_have_to_be_cited_in_words() {
        for (word, rest) in [("rule 5", " of the plan)"), ("Rule 12", " of the"), ("rule 4", "")] {
            let text = format!("// ({word}{rest}");
            assert_eq!(found(&text).len(), 1, "{text}");
        }
        for text in ["// the rule of the house", "// rule 5 applies", "// rule 5 of them"] {
            assert_eq!(found(text).len(), 0, "{text}");
        }
    }
}
