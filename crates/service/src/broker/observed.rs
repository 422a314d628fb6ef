//! The memory of a program and an engine in which points of time are stamped for observers.

use baton_consumer::memory::SharedWatch;
use std::collections::BTreeSet;

/// That memory, and who reads it.
pub(super) struct Observed {
    pub memory: SharedWatch,
    /// The observers that have it.
    pub readers: BTreeSet<u32>,
}
