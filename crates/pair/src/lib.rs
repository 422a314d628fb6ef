//! Pairs: TCP connections whose two ends belong to programs of one machine. Their bytes go from writer
//! to reader through shared memory, with no engine and no segments.
//!
//! ```text
//!   program X                                            program Y
//!     End --write--> X's side: head, bytes  --read-->      End
//!     End <--read--  Y's side: head, bytes  <--write--     End       one End a connection
//!     Link           news, sleeps, seen     each way       Link      one Link a pair of programs
//! ```
//!
//! Two programs share a *link*: two [`Side`]s, memory that one of them writes and the other can only
//! read. A side has a *slot* for each connection: a [control block](words) of 128 bytes, and an area for
//! the bytes that its owner writes, whose pages exist once they are touched. Read [`words`] for what lies
//! where and who may believe what, [`End`] for how bytes go, [`Link`] for how nobody sleeps on.
//!
//! # What a hostile peer can do
//! Everything in the other program's memory is read once, checked against what this side knows, then
//! used. A value that cannot be is a [`Fault`]; it ends that connection and nothing else. Bits of the
//! news can at most send this side to look at slots in vain, each once a call. No call waits, panics, or
//! loops over more than the slots of a link, whatever the memory holds.
//!
//! # Difference from a ring of news
//! News are a bit a slot rather than a ring of entries, and a bit that stands already is not set again.
//! So news cannot overflow, need no lock between the connections of a program, and give a hostile peer no
//! position to lie about. A look costs a load for each 64 slots.
//!
//! Everything here is pure: no operating system, no clock, no thread. The caller chooses how a program
//! sleeps, and rings the bell that a [`Bell`] asks for.

#![warn(missing_docs)]

mod course;
mod end;
mod follower;
mod layout;
mod link;
#[cfg(loom)]
#[path = "memory_loom.rs"]
mod memory;
#[cfg(not(loom))]
#[path = "memory_unsafe.rs"]
mod memory;
mod peer;
mod shared;
#[cfg(all(loom, test))]
mod under_loom;
pub mod words;

pub use course::{Course, is_let_go};
pub use end::{End, Positions, WriteError};
pub use follower::{Follower, Passed, Sight, Stage};
pub use layout::{Layout, LayoutError, MAX_AREA_BYTES, MAX_SLOTS, MIN_AREA_BYTES};
pub use link::{Link, LinkError, SlotError};
pub use memory::Side;
pub use peer::{Ending, Fault};
pub use shared::Bell;
