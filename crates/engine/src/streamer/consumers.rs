//! The consumers: their regions, queue pairs, doorbells and requests.
//!
//! Everything that a consumer writes is checked here, once, before anything acts on it. A
//! consumer that breaks the rules of its queues loses the connection concerned.

use super::context::bits;
use super::{ConnId, Streamer};
use crate::options::{IP_FIELDS, IpFields};
use crate::prefetch_unsafe::prefetch_index;
use crate::region::{Completion, EngineRegion, Events, Identity, MAX_QPS, Request};
use crate::seam::event::{Event, Wish};
use crate::seam::kinds::Errno;
use baton_tcp::time::Instant;
use baton_wire::addr::{Addr, Tuple};
use std::collections::VecDeque;

/// A consumer of this engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ConsumerId(pub u16);

/// Doorbells and requests handled in one poll, each.
const PER_POLL: usize = 256;

/// Events that one request adds at most.
const EVENTS_PER_REQUEST: usize = 2;

/// A consumer's region, and the connection of each of its queue pairs.
pub(super) struct ConsumerSlot {
    pub region: EngineRegion,
    /// Connection of each queue pair; `NONE` while it is free, `LISTENER` while
    /// it listens, `ENDED` while the consumer holds on to an ended connection.
    owners: Vec<ConnId>,
    /// Queue pairs that are free again, the longest free first.
    free: VecDeque<u32>,
}

/// A queue pair that listens.
const LISTENER: ConnId = ConnId(u32::MAX - 1);

/// A queue pair whose connection has ended and whose consumer has not let go.
const ENDED: ConnId = ConnId(u32::MAX - 2);

impl ConsumerSlot {
    pub(super) fn take_qp(&mut self, owner: ConnId) -> Option<u32> {
        let qp = self.take_free().or_else(|| {
            let next = self.owners.len() as u32;
            (next < self.region.region().layout().qps).then(|| {
                self.owners.push(ConnId::NONE);
                next
            })
        })?;
        self.owners[qp as usize] = owner;
        self.region.qp(qp).reset();
        Some(qp)
    }

    /// A free queue pair whose consumer has seen that it was released. Usually that is the
    /// first one.
    fn take_free(&mut self) -> Option<u32> {
        let places = self.free.len().min(PER_POLL);
        let place = (0..places).find(|&place| self.region.qp(self.free[place]).is_quiet())?;
        self.free.remove(place)
    }

    fn free_qp(&mut self, qp: u32) {
        self.owners[qp as usize] = ConnId::NONE;
        self.free.push_back(qp);
    }

    /// Starts to fetch what a segment and a doorbell of this queue pair touch. An index out of
    /// range does no harm.
    #[inline]
    pub(super) fn prefetch(&self, qp: u32) {
        if qp < self.owners.len() as u32 {
            self.region.prefetch_qp(qp);
            prefetch_index(&self.owners, qp as usize);
        }
    }

    fn owner(&self, qp: u32) -> ConnId {
        self.owners.get(qp as usize).copied().unwrap_or(ConnId::NONE)
    }
}

/// A queue pair in the flow table's word for a connection: below 22 bits of its number that of
/// its consumer, plus 1. Consumers whose number does not fit are left out.
fn note_of(consumer: u16, qp: u32) -> u32 {
    (u32::from(consumer) + 1).checked_mul(MAX_QPS).map_or(0, |consumer| consumer | qp)
}

impl Streamer {
    /// Writes down in the flow table which queue pair a connection has.
    pub(super) fn note_qp(&mut self, conn: ConnId) {
        let flow = &self.flows[conn.0];
        let note = if flow.has(bits::ATTACHED) { note_of(flow.consumer, flow.qp) } else { 0 };
        let hash = self.table.hash(&flow.rx.tuple);
        self.table.note(hash, conn.0, note);
        if self.marks.is_some() {
            self.mark_opened(conn);
        }
    }

    /// Starts to fetch the queue pair that a note names.
    #[inline]
    pub(super) fn prefetch_noted(&self, note: u32) {
        let consumer = (note / MAX_QPS).wrapping_sub(1);
        if let Some(Some(slot)) = self.consumers.get(consumer as usize) {
            slot.prefetch(note % MAX_QPS);
        }
    }

    /// Attaches a consumer; its region is polled from now on.
    pub fn attach_consumer(&mut self, mut region: EngineRegion) -> ConsumerId {
        region.set_one_pass(self.config.one_pass);
        let slot = ConsumerSlot { region, owners: Vec::new(), free: VecDeque::new() };
        let index = self.consumers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.consumers.push(None);
            self.consumers.len() - 1
        });
        self.consumers[index] = Some(slot);
        ConsumerId(index as u16)
    }

    /// Lets go of a consumer's region. False, and nothing has changed, while a queue pair is in use.
    pub fn detach_consumer(&mut self, id: ConsumerId) -> bool {
        let idle = |slot: &mut ConsumerSlot| slot.owners.iter().all(|owner| matches!(*owner, ConnId::NONE | ENDED));
        self.consumers.get_mut(usize::from(id.0)).is_some_and(|slot| slot.take_if(idle).is_some())
    }

    /// Queue pairs of a consumer that are or were in use.
    pub(super) fn queue_pairs(&self, id: ConsumerId) -> u32 {
        self.consumers.get(usize::from(id.0)).and_then(Option::as_ref).map_or(0, |slot| slot.owners.len() as u32)
    }

    /// A consumer's region, for its driver's sleep and wake flags.
    pub fn consumer_region(&mut self, id: ConsumerId) -> Option<&mut EngineRegion> {
        self.region(id.0)
    }

    /// The connection that a queue pair of a consumer belongs to, if it has one
    /// that has not ended.
    pub fn connection(&self, id: ConsumerId, qp: u32) -> Option<ConnId> {
        let owner = self.consumers.get(usize::from(id.0))?.as_ref()?.owner(qp);
        (owner.0 < ENDED.0).then_some(owner)
    }

    /// True if a consumer has rung a doorbell or made a request that was not handled yet.
    pub fn has_doorbells(&self) -> bool {
        self.consumers.iter().flatten().any(|slot| slot.region.has_work())
    }

    /// Looks at every consumer's doorbells and requests.
    pub(super) fn handle_doorbells(&mut self, now: Instant) -> usize {
        let mut work = 0;
        if self.moves.has_work() {
            self.put_back_staying();
        }
        for id in 0..self.consumers.len() as u16 {
            for _ in 0..PER_POLL {
                if self.event_room() < EVENTS_PER_REQUEST {
                    return work;
                }
                let Some(qp) = self.region(id).and_then(|region| region.pop_doorbell()) else { break };
                work += 1;
                let owner = self.consumer(id).map_or(ConnId::NONE, |slot| slot.owner(qp));
                if owner.0 < ENDED.0 {
                    self.handle_doorbell(owner);
                }
            }
            for _ in 0..PER_POLL {
                if self.event_room() < EVENTS_PER_REQUEST {
                    return work;
                }
                let Some(request) = self.region(id).and_then(|region| region.pop_request()) else { break };
                work += 1;
                self.handle_request(now, id, request);
            }
        }
        work
    }

    /// Reads both cursors of a queue pair and acts on what moved.
    pub(super) fn handle_doorbell(&mut self, conn: ConnId) {
        let flow = &mut self.flows[conn.0];
        if flow.bits & (bits::ATTACHED | bits::SUSPENDED) != bits::ATTACHED {
            return self.handle_rare_doorbell(conn);
        }
        let Some(Some(slot)) = self.consumers.get(usize::from(flow.consumer)) else { return };
        let qp = slot.region.qp(flow.qp);
        // Cursors only ever move forward; a cursor that moves back is ignored.
        let (snd_tail, rcv_limit) = (qp.snd_tail(), qp.rcv_limit());
        if !flow.has(bits::FIN_WANTED) {
            flow.tx.tail_pos = flow.tx.tail_pos.max(snd_tail);
        }
        // An honest consumer is never further ahead than its queues are deep.
        let depth = slot.region.region().layout().queue_depth;
        let (sq_tail, rq_tail) = (qp.sq_tail(), qp.rq_tail());
        if sq_tail.wrapping_sub(flow.tx.una_cursor.next) > depth || rq_tail.wrapping_sub(flow.rx.cursor.next) > depth {
            self.counters.hostile_consumer += 1;
            return;
        }
        (flow.tx.sq_tail, flow.rx.rq_tail) = (sq_tail, rq_tail);
        let more = rcv_limit > flow.rx.rq_limit;
        flow.rx.rq_limit = flow.rx.rq_limit.max(rcv_limit);
        // Before the sequence numbers are known an edge cannot be told; `synchronize` will.
        if more && flow.has(bits::SYNCHRONIZED) {
            flow.bits &= !bits::WANT_TOLD;
            let edge = flow.posted_edge();
            // The TCE is told of a few segments' worth at once; less waits for the next event.
            let gain = edge.since(flow.rx.posted_told);
            let tight = flow.rx.posted_told.since(flow.rx.rcv_nxt) < 2 * i32::from(flow.tx.mss);
            if tight || gain >= 4 * i32::from(flow.tx.mss) || flow.rx.parked_bytes > 0 {
                flow.rx.posted_told = edge;
                self.event(Event::Posted { conn, right_edge: edge });
            }
        }
        if self.flows[conn.0].queued() > 0 {
            self.activate(conn);
        }
    }

    /// An adopted connection's consumer posts what it brought along; with all of it
    /// there it is like any other.
    #[cold]
    fn handle_rare_doorbell(&mut self, conn: ConnId) {
        let flow = &mut self.flows[conn.0];
        let Some(Some(slot)) = self.consumers.get(usize::from(flow.consumer)) else { return };
        if !flow.has(bits::FILLING) || flow.has(bits::SUSPENDED) {
            return;
        }
        let qp = slot.region.qp(flow.qp);
        if qp.snd_tail() < flow.tx.tail_pos || qp.rcv_limit() < flow.rx.rcv_pos {
            return;
        }
        flow.bits = flow.bits & !bits::FILLING | bits::ATTACHED;
        self.note_qp(conn);
        self.handle_doorbell(conn);
        self.publish_acknowledged(conn);
        self.published(conn).into_iter().for_each(|(flow, record)| record.go_live(&flow.progress()));
        // Entries that were read here may be used again.
        self.touch(conn);
        self.publish_received();
        self.want_buffer_for_parked(conn);
        self.activate(conn);
    }

    fn handle_request(&mut self, now: Instant, id: u16, request: Request) {
        match request {
            Request::Connect { token, local, local_port, remote, remote_port, options } => {
                let tuple = Tuple { local, remote, local_port, remote_port };
                self.request_connect(now, id, token, tuple, options);
            }
            Request::Listen { token, local, local_port, backlog, options } => {
                let Some(qp) = self.consumer(id).and_then(|slot| slot.take_qp(LISTENER)) else {
                    return self.refuse(id, token, Errno::NO_BUFFERS);
                };
                let local = Tuple { local, local_port, ..Tuple::default() };
                self.event_tuple(local);
                self.event(Event::Listen { consumer: id, qp, token, backlog, options });
            }
            Request::Unlisten { qp } => {
                if self.consumer(id).is_some_and(|slot| slot.owner(qp) == LISTENER) {
                    self.event(Event::Unlisten { consumer: id, qp });
                }
            }
            Request::Shutdown { qp } => self.wish(id, qp, Wish::Shutdown),
            Request::Close { qp } => self.wish(id, qp, Wish::Close),
            Request::Abort { qp } => self.wish(id, qp, Wish::Abort),
            Request::SetOption { token, qp, option: IP_FIELDS, value } => {
                self.set_ip_fields(id, qp, IpFields::from_bits(value));
                self.answer(id, Completion::Done { token, value: 0 });
            }
            Request::SetOption { token, qp, option, value } => match crate::options::decode(option, value) {
                Some(option) => {
                    self.wish(id, qp, Wish::Option(option));
                    self.answer(id, Completion::Done { token, value: 0 });
                }
                None => self.refuse(id, token, Errno::NO_OPTION),
            },
            Request::Info { token, qp, offset, len } => {
                let owner = self.consumer(id).map_or(ConnId::NONE, |slot| slot.owner(qp));
                if owner.0 < ENDED.0 {
                    self.event(Event::Consumer { conn: owner, wish: Wish::Info { consumer: id, token, offset, len } });
                } else {
                    self.refuse(id, token, Errno::NOT_CONNECTED);
                }
            }
            Request::Unpost { token, qp } => self.request_unpost(id, qp, token),
        }
    }

    /// The consumer wants its buffers back. It gets them unless they hold bytes that are still
    /// needed: parked, beyond a gap, or not acknowledged.
    fn request_unpost(&mut self, id: u16, qp: u32, token: u64) {
        let owner = self.consumer(id).map_or(ConnId::NONE, |slot| slot.owner(qp));
        if owner == ENDED {
            // No buffer is used after the end.
            return self.answer(id, Completion::Done { token, value: 0 });
        }
        if owner.0 > ENDED.0 {
            return self.refuse(id, token, Errno::NOT_CONNECTED);
        }
        // Buffers posted before the request are among those taken back.
        self.handle_doorbell(owner);
        // Payload that came before the connection was known also needs these buffers.
        let awaited = self.reassembly.has_stranger(&self.flows[owner.0].rx.tuple);
        if !awaited && self.flows[owner.0].unpost() {
            if let Some((flow, record)) = self.published(owner) {
                record.set_acknowledged(&flow.acknowledged());
            }
            self.event(Event::Unposted { conn: owner });
            self.answer(id, Completion::Done { token, value: 0 });
        } else {
            self.refuse(id, token, Errno::AGAIN);
        }
    }

    /// Passes a consumer's request on to the TCE, if the queue pair has a connection.
    fn wish(&mut self, id: u16, qp: u32, wish: Wish) {
        let owner = self.consumer(id).map_or(ConnId::NONE, |slot| slot.owner(qp));
        let lets_go = matches!(wish, Wish::Close | Wish::Abort);
        if owner == ENDED && lets_go {
            self.release_qp(id, qp);
        }
        if owner.0 >= ENDED.0 {
            return;
        }
        // Bytes posted before the request belong to the stream that it ends.
        self.handle_doorbell(owner);
        let flow = &mut self.flows[owner.0];
        let mut wish = wish;
        if lets_go {
            flow.bits |= bits::ABANDONED;
            if flow.has(bits::FILLING) {
                // The bytes that it brought along will never be sent.
                wish = Wish::Abort;
            }
        }
        if flow.has(bits::SUSPENDED) {
            return self.wish_later(owner, wish);
        }
        self.event(Event::Consumer { conn: owner, wish });
    }

    /// From the next segment on, headers are made with `ip`.
    fn set_ip_fields(&mut self, id: u16, qp: u32, ip: IpFields) {
        let owner = self.consumer(id).map_or(ConnId::NONE, |slot| slot.owner(qp));
        if owner.0 < ENDED.0 {
            self.flows[owner.0].ip = ip;
            self.templates.forget(owner);
        }
    }

    /// An active open: route, source address and port are found here, where the
    /// flow table is; the rest is the TCE's.
    fn request_connect(&mut self, now: Instant, id: u16, token: u64, mut tuple: Tuple, options: u64) {
        // MUST-43, MUST-44 (RFC 9293 §3.9.1.1): the consumer's address, or the route's.
        if tuple.local == Addr::UNSPECIFIED || tuple.local == Addr::v4([0; 4]) {
            match self.endpoint.source_for(tuple.remote) {
                Some(local) => tuple.local = local,
                None => return self.refuse(id, token, Errno::NETWORK_UNREACHABLE),
            }
        } else if !self.endpoint.is_ours(tuple.local) {
            return self.refuse(id, token, Errno::ADDRESS_NOT_AVAILABLE);
        }
        let Some(hop) = self.endpoint.hop_for(now, tuple.remote) else {
            return self.refuse(id, token, Errno::NETWORK_UNREACHABLE);
        };
        if !self.choose_port(&mut tuple) {
            self.endpoint.hop_release(hop);
            return self.refuse(id, token, Errno::ADDRESS_IN_USE);
        }
        let Some(qp) = self.consumer(id).and_then(|slot| slot.take_qp(ConnId::NONE)) else {
            self.endpoint.hop_release(hop);
            return self.refuse(id, token, Errno::NO_BUFFERS);
        };
        self.event_tuple(tuple);
        self.event(Event::Connect { consumer: id, qp, token, hop: hop.0, options });
    }

    /// Picks a free local port by hash and walk (RFC 6056 §3.3.3), or checks the
    /// one asked for.
    fn choose_port(&mut self, tuple: &mut Tuple) -> bool {
        const FIRST: u16 = 32_768;
        const COUNT: u16 = 28_232;
        if tuple.local_port != 0 {
            return self.is_free(tuple);
        }
        let offset = self.table.hash(tuple) as u32;
        for _ in 0..COUNT {
            self.port_step = self.port_step.wrapping_add(1);
            let at = offset.wrapping_add(self.port_step) % u32::from(COUNT);
            tuple.local_port = FIRST + at as u16;
            if self.is_free(tuple) {
                return true;
            }
        }
        false
    }

    /// True if no connection has these addresses and ports, here or on its way.
    fn is_free(&self, tuple: &Tuple) -> bool {
        self.find(tuple).is_none() && !self.moves.holds(tuple)
    }

    /// The queue pair that a request took belongs to this connection.
    pub(super) fn own_qp(&mut self, id: u16, qp: u32, conn: ConnId) {
        if let Some(slot) = self.consumer(id)
            && let Some(owner) = slot.owners.get_mut(qp as usize)
        {
            *owner = conn;
        }
    }

    /// Writes the two ends of a queue pair's connection, before the consumer is told of it.
    pub(super) fn describe_qp(&mut self, id: u16, qp: u32, identity: &Identity) {
        if let Some(region) = self.region(id) {
            region.qp(qp).write_identity(identity);
        }
    }

    /// Frees a queue pair that the consumer never knew of.
    pub(super) fn return_qp(&mut self, id: u16, qp: u32) {
        if let Some(slot) = self.consumer(id) {
            slot.free_qp(qp);
        }
    }

    /// A queue pair for a connection that a listener completed.
    pub(super) fn accept_qp(&mut self, id: u16, conn: ConnId, identity: Identity) -> Option<u32> {
        let slot = self.consumer(id)?;
        let qp = slot.take_qp(conn)?;
        slot.region.qp(qp).write_identity(&identity);
        slot.region.complete(Completion::Accepted { qp, listener: identity.listener });
        Some(qp)
    }

    /// The engine is done with a queue pair that its consumer still holds.
    pub(super) fn leave_qp(&mut self, id: u16, qp: u32) {
        self.own_qp(id, qp, ENDED);
    }

    /// The queue pair is the engine's again.
    pub(super) fn release_qp(&mut self, id: u16, qp: u32) {
        if let Some(slot) = self.consumer(id) {
            slot.region.qp(qp).raise(Events::RELEASED);
            slot.free_qp(qp);
        }
    }

    pub(super) fn answer(&mut self, id: u16, completion: Completion) {
        if let Some(region) = self.region(id) {
            region.complete(completion);
        }
    }

    pub(super) fn refuse(&mut self, id: u16, token: u64, errno: u32) {
        self.answer(id, Completion::Failed { token, errno });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{ConsumerRegion, Layout, Region};

    #[test]
    fn a_note_names_one_queue_pair_of_one_consumer_or_none() {
        for (consumer, qp) in [(0, 0), (0, MAX_QPS - 1), (1022, 77)] {
            let note = note_of(consumer, qp);
            assert_eq!((note / MAX_QPS - 1, note % MAX_QPS), (consumer.into(), qp));
        }
        assert_eq!(note_of(1023, 5), 0);
    }

    #[test]
    fn a_queue_pair_is_used_again_once_its_consumer_has_seen_it_released() {
        let region = Region::heap(Layout { qps: 2, queue_depth: 2, requests: 4, data_bytes: 0 }).expect("a layout");
        let consumer = ConsumerRegion::new(region.clone());
        let mut slot = ConsumerSlot { region: EngineRegion::new(region), owners: Vec::new(), free: VecDeque::new() };
        assert_eq!((slot.take_qp(ConnId(1)), slot.take_qp(ConnId(2))), (Some(0), Some(1)));
        for qp in [0, 1] {
            slot.region.qp(qp).raise(Events::RELEASED);
            slot.free_qp(qp);
        }
        assert_eq!(slot.take_qp(ConnId(3)), None, "its events would be taken for those of the next connection");
        assert!(matches!(consumer.poll_completion(), Some(Completion::Ready { qp: 0, events: Events::RELEASED })));
        assert_eq!((slot.take_qp(ConnId(3)), slot.take_qp(ConnId(4))), (Some(0), None));
    }
}
