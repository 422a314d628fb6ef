//! The bodies of the fuzz targets, one module a crate.
//!
//! A body takes any bytes and must return: a panic, a hang or growth without
//! bound is a finding. The same functions run under `cargo test`, over the
//! committed corpora (`tests/corpus.rs` of each crate includes its module), so a
//! module uses nothing but its crate and what that uses.

pub mod client;
pub mod coalesce;
pub mod engine;
pub mod pair;
pub mod port;
pub mod service;
pub mod socket;
pub mod tcp;
pub mod trace;
pub mod wire;
