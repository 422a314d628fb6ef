//! Unpublished bytes: written, but not announced to the engine, because more will follow.

use super::{Source, Stream, flags};
use crate::buffers::BufferPool;
use baton_engine::region::{ConsumerRegion, Events};
use std::io;

/// Flag in addition to the engine's events: some written bytes were not posted.
pub(super) const UNPUBLISHED: Events = Events(1 << 29);

impl Stream {
    pub(super) fn has_unpublished(&self) -> bool {
        self.events.contains(UNPUBLISHED)
    }

    /// Returns the position up to which the engine was told about bytes. The caller must now tell
    /// it about the rest.
    pub(super) fn take_published(&mut self, region: &ConsumerRegion, qp: u32) -> u64 {
        if !self.has_unpublished() {
            return self.snd_tail;
        }
        self.events = self.events.without(UNPUBLISHED);
        region.qp(qp).snd_tail()
    }

    /// Like [`Stream::write`], but tells the engine only with the next write or [`Stream::push`].
    ///
    /// # Errors
    /// Those of [`Stream::write`].
    pub(crate) fn write_more(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        data: impl Source,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let count = self.queue(region, qp, data, pool)?;
        if count > 0 {
            self.events |= UNPUBLISHED;
            self.flags |= flags::ACTIVE;
            self.snd_tail += count as u64;
        }
        Ok(count)
    }

    /// Tells the engine about all written bytes.
    pub fn push(&mut self, region: &ConsumerRegion, qp: u32, pool: &BufferPool) {
        // A connection that has moved does not belong to the engine any more.
        if !self.has_unpublished() || self.is_closed() || self.is_elsewhere() {
            return;
        }
        self.post_send(region, qp, 0, pool);
    }
}
