//! Rules on Rust source.

use super::rules::Rules;
use super::tokens::{self, Path, Tests};
use super::{File, Finding};

/// Macros that mark what is unfinished or left from a search for a bug.
const UNFINISHED_MACROS: &[&str] = &["dbg", "todo", "unimplemented"];

/// What belongs to the operating system: pure crates take time and frames as
/// arguments. `std::io` is allowed for its error type, `std::net` for addresses.
const IMPURE: &[&[&str]] = &[
    &["std", "env"],
    &["std", "fs"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "net", "TcpListener"],
    &["std", "net", "TcpStream"],
    &["std", "net", "ToSocketAddrs"],
    &["std", "net", "UdpSocket"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["Instant", "now"],
    &["SystemTime", "now"],
    &["libc"],
    &["nix"],
    &["rustix"],
];

/// Macros that print.
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln"];

/// Checks one file.
pub fn check(rules: &Rules, file: &File, findings: &mut Vec<Finding>) {
    let mut found = |line: usize, rule: &'static str, message: String| {
        findings.push(Finding { path: file.path.clone(), line, rule, message });
    };
    if !opens_with_theory(&file.text) && !is_fuzz_entry(&file.path) {
        found(1, "header", "opens without //! lines that say what it is for".into());
    }
    let paths = match tokens::paths(&file.text, Tests::Keep) {
        Ok(paths) => paths,
        Err(e) => return found(0, "source", e),
    };
    for path in &paths {
        if let Some(message) = unfinished(path) {
            found(path.line, "unfinished", message);
        }
        if path.segments.iter().any(|s| s == "unsafe") && !is_room(&file.path) {
            found(
                path.line,
                "unsafe",
                "unsafe outside its rooms (sys.rs, sys/, *_unsafe.rs, abi/ and os/ of shim)".into(),
            );
        }
    }
    if is_pure(rules, &file.path) {
        let paths = tokens::paths(&file.text, Tests::LeaveOut).expect("it was Rust above");
        for path in &paths {
            if let Some(name) = impure(path) {
                found(path.line, "pure", format!("{name} in a crate that never calls the operating system"));
            }
        }
    }
}

fn opens_with_theory(text: &str) -> bool {
    text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"))
}

/// Two lines that hand libFuzzer's bytes to a body.
fn is_fuzz_entry(path: &str) -> bool {
    path.starts_with("fuzz/src/bin/")
}

/// Directories whose every file may have unsafe code: the preload library's exported functions, and
/// what it asks of libc and the kernel.
const UNSAFE_DIRECTORIES: &[&str] = &["crates/shim/src/abi/", "crates/shim/src/os/"];

fn is_room(path: &str) -> bool {
    path.ends_with("/sys.rs")
        || path.contains("/sys/")
        || path.ends_with("_unsafe.rs")
        || UNSAFE_DIRECTORIES.iter().any(|directory| path.starts_with(directory))
}

fn is_pure(rules: &Rules, path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some_and(|name| rules.pure.iter().any(|pure| pure == name))
        && parts.next() == Some("src")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
}

fn unfinished(path: &Path) -> Option<String> {
    let last = path.segments.last()?;
    if path.is_macro && UNFINISHED_MACROS.contains(&last.as_str()) {
        return Some(format!("{last}! is left"));
    }
    None
}

fn impure(path: &Path) -> Option<String> {
    let name = path.segments.join("::");
    let begins = |banned: &&[&str]| {
        path.segments.len() >= banned.len() && path.segments.iter().zip(banned.iter()).all(|(a, b)| a == b)
    };
    // `libc` alone may be a variable; as a path it is the crate.
    let whole = |banned: &&[&str]| banned.len() > 1 || path.segments.len() > 1;
    if IMPURE.iter().any(|banned| begins(banned) && whole(banned)) {
        return Some(name);
    }
    (path.is_macro && PRINTING.contains(&name.as_str())).then(|| format!("{name}!"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_found(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let rules = Rules { pure: vec!["tcp".into()], ..Rules::default() };
        let mut findings = Vec::new();
        check(&rules, &File { path: path.into(), text: text.into() }, &mut findings);
        findings.into_iter().map(|f| (f.rule, f.line)).collect()
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(rules_found("crates/port/src/a.rs", "fn f() {}"), [("header", 1)]);
        assert_eq!(rules_found("crates/port/src/a.rs", "\n//! Frames.\nfn f() {}"), []);
        assert_eq!(rules_found("fuzz/src/bin/a.rs", "#![no_main]"), []);
    }

    #[test]
    fn unsafe_has_its_rooms() {
        let block = "//! x\nfn f() { unsafe { g() } }";
        assert_eq!(rules_found("crates/port/src/a.rs", block), [("unsafe", 2)]);
        assert_eq!(rules_found("crates/port/src/sys.rs", block), []);
        assert_eq!(rules_found("crates/port/src/sys/ring.rs", block), []);
        assert_eq!(rules_found("crates/port/src/ring_unsafe.rs", block), []);
        assert_eq!(rules_found("crates/shim/src/abi/poll.rs", block), []);
        assert_eq!(rules_found("crates/shim/src/os/epoll.rs", block), []);
        assert_eq!(rules_found("crates/shim/src/poll.rs", block), [("unsafe", 2)]);
        assert_eq!(rules_found("crates/port/src/os/epoll.rs", block), [("unsafe", 2)]);
        // The word in a lint, a comment or a string is not the keyword.
        let words = "//! x\n#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";";
        assert_eq!(rules_found("crates/port/src/a.rs", words), []);
        // In a macro it is.
        assert_eq!(rules_found("crates/port/src/a.rs", "//! x\nm!(unsafe { g() });"), [("unsafe", 2)]);
        assert_eq!(rules_found("crates/port/src/a.rs", "//! x\n#[unsafe(no_mangle)]\nfn f() {}"), [("unsafe", 2)]);
    }

    #[test]
    fn pure_crates_do_not_call_the_system() {
        for body in [
            "use std::time::Instant;",
            "use std::{fmt, fs};",
            "fn f() { let t = std::time::Instant::now(); }",
            "fn f() { let t = Instant::now(); }",
            "fn f() { std::thread::yield_now(); }",
            "fn f() { assert!(std::fs::exists(\"a\").is_ok()); }",
            "use std::net::{IpAddr, UdpSocket};",
            "fn f() { println!(\"a\"); }",
            "use libc::c_int;",
        ] {
            let text = format!("//! x\n{body}");
            assert_eq!(rules_found("crates/tcp/src/a.rs", &text), [("pure", 2)], "{body}");
            assert_eq!(rules_found("crates/port/src/a.rs", &text), [], "{body}");
            assert_eq!(rules_found("crates/tcp/tests/a.rs", &text), [], "{body}");
            let in_test = format!("//! x\n#[cfg(test)]\nmod tests {{ {body} }}");
            assert_eq!(rules_found("crates/tcp/src/a.rs", &in_test), [], "{body}");
        }
        for body in ["use std::net::IpAddr;", "use std::io::Error;", "use std::time::Duration;", "// std::fs::read"] {
            assert_eq!(rules_found("crates/tcp/src/a.rs", &format!("//! x\n{body}")), [], "{body}");
        }
    }

    #[test]
    fn unfinished_work_is_found() {
        for name in UNFINISHED_MACROS {
            let text = format!("//! x\nfn f() {{ {name}!() }}");
            assert_eq!(rules_found("crates/port/src/a.rs", &text), [("unfinished", 2)], "{name}");
        }
    }

    #[test]
    fn what_is_not_rust_is_said() {
        assert_eq!(rules_found("crates/port/src/a.rs", "//! x\nfn f( {"), [("source", 0)]);
    }
}
