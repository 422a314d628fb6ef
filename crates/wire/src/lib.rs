//! What the wire carries, as types.
//!
//! Views borrow a frame and never panic on what they find in it; builders write
//! into a caller's buffer. Nothing here allocates, does I/O or keeps state.

pub mod addr;
pub mod seq;
pub mod tcp;
