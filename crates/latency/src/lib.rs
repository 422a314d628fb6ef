//! Where the time of a message goes: the [`Layer`]s that it passes on each way, and a [`Histogram`] of the
//! time in each, in memory that another process may read.
//!
//! ```text
//!   kernel: BPF programs  ──┐
//!   engine: Streamer, TCE ──┼─> Spans (one set a connection, shared memory) ──reader──> Table
//!   consumer: its calls   ──┘
//! ```
//!
//! Kernel and engine use the same names wherever they mean the same, so that a connection can be compared
//! with itself before and after a move. The layers are those of LA Tables 2 and 3.
//!
//! Everything here is pure: it calls no operating system and knows no clock. Times are nanoseconds; who
//! records has the clock.

#![warn(missing_docs)]

mod course;
mod exemplar;
mod flags;
mod histogram;
mod layer;
mod memory_unsafe;
mod sampler;
mod slowest;
mod spans;
mod stamps;
mod table;
mod watch;

/// A clock: nanoseconds of `CLOCK_MONOTONIC`, never 0. It may be a few nanoseconds off between threads.
pub type Clock = fn() -> u64;

pub use course::Course;
pub use exemplar::{Exemplar, KEPT, KEPT_WORDS, PARTS};
pub use flags::{Flags, SLOTS};
pub use histogram::{BUCKETS, Counts, Histogram, WORDS, bucket, largest};
pub use layer::{Direction, LAYERS, Layer};
pub use memory_unsafe::WatchMemory;
pub use sampler::Sampler;
pub use slowest::Slowest;
pub use spans::Spans;
pub use stamps::{ENTRIES, Ring, Stamps};
pub use table::{QUANTILES, Row, Table};
pub use watch::{Recorded, Side, Slot, Watch};
