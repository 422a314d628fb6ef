//! Links between pages lead to files and headings that there are.

use std::path::{Component, Path, PathBuf};

use super::{File, Finding};

/// Checks all pages.
pub fn check(files: &[File], findings: &mut Vec<Finding>) {
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            if let Some(message) = problem(&file.path, target, files) {
                findings.push(Finding { path: file.path.clone(), line, rule: "link", message });
            }
        }
    }
}

/// Checks a link of a page; the answer is the problem, if there is one.
fn problem(page: &str, target: &str, files: &[File]) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() { Some(page.into()) } else { beside(page, path) };
    let path = path.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_default();
    let inside = format!("{path}/");
    let Some(found) = files.iter().find(|file| file.path == path) else {
        // A folder, or a file that is not text.
        let is_there = files.iter().any(|file| file.path.starts_with(&inside)) || Path::new(&path).is_file();
        return (!is_there || heading.is_some()).then(|| format!("{target} leads nowhere"));
    };
    let heading = heading?;
    let is_there = headings(&found.text).any(|slug| slug == heading);
    (!is_there).then(|| format!("{target}: the page has no such heading"))
}

/// A path from the top of the workspace, of one that is relative to a page. None if it leads out.
fn beside(page: &str, path: &str) -> Option<PathBuf> {
    let mut out = Path::new(page).parent()?.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir if !out.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// The lines of a page outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_fence && !is_code).then_some((index + 1, line))
    })
}

/// The targets of a page's links, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece is code; [`name`](target) has its target behind one.
        for piece in line.split('`').step_by(2) {
            let targets = piece.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(targets.map(|(target, _)| (number, target)));
        }
    }
    found
}

/// The names that headings of a page have in links, as GitHub makes them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
        let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        Some(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn links_lead_to_files_folders_and_headings() {
        let other = file("docs/guide/run.md", "# `baton run`: programs\n\n## What stays\n");
        let leads = |target: &str| {
            let page = file("docs/README.md", &format!("see [it]({target})\n"));
            let mut findings = Vec::new();
            check(&[page, file("docs/guide/run.md", &other.text), file("README.md", "")], &mut findings);
            findings.is_empty()
        };
        for good in [
            "guide/run.md",
            "guide",
            "../README.md",
            "guide/run.md#what-stays",
            "guide/run.md#baton-run-programs",
            "https://example.org/x",
        ] {
            assert!(leads(good), "{good}");
        }
        for bad in ["run.md", "guide/run.md#what", "../../README.md", "/README.md", "#none", "guide#what-stays"] {
            assert!(!leads(bad), "{bad}");
        }
    }

    #[test]
    fn code_has_no_links() {
        let text = "a `[x](y)` and [`x`](one)\n```\n[x](z)\n```\n[x](two) [y](three)\n";
        assert_eq!(links(text), [(1, "one"), (5, "two"), (5, "three")]);
    }
}
