//! From the kernel to the engine.

use super::Broker;
use super::clients::Client;
use super::connection::Connection;
use super::engine_slot::{Held, Process};
use super::rules::RULES_CHANGED;
use super::state::{Arrival, Bringing, Goal, Holding, InKernel, Recall, Starting, State, Stranded};
use super::stay_reason::StayReason;
use super::stranded::no_route;
use super::transfer::{Direction, HandedOff, Landed, Terms, is_unsettled, without_route};
use baton_ipc::message::{Destination, Incoming, Reply, Told};
use baton_ipc::order::Order;
use baton_ipc::record;
use baton_kernel::Captured;
use baton_kernel::handoff::Outcome;
use baton_kernel::kernel_side::Plan;
use baton_policy::conditions::Facts;
use baton_policy::rules::{Decision, History, Room, Wait};
use baton_policy::{Reason, Refusal};
use baton_wire::addr::Tuple;
use rustix::fs::fstat;
use rustix::net::sockopt::socket_type;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// The socket's connection is not the one that was to move.
pub(super) fn other_connection() -> StayReason {
    StayReason::new(Reason::Failed, "the socket now has another connection")
}

/// The order that has an engine adopt a connection.
fn adoption_order(id: u64, starting: &Starting, plan: &Plan) -> Order {
    let options = baton_bridge::options(&starting.captured);
    let consumer = baton_engine::streamer::ConsumerId(0);
    let adopt = baton_bridge::adoption(&starting.captured, &options, plan.way.via, consumer, id);
    Order::Adopt {
        id,
        key: starting.region,
        tuple: adopt.tuple,
        snapshot: adopt.snapshot.to_words().to_vec(),
        ip: adopt.ip.bits(),
        via: plan.way.via,
        mac: plan.mac,
        options: options.iter().map(|option| baton_engine::options::encode(*option)).collect(),
    }
}

impl Broker {
    /// A program asks to hand its socket over, whose frames its own engines may hold already.
    pub(super) fn adopt(&mut self, client: u32, seq: u64, fd: OwnedFd, (told, held): (Told, Option<Held>)) {
        let planned = self.admit(client, &fd).and_then(|()| self.plan(client, &fd, None));
        let chosen = planned.and_then(|(plan, slot)| Ok((plan, slot, self.choose(client, &fd, &plan, (slot, told))?)));
        match self.rather_between(client, &fd, told, &chosen) {
            Some(Ok(planned)) => return self.adopt_between(client, seq, fd, planned),
            Some(Err(why)) => return self.refuse_adoption(client, seq, fd, why),
            None => {}
        }
        let (plan, slot, facts) = match chosen {
            Ok(planned) => planned,
            Err(why) => return self.refuse_adoption(client, seq, fd, why),
        };
        let id = self.take_up_adoption(client, seq, fd, (plan, slot, facts));
        let Some(connection) = self.connections.known_mut(id) else { return };
        let is_held = held.is_some_and(|held| held.covers(&self.slots[slot], &connection.tuple()));
        if is_held { self.begin_held(id) } else { self.hold(id) }
    }

    /// Tells a program that its socket stays in the kernel.
    pub(super) fn refuse_adoption(&mut self, client: u32, seq: u64, fd: OwnedFd, why: StayReason) {
        let StayReason { code, text } = why;
        self.log_refused(client, &fd, code, &text);
        self.discard(client, [fd]);
        self.tell_client(client, &Reply::Stays { seq, id: 0, code: code.to_string(), text }, Vec::new());
    }

    /// Takes up a connection that a program hands over, and returns its number.
    pub(super) fn take_up_adoption(
        &mut self,
        client: u32,
        seq: u64,
        fd: OwnedFd,
        (plan, slot, facts): (Plan, usize, Facts),
    ) -> u64 {
        self.next_connection += 1;
        let id = self.next_connection;
        let who = self.clients.get_mut(&client).map_or((0, 0), |program| {
            program.connections += 1;
            (program.pid, program.uid)
        });
        let mut connection = Connection::new(id, client, who, Arc::new(fd), plan, slot);
        connection.adoption = Some(seq);
        connection.predicted = self.predicted(&facts);
        connection.shed = self.sent_home.take(&connection.tuple());
        connection.facts = facts;
        self.connections.insert(connection);
        id
    }

    /// Checks whether this program may hand this socket over.
    fn admit(&self, client: u32, fd: &OwnedFd) -> Result<(), StayReason> {
        let program = self.clients.get(&client).ok_or_else(|| StayReason::new(Reason::Gone, "the program has gone"))?;
        if program.connections >= program.limits(&self.config).0 {
            return Err(StayReason::new(Reason::TooMany, "the program has reached its limit of connections"));
        }
        // Any other query on another kind of file could block for as long as the file's owner
        // likes.
        if socket_type(fd).is_err() {
            return Err(Refusal::NotTcp.into());
        }
        let owner = fstat(fd).map_err(|e| StayReason::new(Reason::Failed, e.to_string()))?.st_uid;
        if program.uid != 0 && owner != program.uid {
            return Err(StayReason::new(Reason::NotYours, format!("the socket belongs to user {owner}")));
        }
        if self.stopping {
            return Err(StayReason::new(Reason::Stopping, "the service is stopping"));
        }
        Ok(())
    }

    /// Asks the policy whether the connection is to move now, and returns what it knew. If the policy
    /// says to wait, the program asks again when it sends. Moves that a person requests by name skip
    /// this check.
    fn choose(
        &mut self,
        client: u32,
        fd: &OwnedFd,
        plan: &Plan,
        (slot, told): (usize, Told),
    ) -> Result<Facts, StayReason> {
        let facts = baton_kernel::known(fd).map_err(|e| StayReason::new(Reason::Failed, e.to_string()))?;
        let facts = self.complete(facts, client, slot, told);
        let facts = Facts { expected: self.expected(&facts), ..facts };
        let room = Room {
            connections: self.places_for(slot, &plan.tuple()),
            at_most: self.config.tuning.connections.into(),
            load_limit: self.slots[slot].load.limit(),
        };
        // A fact that nobody knows now may be known the next time.
        let decision = self.config.policy.decide(&facts, History::New, room);
        let decision = decision.unwrap_or(Decision::NotYet(Wait::Condition));
        if matches!(decision, Decision::Move | Decision::NotYet(Wait::Room | Wait::Load)) {
            self.may_return(slot, &plan.tuple())?;
        }
        if decision == Decision::NotYet(Wait::Room) {
            self.make_room_for(slot, plan.tuple(), &facts);
        }
        match decision.reason() {
            Some(reason) => Err(StayReason::new(reason, decision.to_string())),
            None => Ok(facts),
        }
    }

    /// Plans the move of a socket, which has the connection `known` if the broker knows it.
    fn plan(&mut self, client: u32, fd: &OwnedFd, known: Option<u64>) -> Result<(Plan, usize), StayReason> {
        if self.churn.is_pausing(Instant::now()) {
            return Err(StayReason::new(RULES_CHANGED, "the firewall's rules change often, and have just changed"));
        }
        let mut plan = self.kernel.plan(fd).map_err(|error| StayReason::from(&error))?;
        let slot = self.slots.iter().position(|slot| slot.owner.is_none() && slot.index == plan.way.interface);
        let interface = slot.ok_or(Refusal::NotSteerable)?;
        if self.connections.id_of(&plan.tuple()).is_some_and(|id| Some(id) != known) {
            return Err(Refusal::AlreadyAway.into());
        }
        let slot = self.slot_for(client, interface);
        plan.engine = self.slots[slot].number();
        // A program's engine handles orders that arrive before it has started.
        let is_there = |engine: &Process| engine.started || plan.engine != 0;
        if !self.slots[slot].engine.as_ref().is_some_and(is_there) {
            return Err(StayReason::new(Reason::NoEngine, "the interface's engine is not running"));
        }
        Ok((plan, slot))
    }

    /// The program has stopped using the descriptor, or (`free` is false) cannot.
    pub(super) fn on_ready(&mut self, id: u64, free: bool) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        let goes_to = connection.goes_to.take();
        let into_pair = goes_to.map_or(connection.plan.between.is_some(), |to| to == Destination::Pair);
        if into_pair {
            return self.on_ready_between(id, free);
        }
        let Some((connection, kernel)) = self.connections.take(id, State::preparing) else { return };
        connection.enter(State::Kernel(kernel));
        connection.adoption = None;
        let (tuple, client, fd) = (connection.tuple(), connection.client, connection.fd.clone());
        if !free {
            connection.may_return_later();
            self.log_stays_in_kernel(id, Reason::InUse, "the program is using it");
            return self.settled(id, false);
        }
        if self.stopping {
            return self.stays_in_kernel(id, StayReason::new(Reason::Stopping, "the service is stopping"));
        }
        match self.plan(client, &fd, Some(id)) {
            Ok((plan, slot)) if plan.tuple() == tuple => {
                self.replan(id, plan, slot);
                self.hold(id);
            }
            Ok(_) => self.stays_in_kernel(id, other_connection()),
            Err(why) => {
                if let Some(connection) = self.connections.known_mut(id).filter(|_| why.code == RULES_CHANGED) {
                    connection.may_return_later();
                }
                self.stays_in_kernel(id, why);
            }
        }
    }

    /// A connection in the kernel is about to go elsewhere, or by another way.
    pub(super) fn replan(&mut self, id: u64, plan: Plan, slot: usize) {
        let Broker { connections, slots, .. } = self;
        if let Some(connection) = connections.known_mut(id) {
            connection.keep_packets(slots);
            connection.slot = slot;
        }
        connections.replan(id, plan);
    }

    /// Asks the engine to hold the frames of a connection in the kernel.
    fn hold(&mut self, id: u64) {
        let Some(connection) = self.enter_holding(id) else { return };
        let (slot, order) = (connection.slot, Order::Hold { id, tuple: connection.tuple() });
        self.slots[slot].tell(&order, Vec::new());
    }

    /// The engine holds the frames of a connection in the kernel already.
    fn begin_held(&mut self, id: u64) {
        if self.enter_holding(id).is_some() {
            self.capture(id);
        }
    }

    fn enter_holding(&mut self, id: u64) -> Option<&Connection> {
        let (connection, kernel) = self.connections.take(id, State::in_kernel)?;
        connection.enter(State::Holding(Holding { kernel, since: None, recall: None }));
        self.note(id);
        self.connections.known(id)
    }

    /// The engine holds the connection's frames. Captures the connection, as soon as the kernel has
    /// nothing of it beyond a gap, and brings it to its program.
    pub(super) fn capture(&mut self, id: u64) {
        // The connection may have ended since the engine was asked, or since the gap was found.
        let Some(connection) = self.connections.get_mut(id) else { return };
        let (at, client) = (connection.slot, connection.client);
        let State::Holding(holding) = &mut connection.state else { return };
        let settled = holding.since.get_or_insert_with(Instant::now).elapsed() < self.config.drain;
        let region = match self.region(at, client) {
            Ok(region) => region,
            Err(error) => return self.stays_in_kernel(id, StayReason::new(Reason::NoMemory, error.to_string())),
        };
        let largest = self.clients.get(&client).map_or(0, |program| program.limits(&self.config).1);
        let begun = Instant::now();
        match self.hand_off(id, Terms { largest, settled }) {
            Ok(HandedOff { captured, queues }) => {
                let Some((connection, holding)) = self.connections.take(id, State::holding) else { return };
                connection.stood_still = Some(begun);
                self.bring(id, holding.captured(captured, region), queues);
            }
            // The connection continues in the kernel in the meantime.
            Err(aborted) if settled && is_unsettled(&aborted) => self.gaps.push(id),
            Err(aborted) if matches!(aborted.outcome, Outcome::InKernel) => {
                self.stays_in_kernel(id, StayReason::from(&aborted.cause))
            }
            Err(aborted) => match without_route(*aborted) {
                Ok(captured) => {
                    let Some((_, Holding { kernel, .. })) = self.connections.take(id, State::holding) else { return };
                    self.undo(id, captured, kernel, no_route());
                }
                Err(text) => self.lost(id, &text),
            },
        }
    }

    /// Tries again to capture the connections that had data beyond a gap.
    pub(super) fn capture_settled(&mut self) {
        for id in std::mem::take(&mut self.gaps) {
            let is_held = |state: &State| matches!(state, State::Holding(Holding { since: Some(_), .. }));
            if self.connections.get(id).is_some_and(|connection| is_held(&connection.state)) {
                self.capture(id);
            }
        }
    }

    /// Brings the connection to its program, with a file of its queues unless they are empty.
    pub(super) fn bring(&mut self, id: u64, bringing: Bringing, file: Option<Arc<OwnedFd>>) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        let captured = &bringing.captured;
        let incoming = Incoming {
            seq: connection.seq(),
            id,
            region: bringing.region,
            send: captured.send_queue.len() as u32,
            unread: captured.receive_queue.len() as u32,
            shut: captured.protocol.has_our_fin(),
            window: captured.protocol.rcv_wnd(),
        };
        let (client, plan, slot) = (connection.client, connection.plan, &self.slots[connection.slot]);
        let at_once = self.clients.get(&client).is_some_and(Client::adopts_at_once)
            && slot.is_of(client)
            && slot.memory(client).is_some_and(|memory| memory.region == bringing.region);
        let files: Vec<OwnedFd> = match file.map(|file| file.try_clone()).transpose() {
            Ok(file) => file.into_iter().collect(),
            Err(error) => {
                connection.enter(State::Bringing(bringing));
                return self.undo_bringing(id, StayReason::new(Reason::Failed, error.to_string()));
            }
        };
        let rule = self.connections.known(id).and_then(|connection| self.rule_to_tell(connection));
        if let Some(rule) = rule.filter(|_| self.clients.get(&client).is_some_and(Client::adopts_at_once)) {
            self.tell_client(client, &Reply::Ruled { id, rule: rule.to_string() }, Vec::new());
        }
        let Some(connection) = self.connections.known_mut(id) else { return };
        if at_once {
            // The program answers once its engine has the connection, so the ledger may have it from
            // here on.
            let starting = bringing.start();
            let order = adoption_order(id, &starting, &plan).to_bytes();
            connection.enter(State::Starting(starting));
            self.note(id);
            self.tell_client(client, &Reply::BringToEngine { incoming, order }, files);
        } else {
            connection.enter(State::Bringing(bringing));
            self.tell_client(client, &Reply::Bring { incoming }, files);
        }
    }

    /// The program has taken in the bytes that came along, or (`taken` is false) has not.
    pub(super) fn on_brought(&mut self, id: u64, taken: bool) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        if !taken {
            let queues = connection.state.captured();
            let (send, unread) = queues.map_or((0, 0), |it| (it.send_queue.len(), it.receive_queue.len()));
            let text = format!("the program has no buffers for {send} bytes to send and {unread} bytes to read");
            return self.undo_bringing(id, StayReason::new(Reason::NoBuffers, text));
        }
        let Some(bringing) = connection.take(State::bringing) else { return };
        let starting = bringing.start();
        let (slot, plan) = (connection.slot, connection.plan);
        let memory = self.slots[slot].memory(connection.client).filter(|memory| memory.region == starting.region);
        if memory.is_none() {
            connection.enter(State::Starting(starting));
            return self.on_not_adopted(id, "the engine has died");
        }
        let order = adoption_order(id, &starting, &plan);
        connection.enter(State::Starting(starting));
        self.note(id);
        self.slots[slot].tell(&order, Vec::new());
    }

    pub(super) fn on_adopted(&mut self, id: u64, conn: u32) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(starting) = connection.take(State::starting) else { return };
        let recall = starting.recall;
        connection.adoption = None;
        connection.arrive(State::Engine(starting.adopted(Some(conn))), Reason::HandedOver);
        connection.is_settled(&self.slots);
        self.log_moved(id);
        let Some(connection) = self.connections.known_mut(id) else { return };
        if connection.closed {
            let Some(engine) = connection.take(State::running) else { return };
            connection.close(engine);
            self.slots[connection.slot].tell(&Order::Watch { id }, Vec::new());
        }
        let gone = !self.clients.contains_key(&connection.client);
        let recall = if gone { Some(Recall { goal: Goal::Close, why: Reason::ProgramGone }) } else { recall };
        self.note(id);
        match recall {
            // Jobs that wait for this connection wait until it is there.
            Some(Recall { goal, why }) => self.evict(id, goal, why),
            None => self.settled(id, true),
        }
    }

    /// Records with the guardian what is known of the connection now.
    pub(super) fn note(&mut self, id: u64) {
        let Broker { connections, checkpoints, slots, .. } = self;
        let Some(connection) = connections.known(id) else { return };
        // Between two states, the step records how far it has come.
        let Some(phase) = connection.state.phase() else { return };
        let kept = connection.record(&slots[connection.slot].name, phase, connection.state.captured());
        checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
        if !connection.state.has_queues() {
            checkpoints.forget(record::queues(id));
        }
    }

    /// The engine does not have the connection. The kernel gets it back, except for the bytes that
    /// its program has taken in already.
    pub(super) fn on_not_adopted(&mut self, id: u64, text: &str) {
        // The engine may report what it likes.
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(starting) = connection.take(State::starting) else { return };
        connection.why = Reason::EngineRefused;
        self.log_engine_refused(id, text);
        self.rebuild_from(id, starting.adopted(None), None, false);
    }

    /// Gives a connection back whole that its program has not taken in.
    pub(super) fn undo_bringing(&mut self, id: u64, why: StayReason) {
        let Some((_, starting)) = self.connections.take(id, State::arriving) else { return };
        let (captured, kernel) = starting.undo();
        self.undo(id, captured, kernel, why);
    }

    /// Gives a connection back whole. Neither the engine nor its program has taken it in.
    fn undo(&mut self, id: u64, captured: Captured, kernel: InKernel, why: StayReason) {
        let unread = !captured.receive_queue.is_empty();
        match self.restore(id, captured, false, Direction::ToEngine) {
            Landed::NoRoute(captured) => {
                self.strand(id, Stranded { captured, unread, arrival: Arrival::Undone(kernel) });
            }
            landed => self.finish_undo(id, landed, kernel, unread, why),
        }
    }

    /// Tells the program that its connection stays in the kernel, if it has landed there.
    pub(super) fn finish_undo(&mut self, id: u64, landed: Landed, kernel: InKernel, unread: bool, why: StayReason) {
        match landed {
            Landed::InKernel => {}
            Landed::Lost(cause) => return self.lost(id, &cause),
            // Neither is possible: the engine does not have it, and the caller keeps it otherwise.
            Landed::StaysInEngine | Landed::NoRoute(_) => return self.lost(id, &why.text),
        }
        let StayReason { code, text } = why;
        let Some(connection) = self.connections.known_mut(id) else { return };
        let (seq, client) = (connection.seq(), connection.client);
        connection.adoption = None;
        connection.arrive(State::Kernel(kernel), code);
        let (slot, tuple) = (connection.slot, connection.tuple());
        self.log_stays_in_kernel(id, code, &text);
        self.unhold(slot, tuple);
        self.tell_client(client, &Reply::Stays { seq, id, code: code.to_string(), text }, Vec::new());
        self.settled(id, false);
        if !self.clients.contains_key(&client) {
            self.close_in_kernel(id, unread);
        } else if seq != 0 {
            self.forget(id);
        } else {
            self.note(id);
        }
    }

    /// The connection stays in the kernel, unchanged.
    pub(super) fn stays_in_kernel(&mut self, id: u64, StayReason { code, text }: StayReason) {
        self.log_stays_in_kernel(id, code, &text);
        let Some((connection, kernel)) = self.connections.take(id, State::in_kernel) else { return };
        connection.enter(State::Kernel(kernel));
        connection.stood_still = None;
        let (seq, client, slot, tuple) = (connection.seq(), connection.client, connection.slot, connection.tuple());
        self.unhold(slot, tuple);
        self.tell_client(client, &Reply::Stays { seq, id, code: code.to_string(), text }, Vec::new());
        self.settled(id, false);
        if seq != 0 {
            // The program has the socket and no stream for it.
            self.forget(id);
        } else {
            self.note(id);
        }
    }

    pub(super) fn unhold(&mut self, slot: usize, tuple: Tuple) {
        self.slots[slot].tell(&Order::Unhold { tuple }, Vec::new());
    }
}
