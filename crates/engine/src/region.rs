//! The shared memory of one consumer: queues of work requests over registered
//! memory, rings and doorbells (LC §3.4).
//!
//! ```text
//!   consumer                         region                           engine
//!   post_send, post_receive  --> send and receive queues --> sq_extent, rq_extent
//!   set_snd_tail, set_rcv_limit   --> cursors            --> snd_tail, rcv_limit
//!   ring_doorbell            --> doorbell ring           --> pop_doorbell
//!   request                  --> request ring            --> pop_request
//!   rcv_done, snd_done      <--  cursors                 <-- set_rcv_done, set_snd_done
//!   poll_completion         <--  completion ring, events <-- raise, complete
//!   read, write            <-->  data area              <--> copy_in_sum, copy_out_sum
//! ```
//!
//! # Stream positions and extents
//! An extent says where stream bytes lie. Extents follow one another in stream
//! order: the first starts at position 0 (the byte after the SYN), each next
//! one where the last ended. `snd_tail` and `rcv_limit` say how far they are
//! valid. A message consumer posts a buffer a message and moves both; a stream
//! socket posts its ring buffer again for each lap and moves only the cursor.
//!
//! ```text
//!   extents    |<--- 0 --->|<--- 1 --->|<--- 2 --->|
//!   send       |======acknowledged======|--sent--|..posted..|
//!              0                    snd_done   snd_sent   snd_tail
//!   receive    |======delivered======|    holes allowed    |
//!              0                  rcv_done              rcv_limit
//! ```
//!
//! Extent `i` stands in slot `i % queue_depth`. Its slot may be used again once
//! `snd_done` (or `rcv_done`) has reached its end.
//!
//! A consumer gets the buffers of an idle connection back by [`Request::Unpost`].
//!
//! # Trust Everything that a consumer can write is read once, checked, then used; invalid input
//! is counted in [`BadInput`] and skipped. The engine keeps every size and its own ring
//! positions in memory of its own. So a consumer can spoil its own connections and nothing
//! else. No call here waits, loops over more than a bounded number of entries, or panics for
//! what the memory holds.
//!
//! # Going to sleep
//! Before one side sleeps it says so, then looks at its ring once more
//! ([`EngineRegion::prepare_sleep`]). After one side has put something into a
//! ring it asks whether the other sleeps ([`ConsumerRegion::must_wake_engine`]);
//! if so, it wakes it. A side that has put nothing in wakes nobody, because two such sides
//! would wake each other for ever. The driver chooses the means (an eventfd, a condition
//! variable): no system call is made here.

mod consumer_side;
mod engine_side;
mod layout;
mod request;
mod sys;
pub mod wake;

pub use consumer_side::{ConsumerRegion, PostError, QpConsumer, RequestError};
pub use engine_side::{BadInput, EngineRegion, QpEngine};
pub use layout::{Layout, LayoutError, MAX_DATA_BYTES, MAX_QPS, MAX_QUEUE_DEPTH, MAX_REQUESTS};
pub use request::{Completion, Events, Extent, Identity, Queue, Request};
pub use sys::Region;
pub(crate) use sys::SEGMENT;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

impl Region {
    /// Writes the header of a new region.
    fn initialise(&self) {
        let layout = self.geometry().layout;
        let sizes = &self.header().sizes;
        sizes.version.store(layout::VERSION, Relaxed);
        sizes.qps.store(layout.qps, Relaxed);
        sizes.queue_depth.store(layout.queue_depth, Relaxed);
        sizes.requests.store(layout.requests, Relaxed);
        sizes.data_bytes.store(layout.data_bytes, Relaxed);
        sizes.magic.store(layout::MAGIC, SeqCst);
    }

    /// The sizes that the region was made with.
    pub fn layout(&self) -> Layout {
        self.geometry().layout
    }

    /// `[offset, offset + len)` of the data area, if it lies within.
    #[inline]
    pub fn extent(&self, offset: u64, len: u32) -> Option<Extent> {
        Extent::checked(offset, len, self.geometry().layout.data_bytes)
    }
}
