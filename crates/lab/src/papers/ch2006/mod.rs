//! Repeats CH (*Connection Handoff Policies for TCP Offload Network Interfaces*) with real connections.
//!
//! The paper's NIC is a processor of its own. Here it is the engine's process, which gets a part of a CPU.
//! [`testbed`] repeats the figures in virtual time.

pub mod host_first;
pub mod load;
pub mod testbed;

/// The part of a CPU that the engine gets, in hundredths.
pub const PART: u64 = 20;
