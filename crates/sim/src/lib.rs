//! A deterministic world in which the real engine runs.
//!
//! Time is virtual, chance comes from a seed, and everything else is the code
//! that serves real wires: a seed and a commit replay a run to the bit.

#![forbid(unsafe_code)]

pub mod agenda;
pub mod chance;
pub mod link;
pub mod nic;
pub mod port;
