//! A failed system call, and what it was for.

use std::io;

/// A system call failed in the course of a move.
#[derive(Debug, thiserror::Error)]
#[error("{during}: {source}")]
pub struct Failed {
    /// The step that failed, as a phrase.
    pub during: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

/// Adds what was being done to an error.
pub(crate) trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Failed>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, Failed> {
        self.map_err(|e| Failed { during: what, source: e.into() })
    }
}
