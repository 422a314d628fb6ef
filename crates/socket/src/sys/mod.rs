//! The unsafe code of this crate.

pub(crate) mod memory;
