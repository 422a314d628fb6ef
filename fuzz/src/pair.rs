//! Targets for what `baton_pair` reads from the other program's memory.

#[path = "pair/ring_unsafe.rs"]
pub mod ring_unsafe;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("pair_ring", ring_unsafe::fuzz_ring)];
