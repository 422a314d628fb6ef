//! The Streamer: moves bytes, decides nothing that RFC 9293 leaves to judgment
//! (LC §3.1).
//!
//! ```text
//!   port --frames--> receive --(in place)--> consumer's receive queue
//!                       |  events                 | completions
//!                       v                         v
//!                      TCE                     consumer
//!                       |  orders                 | doorbells
//!                       v                         v
//!   port <--frames-- transmit <--(in place)-- consumer's send queue
//! ```
//!
//! One call of [`Streamer::poll_receive`] takes a burst from the port; one of
//! [`Streamer::poll_transmit`] carries out the TCE's orders, looks at doorbells
//! and serves the connections that may send, in round robin. Neither ever waits
//! for the TCE: what validation needs is in the connection's own [`Flow`].
//!
//! Space in the event ring is reserved before it is used. Orders may produce one event each, so
//! an order ring's worth of event entries is reserved for them; frames and new data stop when
//! only that reserve is left. So the two rings cannot deadlock.

mod aggregate;
mod consumers;
mod context;
mod follow;
mod headers;
mod marks;
mod moves;
mod notices;
mod orders;
mod place;
mod posted_unsafe;
mod publish;
mod receive;
mod segment;
mod transmit;
mod unsummed;

pub use crate::seam::kinds::{AdoptError, Carried, MAX_OPTIONS};
pub use consumers::ConsumerId;
pub use context::{Flow, bits};
pub use marks::WatchError;
pub use moves::{Adopt, Moved, SuspendError, Suspended};
pub use posted_unsafe::PostedReceive;

use crate::counters::StreamerCounters;
use crate::endpoint::Endpoint;
use crate::flow_table::FlowTable;
use crate::frame_io::{BURST, Capabilities, FrameIo, FrameSink, PortError, RxFrame};
use crate::ledger::Ledger;
use crate::reassembly::{Reassembly, Usage};
use crate::region::EngineRegion;
use crate::ring::{Consumer, Producer};
use crate::seam::companion::Companion;
use crate::seam::event::{ConnId, EVENTS_PER_FRAME, Event, SegmentEvent};
use crate::seam::order::Order;
use crate::slab::Slab;
use aggregate::Aggregator;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::packet::Link;
use baton_wire::seq::Seq;
use consumers::ConsumerSlot;
use core::ops::Range;
use headers::TemplateCache;
use marks::Marks;
use moves::Moves;
use posted_unsafe::Posted;
use std::collections::VecDeque;
use std::sync::Arc;

/// Settings of a Streamer.
#[derive(Clone, Debug)]
pub struct StreamerConfig {
    /// The most connections, including half-open and TIME-WAIT ones.
    pub max_connections: u32,
    /// The most bytes of slow-path payload parked, all connections together.
    pub reassembly_bytes: usize,
    /// The most bytes of slow-path payload parked for one connection.
    pub reassembly_bytes_per_connection: u32,
    /// Key of the flow table's hash; from a random source, so that nobody can
    /// choose colliding tuples.
    pub hash_key: [u64; 2],
    /// The most segments in a run (RA §3.3); below two, each is handled alone.
    pub coalesce: u16,
    /// Header prediction (LA §3.2): headers are predicted within a run, and the connection of
    /// the last segment is looked at first. Off only to compare.
    pub header_prediction: bool,
    /// Payload is copied and summed in one pass (LA §4.1). Off only to compare.
    pub one_pass: bool,
    /// Time to live of segments whose connection does not say.
    pub ttl: u8,
}

/// Half of the engine: data movement.
pub struct Streamer {
    config: StreamerConfig,
    /// Where the TCE's state of each connection lies, while it runs on this thread.
    companion: Option<Companion>,
    capabilities: Capabilities,
    flows: Slab<Flow>,
    table: FlowTable,
    endpoint: Endpoint,
    reassembly: Reassembly,
    consumers: Vec<Option<ConsumerSlot>>,
    /// Connections that may have something to send, in order of service.
    active: VecDeque<ConnId>,
    /// Connections that received in this burst and whose consumer is to be told.
    touched: Vec<ConnId>,
    /// The buffer of a call that waits for a connection's next bytes.
    posted: Option<Posted>,
    /// Segments of a run that become one event.
    run: Option<SegmentEvent>,
    /// The connection of the last segment: most often of the next one too.
    last_conn: ConnId,
    /// Joins the frames of a burst into runs.
    aggregator: Aggregator,
    /// Scratch of a partly known segment: its new pieces.
    gaps: Vec<(Seq, Seq)>,
    templates: TemplateCache,
    /// Connections that are moving.
    moves: Moves,
    /// Where another process can read what peers may have learned.
    ledger: Option<Arc<Ledger>>,
    /// Points of the connections that are watched; `None` while none can be.
    marks: Option<Box<Marks>>,
    /// Where a retransmission that a full port stopped continues.
    resume: Option<Seq>,
    /// How many ACKs of a template were sent when a full port stopped it.
    acks_sent: u16,
    /// Walk of the ephemeral port choice.
    port_step: u32,
    /// Tuple of the order that comes next.
    order_tuple: Tuple,
    events: Producer<Event>,
    orders: Consumer<Order>,
    /// Event entries reserved for what orders produce.
    event_reserve: usize,
    ip_id: u16,
    counters: StreamerCounters,
}

impl Streamer {
    /// A Streamer for a port with these capabilities, joined to its TCE by the
    /// two rings. `events` must hold twice what the order ring holds.
    pub fn new(
        config: StreamerConfig,
        endpoint: Endpoint,
        capabilities: Capabilities,
        events: Producer<Event>,
        orders: Consumer<Order>,
    ) -> Streamer {
        let event_reserve = orders.capacity();
        assert!(events.capacity() >= 2 * event_reserve, "the event ring must hold twice the order ring");
        let link = if capabilities.ethernet { Link::Ethernet } else { Link::Ip };
        Streamer {
            table: FlowTable::new(config.max_connections, config.hash_key),
            reassembly: Reassembly::new(config.reassembly_bytes),
            companion: None,
            flows: Slab::new(config.max_connections),
            aggregator: Aggregator::new(config.coalesce, config.header_prediction, link),
            config,
            capabilities,
            endpoint,
            consumers: Vec::new(),
            active: VecDeque::new(),
            touched: Vec::with_capacity(BURST),
            posted: None,
            run: None,
            last_conn: ConnId::NONE,
            gaps: Vec::new(),
            templates: TemplateCache::new(),
            moves: Moves::default(),
            ledger: None,
            marks: None,
            resume: None,
            acks_sent: 0,
            port_step: 0,
            order_tuple: Tuple::default(),
            events,
            orders,
            event_reserve,
            ip_id: 0,
            counters: StreamerCounters::default(),
        }
    }

    /// With a companion, the Streamer prefetches what the TCE will need for a connection along
    /// with its own memory; with `None` it does not.
    pub(crate) fn set_companion(&mut self, companion: Option<Companion>) {
        self.companion = companion;
    }

    /// Addresses of the tables of connections.
    pub(crate) fn tables(&self) -> [Range<usize>; 2] {
        [self.flows.table_span().span(), self.table.table_span().span()]
    }

    /// The connection of the last segment that the table was asked about; [`ConnId::NONE`] before the
    /// first. It may have ended.
    pub fn last_connection(&self) -> ConnId {
        self.last_conn
    }

    /// Writes down in `ledger`, from the next connection on, what peers may learn,
    /// before they can.
    pub fn publish_to(&mut self, ledger: Arc<Ledger>) {
        self.ledger = Some(ledger);
    }

    /// Takes up to `limit` frames from the port and acts on them.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    pub fn poll_receive<P: FrameIo>(&mut self, now: Instant, port: &mut P, limit: usize) -> Result<usize, PortError> {
        let room = self.frame_room();
        if room == 0 {
            self.counters.intake_stopped += 1;
            return Ok(0);
        }
        if self.moves.has_replay() {
            return Ok(self.take_replay(now));
        }
        let frames = port.receive(limit.min(room), &mut Intake { streamer: self, now })?;
        self.publish_received();
        Ok(frames)
    }

    /// Carries out orders, looks at doorbells, sends what may be sent, and
    /// pushes it out of the port. Returns how much there was to do.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    pub fn poll_transmit<P: FrameIo>(&mut self, now: Instant, port: &mut P) -> Result<usize, PortError> {
        self.endpoint.poll(now);
        let mut work = self.handle_orders(now, port);
        work += self.handle_doorbells(now);
        work += self.serve_active(now, port);
        work += self.send_outbox(port);
        port.flush()?;
        if self.marks.as_ref().is_some_and(|marks| marks.awaits_flush()) {
            self.mark_flushed();
        }
        Ok(work)
    }

    /// The next time at which [`Streamer::poll_transmit`] has something to do without a frame,
    /// an order or a doorbell.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.endpoint.next_deadline()
    }

    /// True if work waits that a full ring or port held back.
    pub fn has_work(&mut self) -> bool {
        !self.active.is_empty() || !self.orders.is_empty() || self.moves.has_work()
    }

    /// Stream position up to which a connection's bytes were sent at least once.
    pub(crate) fn sent_total(&self, conn: ConnId) -> u64 {
        self.flows.get(conn.0).map_or(0, |flow| flow.snd_pos(flow.tx.snd_nxt).min(flow.tx.tail_pos))
    }

    /// Counts of every verdict.
    pub fn counters(&self) -> &StreamerCounters {
        &self.counters
    }

    /// The endpoint: our addresses, routes and neighbours.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Slow-path payload parked now and at most.
    pub fn reassembly(&self) -> Usage {
        self.reassembly.usage()
    }

    /// Most orders that ever waited.
    pub fn orders_high_water(&self) -> usize {
        self.orders.high_water()
    }

    /// Event entries that frames and new data may use.
    fn event_room(&mut self) -> usize {
        self.events.free().saturating_sub(self.event_reserve)
    }

    /// Frames whose events have room.
    fn frame_room(&mut self) -> usize {
        self.event_room() / EVENTS_PER_FRAME
    }

    /// Names the event that comes next.
    fn event_tuple(&mut self, tuple: Tuple) {
        let orders_done = self.orders.position();
        let on_link = self.endpoint.is_on_link(tuple.remote);
        self.event(Event::Tuple { tuple, orders_done, on_link });
    }

    /// Adds an event that room was reserved for.
    #[inline]
    fn event(&mut self, event: Event) {
        if let Some(run) = self.run.take() {
            // The collected run happened before this event.
            assert!(self.events.push(Event::Segment(run)).is_ok(), "event room is reserved before it is used");
        }
        assert!(self.events.push(event).is_ok(), "event room is reserved before it is used");
    }

    fn find(&self, tuple: &Tuple) -> Option<ConnId> {
        let hash = self.table.hash(tuple);
        self.table.lookup(hash, |index| self.flows[index].rx.tuple == *tuple).map(ConnId)
    }

    fn consumer(&mut self, id: u16) -> Option<&mut ConsumerSlot> {
        self.consumers.get_mut(usize::from(id))?.as_mut()
    }

    fn region(&mut self, id: u16) -> Option<&mut EngineRegion> {
        self.consumer(id).map(|slot| &mut slot.region)
    }
}

/// The Streamer while it takes a burst.
struct Intake<'s> {
    streamer: &'s mut Streamer,
    now: Instant,
}

impl FrameSink for Intake<'_> {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.streamer.handle_burst(self.now, frames);
    }
}
