//! From the kernel to the engine.

use super::Broker;
use super::connection::{Connection, Goal, State};
use super::engine_slot::Process;
use super::left::{no_route, without_route};
use super::rules::RULES_CHANGED;
use super::stay_reason::StayReason;
use baton_ipc::message::Reply;
use baton_ipc::order::Order;
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, Home, Phase, Record};
use baton_kernel::handoff::{Aborted, Handoff, Outcome, Steps};
use baton_kernel::kernel_side::{KernelError, KernelSide, Plan};
use baton_kernel::{Captured, Failed};
use baton_policy::rules::{History, Room};
use baton_policy::{Reason, Refusal};
use baton_wire::addr::Tuple;
use rustix::fs::fstat;
use rustix::net::sockopt::socket_type;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The kernel's part of a move. Between its steps, the broker waits for the engine.
pub(super) struct Transfer<'a> {
    pub kernel: &'a mut KernelSide,
    pub fd: BorrowedFd<'a>,
    pub plan: Plan,
    pub terms: Terms,
    /// What was captured, or what is to be rebuilt.
    pub captured: Option<Captured>,
    /// The connection is suspended in the engine, so the move can be undone.
    pub stands: bool,
    /// Where the connection goes.
    pub way: Direction,
    /// Records with the guardian how far the move has come, before each step that advances it.
    pub keep: &'a mut dyn FnMut(Phase, &Captured) -> io::Result<()>,
    /// What was rebuilt last, without the bytes of its queues.
    pub rebuilt: Option<Captured>,
}

/// Conditions under which a connection leaves the kernel.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The longest queue, in bytes, that the connection may bring along.
    pub largest: usize,
    /// The kernel must hold nothing of it beyond a gap.
    pub settled: bool,
}

impl Terms {
    /// No conditions.
    pub const NONE: Terms = Terms { largest: usize::MAX, settled: false };
}

/// A connection that left the kernel, and a file of its queues unless they are empty.
type Out = (Captured, Option<Arc<OwnedFd>>);

/// The destination of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To the engine.
    ToEngine,
    /// To the kernel. The program is then told this.
    ToKernel(Home),
}

impl Transfer<'_> {
    fn keep(&mut self, phase: Phase, captured: &Captured) -> Result<(), KernelError> {
        let kept = (self.keep)(phase, captured);
        kept.map_err(|source| Failed { during: "recording what was captured", source }.into())
    }
}

impl Steps for Transfer<'_> {
    type Error = KernelError;

    fn steer(&mut self) -> Result<(), KernelError> {
        if self.terms.settled { self.kernel.steer_settled(&self.plan) } else { self.kernel.steer(&self.plan) }
    }

    fn capture(&mut self) -> Result<Captured, KernelError> {
        let captured = self.kernel.capture(self.fd)?;
        if captured.send_queue.len().max(captured.receive_queue.len()) > self.terms.largest {
            // Nothing was changed yet, so it becomes an ordinary socket again.
            baton_kernel::release(self.fd, &captured)?;
            return Err(self.kernel.refuse(Refusal::TooMuchQueued));
        }
        Ok(captured)
    }

    fn make_husk(&mut self, captured: &Captured) -> Result<(), KernelError> {
        if self.way == Direction::ToEngine {
            self.keep(Phase::Captured, captured)?;
        }
        let made = self.kernel.make_husk(self.fd, captured);
        // A suspended connection continues in the engine even if the socket is no proper husk,
        // which it cannot be without its address. The next move home starts over.
        if self.stands { Ok(()) } else { made }
    }

    fn start(&mut self, captured: &Captured) -> Result<(), KernelError> {
        match &self.captured {
            None => self.captured = Some(captured.clone()),
            // The engine's copy lacks whatever the kernel has received since.
            Some(before) if self.stands && before == captured => self.keep(Phase::Engine, captured)?,
            Some(_) => return Err(Refusal::State.into()),
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<Captured, KernelError> {
        let captured = self.captured.as_mut().ok_or(KernelError::Refused(Refusal::State))?;
        if self.stands {
            return Ok(captured.clone());
        }
        // The move cannot be undone, so the bytes of the queues are not needed again.
        let head = baton_bridge::without_queues(captured);
        Ok(std::mem::replace(captured, head))
    }

    fn rebuild(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.rebuild(self.fd, captured)?;
        self.rebuilt = Some(baton_bridge::without_queues(captured));
        Ok(())
    }

    fn unsteer(&mut self) -> Result<(), KernelError> {
        // From here on the kernel runs the connection, and what was captured is out of date.
        if let Some(rebuilt) = self.rebuilt.take() {
            let home = if let Direction::ToKernel(home) = self.way { Some(home) } else { None };
            self.keep(Phase::Rebuilt(home), &rebuilt)?;
        }
        self.kernel.unsteer(&self.plan)
    }

    fn recapture(&mut self, previous: &Captured) -> Result<Captured, KernelError> {
        self.kernel.recapture(self.fd, previous)
    }

    fn resume(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.resume(self.fd, captured)
    }
}

/// Returns true if the connection may be able to leave soon.
fn is_unsettled(aborted: &Aborted<KernelError>) -> bool {
    matches!(aborted.outcome, Outcome::InKernel) && aborted.cause.refusal() == Some(Refusal::Unsettled)
}

impl Broker {
    /// A program asks to hand its socket over.
    pub(super) fn adopt(&mut self, client: u32, seq: u64, fd: OwnedFd) {
        let planned = self.admit(client, &fd).and_then(|()| self.plan(client, &fd));
        let chosen = planned.and_then(|planned| self.choose(&fd, planned.1).map(|()| planned));
        let (plan, slot) = match chosen {
            Ok(planned) => planned,
            Err(StayReason { code, text }) => {
                self.log_refused(client, &fd, code, &text);
                self.discard(client, [fd]);
                return self.tell_client(
                    client,
                    &Reply::Stays { seq, id: 0, code: code.to_string(), text },
                    Vec::new(),
                );
            }
        };
        self.next_connection += 1;
        let Some(program) = self.clients.get_mut(&client) else { return };
        program.connections += 1;
        let who = (program.pid, program.uid);
        let mut connection = Connection::new(self.next_connection, client, who, seq, Arc::new(fd), plan.tuple());
        (connection.plan, connection.slot) = (Some(plan), slot);
        let id = connection.id;
        self.connections.insert(id, connection);
        self.tuples.insert(plan.tuple(), id);
        self.hold(id);
    }

    /// Checks whether this program may hand this socket over.
    fn admit(&self, client: u32, fd: &OwnedFd) -> Result<(), StayReason> {
        let program = self.clients.get(&client).ok_or_else(|| StayReason::new(Reason::Gone, ""))?;
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

    /// Asks the policy whether the connection is to move now. If the policy says to wait, the
    /// program asks again when it sends. Moves that a person requests by name skip this check.
    fn choose(&self, fd: &OwnedFd, slot: usize) -> Result<(), StayReason> {
        let known =
            baton_kernel::known(fd, History::New).map_err(|e| StayReason::new(Reason::Failed, e.to_string()))?;
        let connections = self.connections.values().filter(|connection| connection.slot == slot).count() as u64;
        let decision =
            self.config.policy.decide(&known, Room { connections, at_most: self.config.tuning.connections.into() });
        decision.reason().map_or(Ok(()), |reason| Err(StayReason::new(reason, decision.to_string())))
    }

    fn plan(&mut self, client: u32, fd: &OwnedFd) -> Result<(Plan, usize), StayReason> {
        if self.churn.is_pausing(Instant::now()) {
            return Err(StayReason::new(RULES_CHANGED, "the firewall's rules change often, and have just changed"));
        }
        let mut plan = self.kernel.plan(fd).map_err(|error| StayReason::from(&error))?;
        let slot = self.slots.iter().position(|slot| slot.owner.is_none() && slot.index == plan.way.interface);
        let interface = slot.ok_or(Refusal::NotSteerable)?;
        if self.tuples.contains_key(&plan.tuple()) {
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
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = State::Kernel;
        connection.seq = 0;
        let (tuple, client) = (connection.tuple, connection.client);
        if !free {
            connection.may_return_later();
            self.log_stays(id, Reason::InUse, "the program is using it");
            return self.settled(id, false);
        }
        if self.stopping {
            return self.stays(id, StayReason::new(Reason::Stopping, "the service is stopping"));
        }
        // Its own entry must not make the plan fail.
        self.tuples.remove(&tuple);
        let fd = self.connections[&id].fd.clone();
        let planned = self.plan(client, &fd);
        self.tuples.insert(tuple, id);
        match planned {
            Ok((plan, slot)) if plan.tuple() == tuple => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    (connection.plan, connection.slot) = (Some(plan), slot);
                }
                self.hold(id);
            }
            Ok(_) => self.stays(id, StayReason::new(Reason::Failed, "the socket now has another connection")),
            Err(why) => {
                if let Some(connection) = self.connections.get_mut(&id).filter(|_| why.code == RULES_CHANGED) {
                    connection.may_return_later();
                }
                self.stays(id, why);
            }
        }
    }

    fn hold(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = State::Holding;
        connection.held = None;
        self.note(id);
        let Some(connection) = self.connections.get(&id) else { return };
        let order = Order::Hold { id, tuple: connection.tuple };
        self.slots[connection.slot].tell(&order, Vec::new());
    }

    /// The engine holds the connection's frames. Takes the connection out of the kernel, as soon as
    /// the kernel has nothing of it beyond a gap, and brings it to its program.
    pub(super) fn take(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.state == State::Holding)
        else {
            return;
        };
        let (at, client) = (connection.slot, connection.client);
        let settled = connection.held.get_or_insert_with(Instant::now).elapsed() < self.config.drain;
        let region = match self.region(at, client) {
            Ok(region) => region,
            Err(error) => return self.stays(id, StayReason::new(Reason::NoMemory, error.to_string())),
        };
        let largest = self.clients.get(&client).map_or(0, |program| program.limits(&self.config).1);
        let begun = Instant::now();
        match self.out_of_kernel(id, Terms { largest, settled }) {
            Ok((captured, file)) => {
                self.connections.get_mut(&id).expect("the connection exists").stood_still = Some(begun);
                self.bring(id, region, captured, file);
            }
            // The connection continues in the kernel in the meantime.
            Err(aborted) if settled && is_unsettled(&aborted) => self.gaps.push(id),
            Err(aborted) if matches!(aborted.outcome, Outcome::InKernel) => {
                self.stays(id, StayReason::from(&aborted.cause))
            }
            Err(aborted) => match without_route(*aborted) {
                Ok(captured) => {
                    self.connections.get_mut(&id).expect("the connection exists").captured = Some(captured);
                    self.give_back_whole(id, no_route());
                }
                Err(text) => self.lost(id, &text),
            },
        }
    }

    /// Runs the steps of the move out of the kernel.
    pub(super) fn out_of_kernel(&mut self, id: u64, terms: Terms) -> Result<Out, Box<Aborted<KernelError>>> {
        let Broker { connections, kernel, checkpoints, slots, .. } = self;
        let connection = &connections[&id];
        let plan = connection.plan.expect("the move was planned");
        let mut file = None;
        let mut keep = |phase, captured: &Captured| {
            if phase == Phase::Captured {
                file = write_queues(&captured.send_queue, &captured.receive_queue)?.map(Arc::new);
                if let Some(file) = &file {
                    let (send, unread) = (captured.send_queue.len() as u32, captured.receive_queue.len() as u32);
                    checkpoints.keep(record::queues(id), &Record::Queues { id, send, unread }, &[file]);
                }
            }
            let kept = connection.record(&slots[connection.slot].name, phase, Some(captured));
            checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
            Ok(())
        };
        let (fd, way) = (connection.fd.as_fd(), Direction::ToEngine);
        let (captured, rebuilt) = (None, None);
        let stands = false;
        let mut transfer = Transfer { kernel, fd, plan, terms, captured, stands, way, keep: &mut keep, rebuilt };
        Handoff::new().hand_off(&mut transfer)?;
        let captured = transfer.captured.take().expect("what was handed off was captured");
        Ok((captured, file))
    }

    /// Brings the connection to its program, with a file of its queues unless they are empty.
    pub(super) fn bring(&mut self, id: u64, region: u32, mut captured: Captured, file: Option<Arc<OwnedFd>>) {
        let connection = self.connections.get_mut(&id).expect("the connection exists");
        if let Some(before) = &connection.head {
            // A kernel that had the connection only briefly has measured nothing, and an engine
            // without a round-trip time waits for a second before it probes.
            let seeds = &mut captured.protocol.seeds;
            *seeds = seeds.or_round_trip_of(&before.protocol.seeds);
        }
        connection.state = State::Bringing;
        connection.region = region;
        connection.head = Some(baton_bridge::without_queues(&captured));
        let reply = Reply::Bring {
            seq: connection.seq,
            id,
            region,
            send: captured.send_queue.len() as u32,
            unread: captured.receive_queue.len() as u32,
            shut: captured.protocol.has_our_fin(),
            window: captured.protocol.rcv_wnd(),
        };
        connection.captured = Some(captured);
        let client = connection.client;
        match file.map(|file| file.try_clone()).transpose() {
            Ok(file) => self.tell_client(client, &reply, file.into_iter().collect()),
            Err(error) => self.give_back_whole(id, StayReason::new(Reason::Failed, error.to_string())),
        }
    }

    /// The program has taken in the bytes that came along, or (`taken` is false) has not.
    pub(super) fn on_brought(&mut self, id: u64, taken: bool) {
        if !taken {
            let queues = self.connections.get(&id).and_then(|connection| connection.captured.as_ref());
            let (send, unread) = queues.map_or((0, 0), |it| (it.send_queue.len(), it.receive_queue.len()));
            let text = format!("the program has no buffers for {send} bytes to send and {unread} bytes to read");
            return self.give_back_whole(id, StayReason::new(Reason::NoBuffers, text));
        }
        let Broker { connections, slots, .. } = self;
        let connection = connections.get_mut(&id).expect("the connection exists");
        let (Some(captured), Some(plan)) = (&connection.captured, connection.plan) else { return };
        let memory = slots[connection.slot].memory(connection.client);
        let Some(memory) = memory.filter(|memory| memory.region == connection.region) else {
            return self.on_not_adopted(id, "the engine has died");
        };
        let options = baton_bridge::options(captured);
        let key = memory.region;
        let adopt = baton_bridge::adoption(captured, &options, plan.way.via, baton_engine::streamer::ConsumerId(0), id);
        let order = Order::Adopt {
            id,
            key,
            tuple: adopt.tuple,
            snapshot: adopt.snapshot.to_words().to_vec(),
            ip: adopt.ip.bits(),
            via: plan.way.via,
            mac: plan.mac,
            options: options.iter().map(|option| baton_engine::options::encode(*option)).collect(),
        };
        connection.state = State::Starting;
        self.note(id);
        self.tell_engine(id, &order);
    }

    pub(super) fn on_adopted(&mut self, id: u64, conn: u32) {
        let gone = |connection: &Connection| !self.clients.contains_key(&connection.client);
        let gone = self.connections.get(&id).is_some_and(gone);
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.state == State::Starting)
        else {
            return;
        };
        connection.conn = Some(conn);
        connection.seq = 0;
        connection.arrive(State::Engine, Reason::HandedOver);
        connection.is_settled(&self.slots);
        self.log_moved(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.closed {
            connection.state = State::Closing;
            self.slots[connection.slot].tell(&Order::Watch { id }, Vec::new());
        }
        let recall = if gone { Some((Goal::Close, Reason::ProgramGone)) } else { connection.recall.take() };
        self.note(id);
        match recall {
            // Jobs that wait for this connection wait until it is there.
            Some((goal, why)) => self.leave(id, goal, why),
            None => self.settled(id, true),
        }
    }

    /// Records with the guardian what is known of the connection now.
    pub(super) fn note(&mut self, id: u64) {
        let Broker { connections, checkpoints, slots, .. } = self;
        let Some(connection) = connections.get(&id) else { return };
        let head = connection.captured.as_ref().or(connection.head.as_ref());
        let kept = connection.record(&slots[connection.slot].name, connection.phase(), head);
        checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
        if connection.captured.is_none() {
            checkpoints.forget(record::queues(id));
        }
    }

    /// Tries again to take the connections that had data beyond a gap.
    pub(super) fn go_on_taking(&mut self) {
        for id in std::mem::take(&mut self.gaps) {
            if self.connections.get(&id).is_some_and(|connection| connection.held.is_some()) {
                self.take(id);
            }
        }
    }

    pub(super) fn tell_engine(&mut self, id: u64, order: &Order) {
        if let Some(connection) = self.connections.get(&id) {
            self.slots[connection.slot].tell(order, Vec::new());
        }
    }

    /// The engine does not have the connection. The kernel gets it back, except for the bytes that
    /// its program has taken in already.
    pub(super) fn on_not_adopted(&mut self, id: u64, text: &str) {
        self.log_engine_refused(id, text);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(captured) = connection.captured.take() else { return };
        self.come_home_as_captured(id, captured, Reason::EngineRefused);
    }

    /// The connection stays in the kernel, unchanged.
    pub(super) fn stays(&mut self, id: u64, StayReason { code, text }: StayReason) {
        self.log_stays(id, code, &text);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        (connection.stood_still, connection.recall) = (None, None);
        let (seq, client, slot, tuple) = (connection.seq, connection.client, connection.slot, connection.tuple);
        connection.state = State::Kernel;
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
