//! The shape that all experiments have.
//!
//! An [`Experiment`] is a value: it names itself, says what it needs and what it varies, and has a
//! function that measures. [`crate::papers::ALL`] lists them. An [`Exhibit`] is a table or figure of a
//! paper; it names the experiments that find its rows.
//!
//! ```text
//!   plans/NAME.toml ── Extent ──┐
//!                               ├──> Experiment::run ──> Findings: table, claims, JSON, CSV, page
//!   namespaces, signals ── Lab ─┘        |                       and rows ──> Exhibit
//!                                        └ alternate: run(point) -> row, round after round
//! ```
//!
//! To add one:
//!
//! 1. in `papers`, write a function that takes a [`Lab`] and an [`Extent`], runs its points through
//!    [`Lab::alternate`], and returns [`Findings`];
//! 2. write the paper's statements as [`Statement`]s, each with a function that judges the results;
//! 3. list the experiment in [`crate::papers::ALL`], and its values in every file of `plans/`;
//! 4. name it in the exhibits that it repeats (`papers::exhibits`), and give [`Findings`] their rows.

mod exhibit;
mod extent;
mod findings;
mod lab;
mod series;
mod source;

pub use exhibit::{Drawn, Exhibit, Method, Row, Rows, of};
pub use extent::{Extent, PLANS, plan};
pub use findings::Findings;
pub use lab::Lab;
pub use series::Series;
pub use source::{Paper, Source, Statement};

/// A measurement that can be repeated.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line, in plans and of its files.
    pub id: &'static str,
    /// The measured quantity in a few words.
    pub title: &'static str,
    /// Requirements on the machine.
    pub needs: &'static [Need],
    /// Parameters that it varies; a plan has the values of each.
    pub axes: &'static [Axis],
    /// The command that has all its options.
    pub command: &'static str,
    /// Measures.
    pub run: fn(&Lab<'_>, &Extent) -> anyhow::Result<Findings>,
}

/// Something that an experiment varies.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its name in plans.
    pub name: &'static str,
    /// Meaning of its values.
    pub about: &'static str,
}

/// Something that an experiment needs of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The thing: a privilege or programs.
    pub what: &'static str,
    /// The part that the experiment leaves out without it; `None` if it cannot run.
    pub without: Option<&'static str>,
}

impl Need {
    /// Network namespaces, which only root can make.
    pub const ROOT: Need = Need { what: "root", without: None };
}

impl Axis {
    /// The exhibits that an experiment is to find rows for, if it can find some alone.
    pub const EXHIBIT: Axis = Axis { name: "exhibit", about: "tables and figures of the paper" };

    /// Bytes that a program writes at a time.
    pub const MESSAGES: Axis = Axis { name: "message_bytes", about: "bytes per write" };
}
