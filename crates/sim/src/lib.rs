//! A deterministic world in which the real engine runs.
//!
//! Time is virtual, chance comes from a seed, and everything else is the code
//! that serves real wires: a seed and a commit replay a run to the bit.
//!
//! ```text
//!   program -- region -- engine -- port ==== link ==== port -- engine -- region -- program
//!   (app, end)                     (nic)   (path)
//!                     everything by turns, in order of time (world, agenda)
//! ```
//!
//! A seed picks a swarm ([`swarm`]): hosts, links with faults, dialogues. While
//! faults last nothing wrong may happen (safety); once they stop everything must
//! end (liveness); then nothing may be left. [`check`] says what that means.

#![forbid(unsafe_code)]

pub mod agenda;
pub mod app;
pub mod chance;
pub mod check;
pub mod circle;
pub mod config;
pub mod end;
mod fins;
pub mod forge;
pub mod host;
pub mod link;
pub mod machine;
mod marked;
pub mod mover;
pub mod nic;
mod passage;
pub mod path;
pub mod plain;
pub mod port;
pub mod script;
pub mod stream;
pub mod swarm;
pub mod trace;
pub mod unsummed;
pub mod world;
