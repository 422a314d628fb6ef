//! Connections that move between stacks: adoption, suspension, and the frames meanwhile.
//!
//! Only the driver moves them; a consumer can neither forge a connection nor take one away.
//!
//! ```text
//!   adopt      hold(tuple)      frames of it are kept
//!              ... the other stack is frozen and says a Snapshot ...
//!              adopt(..)        -> Adopted: the flow exists, kept frames are taken
//!                               -> AdoptRefused: nothing has changed; unhold
//!
//!   let go     suspend(conn)    nothing is sent any more, frames are kept
//!                               -> Suspended: its Snapshot, where its bytes lie
//!                               -> Stays: it cannot leave; it goes on
//!              ... the other stack rebuilds it ...
//!              let_go(conn)     forgotten; frames of it are dropped until unhold
//!              resume(conn)     or it goes on here, and kept frames are taken
//! ```
//!
//! A held tuple is in no flow table, so its frames come to [`Streamer::hold_frame`] as segments
//! of unknown connections do, at no cost to others. The number of kept frames is bounded;
//! further frames are lost, as if by the network, and so is payload that came out of order: the
//! peer sends it again.
//!
//! The bytes that an adopted connection brings along (unread, unacknowledged and unsent) are
//! the consumer's to post, at the start of its two streams. Until it has (the flow is `FILLING`),
//! arriving data is parked and nothing is sent but ACKs.

mod guest;
mod kinds;

pub use kinds::{Adopt, Moved, SuspendError, Suspended};

use super::consumers::ConsumerId;
use super::context::{Flow, bits};
use super::{ConnId, Streamer};
use crate::endpoint::HopId;
use crate::frame_io::{RxFrame, RxMeta};
use crate::region::{Events, Extent};
use crate::seam::event::{Event, Wish};
use crate::seam::kinds::{AdoptError, MAX_OPTIONS, Queues, SnapshotHalf, Unused, snapshot_halves};
use arrayvec::ArrayVec;
use baton_tcp::options::SocketOption;
use baton_tcp::snapshot::Snapshot;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use std::collections::{BTreeMap, VecDeque};

/// Frames kept of one connection, at most.
const HELD_FRAMES: usize = 64;
/// Bytes of frames kept, of all connections together, at most.
const HELD_BYTES: usize = 4 << 20;
/// The most requests kept of a suspended connection's consumer, in addition to its last one.
const WISHES: usize = 16;
/// Events that putting a suspended connection back adds: its resumption, the requests, what was
/// posted meanwhile.
const PUT_BACK_EVENTS: usize = WISHES + 3;
/// Events that an adoption adds: tuple, two halves, options, the adoption itself.
const ADOPT_EVENTS: usize = 4 + MAX_OPTIONS;

/// A tuple whose connection is moving.
struct Held {
    /// The connection that is leaving; none if it comes, or has left.
    conn: Option<ConnId>,
    /// It has left: frames that still arrive are dropped.
    gone: bool,
    frames: Vec<(Box<[u8]>, RxMeta)>,
    wishes: Vec<Wish>,
}

impl Held {
    fn new(conn: Option<ConnId>) -> Held {
        Held { conn, gone: false, frames: Vec::new(), wishes: Vec::new() }
    }
}

/// All tuples whose connections are moving, and results that the driver has not fetched yet.
#[derive(Default)]
pub(super) struct Moves {
    held: BTreeMap<Tuple, Held>,
    bytes: usize,
    /// Kept frames whose connection can take them now.
    replay: VecDeque<(Box<[u8]>, RxMeta)>,
    told: VecDeque<Moved>,
    /// SYNs that came for connections, until it is known whether they may take their place.
    syns: VecDeque<(ConnId, Box<[u8]>)>,
    /// Connections that cannot leave, to be put back once the event ring has space.
    staying: Vec<ConnId>,
    /// From the orders before a `Suspended`.
    pub head: SnapshotHalf,
    pub tail: SnapshotHalf,
    pub options: ArrayVec<SocketOption, MAX_OPTIONS>,
}

impl Moves {
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    #[inline]
    pub fn has_replay(&self) -> bool {
        !self.replay.is_empty()
    }

    /// True if work is left that no frame, order or doorbell announces.
    pub fn has_work(&self) -> bool {
        self.has_replay() || !self.staying.is_empty()
    }

    pub fn holds(&self, tuple: &Tuple) -> bool {
        self.held.contains_key(tuple)
    }

    fn forget_frames(&mut self, tuple: &Tuple) {
        if let Some(held) = self.held.get_mut(tuple) {
            self.bytes -= held.frames.drain(..).map(|(frame, _)| frame.len()).sum::<usize>();
        }
    }

    /// Frees the tuple; its kept frames are replayed or dropped, as `replay` says.
    fn end(&mut self, tuple: &Tuple, replay: bool) -> Vec<Wish> {
        if !replay {
            self.forget_frames(tuple);
        }
        let Some(held) = self.held.remove(tuple) else { return Vec::new() };
        self.replay.extend(held.frames);
        held.wishes
    }
}

impl Streamer {
    /// Keeps frames of `tuple` from now on, until it is adopted or let loose. False
    /// if there is a connection of this name.
    pub fn hold(&mut self, tuple: Tuple) -> bool {
        if self.find(&tuple).is_some() {
            return false;
        }
        let held = self.moves.held.entry(tuple).or_insert_with(|| Held::new(None));
        held.gone = false;
        true
    }

    /// Stops holding a tuple, and drops the frames kept for it. A connection that is leaving is
    /// not touched.
    pub fn unhold(&mut self, tuple: &Tuple) {
        if self.moves.held.get(tuple).is_some_and(|held| held.conn.is_none()) {
            self.moves.end(tuple, false);
        }
    }

    /// True if there is a connection of this name, TIME-WAIT included, or one on its way.
    pub fn knows(&self, tuple: &Tuple) -> bool {
        self.find(tuple).is_some() || self.moves.held.get(tuple).is_some_and(|held| !held.gone)
    }

    /// Takes a connection over. [`Moved::Adopted`] or [`Moved::AdoptRefused`]
    /// follows, and the consumer gets an `Adopted`. Returns its queue pair.
    ///
    /// # Errors
    /// [`AdoptError`]; nothing follows then.
    pub fn adopt(&mut self, now: Instant, adopt: &Adopt<'_>) -> Result<u32, AdoptError> {
        adopt.snapshot.check()?;
        if adopt.options.len() > MAX_OPTIONS {
            return Err(AdoptError::Options);
        }
        if self.event_room() < ADOPT_EVENTS {
            return Err(AdoptError::Busy);
        }
        let tuple = adopt.tuple;
        let leaving = self.moves.held.get(&tuple).is_some_and(|held| held.conn.is_some());
        if self.find(&tuple).is_some() || leaving {
            return Err(AdoptError::NameInUse);
        }
        let hop = match adopt.via {
            Some(neighbour) => self.endpoint.hop_via(now, neighbour),
            None if self.endpoint.is_ours(tuple.local) => self.endpoint.hop_for(now, tuple.remote),
            None => None,
        };
        let hop = hop.ok_or(AdoptError::NoRoute)?;
        let Some(qp) = self.consumer(adopt.consumer.0).and_then(|slot| slot.take_qp(ConnId::NONE)) else {
            self.endpoint.hop_release(hop);
            return Err(AdoptError::NoQueuePair);
        };
        self.event_tuple(tuple);
        let (head, tail) = snapshot_halves(&adopt.snapshot.to_words());
        self.event(Event::SnapshotHead(head));
        self.event(Event::SnapshotTail(tail));
        for &option in adopt.options {
            self.event(Event::AdoptOption(option));
        }
        let queues = Queues {
            queued: adopt.snapshot.unacked_bytes() + adopt.snapshot.unsent_bytes(),
            unread: adopt.snapshot.unread_bytes(),
        };
        let (consumer, token, ip) = (adopt.consumer.0, adopt.token, adopt.ip);
        self.event(Event::Adopt { consumer, qp, token, hop: hop.0, ip, queues });
        Ok(qp)
    }

    /// Stops the connection of this name, so that it can leave. [`Moved::Suspended`],
    /// [`Moved::Stays`] or [`Moved::Ended`] follows.
    ///
    /// # Errors
    /// [`SuspendError`]; nothing follows then.
    pub fn suspend(&mut self, conn: ConnId, tuple: &Tuple) -> Result<(), SuspendError> {
        if self.called(conn, tuple).is_some_and(|flow| flow.has(bits::FILLING)) {
            return Err(SuspendError::Filling);
        }
        self.suspend_unfilled(conn, tuple)
    }

    /// [`Streamer::suspend`], even if the consumer has not posted what the connection brought
    /// along, and never may. Such a connection is still exactly what was captured: it has
    /// received nothing and sent nothing new.
    ///
    /// # Errors
    /// As [`Streamer::suspend`], except for [`SuspendError::Filling`].
    pub fn suspend_unfilled(&mut self, conn: ConnId, tuple: &Tuple) -> Result<(), SuspendError> {
        if self.event_room() < 2 {
            return Err(SuspendError::Busy);
        }
        let flow = self.called(conn, tuple).ok_or(SuspendError::NotOpen)?;
        let here = flow.bits & (bits::ATTACHED | bits::FILLING) != 0;
        if !here || !flow.has(bits::SYNCHRONIZED) || flow.bits & bits::SUSPENDED != 0 {
            return Err(SuspendError::NotOpen);
        }
        // Bytes posted until now move with it.
        self.handle_doorbell(conn);
        let flow = &mut self.flows[conn.0];
        flow.bits = flow.bits & !bits::QUIET | bits::SUSPENDED;
        let hash = self.table.hash(tuple);
        assert!(self.table.remove(hash, conn.0), "an open connection is in the flow table");
        self.last_conn = ConnId::NONE;
        self.moves.held.insert(*tuple, Held::new(Some(conn)));
        self.event(Event::Suspend { conn });
        Ok(())
    }

    /// A suspended connection goes on here: it could not be rebuilt elsewhere.
    ///
    /// # Errors
    /// As for [`Streamer::suspend`].
    pub fn resume(&mut self, conn: ConnId, tuple: &Tuple) -> Result<(), SuspendError> {
        if self.event_room() < PUT_BACK_EVENTS {
            return Err(SuspendError::Busy);
        }
        self.stands(conn, tuple)?;
        self.put_back(conn, tuple);
        Ok(())
    }

    /// Puts connections back that cannot leave.
    #[cold]
    pub(super) fn put_back_staying(&mut self) {
        while self.event_room() >= PUT_BACK_EVENTS
            && let Some(conn) = self.moves.staying.pop()
        {
            if let Some(tuple) = self.standing(conn) {
                self.put_back(conn, &tuple);
                self.moves.told.push_back(Moved::Stays { conn });
            }
        }
    }

    /// A suspended connection was rebuilt elsewhere: it is forgotten, and the peer is told
    /// nothing. Its tuple stays held, and its frames are dropped, until [`Streamer::unhold`]:
    /// an answer would come from the wrong stack. Returns the consumer's requests made
    /// meanwhile.
    ///
    /// # Errors
    /// As for [`Streamer::suspend`].
    pub fn let_go(&mut self, now: Instant, conn: ConnId, tuple: &Tuple) -> Result<Vec<Wish>, SuspendError> {
        // Requests that its consumer made before it learned of the move still count.
        self.handle_doorbells(now);
        if self.event_room() < 1 {
            return Err(SuspendError::Busy);
        }
        self.stands(conn, tuple)?;
        self.moves.forget_frames(tuple);
        let held = self.moves.held.get_mut(tuple).ok_or(SuspendError::NotOpen)?;
        (held.conn, held.gone) = (None, true);
        let wishes = std::mem::take(&mut held.wishes);
        self.counters.let_go += 1;
        let flow = &self.flows[conn.0];
        if let Some(Some(slot)) = self.consumers.get(usize::from(flow.consumer)) {
            let qp = slot.region.qp(flow.qp);
            qp.set_snd_sent(flow.tx.tail_pos);
            qp.raise(Events::MOVED);
        }
        self.event(Event::LetGo { conn });
        Ok(wishes)
    }

    /// The next result of a connection that was to move; `None` if there is no other.
    pub fn poll_moved(&mut self) -> Option<Moved> {
        self.moves.told.pop_front()
    }

    /// Copies the bytes of a suspended connection's send queue out; fewer than
    /// `tail_pos - una_pos` if the consumer did not post what it said.
    pub fn read_send_queue(&self, suspended: &Suspended) -> Vec<u8> {
        let Some(Some(slot)) = self.consumers.get(usize::from(suspended.consumer.0)) else { return Vec::new() };
        let mut bytes = vec![0; suspended.send.iter().map(|extent| extent.len() as usize).sum()];
        let mut at = 0;
        for extent in &suspended.send {
            slot.region.copy_out(*extent, &mut bytes[at..at + extent.len() as usize]);
            at += extent.len() as usize;
        }
        bytes
    }

    /// The name of a connection that stands still.
    fn standing(&self, conn: ConnId) -> Option<Tuple> {
        let flow = self.flows.get(conn.0).filter(|flow| flow.has(bits::SUSPENDED))?;
        let held = self.moves.held.get(&flow.rx.tuple)?;
        (held.conn == Some(conn)).then_some(flow.rx.tuple)
    }

    fn stands(&self, conn: ConnId, tuple: &Tuple) -> Result<(), SuspendError> {
        if self.standing(conn) == Some(*tuple) { Ok(()) } else { Err(SuspendError::NotOpen) }
    }

    /// Puts it back into the flow table, and replays what was kept.
    fn put_back(&mut self, conn: ConnId, tuple: &Tuple) {
        let hash = self.table.hash(tuple);
        assert!(self.table.insert(hash, conn.0).is_ok(), "it was there before");
        self.flows[conn.0].bits &= !(bits::SUSPENDED | bits::URGENT_TOLD);
        self.note_qp(conn);
        let wishes = self.moves.end(tuple, true);
        self.event(Event::Resume { conn });
        for wish in wishes {
            self.event(Event::Consumer { conn, wish });
        }
        self.handle_doorbell(conn);
        self.activate(conn);
    }

    /// Keeps a frame whose connection is moving; false if it is not.
    #[cold]
    pub(super) fn hold_frame(&mut self, frame: &RxFrame<'_>, tuple: &Tuple) -> bool {
        let Moves { held, bytes, .. } = &mut self.moves;
        let Some(held) = held.get_mut(tuple) else { return false };
        if held.gone || held.frames.len() >= HELD_FRAMES || *bytes + frame.data.len() > HELD_BYTES {
            self.counters.drop_moving += 1;
            return true;
        }
        *bytes += frame.data.len();
        held.frames.push((frame.data.into(), frame.meta));
        self.counters.held_frames += 1;
        true
    }

    /// Handles kept frames, as far as the event ring has space.
    #[cold]
    pub(super) fn take_replay(&mut self, now: Instant) -> usize {
        let room = self.frame_room();
        let mut taken = 0;
        while taken < room
            && let Some((frame, meta)) = self.moves.replay.pop_front()
        {
            self.moves.bytes -= frame.len();
            self.handle_burst(now, &[RxFrame { data: &frame, meta }]);
            taken += 1;
        }
        self.publish_received();
        taken
    }

    /// An adopted connection has its flow.
    pub(super) fn moved_in(&mut self, conn: ConnId, token: u64) {
        let flow = &self.flows[conn.0];
        let (consumer, qp) = (ConsumerId(flow.consumer), flow.qp);
        self.counters.adopted += 1;
        self.moves.told.push_back(Moved::Adopted { conn, consumer, token, qp });
    }

    /// A connection is synchronized: it can take what was kept for it.
    #[cold]
    pub(super) fn release_held(&mut self, conn: ConnId) {
        let tuple = self.flows[conn.0].rx.tuple;
        self.moves.end(&tuple, true);
    }

    /// The TCE refused an adoption.
    pub(super) fn adopt_refused(&mut self, consumer: u16, token: u64, why: AdoptError, unused: Unused) {
        if let Some(qp) = unused.qp {
            self.return_qp(consumer, qp);
        }
        if let Some(hop) = unused.hop {
            self.endpoint.hop_release(HopId(hop));
        }
        self.moves.told.push_back(Moved::AdoptRefused { consumer: ConsumerId(consumer), token, why });
    }

    /// The TCE's answer to a suspension; both halves have carried out all that came
    /// before, so their copies agree.
    pub(super) fn suspension_answered(&mut self, conn: ConnId, leaves: bool) {
        let Some(tuple) = self.standing(conn) else { return };
        if !leaves {
            return self.moves.staying.push(conn);
        }
        let (head, tail) = (self.moves.head, self.moves.tail);
        let words = std::array::from_fn(|at| if at < 7 { head[at] } else { tail[at - 7] });
        let snapshot = Snapshot::from_words(&words).expect("a snapshot that our TCE made");
        let options = std::mem::take(&mut self.moves.options);
        let flow = &self.flows[conn.0];
        if (snapshot.snd_nxt, snapshot.rcv_nxt) != (flow.tx.snd_nxt, flow.rx.rcv_nxt) {
            // Its consumer had promised more buffers than there were, and is about to lose it.
            return self.moves.staying.push(conn);
        }
        let suspended = self.describe(conn, tuple, snapshot, options);
        self.moves.told.push_back(Moved::Suspended(Box::new(suspended)));
    }

    fn describe(
        &mut self,
        conn: ConnId,
        tuple: Tuple,
        mut snapshot: Snapshot,
        options: ArrayVec<SocketOption, MAX_OPTIONS>,
    ) -> Suspended {
        // The bytes acknowledged, and those received, are the consumer's from here on.
        self.publish_acknowledged(conn);
        self.touch(conn);
        self.publish_received();
        let Streamer { flows, consumers, .. } = self;
        let flow = &flows[conn.0];
        let una_pos = flow.tx.una_pos.min(flow.tx.tail_pos);
        let (mut send, mut unread) = (Vec::new(), 0);
        if let Some(Some(slot)) = consumers.get(usize::from(flow.consumer)) {
            let qp = slot.region.qp(flow.qp);
            unread = unread_bytes(flow, qp.rcv_read());
            send = extents(flow, una_pos, |index| qp.sq_extent(index));
        }
        snapshot.write_seq += flow.queued().min(1 << 30) as u32;
        snapshot.copied_seq = snapshot.copied_seq - unread;
        Suspended {
            conn,
            consumer: ConsumerId(flow.consumer),
            qp: flow.qp,
            tuple,
            snapshot,
            ip: flow.ip,
            options,
            una_pos,
            tail_pos: flow.tx.tail_pos,
            rcv_pos: flow.rx.rcv_pos,
            send,
        }
    }

    /// A connection ended while it was suspended.
    pub(super) fn ended_on_the_way(&mut self, conn: ConnId, tuple: &Tuple) {
        if self.moves.held.get(tuple).is_some_and(|held| held.conn == Some(conn)) {
            self.moves.end(tuple, false);
            self.moves.told.push_back(Moved::Ended { conn });
        }
    }

    /// Keeps a request for a suspended connection.
    pub(super) fn wish_later(&mut self, conn: ConnId, wish: Wish) {
        let tuple = self.flows[conn.0].rx.tuple;
        let Some(held) = self.moves.held.get_mut(&tuple) else { return };
        if matches!(wish, Wish::Close | Wish::Abort) {
            // Earlier requests do not matter, except the order of the stream's end.
            held.wishes.retain(|wish| *wish == Wish::Shutdown);
            held.wishes.push(wish);
        } else if held.wishes.len() < WISHES && !held.wishes.contains(&wish) {
            held.wishes.push(wish);
        }
    }
}

/// Bytes before `rcv_pos` that the consumer says it has not read; an impossible number counts
/// as 0.
fn unread_bytes(flow: &Flow, rcv_read: u32) -> u32 {
    let unread = (flow.rx.rcv_pos as u32).wrapping_sub(rcv_read);
    if u64::from(unread) > flow.rx.rcv_pos.min(1 << 30) { 0 } else { unread }
}

/// Where the send queue's bytes from `una_pos` on lie.
fn extents(flow: &Flow, una_pos: u64, read: impl Fn(u32) -> Option<Extent>) -> Vec<Extent> {
    let mut cursor = flow.tx.una_cursor;
    let (mut at, mut all) = (una_pos, Vec::new());
    while at < flow.tx.tail_pos && cursor.seek(at, flow.tx.sq_tail, &read) {
        let rest = flow.tx.tail_pos - at;
        let piece = cursor.extent.part((at - cursor.start) as u32, rest.min(u64::from(u32::MAX)) as u32);
        at += u64::from(piece.len());
        all.push(piece);
    }
    all
}
