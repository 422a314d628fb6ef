//! A stream whose connection arrives from another stack, or has left for one.

use super::ring::{Ring, piece, post_laps};
use super::unpublished::UNPUBLISHED;
use super::{Stream, flags};
use crate::buffers::BufferPool;
use crate::moved::{Brought, LeftBehind, Remains};
use baton_engine::region::{ConsumerRegion, Events, Queue};

/// Flag in addition to the engine's events: adopted, but its queued bytes are not here yet.
const WAITING: Events = Events(1 << 30);
/// Flag in addition to the engine's events: the bytes that a moved connection left here were
/// reported.
const LEFT: Events = Events(1 << 28);

const _: () = assert!(LEFT.0 & (WAITING.0 | UNPUBLISHED.0) == 0, "each flag has a bit of its own");

impl Stream {
    /// True once the connection has moved to another stack. Readable bytes can still be read, but
    /// nothing more arrives or is sent here.
    #[inline]
    pub fn is_moved(&self) -> bool {
        self.events.contains(Events::MOVED)
    }

    /// True unless the connection was adopted and its queued bytes are still missing.
    pub fn is_filled(&self) -> bool {
        !self.is_waiting()
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.events.contains(WAITING)
    }

    /// True if the connection is not here any more, or not yet.
    #[inline]
    pub(super) fn is_elsewhere(&self) -> bool {
        self.events.intersects(Events::MOVED | WAITING)
    }

    /// Notes an adopted connection. Nothing is done before its queued bytes are here.
    pub(crate) fn note_adopted(&mut self) {
        self.events |= WAITING;
    }

    /// Posts the queued bytes of an adopted connection into the rings that were taken for it.
    /// Returns the events that have occurred meanwhile, which the caller must process.
    pub(crate) fn fill(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        brought: &Brought,
        rings: Rings,
        pool: &mut BufferPool,
    ) -> Events {
        let (send, unread) = (&brought.send[..], &brought.unread[..]);
        self.events = self.events.without(WAITING);
        self.flags |= if brought.shut { flags::SHUT } else { 0 };
        (self.send, self.receive) = (rings.send.unwrap_or_default(), rings.receive);
        self.rcv_done = unread.len() as u64;
        let limit = self.receive.room_end(0, self.rcv_share, pool).max(self.rcv_done);
        post_laps(region, qp, Queue::Receive, &mut self.receive, pool, 0, limit);
        region.write(piece(region, self.receive, pool, 0, unread.len()), unread);
        self.rcv_limit = limit;
        region.qp(qp).set_rcv_limit(limit);
        self.flags |= flags::RECEIVES | flags::ACTIVE;
        if !send.is_empty() {
            region.write(piece(region, self.send, pool, 0, send.len()), send);
            self.post_send(region, qp, send.len(), pool);
        }
        region.ring_doorbell(qp);
        self.events
    }

    /// Records the position up to which bytes were received and stored.
    pub(crate) fn note_received(&mut self, rcv_pos: u64) {
        self.rcv_done = self.rcv_done.max(rcv_pos.min(self.rcv_limit));
    }

    /// Returns the bytes of a suspended connection that are here and that the engine does not have.
    /// `tail_pos` is the position up to which the engine has the send queue.
    pub(crate) fn standing(&self, region: &ConsumerRegion, qp: u32, tail_pos: u64, pool: &BufferPool) -> LeftBehind {
        // Without a buffer there are no bytes, whatever the engine reports of the queue pair's next
        // connection.
        let known = if self.send.has_buffer() { tail_pos.clamp(self.snd_done, self.snd_tail) } else { self.snd_tail };
        let received =
            if self.receive.has_buffer() { region.qp(qp).rcv_done().max(self.rcv_done) } else { self.rcv_read };
        LeftBehind {
            unsent: copy_out(region, self.send, pool, known, self.snd_tail),
            unread: copy_out(region, self.receive, pool, self.rcv_read, received),
            shut: self.is(flags::SHUT),
        }
    }

    /// Returns all bytes of a moved connection that are here, including those that the engine has.
    pub(crate) fn remains(&self, region: &ConsumerRegion, qp: u32, pool: &BufferPool) -> Remains {
        Remains { from: self.snd_done, left: self.standing(region, qp, self.snd_done, pool) }
    }

    /// Notes that the bytes left here were reported.
    pub(crate) fn note_left(&mut self) {
        self.events |= LEFT;
    }

    pub(crate) fn has_left(&self) -> bool {
        self.events.contains(LEFT)
    }

    /// Returns the bytes of a moved connection that are still here.
    pub(crate) fn left_behind(&self, region: &ConsumerRegion, qp: u32, pool: &BufferPool) -> LeftBehind {
        let sent = region.qp(qp).snd_sent().clamp(self.snd_done, self.snd_tail);
        LeftBehind {
            unsent: copy_out(region, self.send, pool, sent, self.snd_tail),
            unread: copy_out(region, self.receive, pool, self.rcv_read, self.rcv_done),
            shut: self.is(flags::SHUT),
        }
    }
}

/// Rings for the queues of an arriving connection.
#[derive(Debug)]
pub(crate) struct Rings {
    send: Option<Ring>,
    receive: Ring,
}

impl Rings {
    /// Takes the rings. `window` further bytes may arrive soon; there is space for them if the pool
    /// has enough. Returns `None` if the pool cannot hold the queues.
    pub(crate) fn take(brought: &Brought, window: u32, pool: &mut BufferPool) -> Option<Rings> {
        let (send, unread) = (brought.send.len() as u64, brought.unread.len() as u64);
        let send = if send == 0 { None } else { Some(Ring::for_bytes(send, pool)?) };
        let receive = Ring::for_bytes(unread + u64::from(window), pool).or_else(|| Ring::for_bytes(unread, pool));
        match receive {
            Some(receive) => Some(Rings { send, receive }),
            None => {
                send.into_iter().for_each(|mut ring| ring.give_back(pool));
                None
            }
        }
    }

    /// Returns unused rings to the pool.
    pub(crate) fn give_back(mut self, pool: &mut BufferPool) {
        self.send.iter_mut().for_each(|ring| ring.give_back(pool));
        self.receive.give_back(pool);
    }
}

/// Copies the bytes of a ring from stream position `from` up to `to`.
fn copy_out(region: &ConsumerRegion, ring: Ring, pool: &BufferPool, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; (to - from) as usize];
    let mut done = 0;
    while done < bytes.len() {
        let extent = piece(region, ring, pool, from + done as u64, bytes.len() - done);
        region.read(extent, &mut bytes[done..done + extent.len() as usize]);
        done += extent.len() as usize;
    }
    bytes
}
