//! Targets for what `baton_engine` reads from others' memory.

#[path = "engine/consumer.rs"]
pub mod consumer;
#[path = "engine/region_unsafe.rs"]
pub mod region_unsafe;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] =
    &[("engine_region", region_unsafe::fuzz_region), ("engine_consumer", consumer::fuzz_consumer)];
