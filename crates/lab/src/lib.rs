//! Everything that measures Baton or shows it: the demo, the benchmarks of the
//! command line, and their reports.
//!
//! ```text
//!   demo      papers      what is run, and in which order
//!      \       /
//!      workload           servers, clients and idle connections
//!          |
//!        world            namespaces, wires, processes
//!
//!   report                tables, JSON, SVG and HTML: what all of them fill in
//! ```
//!
//! [`demo`] and [`papers`] do not use each other. [`report`] uses none of the others.
//! Programs that are started here are this program itself, by `current_exe`: the crate
//! is meant for the `baton` binary.
#![forbid(unsafe_code)]

pub mod demo;
pub mod papers;
pub mod report;
pub mod workload;
pub mod world;
