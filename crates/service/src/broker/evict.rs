//! From the engine to the kernel.

use super::Broker;
use super::clients::Client;
use super::from_ledger::{Found, read_from_ledger};
use super::state::{Arrival, Bringing, Goal, Holding, InEngine, InKernel, Leaving, Place, Recall, Standing};
use super::state::{Starting, State, Stranded};
use super::stay_reason::StayReason;
use super::transfer::{Direction, Landed};
use baton_consumer::adoption::LeftBehind;
use baton_ipc::message::Reply;
use baton_ipc::order::Order;
use baton_ipc::record::Home;
use baton_kernel::Captured;
use baton_policy::{Reason, Refusal};
use baton_tcp::snapshot::Seeds;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use std::time::Duration;

/// Data about a connection that comes home, besides those that are rebuilt.
pub(super) struct Homecoming {
    /// The earlier capture, without the bytes of its queues.
    pub head: Box<Captured>,
    /// The message for the program.
    pub home: Home,
    /// Whether there are bytes that the program has not read.
    pub unread: bool,
    /// Its place in the engine that has it suspended.
    pub suspended: Option<Place>,
}

/// A connection as it was captured, without the bytes that its program has taken in; what its
/// program is told; and whether there are bytes that the program has not read.
fn as_captured(mut captured: Captured) -> (Captured, Home, bool) {
    let unread = captured.receive_queue.len();
    let home = Home::at((unread as u64, captured.send_queue.len() as u64));
    captured.receive_queue.clear();
    captured.protocol.copied_seq += unread as u32;
    (captured, home, unread > 0)
}

impl Broker {
    fn engine_time(&self) -> Instant {
        Instant(baton_ipc::engine::monotonic().saturating_sub(self.base))
    }

    /// Asks the engine to suspend a connection, which then goes where `goal` says.
    pub(super) fn evict(&mut self, id: u64, goal: Goal, why: Reason) {
        let drain = if goal == Goal::Close { Duration::ZERO } else { self.config.drain };
        self.evict_within(id, goal, why, drain);
    }

    /// A connection that is away would be refused now. `net` is its network namespace, 0 the service's own.
    pub(super) fn on_refused(&mut self, net: u64, tuple: Tuple, refusal: Refusal) {
        // The kernel may have noticed it before it was told that the connection is gone.
        let Some(id) = self.connections.id_in(net, &tuple) else { return };
        let why = if refusal == Refusal::NotSteerable { Reason::Homeless } else { refusal.into() };
        // Nothing is acknowledged to a peer whose frames are dropped, so waiting would not help.
        let drain = if refusal.forbids_frames() { Duration::ZERO } else { self.config.drain };
        self.evict_within(id, Goal::Home, why, drain);
    }

    fn evict_within(&mut self, id: u64, goal: Goal, why: Reason, drain: Duration) {
        let Broker { connections, slots, .. } = self;
        // An eviction before this one may have ended the connection.
        let Some(connection) = connections.get_mut(id) else { return };
        match &mut connection.state {
            State::Engine(_) | State::Closing(_) => {}
            State::Holding(Holding { recall, .. })
            | State::Bringing(Bringing { recall, .. })
            | State::Starting(Starting { recall, .. }) => return *recall = Some(Recall { goal, why }),
            State::Paired(_) => return self.unpair(id, why),
            State::Kernel(_) | State::Preparing(_) | State::Meeting(_) => return,
            State::Leaving(_) | State::Standing(_) | State::Between => return,
            // No job waits for it.
            State::Stranded(_) => return self.settled(id, false),
        }
        connection.keep_packets(slots);
        let Some(engine) = connection.take(State::running) else { return };
        connection.enter(State::Leaving(Leaving { engine, goal }));
        connection.why = why;
        let order = Order::Suspend { id, drain_ms: drain.as_millis() as u32 };
        self.slots[connection.slot].tell(&order, Vec::new());
    }

    /// The goal for a connection that is to return to the kernel whole. A program with raw queue
    /// pairs continues with the bytes in its own buffers.
    pub(super) fn whole(&self, id: u64) -> Goal {
        let client = self.connections.known(id).and_then(|connection| self.clients.get(&connection.client));
        if client.is_some_and(|program| program.raw.is_some()) { Goal::Home } else { Goal::Whole }
    }

    /// The peer sends urgent data, which the engine does not support. Bytes that the program has
    /// not read go home too, because the kernel counts from them to the urgent mark.
    pub(super) fn on_urgent(&mut self, id: u64) {
        self.evict(id, self.whole(id), Reason::UrgentData);
    }

    /// The program wants all of the connection in the kernel.
    pub(super) fn on_restore(&mut self, id: u64) {
        let goal = self.whole(id);
        let Some(connection) = self.connections.known_mut(id) else { return };
        match &mut connection.state {
            // The program may know that the engine has the connection before the broker does.
            State::Engine(_) | State::Starting(_) | State::Paired(_) => self.evict(id, goal, Reason::AskedFor),
            State::Leaving(leaving) if leaving.goal == Goal::Home && goal == Goal::Whole => {
                leaving.goal = goal;
                (connection.why, connection.waited) = (Reason::AskedFor, None);
            }
            // The connection is in the kernel, or the program is about to be told.
            _ => {}
        }
    }

    /// Keeps the engine's last measurements of the round trip, in microseconds: smoothed,
    /// deviation, minimum. The kernel cannot take them, but the next engine can.
    pub(super) fn on_measured(&mut self, id: u64, measured_us: [u32; 3]) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(engine) = connection.state.in_engine_mut() else { return };
        let seeds = &mut engine.head.protocol.seeds;
        let [srtt, rttvar, min_rtt] = measured_us.map(|us| baton_tcp::time::Duration::from_micros(us.into()));
        *seeds = Seeds { srtt, rttvar, min_rtt, ..*seeds }.or_round_trip_of(seeds);
    }

    /// The engine has suspended the connection.
    pub(super) fn on_suspended(&mut self, id: u64) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !matches!(connection.state, State::Leaving(_)) {
            return;
        }
        connection.stop();
        let found = self.find(id);
        if found.is_none() && !self.connections.known(id).is_some_and(|connection| connection.state.has_queues()) {
            return self.lost(id, "the engine's ledger does not have the connection");
        }
        let Some((connection, Leaving { engine, goal })) = self.connections.take(id, State::leaving) else { return };
        match found {
            Some(found) if goal == Goal::Whole => {
                let (rcv_pos, tail_pos) = found.positions();
                connection.enter(State::Standing(Standing { engine, found: Box::new(found) }));
                let client = connection.client;
                self.tell_client(client, &Reply::Stand { id, rcv_pos, tail_pos }, Vec::new());
            }
            found => self.rebuild_from(id, engine, found, true),
        }
    }

    /// Reads the connection from the ledger.
    fn find(&self, id: u64) -> Option<Found> {
        let connection = self.connections.known(id)?;
        let slot = self.slots.get(connection.slot)?;
        let conn = connection.state.in_engine()?.place.conn?;
        let memory = &slot.memory(connection.client)?.memory;
        read_from_ledger(&slot.ledger, conn, &connection.tuple(), self.engine_time(), memory)
    }

    /// Rebuilds a connection from what the ledger says of it or, if the program never took in the
    /// bytes that came along, from what was captured. The program keeps the bytes that it holds.
    /// `stands` says whether the engine has suspended the connection.
    pub(super) fn rebuild_from(&mut self, id: u64, engine: InEngine, found: Option<Found>, stands: bool) {
        let InEngine { head, place, unsettled } = engine;
        let (captured, home, unread) = match (found, unsettled) {
            (Some(found), _) => {
                let (home, unread) = (Home::at(found.positions()), found.unread > 0);
                (found.into_captured(&head, LeftBehind::default()), home, unread)
            }
            (None, Some(captured)) => as_captured(*captured),
            (None, None) => return self.lost(id, "nothing is known of the connection"),
        };
        self.rebuild(id, captured, Homecoming { head, home, unread, suspended: stands.then_some(place) });
    }

    /// The program does not say which bytes it holds, and keeps them.
    pub(super) fn rebuild_without_program(&mut self, id: u64) {
        let Some((_, Standing { engine, found })) = self.connections.take(id, State::standing) else { return };
        self.rebuild_from(id, engine, Some(*found), true);
    }

    /// The program has sent the bytes that it holds, so the whole connection goes home.
    pub(super) fn on_left_behind(&mut self, id: u64, left: LeftBehind) {
        let Some((_, Standing { engine, found })) = self.connections.take(id, State::standing) else { return };
        let InEngine { head, place, .. } = engine;
        let unread = found.unread > 0;
        let captured = found.into_captured(&head, left);
        self.rebuild(id, captured, Homecoming { head, home: Home::WHOLE, unread, suspended: Some(place) });
    }

    /// Rebuilds a connection in the kernel.
    fn rebuild(&mut self, id: u64, captured: Captured, mut coming: Homecoming) {
        let Some(connection) = self.connections.known(id) else { return };
        // An engine that was started since does not have the connection.
        let memory = self.slots[connection.slot].memory(connection.client);
        coming.suspended = coming.suspended.filter(|place| memory.is_some_and(|it| it.region == place.region));
        let stands = coming.suspended.is_some();
        match self.restore(id, captured, stands, Direction::ToKernel(coming.home)) {
            Landed::NoRoute(captured) => {
                let Homecoming { head, home, unread, suspended } = coming;
                let suspended = suspended.is_some_and(|place| place.conn.is_some());
                let arrival = Arrival::Home { home, head, suspended };
                self.strand(id, Stranded { captured, unread, arrival });
            }
            landed => self.finish_rebuild(id, landed, coming),
        }
    }

    /// Tells the program and the engine where the connection has landed.
    pub(super) fn finish_rebuild(&mut self, id: u64, landed: Landed, coming: Homecoming) {
        let Homecoming { head, home, unread, suspended } = coming;
        let Some(connection) = self.connections.known_mut(id) else { return };
        let (slot, client, closing) = (connection.slot, connection.client, connection.closed);
        match (landed, suspended) {
            (Landed::InKernel, _) => {}
            (Landed::StaysInEngine, Some(place)) => {
                self.slots[slot].tell(&Order::Resume { id }, Vec::new());
                let why = StayReason::new(Reason::Failed, "the kernel does not take the connection back now");
                let engine = InEngine { head, place, unsettled: None };
                return self.stays_in_engine(id, engine, Reason::KernelRefused, closing, why);
            }
            (landed, _) => {
                self.slots[slot].tell(&Order::LetGo { id }, Vec::new());
                let text = if let Landed::Lost(text) = landed { text } else { "no engine has it".into() };
                return self.lost(id, &text);
            }
        }
        let why = connection.why;
        connection.adoption = None;
        connection.arrive(State::Kernel(InKernel { head: Some(head), home: Some(home), slot: None }), why);
        let tuple = connection.tuple();
        self.log_home(id);
        let Home { rcv_pos, tail_pos, whole } = home;
        if whole && self.clients.get(&client).is_some_and(Client::hears_why) {
            self.tell_client(client, &Reply::GivenBack { id, code: why.to_string() }, Vec::new());
        }
        self.tell_client(client, &Reply::Home { id, rcv_pos, tail_pos, whole }, Vec::new());
        self.slots[slot].tell(&Order::LetGo { id }, Vec::new());
        self.unhold(slot, tuple);
        self.note(id);
        self.settled(id, true);
        if closing || !self.clients.contains_key(&client) {
            self.close_in_kernel(id, unread);
        }
    }

    /// The connection cannot leave, because both sides have closed it. The engine finishes it.
    pub(super) fn on_stays(&mut self, id: u64) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(Leaving { engine, goal }) = connection.take(State::leaving) else { return };
        let ends = goal == Goal::Close || connection.closed;
        let why = StayReason::new(Reason::Closing, "the connection is closing on both sides");
        self.stays_in_engine(id, engine, Reason::Closing, ends, why);
    }

    /// The connection continues in the engine. If the program has closed it (`ends`), the engine
    /// finishes it.
    fn stays_in_engine(&mut self, id: u64, engine: InEngine, why: Reason, ends: bool, told: StayReason) {
        let StayReason { code, text } = told;
        self.log_stays_in_engine(id, why, &text);
        let Some(connection) = self.connections.known_mut(id) else { return };
        let (slot, client) = (connection.slot, connection.client);
        connection.why = why;
        if ends {
            connection.close(engine);
            self.slots[slot].tell(&Order::Watch { id }, Vec::new());
        } else {
            connection.enter(State::Engine(engine));
        }
        self.tell_client(client, &Reply::Stays { seq: 0, id, code: code.to_string(), text }, Vec::new());
        self.note(id);
        self.settled(id, false);
    }

    /// Evicts connections whose programs are gone and which could not be closed in the kernel
    /// before.
    pub(super) fn close_orphans(&mut self) {
        let orphans = self.connections.ids(|connection| {
            matches!(connection.state, State::Engine(_)) && !self.clients.contains_key(&connection.client)
        });
        orphans.into_iter().for_each(|id| self.evict(id, Goal::Close, Reason::ProgramGone));
    }
}
