//! The consumer's side of a region.
//!
//! It keeps to the protocol that bounds the completion ring (see `layout.rs`) and, like the
//! engine's side, never panics, whatever the memory holds: the engine may have died in the
//! middle of a write.

use super::layout::QpWords;
use super::request::{Completion, Events, Extent, Identity, Queue, Request};
use super::sys::Region;
use super::wake::{announce_sleep, claim_wake};
use baton_wire::addr::Addr;
use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::Arc;

/// A request that was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The ring is full, or as many answers as it has entries are outstanding:
    /// take completions out and try again.
    #[error("too many requests under way")]
    Full,
}

impl From<RequestError> for std::io::Error {
    fn from(error: RequestError) -> std::io::Error {
        match error {
            RequestError::Full => std::io::ErrorKind::WouldBlock.into(),
        }
    }
}

/// An extent that was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// `in_use` extents are still needed and the queue holds no more.
    #[error("the queue is full")]
    Full,
}

/// One consumer's region as the consumer sees it. For one thread at a time.
pub struct ConsumerRegion {
    region: Arc<Region>,
    doorbell_tail: Cell<u32>,
    request_tail: Cell<u32>,
    completion_head: Cell<u32>,
    unanswered: Cell<u32>,
    /// Something was put in since the engine's sleep was last asked about.
    untold: Cell<bool>,
}

impl ConsumerRegion {
    /// The consumer's side of `region`.
    pub fn new(region: Arc<Region>) -> ConsumerRegion {
        let header = region.header();
        let (doorbell_tail, request_tail) =
            (header.doorbell_tail.word.load(Relaxed), header.request_tail.word.load(Relaxed));
        let completion_head = header.completion_head.word.load(Relaxed);
        ConsumerRegion {
            region,
            doorbell_tail: Cell::new(doorbell_tail),
            request_tail: Cell::new(request_tail),
            completion_head: Cell::new(completion_head),
            unanswered: Cell::new(0),
            untold: Cell::new(false),
        }
    }

    /// The memory itself.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Tells the engine that a queue pair's cursors moved. Nothing happens if it
    /// was told already and has not looked yet.
    ///
    /// # Panics
    /// If `qp` is not below the layout's `qps`.
    #[inline]
    pub fn ring_doorbell(&self, qp: u32) {
        // The swap also orders memory: either the engine's take of the doorbell comes after it
        // and sees the cursors, or it came before and we see 0 here.
        if self.region.qp(qp).rung.swap(1, AcqRel) != 0 {
            return;
        }
        // There is at most one entry per queue pair, and the ring has space for all.
        let tail = self.doorbell_tail.get();
        self.region.doorbell(tail).store(qp, Relaxed);
        let tail = tail.wrapping_add(1);
        self.doorbell_tail.set(tail);
        self.region.header().doorbell_tail.word.store(tail, Release);
        self.untold.set(true);
    }

    /// Sends a request to the engine.
    ///
    /// # Errors
    /// [`RequestError::Full`], and nothing was asked.
    pub fn request(&self, request: &Request) -> Result<(), RequestError> {
        let header = self.region.header();
        let entries = self.region.geometry().layout.requests;
        let tail = self.request_tail.get();
        let used = tail.wrapping_sub(header.request_head.word.load(Acquire));
        if used >= entries || (request.answered() && self.unanswered.get() >= entries) {
            return Err(RequestError::Full);
        }
        if request.answered() {
            self.unanswered.set(self.unanswered.get() + 1);
        }
        for (word, value) in self.region.request(tail).iter().zip(request.encode()) {
            word.store(value, Relaxed);
        }
        let tail = tail.wrapping_add(1);
        self.request_tail.set(tail);
        header.request_tail.word.store(tail, Release);
        self.untold.set(true);
        Ok(())
    }

    /// True if a completion waits.
    #[inline]
    pub fn has_completion(&self) -> bool {
        self.region.header().completion_tail.word.load(Acquire) != self.completion_head.get()
    }

    /// The next completion. A `Ready` carries the events, which are then no
    /// longer in the queue pair.
    pub fn poll_completion(&self) -> Option<Completion> {
        let header = self.region.header();
        let geometry = self.region.geometry();
        let tail = header.completion_tail.word.load(Acquire);
        let mut head = self.completion_head.get();
        if tail == head {
            return None;
        }
        if tail.wrapping_sub(head) > geometry.completions {
            head = tail;
        }
        let mut found = None;
        while found.is_none() && head != tail {
            let entry = self.region.completion(head);
            found = Completion::decode([entry[0].load(Relaxed), entry[1].load(Relaxed)], geometry.layout.qps);
            head = head.wrapping_add(1);
        }
        self.completion_head.set(head);
        header.completion_head.word.store(head, Release);
        if let Some(Completion::Ready { qp, events }) = &mut found {
            *events = Events(self.region.qp(*qp).events.swap(0, AcqRel) & Events::ALL);
        } else if found.is_some_and(|completion| completion.answers()) {
            self.unanswered.set(self.unanswered.get().saturating_sub(1));
        }
        found
    }

    /// True if there is something for the engine, which sleeps: the caller has to wake it. To be
    /// asked once after a burst of doorbells and requests.
    #[must_use]
    #[inline]
    pub fn must_wake_engine(&self) -> bool {
        self.has_rung() && claim_wake(&self.region.header().engine_asleep.word)
    }

    /// True if there were doorbells or requests since the last time that this was asked. For an engine that never
    /// sleeps, since its consumer drives it.
    #[must_use]
    #[inline]
    pub fn has_rung(&self) -> bool {
        self.untold.replace(false)
    }

    /// Says that the consumer is about to sleep. False if a completion turned
    /// up: then it does not sleep.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        announce_sleep(&self.region.header().consumer_asleep.word, || self.has_completion())
    }

    /// Notes that the consumer is awake, for whatever reason.
    pub fn awake(&self) {
        self.region.header().consumer_asleep.word.store(0, Relaxed);
    }

    /// One queue pair.
    ///
    /// # Panics
    /// If `qp` is not below the layout's `qps`; those in completions are.
    #[inline]
    pub fn qp(&self, qp: u32) -> QpConsumer<'_> {
        QpConsumer { region: &self.region, words: self.region.qp(qp), qp }
    }

    /// `[offset, offset + len)` of the data area, if it lies within.
    #[inline]
    pub fn extent(&self, offset: u64, len: u32) -> Option<Extent> {
        self.region.extent(offset, len)
    }

    /// Writes bytes to send to the start of `to`.
    ///
    /// # Panics
    /// If `src` is longer than `to`, or `to` was made by another region.
    #[inline]
    pub fn write(&self, to: Extent, src: &[u8]) {
        self.region.copy_in(to, src);
    }

    /// Where the bytes of `to` go, for callers that write them by other means than
    /// [`ConsumerRegion::write`]: `to.len()` bytes, valid for writes while the region is.
    ///
    /// # Panics
    /// If `to` was made by another region.
    #[inline]
    pub fn place(&self, to: Extent) -> *mut u8 {
        self.region.data(to)
    }

    /// Reads received bytes from the start of `from`.
    ///
    /// # Panics
    /// If `dst` is longer than `from`, or `from` was made by another region.
    #[inline]
    pub fn read(&self, from: Extent, dst: &mut [u8]) {
        self.region.copy_out(from, dst);
    }
}

/// One queue pair as the consumer sees it.
#[derive(Clone, Copy)]
pub struct QpConsumer<'a> {
    region: &'a Region,
    words: &'a QpWords,
    qp: u32,
}

impl QpConsumer<'_> {
    /// Stream bytes delivered in order; they may be read.
    #[inline]
    pub fn rcv_done(&self) -> u64 {
        self.words.rcv_done.load(Acquire)
    }

    /// Stream bytes acknowledged by the peer; their buffers are free.
    #[inline]
    pub fn snd_done(&self) -> u64 {
        self.words.snd_done.load(Acquire)
    }

    /// Stream bytes sent at least once.
    pub fn snd_sent(&self) -> u64 {
        self.words.snd_sent.load(Acquire)
    }

    /// Stream position just past the urgent data announced last.
    pub fn urgent(&self) -> u64 {
        self.words.urgent.load(Acquire)
    }

    /// The connection's state, in the engine's numbering.
    pub fn state(&self) -> u32 {
        self.words.state.load(Acquire)
    }

    /// Why the connection failed: an errno, 0 if it did not.
    pub fn error(&self) -> u32 {
        self.words.error.load(Acquire)
    }

    /// The events since the last look, taken out. The queue pair's Ready
    /// completion, if there is one, stays in the ring.
    pub fn take_events(&self) -> Events {
        Events(self.words.events.fetch_and(Events::QUEUED, AcqRel) & Events::ALL)
    }

    /// The connection's two ends.
    pub fn identity(&self) -> Identity {
        let listener = self.words.listener.load(Acquire);
        let [local_hi, local_lo, remote_hi, remote_lo] =
            core::array::from_fn(|word| u128::from(self.words.addresses[word].load(Relaxed)));
        let ports = self.words.ports.load(Relaxed);
        Identity {
            local: Addr(local_hi << 64 | local_lo),
            remote: Addr(remote_hi << 64 | remote_lo),
            local_port: (ports >> 16) as u16,
            remote_port: ports as u16,
            token: self.words.token.load(Relaxed),
            listener,
        }
    }

    /// Posts `extent` as number `index` of a queue (they count from 0) and makes
    /// it the last one; `in_use` extents before it are still needed.
    ///
    /// # Errors
    /// [`PostError::Full`] if the slot it would take is among those in use.
    pub fn post(&self, queue: Queue, index: u32, in_use: u32, extent: Extent) -> Result<(), PostError> {
        if in_use >= self.region.geometry().layout.queue_depth {
            return Err(PostError::Full);
        }
        let words = self.region.queue_slot(self.qp, queue, index);
        words.offset.store(extent.offset(), Relaxed);
        words.len.store(extent.len(), Relaxed);
        let tail = match queue {
            Queue::Send => &self.words.sq_tail,
            Queue::Receive => &self.words.rq_tail,
        };
        tail.store(index.wrapping_add(1), Release);
        Ok(())
    }

    /// How many stream bytes were said to be posted to send.
    #[inline]
    pub fn snd_tail(&self) -> u64 {
        self.words.snd_tail.load(Relaxed)
    }

    /// Says how many stream bytes are posted to send; they were written before.
    #[inline]
    pub fn set_snd_tail(&self, position: u64) {
        self.words.snd_tail.store(position, Release);
    }

    /// Says how far received bytes were read: unread bytes go along if the connection moves.
    #[inline]
    pub fn set_rcv_read(&self, position: u64) {
        self.words.rcv_read.store(position as u32, Release);
    }

    /// Says up to which stream position received bytes may be placed.
    #[inline]
    pub fn set_rcv_limit(&self, position: u64) {
        self.words.rcv_limit.store(position, Release);
    }
}
