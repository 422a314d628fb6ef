//! Prefetching across the seam: the Streamer sees a connection first and starts to fetch
//! what the TCE will need of it, without looking inside.

use crate::prefetch_unsafe::TableSpan;

/// Where a TCE keeps a connection's state and timer. A Streamer on the same thread knows the
/// addresses only, and may do nothing with them but prefetch.
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
