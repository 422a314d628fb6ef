//! From the engine to the kernel.

use super::Broker;
use super::connection::{Connection, Goal, State};
use super::from_ledger::read_from_ledger;
use super::left::NotBack;
use super::stay_reason::StayReason;
use super::take::{Direction, Terms, Transfer};
use baton_consumer::adoption::LeftBehind;
use baton_ipc::message::Reply;
use baton_ipc::order::Order;
use baton_ipc::record::{self, Home};
use baton_kernel::Captured;
use baton_kernel::handoff::{Aborted, Handoff, Outcome, Steps};
use baton_kernel::steer::Mode;
use baton_policy::{Reason, Refusal};
use baton_tcp::snapshot::Seeds;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use rustix::net::sockopt::{set_socket_linger, socket_linger};
use std::os::fd::AsFd;
use std::time::Duration;

/// How a connection leaves the service for good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure<'a> {
    /// It ended by itself.
    Ended,
    /// It was lost, for this reason.
    Lost(&'a str),
}

impl<'a> Departure<'a> {
    /// The text of [`Reply::Gone`]: empty if the connection ended by itself.
    pub fn text(self) -> &'a str {
        match self {
            Departure::Ended => "",
            Departure::Lost(text) => text,
        }
    }
}

impl Broker {
    fn engine_time(&self) -> Instant {
        Instant(baton_ipc::engine::monotonic().saturating_sub(self.base))
    }

    /// Asks the engine to suspend a connection, which then goes where `goal` says.
    pub(super) fn leave(&mut self, id: u64, goal: Goal, why: Reason) {
        let drain = if goal == Goal::Close { Duration::ZERO } else { self.config.drain };
        self.leave_within(id, goal, why, drain);
    }

    /// A connection in the engine would be refused now.
    pub(super) fn on_refused(&mut self, tuple: Tuple, refusal: Refusal) {
        let Some(&id) = self.tuples.get(&tuple) else { return };
        let why = if refusal == Refusal::NotSteerable { Reason::Homeless } else { refusal.into() };
        // Nothing is acknowledged to a peer whose frames are dropped, so waiting would not help.
        let drain = if refusal.forbids_frames() { Duration::ZERO } else { self.config.drain };
        self.leave_within(id, Goal::Home, why, drain);
    }

    fn leave_within(&mut self, id: u64, goal: Goal, why: Reason, drain: Duration) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            State::Engine => {}
            // The program has closed it.
            State::Closing => connection.closed = true,
            State::Holding | State::Bringing | State::Starting => return connection.recall = Some((goal, why)),
            State::Kernel | State::Preparing | State::Leaving(_) | State::Standing => return,
            // No job waits for it.
            State::Left { .. } => return self.settled(id, false),
        }
        connection.state = State::Leaving(goal);
        connection.why = why;
        let order = Order::Suspend { id, drain_ms: drain.as_millis() as u32 };
        self.slots[connection.slot].tell(&order, Vec::new());
    }

    /// The goal for a connection that is to return to the kernel whole. A program with raw queue
    /// pairs continues with the bytes in its own buffers.
    fn whole(&self, id: u64) -> Goal {
        let client = self.connections.get(&id).and_then(|connection| self.clients.get(&connection.client));
        if client.is_some_and(|program| program.raw.is_some()) { Goal::Home } else { Goal::Whole }
    }

    /// The peer sends urgent data, which the engine does not support. Bytes that the program has
    /// not read go home too, because the kernel counts from them to the urgent mark.
    pub(super) fn on_urgent(&mut self, id: u64) {
        self.leave(id, self.whole(id), Reason::UrgentData);
    }

    /// The program wants all of the connection in the kernel.
    pub(super) fn restore_whole(&mut self, id: u64) {
        let goal = self.whole(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            // The program may know that the engine has the connection before the broker does.
            State::Engine | State::Starting => self.leave(id, goal, Reason::AskedFor),
            State::Leaving(Goal::Home) if goal == Goal::Whole => {
                (connection.state, connection.why) = (State::Leaving(goal), Reason::AskedFor);
            }
            // The connection is in the kernel, or the program is about to be told.
            _ => {}
        }
    }

    /// Keeps the engine's last measurements of the round trip, in microseconds: smoothed,
    /// deviation, minimum. The kernel cannot take them, but the next engine can.
    pub(super) fn on_measured(&mut self, id: u64, measured_us: [u32; 3]) {
        let Some(head) = self.connections.get_mut(&id).and_then(|connection| connection.head.as_mut()) else { return };
        let seeds = &mut head.protocol.seeds;
        let [srtt, rttvar, min_rtt] = measured_us.map(|us| baton_tcp::time::Duration::from_micros(us.into()));
        *seeds = Seeds { srtt, rttvar, min_rtt, ..*seeds }.or_round_trip_of(seeds);
    }

    /// The engine has suspended the connection.
    pub(super) fn on_suspended(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let State::Leaving(goal) = connection.state else { return };
        connection.stop();
        let Some(found) = self.find(id) else {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let why = connection.why;
            // The program never took in the bytes that came along, so the captured state is still
            // valid.
            return match connection.captured.take() {
                Some(captured) => self.come_home_as_captured(id, captured, why),
                None => self.lost(id, "the engine's ledger does not have the connection"),
            };
        };
        let (rcv_pos, tail_pos) = found.positions();
        let connection = self.connections.get_mut(&id).expect("the connection exists");
        if goal == Goal::Whole {
            connection.standing = Some(found);
            connection.state = State::Standing;
            let client = connection.client;
            return self.tell_client(client, &Reply::Stand { id, rcv_pos, tail_pos }, Vec::new());
        }
        self.come_home(id, found);
    }

    /// What the ledger says of the connection.
    fn find(&self, id: u64) -> Option<super::from_ledger::Found> {
        let connection = self.connections.get(&id)?;
        let slot = self.slots.get(connection.slot)?;
        read_from_ledger(
            &slot.ledger,
            connection.conn?,
            &connection.tuple,
            self.engine_time(),
            &slot.memory(connection.client)?.memory,
        )
    }

    /// Brings a connection home. The program keeps the bytes that it holds.
    pub(super) fn come_home(&mut self, id: u64, found: super::from_ledger::Found) {
        let Some(connection) = self.connections.get(&id) else { return };
        let why = connection.why;
        let Some(head) = &connection.head else { return self.lost(id, "nothing is known of the connection's socket") };
        let (home, unread) = (Home::at(found.positions()), found.unread);
        let captured = found.into_captured(head, LeftBehind::default());
        self.rebuild(id, captured, home, unread > 0, why);
    }

    /// Brings a connection home as it was captured, without the bytes that its program has taken
    /// in.
    pub(super) fn come_home_as_captured(&mut self, id: u64, mut captured: Captured, why: Reason) {
        let unread = captured.receive_queue.len();
        let home = Home::at((unread as u64, captured.send_queue.len() as u64));
        captured.receive_queue.clear();
        captured.protocol.copied_seq += unread as u32;
        self.rebuild(id, captured, home, unread > 0, why);
    }

    /// The program has sent the bytes that it holds, so the whole connection goes home.
    pub(super) fn on_left_behind(&mut self, id: u64, left: LeftBehind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (Some(found), Some(head)) = (connection.standing.take(), &connection.head) else { return };
        let unread = found.unread > 0;
        let captured = found.into_captured(head, left);
        let why = connection.why;
        self.rebuild(id, captured, Home::WHOLE, unread, why);
    }

    /// Gives a connection back whole. Neither the engine nor its program has taken it in.
    pub(super) fn give_back_whole(&mut self, id: u64, StayReason { code, text }: StayReason) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(captured) = connection.captured.take() else { return };
        let (client, unread) = (connection.client, !captured.receive_queue.is_empty());
        match self.back_in_kernel(id, captured, false, Direction::ToEngine) {
            Ok(()) => {}
            Err(NotBack::NoRoute(captured)) => return self.leave_behind(id, *captured, None, unread),
            Err(_) => return self.lost(id, &text),
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let seq = std::mem::take(&mut connection.seq);
        connection.arrive(State::Kernel, code);
        let (slot, tuple) = (connection.slot, connection.tuple);
        self.log_stays(id, code, &text);
        self.unhold(slot, tuple);
        let reply = Reply::Stays { seq, id, code: code.to_string(), text };
        self.tell_client(client, &reply, Vec::new());
        self.settled(id, false);
        if !self.clients.contains_key(&client) {
            self.close_in_kernel(id, unread);
        } else if seq != 0 {
            self.forget(id);
        } else {
            self.note(id);
        }
    }

    /// Rebuilds a connection in the kernel and tells the program (`home`) and the engine. `unread`
    /// says whether there are bytes that the program has not read.
    pub(super) fn rebuild(&mut self, id: u64, captured: Captured, home: Home, unread: bool, why: Reason) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // A connection that the engine never had is not suspended there.
        let stands = matches!(connection.state, State::Leaving(_) | State::Standing | State::Closing)
            && self.slots[connection.slot]
                .memory(connection.client)
                .is_some_and(|memory| memory.region == connection.region);
        let closing = connection.state == State::Closing || connection.closed;
        let (slot, client, conn) = (connection.slot, connection.client, connection.conn.filter(|_| stands));
        match self.back_in_kernel(id, captured, stands, Direction::ToKernel(home)) {
            Ok(()) => {}
            Err(NotBack::GoesOn) => {
                self.slots[slot].tell(&Order::Resume { id }, Vec::new());
                let why = StayReason::new(Reason::Failed, "the kernel does not take the connection back now");
                return self.goes_on(id, Reason::KernelRefused, closing, why);
            }
            Err(NotBack::NoRoute(captured)) => {
                self.leave_behind(id, *captured, Some(home), unread);
                // A living engine releases the connection once the kernel has it.
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.conn = connection.conn.or(conn);
                }
                return;
            }
            Err(NotBack::Lost(text)) => return self.lost(id, &text),
        }
        let connection = self.connections.get_mut(&id).expect("it is there");
        connection.arrive(State::Kernel, why);
        (connection.conn, connection.captured, connection.seq, connection.recall) = (None, None, 0, None);
        connection.home = Some(home);
        let tuple = connection.tuple;
        self.log_home(id);
        let Home { rcv_pos, tail_pos, whole } = home;
        self.tell_client(client, &Reply::Home { id, rcv_pos, tail_pos, whole }, Vec::new());
        self.slots[slot].tell(&Order::LetGo { id }, Vec::new());
        self.unhold(slot, tuple);
        self.note(id);
        self.settled(id, true);
        if closing || !self.clients.contains_key(&client) {
            self.close_in_kernel(id, unread);
        }
    }

    /// Runs the steps of the move into the kernel.
    pub(super) fn back_in_kernel(
        &mut self,
        id: u64,
        captured: Captured,
        stands: bool,
        way: Direction,
    ) -> Result<(), NotBack> {
        let Broker { connections, kernel, checkpoints, slots, .. } = self;
        let Some(connection) = connections.get(&id) else { return Ok(()) };
        let Some(plan) = connection.plan else { return Ok(()) };
        let mut keep = |phase, captured: &Captured| {
            let kept = connection.record(&slots[connection.slot].name, phase, Some(captured));
            checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
            Ok(())
        };
        let (captured, rebuilt) = (Some(captured), None);
        let fd = connection.fd.as_fd();
        let mut transfer =
            Transfer { kernel, fd, plan, terms: Terms::NONE, captured, stands, way, keep: &mut keep, rebuilt };
        match Handoff::in_engine().restore(&mut transfer) {
            Ok(()) => Ok(()),
            Err(Aborted { outcome: Outcome::InEngine, cause, .. }) => {
                let captured = transfer.captured.take();
                // With XDP, only suspension keeps an engine from sending.
                let is_xdp = matches!(kernel.mode(plan.way.interface), Some(Mode::Xdp { .. }));
                match captured.filter(|_| is_xdp && cause.is_no_route()) {
                    Some(captured) => Err(NotBack::NoRoute(Box::new(captured))),
                    None => Err(NotBack::GoesOn),
                }
            }
            // The move cannot be undone, so try once more to complete it.
            Err(Aborted { outcome: Outcome::Lost { captured: Some(captured), .. }, cause, .. }) => {
                match transfer.rebuild(&captured) {
                    Ok(()) if transfer.unsteer().is_ok() && transfer.resume(&captured).is_ok() => Ok(()),
                    Err(error) if error.is_no_route() => Err(NotBack::NoRoute(captured)),
                    _ => Err(NotBack::Lost(cause.to_string())),
                }
            }
            Err(aborted) => Err(NotBack::Lost(aborted.to_string())),
        }
    }

    /// Closes a socket as the kernel does when its program exits: unread bytes make it a reset, and
    /// unsent bytes are still sent.
    fn close_in_kernel(&mut self, id: u64, unread: bool) {
        if let Some(connection) = self.connections.get(&id) {
            if unread {
                let _ = set_socket_linger(&connection.fd, Some(Duration::ZERO));
            } else if socket_linger(&connection.fd).is_ok_and(|span| span.is_some_and(|span| !span.is_zero())) {
                // The program's exit would not have lingered either.
                let _ = set_socket_linger(&connection.fd, None);
            }
        }
        self.forget(id);
    }

    /// The connection cannot leave, because both sides have closed it. The engine finishes it.
    pub(super) fn on_stays(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let State::Leaving(goal) = connection.state else { return };
        let ends = goal == Goal::Close || connection.closed;
        self.goes_on(
            id,
            Reason::Closing,
            ends,
            StayReason::new(Reason::Closing, "the connection is closing on both sides"),
        );
    }

    /// The connection continues in the engine. If the program has closed it (`ends`), the engine
    /// finishes it.
    fn goes_on(&mut self, id: u64, why: Reason, ends: bool, StayReason { code, text }: StayReason) {
        self.log_goes_on(id, why, &text);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (slot, client) = (connection.slot, connection.client);
        connection.why = why;
        connection.state = if ends { State::Closing } else { State::Engine };
        if ends {
            self.slots[slot].tell(&Order::Watch { id }, Vec::new());
        }
        self.tell_client(client, &Reply::Stays { seq: 0, id, code: code.to_string(), text }, Vec::new());
        self.settled(id, false);
    }

    /// Recalls connections whose programs are gone and which could not be closed in the kernel
    /// before.
    pub(super) fn close_orphans(&mut self) {
        let orphan = |connection: &&Connection| {
            connection.state == State::Engine && !self.clients.contains_key(&connection.client)
        };
        let orphans: Vec<u64> = self.connections.values().filter(orphan).map(|connection| connection.id).collect();
        orphans.into_iter().for_each(|id| self.leave(id, Goal::Close, Reason::ProgramGone));
    }

    /// The program asks for the engine's state of a connection. If no engine has the connection,
    /// the program is about to learn where it is. The program may know of an adoption before the
    /// broker does.
    pub(super) fn ask_info(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        if matches!(connection.state, State::Starting | State::Engine | State::Leaving(_) | State::Closing) {
            self.slots[connection.slot].tell(&Order::Info { id }, Vec::new());
        }
    }

    /// The engine no longer has the connection.
    pub(super) fn on_ended(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        if matches!(connection.state, State::Leaving(_) | State::Closing) {
            self.ended(id);
        }
    }

    /// The connection was in TIME-WAIT, and its peer opens a new one between the same addresses and
    /// ports. The kernel gets the new one, beginning with its SYN.
    pub(super) fn on_reopened(&mut self, id: u64, syn: &[u8]) {
        let is_there =
            |connection: &&Connection| matches!(connection.state, State::Engine | State::Leaving(_) | State::Closing);
        let Some(Connection { tuple, slot, fd, .. }) = self.connections.get(&id).filter(is_there) else { return };
        let (tuple, interface, fd) = (*tuple, self.slots[*slot].index, fd.clone());
        // The program may still hold the husk.
        let vacated = baton_kernel::vacate(&fd);
        self.ended(id);
        if vacated.is_ok() {
            // If this fails, the peer sends its SYN again.
            let arrived = self.kernel.arrive(interface, &tuple, syn);
            self.log_failed("giving the kernel the SYN of a new connection", arrived);
        }
    }

    /// The program has closed the connection.
    pub(super) fn on_close(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            // It is closed where it arrives.
            State::Leaving(_) | State::Left { .. } => {
                connection.closed = true;
                self.note(id);
            }
            State::Engine => {
                connection.state = State::Closing;
                self.note(id);
                self.tell_engine(id, &Order::Watch { id });
            }
            State::Kernel | State::Preparing | State::Holding => self.forget(id),
            // The program may know that the engine has the connection before the broker does.
            State::Starting => connection.closed = true,
            // The program repeats this where the connection arrives.
            State::Bringing | State::Standing | State::Closing => {}
        }
    }

    /// The connection ended by itself.
    pub(super) fn ended(&mut self, id: u64) {
        self.depart(id, Departure::Ended);
    }

    /// The connection is lost, for the reason in `text`.
    pub(super) fn lost(&mut self, id: u64, text: &str) {
        self.depart(id, Departure::Lost(text));
    }

    fn depart(&mut self, id: u64, departure: Departure<'_>) {
        self.log_departure(id, departure);
        if let Some(connection) = self.connections.get(&id) {
            let (client, seq, slot, tuple) = (connection.client, connection.seq, connection.slot, connection.tuple);
            if connection.conn.is_some() {
                self.slots[slot].tell(&Order::LetGo { id }, Vec::new());
            }
            self.tell_client(client, &Reply::Gone { seq, id, text: departure.text().to_owned() }, Vec::new());
            self.unhold(slot, tuple);
        }
        self.settled(id, departure == Departure::Ended);
        self.forget(id);
    }

    /// Forgets the connection. Closing its husk sends nothing.
    pub(super) fn forget(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.checkpoints.forget(record::connection(id));
        self.checkpoints.forget(record::queues(id));
        self.tuples.remove(&connection.tuple);
        if let Some(plan) = connection.plan.filter(|_| connection.is_away()) {
            // The interface may be gone, and its map with it.
            let _ = match connection.ending(&self.slots) {
                Some(ending) => self.kernel.unsteer_ended(&plan, ending),
                None => self.kernel.unsteer(&plan),
            };
        }
        if let Some(program) = self.clients.get_mut(&connection.client) {
            program.connections = program.connections.saturating_sub(1);
        }
        let client = connection.client;
        self.closers.add(connection.program.1, connection.fd);
        self.settled(id, true);
        self.forget_memory(client);
    }
}
