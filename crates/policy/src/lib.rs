//! Which connections move to the engine and when ([`rules`]), and why one is where it is
//! ([`Reason`]); what the kernel's side finds out about it is a [`Refusal`].
//!
//! Everything here is pure: it calls no operating system, knows no clock and keeps no state.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod reason;
mod refusal;
pub mod rules;

pub use reason::{Origin, Reason};
pub use refusal::{Refusal, Refusals};
