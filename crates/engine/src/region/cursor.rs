//! From stream positions to extents.
//!
//! A side that walks a queue remembers one extent and the stream position at
//! which it starts; from there it finds any later position in at most
//! `queue_depth` steps, since no more extents are valid at once.

use super::request::Extent;

/// Which of a queue pair's two queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Buffers to send from.
    Send,
    /// Buffers to receive into.
    Receive,
}

/// An extent's number and the stream position of its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtentCursor {
    /// Number of the extent, modulo 2^32.
    pub index: u32,
    /// Stream position where it starts, in bytes.
    pub start: u64,
}

impl ExtentCursor {
    /// Where the stream's bytes from `position` on lie: at most `len` of them,
    /// and only as far as they lie together. `None` if `position` is before the
    /// cursor, or no extent reaches it, or the consumer's extents make no sense.
    ///
    /// `extent` reads an extent by number; at most `tail - index` of them, and no
    /// more than `depth`, are asked for.
    #[inline]
    pub(super) fn find(
        mut self,
        position: u64,
        len: u32,
        tail: u32,
        depth: u32,
        mut extent: impl FnMut(u32) -> Option<Extent>,
    ) -> Option<(ExtentCursor, Extent)> {
        for _ in 0..tail.wrapping_sub(self.index).min(depth) {
            let here = extent(self.index)?;
            let at = position.checked_sub(self.start)?;
            if at < u64::from(here.len()) {
                return Some((self, here.part(at as u32, len)));
            }
            self.index = self.index.wrapping_add(1);
            self.start = self.start.checked_add(u64::from(here.len()))?;
        }
        None
    }
}
