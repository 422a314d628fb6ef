//! Repeats CH (*Connection Handoff Policies for TCP Offload Network Interfaces*) with real connections.
//!
//! The paper's NIC is a processor of its own. Here it is the engine's process, which gets a part of a CPU.
//! `crates/testbed` repeats the same figures in simulated time.

pub mod host_first;
pub mod load;

/// The part of a CPU that the engine gets, in hundredths.
pub const PART: u64 = 20;
