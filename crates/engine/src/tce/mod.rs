//! The TCP Control Engine: takes events, decides, issues orders (LC §3.1).
//!
//! It never touches payload and shares nothing with the Streamer but the two
//! rings. All protocol is in [`baton_tcp`]; here is what joins it to them: the
//! table of connections, their timers, the listeners.
//!
//! Each handler issues at most [`MAX_COMMANDS`] commands and a few orders around
//! them, so an event is taken only while the order ring has room for as many.

mod info;
mod marks;
mod moves;
mod newborn;
mod open;

use crate::counters::TceCounters;
use crate::prefetch_unsafe::prefetch_all;
use crate::region::Completion;
use crate::ring::{Consumer, Producer};
use crate::seam::companion::Companion;
use crate::seam::event::{ConnId, Event, SegmentEvent, Wish};
use crate::seam::kinds::Unused;
use crate::seam::order::Order;
use crate::slab::Slab;
use crate::wheel::Wheel;
use baton_tcp::challenge::ChallengeLimiter;
use baton_tcp::command::{Command, CommandSink, MAX_COMMANDS};
use baton_tcp::config::{Acks, Config};
use baton_tcp::isn;
use baton_tcp::kind::{Handled, Kind};
use baton_tcp::segment::{Placement, Segment, SynOptions};
use baton_tcp::state::State;
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks};
use core::ops::Range;
pub use info::{TCP_INFO_BYTES, add_carried, tcp_info_bytes, tcp_info_of_closed};
use marks::Marks;
use moves::Arriving;
use newborn::Newborn;
use open::{Begin, Listeners};
use std::collections::VecDeque;

/// Orders that handling one event adds at most.
const ORDERS_PER_EVENT: usize = 2 * MAX_COMMANDS + 8;

/// Events looked at ahead of their turn.
const LOOK_AHEAD: usize = 16;

/// With fewer connections than this their state is in the cache anyway.
const PREFETCH_FROM: u32 = 512;

/// Settings of a TCE.
#[derive(Clone, Debug)]
pub struct TceConfig {
    /// TCP's choices.
    pub tcp: Config,
    /// The most connections, including half-open and TIME-WAIT ones.
    pub max_connections: u32,
    /// Largest IP packet of the interface, in bytes.
    pub mtu: u16,
    /// Secret of initial sequence numbers, timestamps and SYN cookies
    /// (RFC 6528 §3); from a random source.
    pub secret: [u8; 16],
}

/// The TCE's state of a connection in addition to its [`Tcb`].
struct Slot {
    tcb: Option<Tcb>,
    /// When the timer wheel will fire, or never; later deadlines wait for that.
    armed: Instant,
    /// The listener that counts it as half-open; 0 for none.
    half_open_at: u32,
    /// About to leave: its timers wait.
    suspended: bool,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { tcb: None, armed: Instant::NEVER, half_open_at: 0, suspended: false }
    }
}

/// Size of the TCE's state of one connection, in bytes.
pub const CONTEXT_BYTES: usize = size_of::<Slot>();

/// The connection that an event of the common kinds is about.
fn conn_of(event: &Event) -> Option<ConnId> {
    match event {
        Event::Segment(SegmentEvent { conn, .. }) | Event::Transmitted { conn, .. } | Event::Posted { conn, .. } => {
            Some(*conn)
        }
        _ => None,
    }
}

/// Half of the engine: decisions.
pub struct Tce {
    config: TceConfig,
    key: isn::Key,
    challenge: ChallengeLimiter,
    slots: Slab<Slot>,
    free: Vec<u32>,
    /// Indices handed out so far.
    used: u32,
    open: u32,
    wheel: Wheel,
    /// Connections whose timer fired and was not handled yet.
    due: VecDeque<u32>,
    listeners: Listeners,
    newborn: Newborn,
    /// The least initial sequence number of a connection that replaces an old one.
    least_iss: Option<Seq>,
    /// From the entries before the event at hand.
    tuple: Tuple,
    on_link: bool,
    rare: (SackBlocks, SynOptions, u16),
    arriving: Arriving,
    /// The rest of a run that is taken segment by segment.
    rest: Option<SegmentEvent>,
    events: Consumer<Event>,
    orders: Producer<Order>,
    /// End of the last poll that had work, on the driver's clock; idle until the next.
    last_tick: u64,
    counters: TceCounters,
    marks: Option<Box<Marks>>,
}

/// The order ring, as a connection's command sink.
struct Commands<'a> {
    conn: ConnId,
    orders: &'a mut Producer<Order>,
    /// A [`Command::Release`] was issued.
    released: bool,
}

impl CommandSink for Commands<'_> {
    #[inline]
    fn command(&mut self, command: Command) {
        self.released |= command == Command::Release;
        push(self.orders, Order::Tcp { conn: self.conn, command });
    }
}

#[inline]
fn push(orders: &mut Producer<Order>, order: Order) {
    assert!(orders.push(order).is_ok(), "order room is seen to before an event is taken");
}

impl Tce {
    /// A TCE joined to its Streamer by the two rings.
    pub fn new(config: TceConfig, events: Consumer<Event>, orders: Producer<Order>) -> Tce {
        assert!(orders.capacity() >= ORDERS_PER_EVENT, "the order ring must hold what one event may lead to");
        let seed = u64::from_le_bytes(std::array::from_fn(|i| config.secret[i]));
        Tce {
            wheel: Wheel::new(config.max_connections, Instant(0)),
            key: isn::Key(config.secret),
            challenge: ChallengeLimiter::new(config.tcp.challenge_acks_per_second, seed),
            slots: Slab::new(config.max_connections),
            free: Vec::new(),
            used: 0,
            open: 0,
            config,
            due: VecDeque::new(),
            listeners: Listeners::default(),
            newborn: Newborn::default(),
            least_iss: None,
            tuple: Tuple::default(),
            on_link: false,
            rare: (SackBlocks::new(), SynOptions::default(), 0),
            arriving: Arriving::default(),
            rest: None,
            events,
            orders,
            last_tick: 0,
            counters: TceCounters::default(),
            marks: None,
        }
    }

    /// For a Streamer on the same thread.
    pub(crate) fn companion(&self) -> Companion {
        Companion { slots: self.slots.table_span(), timers: self.wheel.table_span() }
    }

    /// Addresses of the tables of connections.
    pub(crate) fn tables(&self) -> [Range<usize>; 2] {
        [self.slots.table_span().span(), self.wheel.table_span().span()]
    }

    /// Handles the events and timers that are due. Returns how many there were;
    /// stops early while the order ring has no room.
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut work = self.poll_events(now);
        work += self.poll_timers(now);
        work
    }

    /// Changes the largest packet of the interface, in bytes, for connections from now on.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.config.mtu = mtu;
    }

    /// [`Tce::poll`] with its busy and idle time taken on the driver's clock; a
    /// poll without work counts as idle.
    pub fn poll_timed(&mut self, now: Instant, ticks: &mut impl FnMut() -> u64) -> usize {
        if !self.has_work() && self.next_deadline().is_none_or(|deadline| deadline > now) {
            return 0;
        }
        let start = ticks();
        let work = self.poll(now);
        let end = ticks();
        self.counters.idle_ticks += start.saturating_sub(self.last_tick);
        self.counters.busy_ticks += end.saturating_sub(start);
        self.last_tick = end;
        work
    }

    fn poll_events(&mut self, now: Instant) -> usize {
        let mut handled = 0;
        let many = self.used >= PREFETCH_FROM;
        while self.orders.free() >= ORDERS_PER_EVENT {
            if many && handled % LOOK_AHEAD == 0 {
                self.look_ahead();
            }
            let next = self.rest.take().map(Event::Segment);
            let Some(event) = next.or_else(|| self.events.pop()) else { break };
            handled += 1;
            self.handle_event(now, &event);
        }
        self.counters.events += handled as u64;
        handled
    }

    /// Starts to fetch what the next events will touch: contexts and timers.
    fn look_ahead(&mut self) {
        let Tce { events, slots, wheel, .. } = self;
        let events = events.batch();
        for conn in events.iter().take(LOOK_AHEAD).filter_map(conn_of) {
            if let Some(slot) = slots.get(conn.0) {
                prefetch_all(slot);
                wheel.prefetch(conn.0);
            }
        }
    }

    fn handle_event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Segment(ref segment) => self.handle_segment(now, segment),
            Event::Options { sack, syn, urgent } => self.rare = (sack, syn, urgent),
            Event::Tuple { tuple, orders_done, on_link } => {
                (self.tuple, self.on_link) = (tuple, on_link);
                self.newborn.known_until(orders_done);
            }
            Event::Mark { consumer, slot, placed } => self.mark_decided(consumer, slot, placed),
            Event::Transmitted { conn, sent } => {
                self.with(now, conn, |tcb, cx, out| tcb.on_transmitted(cx, &sent, out))
            }
            Event::Posted { conn, right_edge } => {
                self.with(now, conn, |tcb, cx, out| tcb.on_posted(cx, right_edge, out))
            }
            Event::Unposted { conn } => self.with(now, conn, |tcb, _, _| tcb.on_unposted()),
            Event::Blocked { conn, queued } => self.with(now, conn, |tcb, cx, out| tcb.on_blocked(cx, queued, out)),
            Event::Icmp { conn, error } => self.with(now, conn, |tcb, cx, out| tcb.on_icmp(cx, &error, out)),
            Event::NoQueuePair { conn } => self.with(now, conn, |tcb, cx, out| tcb.abort(cx, out)),
            Event::Released { conn } => self.free.push(conn.0),
            Event::Connect { consumer, qp, token, hop, options } => {
                self.connect(now, consumer, qp, token, hop, options);
            }
            Event::SnapshotHead(half) => self.arriving.head = half,
            Event::SnapshotTail(half) => self.arriving.tail = half,
            Event::AdoptOption(option) => self.arriving.option(option),
            Event::Adopt { consumer, qp, token, hop, ip, queues } => {
                let begin = Begin {
                    consumer,
                    qp: Some(qp),
                    token,
                    listener: u32::MAX,
                    hop: Some(hop),
                    options: ip.bits(),
                    ts_offset: None,
                    adopted: Some(queues),
                };
                self.adopt(now, begin);
            }
            Event::Suspend { conn } => self.suspend(now, conn),
            Event::Resume { conn } => self.resume(now, conn),
            Event::LetGo { conn } => self.let_go(conn),
            Event::Listen { consumer, qp, token, backlog, options } => {
                self.listen(consumer, qp, token, backlog, options);
            }
            Event::Unlisten { consumer, qp } => self.unlisten(consumer, qp),
            Event::Consumer { conn, wish } => self.handle_wish(now, conn, wish),
        }
    }

    #[inline]
    fn handle_segment(&mut self, now: Instant, event: &SegmentEvent) {
        let segment = if event.bits & SegmentEvent::HAS_OPTIONS == 0 {
            event.segment(SackBlocks::new(), SynOptions::default(), 0)
        } else {
            event.segment(self.rare.0, self.rare.1, self.rare.2)
        };
        let placement = event.placement();
        if event.conn == ConnId::NONE {
            self.handle_unknown(now, &segment, placement);
            return;
        }
        if segment.flags.contains(Flags::SYN) && self.reopens(now, event.conn, &segment) {
            push(&mut self.orders, Order::Reopened { conn: event.conn });
            self.handle_unknown(now, &segment, placement);
            self.least_iss = None;
            return;
        }
        let posted = (event.bits & SegmentEvent::UNPLACED == 0).then_some(event.posted);
        let Some(tcb) = self.slots.get(event.conn.0).and_then(|slot| slot.tcb.as_ref()) else {
            // Just released; the Streamer has not heard of it yet.
            self.dispose(event.conn, placement);
            return;
        };
        if segment.lengths.count > 1
            && self.config.tcp.acks == Acks::EverySecond
            && !tcb.is_predicted(self.config.tcp.prediction, &segment, placement)
            && let Some((first, rest)) = event.split_first()
        {
            // The changes of one segment may matter to the next.
            self.rest = Some(rest);
            return self.handle_segment(now, &first);
        }
        let mut handled = Handled { kind: Kind::Other, predicted: false };
        self.with(now, event.conn, |tcb, cx, out| {
            if let Some(edge) = posted {
                tcb.note_posted(cx, edge, out);
            }
            handled = tcb.handle_segment(cx, &segment, placement, out);
        });
        self.counters.count_segment(handled, segment.lengths.count);
    }

    /// Runs a handler of a connection, then sees to its timer and its end.
    #[inline]
    fn with(&mut self, now: Instant, conn: ConnId, run: impl FnOnce(&mut Tcb, &mut Context<'_>, &mut Commands<'_>)) {
        let Some(slot) = self.slots.get_mut(conn.0) else { return };
        let Some(tcb) = &mut slot.tcb else { return };
        let mut cx = Context { now, config: &self.config.tcp, challenge: &mut self.challenge };
        let mut out = Commands { conn, orders: &mut self.orders, released: false };
        run(tcb, &mut cx, &mut out);
        let released = out.released;
        if slot.half_open_at != 0 && (released || tcb.state() != State::SynReceived) {
            self.listeners.half_open_done(slot.half_open_at);
            slot.half_open_at = 0;
        }
        if released {
            self.forget(conn);
            return;
        }
        if let Some(deadline) = tcb.deadline()
            && deadline < slot.armed
        {
            slot.armed = deadline;
            self.wheel.arm(conn.0, deadline);
        }
    }

    /// The Tcb is finished; the index is free once the Streamer releases it too.
    fn forget(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn.0];
        slot.tcb = None;
        if std::mem::replace(&mut slot.armed, Instant::NEVER) != Instant::NEVER {
            self.wheel.cancel(conn.0);
        }
        self.open -= 1;
        self.counters.released += 1;
    }

    fn holds(&self, conn: ConnId) -> bool {
        self.slots.get(conn.0).is_some_and(|slot| slot.tcb.is_some())
    }

    /// Frees parked payload that nobody will ask for.
    fn dispose(&mut self, conn: ConnId, placement: Placement) {
        if let Placement::Parked(park) = placement {
            let order = if conn == ConnId::NONE {
                Order::Unpark { park }
            } else {
                Order::Tcp { conn, command: Command::Drop { park } }
            };
            push(&mut self.orders, order);
        }
    }

    fn handle_wish(&mut self, now: Instant, conn: ConnId, wish: Wish) {
        match wish {
            Wish::Shutdown => self.with(now, conn, |tcb, cx, out| tcb.shutdown(cx, out)),
            Wish::Close => self.with(now, conn, |tcb, cx, out| tcb.release(cx, out)),
            Wish::Abort => self.with(now, conn, |tcb, cx, out| tcb.abort(cx, out)),
            Wish::Option(option) => self.with(now, conn, |tcb, cx, out| tcb.set_option(cx, option, out)),
            Wish::Info { consumer, token, offset, len } => self.write_info(now, conn, consumer, token, offset, len),
        }
    }

    fn poll_timers(&mut self, now: Instant) -> usize {
        let due = &mut self.due;
        self.wheel.expire(now, &mut |id| due.push_back(id));
        let mut fired = 0;
        while self.orders.free() >= ORDERS_PER_EVENT {
            if self.used >= PREFETCH_FROM && fired % LOOK_AHEAD == 0 {
                for id in self.due.iter().take(LOOK_AHEAD) {
                    prefetch_all(&self.slots[*id]);
                }
            }
            let Some(id) = self.due.pop_front() else { break };
            self.slots[id].armed = Instant::NEVER;
            fired += 1;
            self.counters.timers += 1;
            if self.slots[id].suspended {
                continue;
            }
            self.with(now, ConnId(id), |tcb, cx, out| {
                if tcb.deadline().is_some_and(|deadline| deadline <= cx.now) {
                    tcb.on_deadline(cx, out);
                }
            });
        }
        fired
    }

    /// When [`Tce::poll`] has something to do without a new event, at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.due.is_empty() { self.wheel.next() } else { Some(Instant(0)) }
    }

    /// True if events wait.
    pub fn has_work(&mut self) -> bool {
        self.rest.is_some() || !self.events.is_empty() || !self.due.is_empty()
    }

    /// Counts of what it did.
    pub fn counters(&self) -> &TceCounters {
        &self.counters
    }

    /// Connections that it holds.
    pub fn connections(&self) -> u32 {
        self.open
    }

    /// Most events that ever waited.
    pub fn events_high_water(&self) -> usize {
        self.events.high_water()
    }

    /// Facts of a connection, for a driver in the same address space.
    pub fn info(&mut self, now: Instant, conn: ConnId) -> Option<baton_tcp::info::Info> {
        let cx = Context { now, config: &self.config.tcp, challenge: &mut self.challenge };
        Some(self.slots.get(conn.0)?.tcb.as_ref()?.info(&cx))
    }

    fn answer(&mut self, consumer: u16, completion: Completion, unused: Unused) {
        push(&mut self.orders, Order::Answer { consumer, completion, unused });
    }

    /// True, and the connection is gone, if it is in TIME-WAIT and this SYN may
    /// reopen its tuple (RFC 6191 §2).
    fn reopens(&mut self, now: Instant, conn: ConnId, segment: &Segment) -> bool {
        let tcb = self.slots.get(conn.0).and_then(|slot| slot.tcb.as_ref());
        let Some(least_iss) = tcb.and_then(|tcb| tcb.reopens_for(segment)) else { return false };
        self.counters.time_wait_reopened += 1;
        self.least_iss = Some(least_iss);
        self.with(now, conn, |tcb, cx, out| tcb.abort(cx, out));
        true
    }
}
