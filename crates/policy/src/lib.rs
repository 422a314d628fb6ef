//! Which connections move to the engine and when ([`rules`]), and why one stays in the kernel
//! ([`Refusal`]).
//!
//! Everything here is pure: it calls no operating system, knows no clock and keeps no state.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod refusal;
pub mod rules;

pub use refusal::{Refusal, Refusals};
