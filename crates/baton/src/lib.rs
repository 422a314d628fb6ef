//! Baton's command line, what it measures, the demo and its report.
//!
//! `serve`, `get` and `load` run the same application code (`baton_apps`) over
//! kernel sockets or over the engine. `demo` puts kernel and Baton on two ends of
//! a wire, runs these and real programs against each other, and makes a
//! [`report`].
//!
//! ```text
//!   commands --> baton_apps: services, fetch, load
//!       |
//!       +--> demo --> namespaces, child processes --> report (table, JSON, HTML)
//! ```
#![forbid(unsafe_code)]

pub mod bench;
pub mod bump;
pub mod cli;
mod commands;
pub mod config;
pub mod demo;
pub mod notify;
pub mod programs;
pub mod report;
pub mod run;
