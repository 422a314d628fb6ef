//! The unsafe code of this crate.

pub(crate) mod counter_unsafe;
pub(crate) mod file;
pub mod fork;
pub(crate) mod memory;
pub mod signals;
