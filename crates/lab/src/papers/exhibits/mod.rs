//! The papers' tables and figures that have results, one module a paper: what each shows, how it is
//! repeated here, and why values differ. Diagrams of an architecture are left out.
//!
//! The experiments find the rows: each has a module `rows` with one function a table or figure.

mod ch;
mod la;
mod lc;
mod ra;
pub mod rsc;

use crate::experiment::Exhibit;

/// All tables and figures, by paper.
pub fn all() -> impl Iterator<Item = &'static Exhibit> {
    [ra::EXHIBITS, rsc::EXHIBITS, lc::EXHIBITS, ch::EXHIBITS, la::EXHIBITS].into_iter().flatten()
}

/// The tables and figures that an experiment repeats; none if it compares with the kernel only.
pub fn of(experiment: &str) -> impl Iterator<Item = &'static Exhibit> {
    all().filter(move |exhibit| exhibit.from.contains(&experiment))
}
