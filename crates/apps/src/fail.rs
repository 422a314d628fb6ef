//! Errors of commands and their exit codes: 2, with a remedy, for errors that the caller can fix
//! (usage, or a property of the machine), and 1 for all others.

use std::fmt;

/// An error that the caller can fix: one line with the fault and the remedy.
#[derive(Debug)]
pub struct Usage {
    what: String,
    remedy: String,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Usage {}

/// Makes an error that the caller can fix (exit code 2).
pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
    Usage { what: what.into(), remedy: remedy.into() }.into()
}

/// The exit code that `error` stands for.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() { 2 } else { 1 }
}

/// `error` and its causes on one line.
pub fn one_line(error: &anyhow::Error) -> String {
    let text: Vec<String> = error.chain().map(|cause| cause.to_string()).collect();
    text.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}
