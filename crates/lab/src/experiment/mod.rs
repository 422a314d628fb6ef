//! The shape that all experiments have.
//!
//! An [`Experiment`] is a value: it names itself and the figures of papers that it repeats, says what
//! it needs and what it varies, and has a function that measures. [`crate::papers::ALL`] lists them.
//!
//! ```text
//!   plans/NAME.toml ── Extent ──┐
//!                               ├──> Experiment::run ──> Findings: table, claims, JSON, CSV, page
//!   namespaces, signals ── Lab ─┘        |
//!                                        └ alternate: run(point) -> row, round after round
//! ```
//!
//! To add one:
//!
//! 1. in `papers`, write a function that takes a [`Lab`] and an [`Extent`], runs its points through
//!    [`Lab::alternate`], and returns [`Findings`];
//! 2. write the paper's statements as [`Statement`]s, each with a function that judges the results;
//! 3. list the experiment in [`crate::papers::ALL`], and its values in every file of `plans/`.

mod extent;
mod findings;
mod lab;
mod series;
mod source;

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
    /// The figures and tables of papers that it repeats; none if it compares with the kernel only.
    pub sources: &'static [Source],
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
    /// Bytes that a program writes at a time.
    pub const MESSAGES: Axis = Axis { name: "message_bytes", about: "bytes per write" };
}
