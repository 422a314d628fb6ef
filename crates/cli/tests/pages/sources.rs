//! Pages that are made from what stands in the sources: counters and the C header.

use crate::top;
use std::fs;

/// A name with the comment in front of it.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    name: String,
    text: String,
}

/// The page of counters.
pub fn counters() -> String {
    let engine = source("crates/engine/src/counters.rs");
    let coalesce = source("crates/coalesce/src/verdict.rs");
    let mut page = String::from(
        "# Counters\n\n`baton serve --json`, `baton bump --json` and `baton trace --json` print counters under these \
         names. Each frame that is refused counts under one of them.\n",
    );
    for (title, text, source, head) in [
        ("The Streamer", "What moves bytes.", &engine, "StreamerCounters {"),
        ("The TCP Control Engine", "What decides.", &engine, "TceCounters {"),
        ("The coalescer: why a frame goes on alone", "Tested in this order.", &coalesce, "pub enum Reason {"),
        ("The coalescer: what ended a run", "", &coalesce, "pub enum Cause {"),
    ] {
        page.push_str(&format!("\n## {title}\n\n"));
        if !text.is_empty() {
            page.push_str(&format!("{text}\n\n"));
        }
        page.push_str("| counter | what it counts |\n| --- | --- |\n");
        for Named { name, text } in members(source, head) {
            page.push_str(&format!("| `{}` | {} |\n", snake(&name), text.replace('|', "\\|")));
        }
    }
    page
}

/// The page of the C interface.
pub fn c_api() -> String {
    let header = source("crates/libbaton/include/baton.h");
    let mut page = String::from(
        "# C interface\n\nA C program includes `baton.h` and links with `libbaton`. The header is the reference for \
         structures and constants; these are its functions, with its own words.\n\n",
    );
    let opening = header.split("*/").next().unwrap_or_default();
    for paragraph in comment(opening).split("\n\n").filter(|text| !text.starts_with("Generated from")).skip(1) {
        page.push_str(&format!("{paragraph}\n\n"));
    }
    for (text, prototype) in functions(&header) {
        let name = prototype.split('(').next().and_then(|before| before.rsplit([' ', '*']).next()).unwrap_or_default();
        page.push_str(&format!("## `{name}`\n\n```c\n{prototype}\n```\n\n{text}\n\n"));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn source(name: &str) -> String {
    fs::read_to_string(top().join(name)).unwrap_or_else(|e| panic!("cannot read {name}: {e}"))
}

/// The documented members of what begins with `head`.
fn members(source: &str, head: &str) -> Vec<Named> {
    let body = source.split_once(head).unwrap_or_else(|| panic!("no {head}")).1;
    let mut found = Vec::new();
    let mut text: Vec<&str> = Vec::new();
    for line in body.lines().map(str::trim).take_while(|line| *line != "}") {
        if let Some(more) = line.strip_prefix("///") {
            text.push(more.trim());
        } else if let Some(name) = line.strip_suffix(',') {
            found.push(Named { name: name.to_owned(), text: without_links(&text.join(" ")) });
            text.clear();
        }
    }
    assert!(!found.is_empty(), "{head} has no members");
    found
}

/// Links of rustdoc as what they say.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split("](").enumerate() {
        out.push_str(if at == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) });
    }
    out.replace(['[', ']'], "")
}

/// `NotIp` as `not_ip`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The prototypes of a header, each with the comment in front of it.
fn functions(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut text = "";
    let mut rest = header;
    while let Some((_, after)) = rest.split_once("/*") {
        let Some((words, behind)) = after.split_once("*/") else { break };
        text = words;
        rest = behind;
        let code = rest.split("/*").next().unwrap_or_default().trim_start();
        let Some((prototype, _)) = code.split_once(';') else { continue };
        let is_function = prototype.contains('(') && !prototype.starts_with(['#', 't']) && !prototype.contains('{');
        if is_function {
            found.push((comment(text), format!("{prototype};")));
        }
    }
    assert!(!text.is_empty(), "a header without comments");
    found
}

/// A comment without its stars.
fn comment(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("/*").trim_start_matches('*').trim());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[test]
fn members_and_prototypes_are_found_with_their_comments() {
    let rust =
        "/// All.\npub enum Kind {\n    /// Wrong, by\n    /// [`Profile::Rsc`](crate::Profile).\n    NotIp,\n}\n";
    let named = Named { name: "NotIp".into(), text: "Wrong, by `Profile::Rsc`.".into() };
    assert_eq!(members(rust, "pub enum Kind {"), [named]);
    assert_eq!(snake("NotIp"), "not_ip");
    let c = "/* Head. */\n#ifndef A\ntypedef struct a a;\n\n/* Makes\n * one. */\nint make(a *b,\n         int c);\n";
    assert_eq!(functions(c), [("Makes\none.".into(), "int make(a *b,\n         int c);".into())]);
}
