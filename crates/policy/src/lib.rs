//! Which connections move to the engine and when ([`rules`], [`conditions`]), and why one is where it is
//! ([`Reason`]); what the kernel's side finds out about it is a [`Refusal`]. [`load`] decides how many
//! connections an engine may have, by [`watermarks`] that are measured, and [`heavy`] finds those that
//! load it most. [`survival`] says how many packets a connection has to come, and [`places`] which have
//! the places of an engine that has few; [`responses`] says so where it is known what their programs hand over.
//!
//! Everything here is pure: it calls no operating system and knows no clock. State that a decision needs
//! is a value that its owner keeps.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bounds;
pub mod conditions;
mod facts;
pub mod heavy;
pub mod load;
pub mod places;
mod reason;
mod refusal;
pub mod responses;
pub mod rules;
pub mod survival;
pub mod watermarks;

pub use reason::{Origin, Reason};
pub use refusal::{Refusal, Refusals};
