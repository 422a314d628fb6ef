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
//! Read [`streamer`] first, then [`tce`], then [`region`], which is what a
//! consumer sees. [`engine`] joins the halves.

pub mod counters;
pub mod endpoint;
pub mod engine;
pub mod event;
pub mod flow_table;
pub mod frame_io;
pub mod ledger;
pub mod options;
pub mod order;
pub mod prefetch_unsafe;
pub mod ranges;
pub mod reassembly;
pub mod region;
pub mod ring;
pub mod slab;
pub mod streamer;
pub mod tce;
pub mod wheel;
