//! The unsafe code of this crate.

pub(crate) mod file;
pub(crate) mod fork;
pub(crate) mod large_pages;
pub(crate) mod memory;
pub(crate) mod queue_lengths;
pub mod signals;
pub(crate) mod tcp_info;
