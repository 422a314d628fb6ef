//! Pages that are made from the program: each is as the program has it now.
//!
//! `cargo xtask docs --write` sets `BATON_WRITE_PAGES`, and the tests write the pages instead of
//! comparing them.

use crate::{experiments, reasons, sources, top};
use std::fs;
use std::process::{Command, Stdio};

/// Said at the head of each.
const MADE: &str = "<!-- Made by cargo xtask docs --write. -->";

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let mut page = format!(
        "{MADE}\n# Command line\n\nEvery command prints this page's text with `--help`. Exit codes: 0 for success, \
         1 for a failure, 2 for something that the caller or the machine has to change, with one line on standard \
         error that says what to do. `baton run` exits as its program does.\n"
    );
    describe(&mut page, &[]);
    compare("docs/reference/cli.md", &page);
}

/// Adds the help of a command and of those below it.
fn describe(page: &mut String, words: &[&str]) {
    let help = baton(&[words, &["--help"]].concat());
    let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let name = [&["baton"], words].concat().join(" ");
    page.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end()));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for line in listed {
        // A command is indented by two blanks, the rest of its text by more.
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        let name = name.and_then(|rest| rest.split_whitespace().next());
        if let Some(name) = name.filter(|name| *name != "help") {
            describe(page, &[words, &[name]].concat());
        }
    }
}

#[test]
fn the_page_of_the_configuration_is_up_to_date() {
    let file = baton(&["service", "--print-config"]);
    let page = format!(
        "{MADE}\n# Configuration of the service\n\n`baton service --config FILE` reads a file in TOML. `baton service \
         --print-config` prints this one, which holds every key with its default. An error in a file names the line \
         and the remedy.\n\n```toml\n{}\n```\n",
        file.trim_end()
    );
    compare("docs/reference/config.md", &page);
}

#[test]
fn the_page_of_reasons_is_up_to_date() {
    compare("docs/reference/reasons.md", &format!("{MADE}\n{}", reasons::page()));
}

#[test]
fn the_page_of_experiments_is_up_to_date() {
    compare("docs/reference/experiments.md", &format!("{MADE}\n{}", experiments::page()));
}

#[test]
fn the_page_of_counters_is_up_to_date() {
    compare("docs/reference/counters.md", &format!("{MADE}\n{}", sources::counters()));
}

#[test]
fn the_page_of_the_c_interface_is_up_to_date() {
    compare("docs/reference/c-api.md", &format!("{MADE}\n{}", sources::c_api()));
}

/// The program's output.
fn baton(words: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_baton")).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "baton {words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Compares a page with what it should be, or writes it.
fn compare(name: &str, page: &str) {
    let path = top().join(name);
    if std::env::var_os("BATON_WRITE_PAGES").is_some() {
        fs::write(&path, page).unwrap();
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let line = found.lines().zip(page.lines()).position(|(found, made)| found != made);
    assert!(found == page, "{name} is out of date from line {:?} on: cargo xtask docs --write", line.map(|at| at + 1));
}
