//! The loosely coupled engine (LC §3): a machine without a clock, a thread or a
//! socket, driven by `poll(now)`.
//!
//! ```text
//!   port --> Streamer --events--> TCE       decisions go one loop,
//!   port <-- Streamer <--orders-- TCE       payload never leaves the Streamer
//!               |  ^
//!     completions  doorbells
//!               v  |
//!            consumers (shared memory)
//! ```
//!
//! Read [`seam`] first: the events and orders that join the two halves, which never
//! import each other. Then read [`streamer`], [`tce`], and [`region`], the memory that a
//! consumer shares with the engine. [`engine`] owns both halves and polls them.

pub mod arrival;
pub mod counters;
pub mod endpoint;
pub mod engine;
pub mod flow_table;
pub mod frame_io;
pub mod ledger;
pub mod options;
pub mod prefetch_unsafe;
pub mod ranges;
pub mod reassembly;
pub mod region;
pub mod ring;
pub mod seam;
pub mod slab;
pub mod streamer;
pub mod tce;
pub mod tuning;
pub mod wheel;

pub use seam::{event, order};
