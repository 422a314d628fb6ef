//! The unsafe code of this crate.

pub(crate) mod buffer_locks;
pub(crate) mod queue_lengths;
pub(crate) mod tcp_info;
