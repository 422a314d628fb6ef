//! Fenced blocks of the pages, and how their commands are marked.
//!
//! A fence begins with ` ```sh ` or ` ```console `. Words behind commas are marks:
//!
//! * `endless`: the command runs until it is ended. It runs in the background to the page's end.
//! * `not-run=why`: the test leaves the block out, for the reason that is given, whose words are
//!   joined by hyphens.
//!
//! Other languages (`text`, `toml`, `rust`, `c`) hold no commands.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block with commands.
#[derive(Debug)]
pub struct Fence {
    /// The fence's line, from 1.
    pub line: usize,
    /// The prompt `$ ` marks commands, and all other lines are what they print.
    pub is_console: bool,
    /// The words behind the language.
    pub marks: Vec<String>,
    /// The block's lines.
    pub lines: Vec<String>,
}

/// A command, and what the page says that it prints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// For `sh -e`; several lines where the page has them.
    pub command: String,
    /// Lines that the page shows.
    pub output: Vec<String>,
}

impl Fence {
    /// Whether the command runs until it is ended.
    pub fn is_endless(&self) -> bool {
        self.marks.iter().any(|mark| mark == "endless")
    }

    /// Why the test leaves it out.
    pub fn not_run(&self) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix("not-run="))
    }

    /// A mark that is not known, or gives no reason.
    pub fn bad_mark(&self) -> Option<&str> {
        let known = |mark: &str| mark == "endless" || mark.strip_prefix("not-run=").is_some_and(|why| !why.is_empty());
        self.marks.iter().map(String::as_str).find(|mark| !known(mark))
    }

    /// The commands in their order.
    pub fn steps(&self) -> Vec<Step> {
        if !self.is_console {
            return vec![Step { command: self.lines.join("\n"), output: vec![] }];
        }
        let mut steps: Vec<Step> = Vec::new();
        for line in &self.lines {
            let last = steps.last_mut();
            match (line.strip_prefix("$ "), line.strip_prefix("> "), last) {
                (Some(command), _, _) => steps.push(Step { command: command.into(), output: vec![] }),
                (_, Some(more), Some(step)) if step.output.is_empty() => {
                    step.command.push('\n');
                    step.command.push_str(more);
                }
                (_, _, Some(step)) => step.output.push(line.clone()),
                (_, _, None) => steps.push(Step { command: String::new(), output: vec![line.clone()] }),
            }
        }
        steps
    }
}

/// The blocks with commands of a page.
pub fn of(text: &str) -> Vec<Fence> {
    let mut fences = Vec::new();
    let mut open: Option<Option<Fence>> = None;
    for (index, line) in text.lines().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if let Some(Some(fence)) = &mut open {
                fence.lines.push(line.to_owned());
            }
            continue;
        };
        open = match open.take() {
            Some(fence) => {
                fences.extend(fence);
                None
            }
            None => {
                let mut words = info.trim().split(',').map(str::to_owned);
                let language = words.next().unwrap_or_default();
                let has_commands = ["sh", "console"].contains(&language.as_str());
                let is_console = language == "console";
                Some(has_commands.then(|| Fence { line: index + 1, is_console, marks: words.collect(), lines: vec![] }))
            }
        };
    }
    fences
}

/// The pages for people: those at the top, except the list of changes, and those under `docs`.
pub fn pages(top: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut folders = vec![top.join("docs")];
    found.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| top.join(name)));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of pages").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn fences_are_read_with_marks_commands_and_output() {
    let page = "text\n```console,endless\n$ one\n> two\nsays 1\nsays 2\n$ three\n```\n```toml\n$ no\n```\n\
                ```sh,not-run=why-not\na\nb\n```\n```sh,wrong,not-run=\n```\n";
    let fences = of(page);
    assert_eq!(fences.iter().map(|fence| fence.line).collect::<Vec<_>>(), [2, 12, 16]);
    assert!(fences[0].is_endless() && !fences[1].is_endless());
    assert_eq!(fences[1].not_run(), Some("why-not"));
    assert_eq!(fences.iter().map(Fence::bad_mark).collect::<Vec<_>>(), [None, None, Some("wrong")]);
    let step = |command: &str, output: &[&str]| Step {
        command: command.into(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(fences[0].steps(), [step("one\ntwo", &["says 1", "says 2"]), step("three", &[])]);
    assert_eq!(fences[1].steps(), [step("a\nb", &[])]);
}
