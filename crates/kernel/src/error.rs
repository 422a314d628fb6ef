//! What the kernel said no to, and during what.

use std::io;

/// A system call failed in the course of a move.
#[derive(Debug, thiserror::Error)]
#[error("{during}: {source}")]
pub struct Failed {
    /// What was being done.
    pub during: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}

/// Says during what an error came.
pub(crate) trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Failed>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, Failed> {
        self.map_err(|e| Failed { during: what, source: e.into() })
    }
}
