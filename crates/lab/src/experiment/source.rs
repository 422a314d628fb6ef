//! Papers, places in them, and their statements.

use crate::report::claim::Claim;
use std::fmt;

/// A paper whose experiments are repeated here.
#[derive(Debug)]
pub struct Paper {
    /// The letters that stand for it.
    pub key: &'static str,
    /// Title in full.
    pub title: &'static str,
    /// The year of its publication.
    pub year: u16,
    /// Our page about it, in `docs/papers`.
    pub page: &'static str,
}

/// A place in a paper.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The paper that the place is in.
    pub paper: &'static Paper,
    /// Sections, figures or tables.
    pub place: &'static str,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.paper.key, self.place)
    }
}

/// A statement of a paper that results of type `T` can be compared with.
pub struct Statement<T> {
    /// Where the paper says so.
    pub source: Source,
    /// The statement's words, with its figures.
    pub says: &'static str,
    /// Our result in words, and whether it points the same way; `None` if it was not measured.
    pub judge: fn(&T) -> Option<(String, bool)>,
}

impl<T> Statement<T> {
    /// Compares it with results.
    pub fn claim(&self, results: &T) -> Claim {
        let (here, holds) = match (self.judge)(results) {
            Some((here, holds)) => (here, Some(holds)),
            None => ("not measured".to_owned(), None),
        };
        Claim { source: self.source.to_string(), paper: self.says.into(), here, holds }
    }
}
