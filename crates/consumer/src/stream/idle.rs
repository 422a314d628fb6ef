//! Buffers of an idle stream: returned once the engine has forgotten them.

use super::{Stream, flags};
use crate::buffers::BufferPool;
use baton_engine::region::{ConsumerRegion, Events};

impl Stream {
    /// True if the stream has a buffer and was not yet on the consumer's list. It counts as listed
    /// from now on.
    #[inline]
    pub(crate) fn newly_holds_buffers(&mut self) -> bool {
        let new = (self.send.has_buffer() || self.receive.has_buffer()) && !self.is(flags::LISTED);
        if new {
            self.flags |= flags::LISTED;
        }
        new
    }

    /// True if bytes moved since the last call.
    pub(crate) fn was_active(&mut self) -> bool {
        let active = self.is(flags::ACTIVE);
        self.flags &= !flags::ACTIVE;
        active
    }

    /// True if it has no buffer. It is then no longer on the consumer's list.
    pub(crate) fn holds_nothing(&mut self) -> bool {
        let nothing = !self.send.has_buffer() && !self.receive.has_buffer();
        if nothing {
            self.flags &= !flags::LISTED;
        }
        nothing
    }

    /// True while the engine's answer to a request to forget what is posted is pending. Until then,
    /// no request may be made that ends the stream after the written bytes.
    pub(crate) fn is_retiring(&self) -> bool {
        self.is(flags::RETIRING)
    }

    /// Starts taking the buffers back if nothing is in progress in them. Returns true if the engine
    /// must be asked ([`Request::Unpost`](baton_engine::region::Request)).
    pub(crate) fn retire(&mut self, region: &ConsumerRegion, qp: u32) -> bool {
        let quiet = self.rcv_read == self.rcv_done && (self.snd_tail == self.snd_done || self.is_closed());
        if !quiet || self.is_released() || self.is(flags::RETIRING) {
            return false;
        }
        self.flags |= flags::RETIRING;
        region.qp(qp).set_rcv_limit(self.rcv_read);
        true
    }

    /// Keeps the buffers: the engine refused, or could not be asked. It may not have seen their
    /// full extent before the limit was set back.
    pub(crate) fn cancel_retiring(&mut self, region: &ConsumerRegion, qp: u32) {
        self.flags &= !flags::RETIRING;
        region.qp(qp).set_rcv_limit(self.rcv_limit);
        region.ring_doorbell(qp);
    }

    /// Handles the engine's answer: it forgot all extents, or none.
    pub(crate) fn on_retired(&mut self, region: &ConsumerRegion, qp: u32, forgot: bool, pool: &mut BufferPool) {
        if !forgot {
            self.cancel_retiring(region, qp);
        } else {
            self.flags &= !(flags::RETIRING | flags::RECEIVES | flags::SENDS | flags::GROWS);
            // Bytes that arrived until then are still in the ring; no more will follow.
            self.rcv_done = region.qp(qp).rcv_done();
            self.rcv_limit = self.rcv_done;
            region.qp(qp).set_rcv_limit(self.rcv_limit);
        }
        // Nothing was posted since the request, and everything had been acknowledged then.
        if self.snd_tail > self.snd_done && !self.is_closed() {
            self.tell_tail(region, qp, self.snd_done, pool);
        } else if forgot {
            self.send.give_back(pool);
        }
        if forgot && self.rcv_read == self.rcv_done {
            self.receive.give_back(pool);
        }
        if !forgot || self.events.contains(Events::WANT_BUFFER) {
            self.post_receive(region, qp, pool);
        }
    }
}
