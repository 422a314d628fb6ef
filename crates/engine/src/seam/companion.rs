//! Prefetching across the seam: the Streamer sees a connection first and starts to fetch
//! what the TCE will need of it, without looking inside.

use crate::prefetch_unsafe::TableSpan;

/// Where a TCE keeps what it will touch for a connection: all that a Streamer on
/// the same thread knows of it, and good for nothing but to be fetched early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Companion {
    pub slots: TableSpan,
    pub timers: TableSpan,
}

impl Companion {
    /// Starts to fetch a connection's state and timer.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        self.slots.prefetch(index);
        self.timers.prefetch(index);
    }
}
