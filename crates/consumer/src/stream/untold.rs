//! Bytes that were written, and that the engine has not been told of: more is to follow them.

use super::{Source, Stream, flags};
use crate::buffers::BufferPool;
use baton_engine::region::{ConsumerRegion, Events};
use std::io;

/// Beside the engine's events: see the file's head.
const UNTOLD: Events = Events(1 << 29);

impl Stream {
    pub(super) fn is_untold(&self) -> bool {
        self.events.contains(UNTOLD)
    }

    /// Up to which position the engine was told of bytes; it is to be told of the rest now.
    pub(super) fn take_told(&mut self, region: &ConsumerRegion, qp: u32) -> u64 {
        if !self.is_untold() {
            return self.snd_tail;
        }
        self.events = self.events.without(UNTOLD);
        region.qp(qp).snd_tail()
    }

    /// As [`Stream::write`], but the engine is told with the next write, or by
    /// [`Stream::push`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn write_more(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        data: impl Source,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let count = self.queue(region, qp, data, pool)?;
        if count > 0 {
            self.events |= UNTOLD;
            self.flags |= flags::ACTIVE;
            self.snd_tail += count as u64;
        }
        Ok(count)
    }

    /// Tells the engine of all that was written.
    pub fn push(&mut self, region: &ConsumerRegion, qp: u32, pool: &BufferPool) {
        // Of one that has moved it is not the engine's any more.
        if !self.is_untold() || self.is_closed() || self.is_elsewhere() {
            return;
        }
        self.post_send(region, qp, 0, pool);
    }
}
