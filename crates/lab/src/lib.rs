//! Everything that measures or demonstrates Baton: the demo, the benchmarks of the command line, and
//! their reports.
//!
//! ```text
//!   demo      papers      the demo; the experiments, and the list of them; the calibration
//!     |         |
//!     |     experiment    the shape of an experiment, how much of it a plan measures
//!      \       /
//!      workload           servers, clients and idle connections
//!          |
//!        world            namespaces, wires, processes
//!
//!   results               rows of all experiments beside the papers' values
//!   report                tables, JSON, SVG and HTML for all of them
//! ```
//!
//! [`watch`] says how progress is told. [`demo`] and [`papers`] do not use each other. [`report`] uses none of the others.
//! The lab starts its own executable (`current_exe`) as servers and clients, so it works only
//! inside the `baton` binary.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod demo;
pub mod experiment;
pub mod papers;
pub mod report;
pub mod results;
pub mod watch;
pub mod workload;
pub mod world;
