//! Points of time of connections that are watched (LA §2): where a message was when.
//!
//! ```text
//!   receive   taken  parsed  [begun  found  placed]  told              -> ring `told` -> consumer
//!             |parse------|  |lookup-|place---|tell-|
//!                                             |decide-beside: the TCE, by Event::Mark
//!   transmit  ring `sent` <- consumer:  entered  copied
//!             |write----|send-queue--|segment (copy in it)|output-|send-device-|
//!                       copied       turn                 built   handed       flushed
//! ```
//!
//! The driver gives the clock. While it gives none, there are no marks, and a burst, a run and a frame
//! cost a comparison each. A run is one message, however many segments it has. A message that waits
//! behind others of its burst or turn waits in no layer.
//!
//! Where one message in so many is recorded, the engine chooses bursts to stamp, and the consumer writes.
//! The others cost a connection nothing but a test of its bits.

mod receive;
mod transmit;

use super::context::{Flow, bits};
use super::{ConnId, ConsumerId, Streamer};
use baton_latency::{Clock, Layer, Recorded, SLOTS, Sampler, Slot, WatchMemory};
use baton_wire::addr::Tuple;
use receive::Incoming;
pub(super) use receive::mark_told;
use std::collections::VecDeque;
use std::sync::Arc;
pub(super) use transmit::Outgoing;

/// Messages of a connection that may be on their way through the Streamer. More are counted as missed.
const UNDER_WAY: usize = 64;

/// Why a connection is not watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The consumer has no memory for it: see [`Streamer::watch`].
    #[error("the consumer's connections are not watched")]
    NoMemory,
    /// The queue pair has no connection that is open.
    #[error("the queue pair has no open connection")]
    NoConnection,
    /// Every slot has a connection.
    #[error("{SLOTS} connections are watched already")]
    Full,
}

/// Which connections of a consumer are watched once they are open, and where their times go.
type Chosen = Box<dyn Fn(&Tuple) -> Option<Recorded> + Send + Sync>;

/// Memory of a consumer, and which of its slots are free.
struct Watching {
    memory: Arc<WatchMemory>,
    /// `None`: only those that are named.
    chosen: Option<Chosen>,
    /// Chooses the bursts of which messages are recorded; `None` if all are. It has the rate of the memory.
    sampler: Option<Sampler>,
    /// The burst at hand is one of them.
    samples: bool,
    /// The connection of each slot; [`ConnId::NONE`] if none has it.
    conns: Vec<ConnId>,
    /// Slots without a connection, the longest free first.
    free: VecDeque<u16>,
}

/// Where the points of a watched connection go.
#[derive(Clone)]
pub(super) struct Target {
    clock: Clock,
    memory: Arc<WatchMemory>,
    slot: u16,
}

struct Watched {
    consumer: u16,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// State of all watched connections.
pub(super) struct Marks {
    clock: Clock,
    consumers: Vec<Option<Watching>>,
    /// Watched connections, by [`ConnId`].
    watched: Vec<Option<Box<Watched>>>,
    /// Watched connections of which every message is recorded.
    wholly: usize,
    /// Connections with messages that wait for the port's flush.
    to_flush: Vec<ConnId>,
    run: receive::RunMarks,
}

impl Target {
    fn slot(&self) -> Option<&Slot> {
        self.memory.slot(usize::from(self.slot))
    }

    /// The slot of a connection that has spans of its own.
    fn own(&self) -> Option<&Slot> {
        self.slot().filter(|slot| slot.is_alone())
    }

    /// Records a time of a connection that has spans of its `own`, or has none.
    fn record(&self, own: Option<&Slot>, layer: Layer, ns: u64) {
        match own {
            Some(slot) => self.memory.record(slot, layer, ns),
            None => self.memory.record_together(layer, ns),
        }
    }
}

impl Marks {
    fn watched(&mut self, conn: ConnId) -> Option<&mut Watched> {
        self.watched.get_mut(conn.0 as usize)?.as_deref_mut()
    }

    fn watching(&mut self, id: u16) -> Option<&mut Watching> {
        self.consumers.get_mut(usize::from(id))?.as_mut()
    }

    /// True if every message is recorded of a connection whose times go there.
    fn records_wholly(&mut self, id: u16, recorded: Recorded) -> bool {
        recorded == Recorded::Wholly || self.watching(id).is_none_or(|watching| watching.sampler.is_none())
    }

    /// Whether every message of a watched connection is recorded.
    fn set_wholly(&mut self, flow: &mut Flow, wholly: bool) {
        self.wholly -= usize::from(flow.has(bits::WATCHED_WHOLLY));
        self.wholly += usize::from(wholly);
        if wholly {
            flow.bits |= bits::WATCHED_WHOLLY | bits::MARKED_OUT;
        } else {
            flow.bits &= !bits::WATCHED_WHOLLY;
        }
    }
}

impl Streamer {
    /// Makes a consumer's connections ones that can be watched: their spans go to `memory`, by `clock`.
    /// Another memory takes the place of the one before.
    pub fn watch(&mut self, id: ConsumerId, memory: Arc<WatchMemory>, clock: Clock) {
        self.unwatch(id);
        let marks = self.marks.get_or_insert_with(|| {
            Box::new(Marks {
                clock,
                consumers: Vec::new(),
                watched: Vec::new(),
                wholly: 0,
                to_flush: Vec::new(),
                run: receive::RunMarks::default(),
            })
        });
        marks.clock = clock;
        let at = usize::from(id.0);
        if marks.consumers.len() <= at {
            marks.consumers.resize_with(at + 1, || None);
        }
        marks.consumers[at] = Some(Watching {
            memory,
            chosen: None,
            sampler: None,
            samples: false,
            conns: vec![ConnId::NONE; SLOTS],
            free: (0..SLOTS as u16).collect(),
        });
    }

    /// Ends [`Streamer::watch`]. Without any watched consumer nothing is stamped.
    pub fn unwatch(&mut self, id: ConsumerId) {
        let Some(marks) = &self.marks else { return };
        let of_it = |watched: &Option<Box<Watched>>| watched.as_ref().is_some_and(|watched| watched.consumer == id.0);
        let conns: Vec<ConnId> =
            (0..).map(ConnId).zip(&marks.watched).filter(|(_, watched)| of_it(watched)).map(|(conn, _)| conn).collect();
        conns.into_iter().for_each(|conn| self.forget_marks(conn));
        if let Some(marks) = &mut self.marks {
            if let Some(place) = marks.consumers.get_mut(usize::from(id.0)) {
                *place = None;
            }
            if marks.consumers.iter().all(Option::is_none) {
                self.marks = None;
            }
        }
    }

    /// Watches the connection of a queue pair from now on, with spans of its own.
    ///
    /// # Errors
    /// [`WatchError`] says why it is not watched.
    pub fn watch_connection(&mut self, id: ConsumerId, qp: u32) -> Result<(), WatchError> {
        let conn = self.connection(id, qp).ok_or(WatchError::NoConnection)?;
        if !self.flows[conn.0].has(bits::ATTACHED) {
            return Err(WatchError::NoConnection);
        }
        self.watch_flow(conn, Recorded::Wholly)
    }

    /// Watches all connections of a consumer together, those that open later too. Each takes a slot, and those
    /// that find none are not watched.
    ///
    /// # Errors
    /// [`WatchError::NoMemory`]; [`WatchError::Full`] if some of those that are open are not watched.
    pub fn watch_all(&mut self, id: ConsumerId) -> Result<(), WatchError> {
        self.watch_some(id, 1)
    }

    /// As [`Streamer::watch_all`], but records one message in `one_in` only, on average, which stands for as
    /// many: what hundreds of busy connections can afford. Connections that are watched one by one have every
    /// message recorded.
    ///
    /// # Errors
    /// Those of [`Streamer::watch_all`].
    pub fn watch_some(&mut self, id: ConsumerId, one_in: u32) -> Result<(), WatchError> {
        self.choose(id, Box::new(|_| Some(Recorded::Together)), one_in)
    }

    /// Watches the connections of a consumer whose tuple `selects`, as it says for each, and those that open later
    /// too. Others are watched no more. Those that find no slot are not watched, and counted in the memory.
    /// `one_in`: of how many messages one is recorded where not all are.
    ///
    /// # Errors
    /// As [`Streamer::watch_all`].
    pub fn watch_those(
        &mut self,
        id: ConsumerId,
        selects: impl Fn(&Tuple) -> Option<Recorded> + Send + Sync + 'static,
        one_in: u32,
    ) -> Result<(), WatchError> {
        self.choose(id, Box::new(selects), one_in)
    }

    fn choose(&mut self, id: ConsumerId, chosen: Chosen, one_in: u32) -> Result<(), WatchError> {
        let watching = self.marks.as_mut().and_then(|marks| marks.watching(id.0)).ok_or(WatchError::NoMemory)?;
        watching.chosen = Some(chosen);
        watching.memory.set_one_in(one_in);
        watching.sampler = (one_in > 1).then(|| Sampler::new(one_in));
        let mut all = Ok(());
        for qp in 0..self.queue_pairs(id) {
            let Some(conn) = self.connection(id, qp).filter(|conn| self.flows[conn.0].has(bits::ATTACHED)) else {
                continue;
            };
            match self.chosen_for(conn) {
                Some(recorded) => all = all.and(self.watch_flow(conn, recorded)),
                None => self.forget_marks(conn),
            }
        }
        all
    }

    /// If a connection is among the chosen ones: where its times go.
    fn chosen_for(&mut self, conn: ConnId) -> Option<Recorded> {
        let flow = &self.flows[conn.0];
        let chosen = self.marks.as_mut()?.watching(flow.consumer)?.chosen.as_ref()?;
        chosen(&flow.rx.tuple)
    }

    /// Watches the connection of a queue pair no more.
    pub fn unwatch_connection(&mut self, id: ConsumerId, qp: u32) {
        if let Some(conn) = self.connection(id, qp) {
            self.forget_marks(conn);
        }
    }

    /// A connection has its queue pair now.
    #[cold]
    pub(super) fn mark_opened(&mut self, conn: ConnId) {
        let chosen = self.chosen_for(conn).filter(|_| self.flows[conn.0].has(bits::ATTACHED));
        if let Some(recorded) = chosen {
            // With all slots taken it goes unwatched.
            let _ = self.watch_flow(conn, recorded);
        }
    }

    fn watch_flow(&mut self, conn: ConnId, recorded: Recorded) -> Result<(), WatchError> {
        let flow = &mut self.flows[conn.0];
        let marks = self.marks.as_mut().ok_or(WatchError::NoMemory)?;
        if flow.has(bits::WATCHED) {
            let Some(target) = marks.watched(conn).map(|watched| watched.outgoing.target().clone()) else {
                return Ok(());
            };
            // One that was singled out stays so when all are watched together.
            if recorded != Recorded::Together {
                target.memory.set_recorded(usize::from(target.slot), recorded);
            }
            let recorded = target.slot().map_or(recorded, Slot::recorded);
            let wholly = marks.records_wholly(flow.consumer, recorded);
            marks.set_wholly(flow, wholly);
            return Ok(());
        }
        let (clock, id) = (marks.clock, flow.consumer);
        let wholly = marks.records_wholly(id, recorded);
        let watching = marks.watching(id).ok_or(WatchError::NoMemory)?;
        let Some(slot) = watching.free.pop_front() else {
            watching.memory.leave_out();
            return Err(WatchError::Full);
        };
        let target = Target { clock, memory: watching.memory.clone(), slot };
        let tuple = &flow.rx.tuple;
        let end = |address: baton_wire::addr::Addr, port| std::net::SocketAddr::new(address.ip(), port);
        let ends = (end(tuple.local, tuple.local_port), end(tuple.remote, tuple.remote_port));
        target.memory.give(usize::from(slot), flow.qp, ends.0, ends.1, recorded);
        watching.conns[usize::from(slot)] = conn;
        let watched =
            Watched { consumer: id, incoming: Incoming::new(target.clone()), outgoing: Outgoing::new(target) };
        let at = conn.0 as usize;
        if marks.watched.len() <= at {
            marks.watched.resize_with(at + 1, || None);
        }
        marks.watched[at] = Some(Box::new(watched));
        flow.bits |= bits::WATCHED;
        marks.set_wholly(flow, wholly);
        Ok(())
    }

    /// A connection ends or leaves: if it was watched, its slot is free for another.
    pub(super) fn forget_marks(&mut self, conn: ConnId) {
        let Some(flow) = self.flows.get_mut(conn.0).filter(|flow| flow.has(bits::WATCHED)) else { return };
        let Some(marks) = &mut self.marks else { return };
        marks.set_wholly(flow, false);
        flow.bits &= !(bits::WATCHED | bits::MARKED_OUT | bits::MARKED_IN);
        let Some(watched) = marks.watched.get_mut(conn.0 as usize).and_then(Option::take) else { return };
        let slot = watched.outgoing.target().slot;
        if let Some(watching) = marks.watching(watched.consumer) {
            watching.memory.take_back(usize::from(slot));
            watching.conns[usize::from(slot)] = ConnId::NONE;
            watching.free.push_back(slot);
        }
    }
}
