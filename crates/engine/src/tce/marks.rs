//! The point at which the TCE has decided about a message of a watched connection.

use super::Tce;
use baton_latency::{Clock, Layer, WatchMemory};
use std::sync::Arc;

/// Where the points go.
pub(super) struct Marks {
    clock: Clock,
    memories: Vec<Option<Arc<WatchMemory>>>,
}

impl Tce {
    /// Records the time of decisions about a consumer's watched connections in `memory`, the one that the
    /// Streamer has; with `None` no longer. `consumer`: number of its region.
    pub fn watch(&mut self, consumer: u16, memory: Option<Arc<WatchMemory>>, clock: Clock) {
        let marks = self.marks.get_or_insert_with(|| Box::new(Marks { clock, memories: Vec::new() }));
        let at = usize::from(consumer);
        if marks.memories.len() <= at {
            marks.memories.resize(at + 1, None);
        }
        (marks.clock, marks.memories[at]) = (clock, memory);
    }

    /// All is decided about a run whose payload was in place at `placed`.
    #[cold]
    pub(super) fn mark_decided(&mut self, consumer: u16, slot: Option<u16>, placed: u64) {
        let Some(marks) = &self.marks else { return };
        let now = (marks.clock)();
        let Some(Some(memory)) = marks.memories.get(usize::from(consumer)) else { return };
        let ns = now.saturating_sub(placed);
        match slot.and_then(|slot| memory.slot(usize::from(slot))) {
            Some(slot) => memory.record(slot, Layer::DecideBeside, ns),
            None => memory.record_together(Layer::DecideBeside, ns),
        }
    }
}
