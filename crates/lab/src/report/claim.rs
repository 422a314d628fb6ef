//! The statements of papers, next to what was found here.

use baton_apps::html_text::escape;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;

/// A statement of a paper, and our result.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Where the paper says so: its letters, and a figure, table or section.
    pub source: String,
    /// The paper's statement, with its figures.
    pub paper: Cow<'static, str>,
    /// Our result, as a sentence.
    pub here: String,
    /// True if our result points the same way; `None` if it was not measured.
    pub holds: Option<bool>,
}

impl Claim {
    fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => " (same here)",
            Some(false) => " (DIFFERS)",
            None => "",
        }
    }
}

/// Claims as lines of a table for a terminal.
pub fn lines<'a>(out: &mut String, claims: impl IntoIterator<Item = &'a Claim>) {
    for claim in claims {
        let Claim { source, paper, here, .. } = claim;
        let _ = writeln!(out, "  paper: {source}: {paper}\n  here:  {here}{}", claim.verdict());
    }
}

/// Claims as paragraphs of a page.
pub fn paragraphs<'a>(out: &mut String, claims: impl IntoIterator<Item = &'a Claim>) {
    for claim in claims {
        let (source, paper, here) = (escape(&claim.source), escape(&claim.paper), escape(&claim.here));
        let _ = write!(out, "<p class=\"soft\">{source}: {paper}. Here: {here}{}.</p>", claim.verdict());
    }
}
