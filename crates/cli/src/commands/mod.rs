//! The commands, one per file. Each parses its arguments, calls a library, and prints.

pub mod bare;
pub mod bench;
pub mod bump;
mod bump_bench;
pub mod calibrate;
pub mod capture;
pub mod completions;
pub mod control;
pub mod demo;
pub mod doctor;
pub mod engine;
pub mod events;
pub mod get;
pub mod guardian;
pub mod lab;
pub mod latency;
pub mod load;
pub mod man;
mod measuring;
pub mod policy;
pub mod run;
pub mod serve;
pub mod service;
pub mod stack;
pub mod surroundings;
pub mod trace;
