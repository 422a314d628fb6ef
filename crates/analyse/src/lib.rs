//! The gain of a coalescer on a capture: how many frames it would join, under
//! which rules, with how much memory, and what stops it.
//!
//! ```text
//!   capture --read--> Frame --link, classify--> Class --+--> Coalescer --> Tally --> Report
//!    (pcap, pcapng,                                     |
//!     gzip, zstd, live)                                 +--> Coalescer for each point of a Sweep, a Grid
//! ```
//!
//! The coalescer is the engine's own, [`baton_coalesce`]; nothing here decides what is
//! joined. Each frame is parsed once, whatever the number of coalescers that look at it.
//!
//! Counts of captures that were read at different times or on different machines add up as
//! [records](record).
//!
//! Memory does not grow with a capture: a window of bytes, the coalescers' runs, and
//! tables of fixed size ([`flows`]). Files are read on as many cores as there are, each
//! on its own ([`study`]); a capture that is damaged counts as far as it could be read.
//!
//! `unsafe` stands in `sys` and `prefetch_unsafe`.
#![deny(unsafe_code)]

pub use baton_coalesce as coalesce;

pub mod acks;
pub mod asked;
pub mod classifier;
pub mod clock;
pub mod cost;
pub mod delay;
pub mod find;
pub mod flows;
pub mod gain;
pub mod grid;
pub mod gro;
mod joiner;
pub mod link;
pub mod link_type;
mod names;
pub mod per_file;
mod prefetch_unsafe;
pub mod read;
pub mod receiver;
pub mod record;
pub mod report;
pub mod rules;
pub mod sizes;
pub mod study;
pub mod sweep;
mod sys;
pub mod tally;
pub mod tunnel;
pub mod verdict;
pub mod verdicts;

pub use read::{Damage, Frame, Input, Reader};
pub use report::Report;
pub use tally::Analysis;
