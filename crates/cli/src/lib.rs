//! Baton's command line: the commands, the service's configuration, and the parts of
//! `baton run`.
//!
//! ```text
//!   commands --> baton_apps: services, fetch, load
//!       |------> baton_lab: the demo, benchmarks, reports
//!       |------> baton_service: broker, guardian, engine
//!       |------> capture: what pairs exchange, as segments
//!       |------> latency: where the time of connections goes, in the kernel and in engines
//!       +------> run --> a program with the library loaded into it
//! ```
#![forbid(unsafe_code)]

pub mod bump;
mod calibration;
mod capture;
pub mod cli;
mod commands;
pub mod config;
mod latency;
mod logging;
pub mod notify;
pub mod run;
mod tuple;
mod whole_file;
