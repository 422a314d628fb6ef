//! The engine's side of a region: everything read is checked, nothing waits.

use super::layout::QpWords;
use super::request::{Completion, Events, Extent, Identity, Queue, Request};
use super::sys::Region;
use super::wake::{announce_sleep, claim_wake};
use crate::frame_io::PayloadPart;
use crate::prefetch_unsafe::prefetch;
use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::Arc;

/// The most invalid ring entries that one call skips.
const SKIP: u32 = 64;

/// Invalid input of a consumer; each is a count since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BadInput {
    /// Doorbells for queue pairs that do not exist.
    pub doorbells: u64,
    /// Requests that could not be decoded.
    pub requests: u64,
    /// Ring positions further ahead than the ring is long.
    pub positions: u64,
    /// Extents that are empty or do not lie within the data area.
    pub extents: u64,
    /// Completions dropped because the ring was full.
    pub completions: u64,
}

/// One consumer's region as the engine sees it. For one thread at a time.
pub struct EngineRegion {
    region: Arc<Region>,
    doorbell_head: Cell<u32>,
    doorbell_tail: Cell<u32>,
    request_head: Cell<u32>,
    completion_tail: Cell<u32>,
    completion_head: Cell<u32>,
    /// Something was put in since the consumer's sleep was last asked about.
    untold: Cell<bool>,
    bad: Cell<BadInput>,
    one_pass: bool,
}

impl EngineRegion {
    /// The engine's side of `region`; its ring positions go on from where the
    /// header says the engine was.
    pub fn new(region: Arc<Region>) -> EngineRegion {
        let header = region.header();
        let (doorbell_head, request_head) =
            (header.doorbell_head.word.load(Relaxed), header.request_head.word.load(Relaxed));
        let completion_tail = header.completion_tail.word.load(Relaxed);
        EngineRegion {
            region,
            doorbell_head: Cell::new(doorbell_head),
            doorbell_tail: Cell::new(doorbell_head),
            request_head: Cell::new(request_head),
            completion_tail: Cell::new(completion_tail),
            completion_head: Cell::new(completion_tail),
            untold: Cell::new(false),
            bad: Cell::default(),
            one_pass: true,
        }
    }

    /// Sets whether payload is copied and summed in one pass, or copied and then summed.
    pub fn set_one_pass(&mut self, one_pass: bool) {
        self.one_pass = one_pass;
    }

    /// The memory itself.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Invalid input so far.
    pub fn bad_input(&self) -> BadInput {
        self.bad.get()
    }

    #[cold]
    fn count_bad(&self, count: impl FnOnce(&mut BadInput)) {
        let mut bad = self.bad.get();
        count(&mut bad);
        self.bad.set(bad);
    }

    /// The next queue pair whose doorbell was rung. Its cursors are at least as
    /// new as when it was.
    #[inline]
    pub fn pop_doorbell(&self) -> Option<u32> {
        let mut one = [0];
        (self.pop_doorbells(&mut one) == 1).then_some(one[0])
    }

    /// Fills `out` from its start with queue pairs whose doorbells were rung,
    /// and returns how many. A doorbell rung from here on is a new one. In a
    /// batch the queue pairs' cache misses overlap.
    pub fn pop_doorbells(&self, out: &mut [u32]) -> usize {
        let layout = self.region.geometry().layout;
        let (mut head, mut taken, mut skipped) = (self.doorbell_head.get(), 0, 0);
        while taken < out.len() && skipped < SKIP {
            if head == self.doorbell_tail.get() && !self.refresh_doorbells(&mut head) {
                break;
            }
            let qp = self.region.doorbell(head).load(Relaxed);
            head = head.wrapping_add(1);
            if qp < layout.qps {
                self.prefetch_qp(qp);
                out[taken] = qp;
                taken += 1;
            } else {
                skipped += 1;
                self.count_bad(|bad| bad.doorbells += 1);
            }
        }
        if head != self.doorbell_head.get() {
            self.doorbell_head.set(head);
            self.region.header().doorbell_head.word.store(head, Release);
        }
        for &qp in &out[..taken] {
            self.region.qp(qp).rung.swap(0, AcqRel);
        }
        taken
    }

    /// Reads the consumer's doorbell tail; false if there is nothing. An impossible tail makes
    /// the ring count as empty up to there.
    fn refresh_doorbells(&self, head: &mut u32) -> bool {
        let tail = self.region.header().doorbell_tail.word.load(Acquire);
        self.doorbell_tail.set(tail);
        if tail.wrapping_sub(*head) > self.region.geometry().doorbells {
            self.count_bad(|bad| bad.positions += 1);
            *head = tail;
        }
        tail != *head
    }

    /// The next valid request.
    pub fn pop_request(&self) -> Option<Request> {
        let geometry = self.region.geometry();
        let header = self.region.header();
        let tail = header.request_tail.word.load(Acquire);
        let mut head = self.request_head.get();
        if tail == head {
            return None;
        }
        let mut found = None;
        if tail.wrapping_sub(head) > geometry.layout.requests {
            self.count_bad(|bad| bad.positions += 1);
            head = tail;
        }
        let mut skipped = 0;
        while found.is_none() && head != tail && skipped < SKIP {
            let entry = self.region.request(head);
            found = Request::decode(core::array::from_fn(|word| entry[word].load(Relaxed)), geometry.layout.qps);
            head = head.wrapping_add(1);
            if found.is_none() {
                skipped += 1;
                self.count_bad(|bad| bad.requests += 1);
            }
        }
        self.request_head.set(head);
        header.request_head.word.store(head, Release);
        found
    }

    /// Puts a completion into the ring; false, and counted, if the consumer let
    /// it fill up (one that keeps to the protocol cannot).
    #[inline]
    pub fn complete(&self, completion: Completion) -> bool {
        let tail = self.completion_tail.get();
        if tail.wrapping_sub(self.completion_head.get()) >= self.region.geometry().completions
            && self.completion_free() == 0
        {
            self.count_bad(|bad| bad.completions += 1);
            return false;
        }
        let entry = self.region.completion(tail);
        let words = completion.encode();
        entry[0].store(words[0], Relaxed);
        entry[1].store(words[1], Relaxed);
        let tail = tail.wrapping_add(1);
        self.completion_tail.set(tail);
        self.region.header().completion_tail.word.store(tail, Release);
        self.untold.set(true);
        true
    }

    /// Entries free in the completion ring; 0 while the consumer's position is impossible.
    pub fn completion_free(&self) -> u32 {
        let (head, tail) = (self.region.header().completion_head.word.load(Acquire), self.completion_tail.get());
        let completions = self.region.geometry().completions;
        match completions.checked_sub(tail.wrapping_sub(head)) {
            Some(free) => {
                self.completion_head.set(head);
                free
            }
            None => {
                self.count_bad(|bad| bad.positions += 1);
                self.completion_head.set(tail.wrapping_sub(completions));
                0
            }
        }
    }

    /// True if a doorbell or request waits.
    pub fn has_work(&self) -> bool {
        let header = self.region.header();
        header.doorbell_tail.word.load(Acquire) != self.doorbell_head.get()
            || header.request_tail.word.load(Acquire) != self.request_head.get()
    }

    /// Says that the engine is about to sleep. False if work turned up: then it
    /// does not sleep.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        announce_sleep(&self.region.header().engine_asleep.word, || self.has_work())
    }

    /// Notes that the engine is awake, for whatever reason.
    pub fn awake(&self) {
        self.region.header().engine_asleep.word.store(0, Relaxed);
    }

    /// True if there is something for the consumer, which sleeps: the caller has to wake it. To be
    /// asked once after a burst of completions.
    #[must_use]
    pub fn must_wake_consumer(&self) -> bool {
        self.untold.replace(false) && claim_wake(&self.region.header().consumer_asleep.word)
    }

    /// One queue pair.
    ///
    /// # Panics
    /// If `qp` is not below the layout's `qps`; doorbells and requests popped are.
    #[inline]
    pub fn qp(&self, qp: u32) -> QpEngine<'_> {
        QpEngine { engine: self, words: self.region.qp(qp), qp }
    }

    /// Starts to fetch a queue pair's lines into the cache.
    #[inline]
    pub fn prefetch_qp(&self, qp: u32) {
        let words = self.region.qp(qp);
        prefetch(&words.rcv_done);
        prefetch(&words.snd_tail);
        prefetch(self.region.queue_slot(qp, Queue::Send, 0));
        prefetch(self.region.queue_slot(qp, Queue::Receive, 0));
    }

    /// `[offset, offset + len)` of the data area, if it lies within; else it is
    /// counted.
    #[inline]
    pub fn extent(&self, offset: u64, len: u32) -> Option<Extent> {
        let extent = self.region.extent(offset, len);
        if extent.is_none() {
            self.count_bad(|bad| bad.extents += 1);
        }
        extent
    }

    /// Copies `src` to the start of `to`.
    ///
    /// # Panics
    /// If `src` is longer than `to`, or `to` was made by another region.
    #[inline]
    pub fn copy_in(&self, to: Extent, src: &[u8]) {
        self.region.copy_in(to, src);
    }

    /// As [`EngineRegion::copy_in`]; returns the ones' complement sum of `src`
    /// as [`baton_wire::checksum`] gives it.
    #[inline]
    pub fn copy_in_sum(&self, to: Extent, src: &[u8]) -> u32 {
        if self.one_pass { self.region.copy_in_sum(to, src) } else { self.region.copy_in_then_sum(to, src) }
    }

    /// Fills `dst` from the start of `from`.
    ///
    /// # Panics
    /// If `dst` is longer than `from`, or `from` was made by another region.
    #[inline]
    pub fn copy_out(&self, from: Extent, dst: &mut [u8]) {
        self.region.copy_out(from, dst);
    }

    /// As [`EngineRegion::copy_out`]; returns the sum of what was put into `dst`.
    #[inline]
    pub fn copy_out_sum(&self, from: Extent, dst: &mut [u8]) -> u32 {
        if self.one_pass { self.region.copy_out_sum(from, dst) } else { self.region.copy_out_then_sum(from, dst) }
    }

    /// The sum of an extent's bytes where they lie. The consumer may change
    /// them afterwards; then its segment has a wrong checksum.
    #[inline]
    pub fn sum(&self, from: Extent) -> u32 {
        self.region.sum(from)
    }

    /// An extent as a part of a frame to gather, valid while the region is.
    #[inline]
    pub fn part(&self, from: Extent) -> PayloadPart {
        PayloadPart { ptr: self.region.data(from), len: from.len() as usize }
    }
}

/// One queue pair as the engine sees it.
#[derive(Clone, Copy)]
pub struct QpEngine<'a> {
    engine: &'a EngineRegion,
    words: &'a QpWords,
    qp: u32,
}

impl QpEngine<'_> {
    /// Stream bytes posted to send. Any value; it may even go back.
    #[inline]
    pub fn snd_tail(&self) -> u64 {
        self.words.snd_tail.load(Acquire)
    }

    /// Stream position up to which receive buffers reach. Any value.
    #[inline]
    pub fn rcv_limit(&self) -> u64 {
        self.words.rcv_limit.load(Acquire)
    }

    /// Low half of the stream position up to which the consumer read. Any value.
    #[inline]
    pub fn rcv_read(&self) -> u32 {
        self.words.rcv_read.load(Acquire)
    }

    /// Send extents posted since the start, modulo 2^32. Any value.
    #[inline]
    pub fn sq_tail(&self) -> u32 {
        self.words.sq_tail.load(Acquire)
    }

    /// Receive extents posted since the start, modulo 2^32. Any value.
    #[inline]
    pub fn rq_tail(&self) -> u32 {
        self.words.rq_tail.load(Acquire)
    }

    /// Send extent number `index`; `None`, and counted, if it is empty or lies
    /// outside the data area. So a walk along a queue makes progress with each
    /// extent.
    #[inline]
    pub fn sq_extent(&self, index: u32) -> Option<Extent> {
        self.queue_extent(Queue::Send, index)
    }

    /// Receive extent number `index`, as [`QpEngine::sq_extent`].
    #[inline]
    pub fn rq_extent(&self, index: u32) -> Option<Extent> {
        self.queue_extent(Queue::Receive, index)
    }

    #[inline]
    fn queue_extent(&self, queue: Queue, index: u32) -> Option<Extent> {
        let words = self.engine.region.queue_slot(self.qp, queue, index);
        let (offset, len) = (words.offset.load(Relaxed), words.len.load(Relaxed));
        let extent = self.engine.region.extent(offset, len).filter(|extent| !extent.is_empty());
        if extent.is_none() {
            self.engine.count_bad(|bad| bad.extents += 1);
        }
        extent
    }

    /// Publishes stream bytes delivered in order; their bytes were copied before.
    #[inline]
    pub fn set_rcv_done(&self, bytes: u64) {
        self.words.rcv_done.store(bytes, Release);
    }

    /// Publishes stream bytes acknowledged by the peer.
    #[inline]
    pub fn set_snd_done(&self, bytes: u64) {
        self.words.snd_done.store(bytes, Release);
    }

    /// Publishes stream bytes sent at least once.
    #[inline]
    pub fn set_snd_sent(&self, bytes: u64) {
        self.words.snd_sent.store(bytes, Release);
    }

    /// Publishes the stream position just past the urgent data.
    pub fn set_urgent(&self, position: u64) {
        self.words.urgent.store(position, Release);
    }

    /// Publishes the connection's state, in the engine's numbering.
    pub fn set_state(&self, state: u32) {
        self.words.state.store(state, Release);
    }

    /// Publishes why the connection failed: an errno.
    pub fn set_error(&self, errno: u32) {
        self.words.error.store(errno, Release);
    }

    /// Tells the consumer of `events`: a Ready completion is put into the ring unless one is
    /// there already. Set the cursors before.
    #[inline]
    pub fn raise(&self, events: Events) {
        let before = self.words.events.fetch_or(events.0 | Events::QUEUED, AcqRel);
        if before & Events::QUEUED == 0 {
            self.engine.complete(Completion::Ready { qp: self.qp, events: Events::NONE });
        }
    }

    /// Writes the connection's two ends; call it before the consumer is told of the queue pair.
    pub fn write_identity(&self, identity: &Identity) {
        let (local, remote) = (identity.local.0, identity.remote.0);
        let halves = [(local >> 64) as u64, local as u64, (remote >> 64) as u64, remote as u64];
        for (word, half) in self.words.addresses.iter().zip(halves) {
            word.store(half, Relaxed);
        }
        self.words.ports.store(u32::from(identity.local_port) << 16 | u32::from(identity.remote_port), Relaxed);
        self.words.token.store(identity.token, Relaxed);
        self.words.listener.store(identity.listener, Release);
    }

    /// True if the consumer has seen all raised events, above all a RELEASED: later events of
    /// the queue pair must not be mistaken for the next connection's.
    pub fn is_quiet(&self) -> bool {
        self.words.events.load(Acquire) == 0
    }

    /// Makes a free queue pair ready for its next connection: cursors at 0,
    /// queues empty. A RELEASED that the consumer has not seen yet stays, and so
    /// does a doorbell that was not taken yet: it is still in the ring.
    pub fn reset(&self) {
        let words = self.words;
        for cursor in [&words.rcv_done, &words.snd_done, &words.snd_sent, &words.urgent, &words.snd_tail] {
            cursor.store(0, Relaxed);
        }
        words.rcv_limit.store(0, Relaxed);
        for word in [&words.state, &words.error, &words.sq_tail, &words.rq_tail, &words.rcv_read] {
            word.store(0, Relaxed);
        }
        words.events.fetch_and(Events::QUEUED | Events::RELEASED.0, AcqRel);
    }
}
