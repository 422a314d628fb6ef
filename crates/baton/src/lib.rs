//! Baton's command line: services, a fetcher, load generators, the demo and its
//! report.
//!
//! `serve`, `get` and `load` run the same application code ([`service`],
//! [`fetch`], [`load`]) over kernel sockets or over the engine, through the one
//! trait [`net::Net`]. `demo` puts kernel and Baton on two ends of a wire, runs
//! these and real programs against each other, and makes a [`report`].
//!
//! ```text
//!   commands --> service, fetch, load --> net::StreamIo --> net::kernel | net::engine
//!       |
//!       +--> demo --> namespaces, child processes --> report (table, JSON, HTML)
//! ```
#![forbid(unsafe_code)]

pub mod background;
pub mod bench;
pub mod bump;
pub mod cli;
mod commands;
pub mod config;
pub mod demo;
pub mod fail;
pub mod fetch;
mod html_text;
pub mod load;
mod logging;
pub mod measure;
pub mod net;
pub mod notify;
pub mod programs;
pub mod report;
pub mod run;
pub mod service;
pub mod signal;
