//! A connection as the broker knows it.

use super::engine_slot::EngineSlot;
use super::links::Links;
use super::predicted::Predicted;
use super::state::{InEngine, InKernel, Picked, State};
use baton_engine::ledger::End;
use baton_ipc::message::{Destination, Entry, ProgramId, Transferred};
use baton_ipc::record::{Phase, Record};
use baton_kernel::conntrack::Ending;
use baton_kernel::kernel_side::Plan;
use baton_kernel::{BypassingFrames, Captured};
use baton_policy::Reason;
use baton_policy::conditions::Facts;
use baton_wire::addr::Tuple;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shortest time over which a rate is measured.
const SAMPLE: Duration = Duration::from_millis(500);

/// When a connection that came home because of new rules may return to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Return {
    /// It has not arrived in the kernel yet, or was not examined there yet.
    Waits,
    /// The segments that it had received and sent when it was first examined there.
    Since([u32; 2]),
}

/// A connection: the data of every state, and the state that it is in.
pub(super) struct Connection {
    pub id: u64,
    pub client: u32,
    pub program: (u32, u32),
    /// The number of the adoption, while the program waits for its result.
    pub adoption: Option<u64>,
    pub fd: Arc<OwnedFd>,
    pub plan: Plan,
    /// The index of its engine slot.
    pub slot: usize,
    /// Connections with the right names that are not its other end.
    pub strangers: Vec<u64>,
    /// The facts with which the policy was asked; none after a broker's death.
    pub facts: Facts,
    /// Set if a rule `predict` is for it.
    pub predicted: Option<Predicted>,
    pub state: State,
    /// The number of checks for which it has waited in this state, once there was one.
    pub waited: Option<u32>,
    /// The program has closed it.
    pub closed: bool,
    /// The program has said that it has it, to this broker. Earlier words were for a predecessor.
    pub confirmed: bool,
    /// If somebody has asked for a move to a certain place, that place.
    pub goes_to: Option<Destination>,
    /// If it is to return to the engine by itself, the condition for that.
    pub returns: Option<Return>,
    pub why: Reason,
    pub since: Instant,
    pub stood_still: Option<Instant>,
    pub pause_us: u64,
    pub moves: u64,
    /// How often it went home because of its engine's load.
    pub shed: u32,
    bypassing: BypassingFrames,
    bytes: (u64, u64),
    rate: (u64, u64),
    sampled: Instant,
}

impl Connection {
    /// A connection in the kernel, which the program `(process id, user)` has handed over.
    pub fn new(id: u64, client: u32, program: (u32, u32), fd: Arc<OwnedFd>, plan: Plan, slot: usize) -> Connection {
        let now = Instant::now();
        Connection {
            id,
            client,
            program,
            adoption: None,
            fd,
            plan,
            slot,
            strangers: Vec::new(),
            facts: Facts::default(),
            predicted: None,
            state: State::Kernel(InKernel::default()),
            waited: None,
            closed: false,
            confirmed: true,
            goes_to: None,
            returns: None,
            why: Reason::HandedOver,
            since: now,
            stood_still: None,
            pause_us: 0,
            moves: 0,
            shed: 0,
            bypassing: BypassingFrames::default(),
            bytes: (0, 0),
            rate: (0, 0),
            sampled: now,
        }
    }

    /// Its addresses and ports.
    pub fn tuple(&self) -> Tuple {
        self.plan.tuple()
    }

    /// The number of the adoption as messages have it: 0 if the program does not wait for one.
    pub fn seq(&self) -> u64 {
        self.adoption.unwrap_or(0)
    }

    /// Takes the data of the state that `pick` accepts; the step that has them enters the next
    /// state. `None` if the connection is in another state, which then stays.
    pub fn take<T>(&mut self, pick: impl FnOnce(State) -> Picked<T>) -> Option<T> {
        match pick(std::mem::replace(&mut self.state, State::Between)) {
            Ok(data) => Some(data),
            Err(state) => {
                self.state = state;
                None
            }
        }
    }

    /// Enters a state, in which the connection has not waited yet.
    pub fn enter(&mut self, state: State) {
        (self.state, self.waited) = (state, None);
    }

    /// Enters the state in which the engine finishes it, because the program has closed it.
    pub fn close(&mut self, engine: InEngine) {
        self.closed = true;
        self.enter(State::Closing(engine));
    }

    /// Notes that the connection stands still from now on.
    pub fn stop(&mut self) {
        self.stood_still = Some(Instant::now());
    }

    /// Notes that the connection runs again, in `state`.
    pub fn arrive(&mut self, state: State, why: Reason) {
        let now = Instant::now();
        self.enter(state);
        self.why = why;
        self.since = now;
        self.moves += 1;
        self.bypassing = BypassingFrames::default();
        if let Some(stopped) = self.stood_still.take() {
            self.pause_us = (now - stopped).as_micros() as u64;
        }
    }

    /// Drops the captured connection once the ledger has it. Returns true if it was dropped now.
    pub fn is_settled(&mut self, slots: &[EngineSlot]) -> bool {
        let tuple = self.tuple();
        let Some(engine) = self.state.in_engine_mut() else { return false };
        let ledger = slots[self.slot].ledger.ledger();
        let has = engine.unsettled.is_some() && engine.place.conn.is_some_and(|conn| ledger.name(conn) == Some(tuple));
        if has {
            engine.unsettled = None;
        }
        has
    }

    /// How the connection ended in its engine. `None` if it still runs there or never was there.
    /// While `unsettled` is set, the ledger does not have the connection yet, and its place there
    /// may still describe an earlier one.
    pub fn ending(&self, slots: &[EngineSlot]) -> Option<Ending> {
        let conn = self.state.in_engine()?.place.conn;
        let end = conn.and_then(|conn| slots.get(self.slot)?.ledger.ledger().end(conn, &self.tuple()));
        match end {
            Some(End::Open) => None,
            Some(End::Reset) => Some(Ending::Reset),
            // The ledger's place belongs to another connection by now. Most connections close in
            // order.
            Some(End::Closed) | None => Some(Ending::Closed),
        }
    }

    /// Returns true if the peer's segments bypass the engine.
    pub fn is_bypassed(&mut self, now: Instant) -> bool {
        // If the socket cannot be queried, nothing is known.
        matches!(self.state, State::Engine(_)) && self.bypassing.look(&*self.fd, now).unwrap_or(false)
    }

    /// Measures the rates since the last call.
    pub fn sample(&mut self, slots: &[EngineSlot], links: &Links, now: Instant) {
        if !matches!(self.state, State::Engine(_) | State::Paired(_)) {
            self.rate = (0, 0);
            return;
        }
        let elapsed = now.saturating_duration_since(self.sampled);
        if elapsed < SAMPLE {
            return;
        }
        let Some((sent, received)) = self.in_link(links).or_else(|| self.carried(slots)) else {
            self.rate = (0, 0);
            return;
        };
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / elapsed.as_secs_f64()) as u64;
        self.rate = (rate(sent, self.bytes.0), rate(received, self.bytes.1));
        self.sampled = now;
        self.bytes = (sent, received);
    }

    /// The bytes sent and received in the link so far.
    fn in_link(&self, links: &Links) -> Option<(u64, u64)> {
        if let State::Paired(pair) = &self.state { links.carried(pair.place) } else { None }
    }

    /// The bytes sent and received in the engine so far, including those of a closing connection.
    fn carried(&self, slots: &[EngineSlot]) -> Option<(u64, u64)> {
        let conn = self.state.in_engine()?.place.conn?;
        slots.get(self.slot)?.ledger.ledger().positions(conn, &self.tuple())
    }

    /// As `carried`, or as sampled last if its place in the ledger is another connection's by now.
    pub fn carried_or_sampled(&self, slots: &[EngineSlot]) -> (u64, u64) {
        self.carried(slots).unwrap_or(self.bytes)
    }

    /// The record of this connection for the guardian, at `phase`; `head` is what was captured
    /// last.
    pub fn record(&self, interface: &str, phase: Phase, head: Option<&Captured>) -> Record {
        let Plan { query, way, .. } = self.plan;
        Record::Connection {
            id: self.id,
            client: self.client,
            program: self.program,
            seq: self.seq(),
            tuple: self.tuple(),
            interface: interface.to_owned(),
            query: (query.mark, query.device),
            way: (way.interface, way.via),
            phase,
            closed: self.closed,
            moves: self.moves,
            head: head.map(Captured::head_to_bytes).unwrap_or_default(),
        }
    }

    /// The connection as a list shows it.
    pub fn entry(&self, slots: &[EngineSlot], links: &Links) -> Entry {
        let transferred = |(sent, received)| Transferred { sent, received };
        Entry {
            id: self.id,
            tuple: self.tuple(),
            place: self.state.place().into(),
            why: self.why.to_string(),
            interface: slots.get(self.slot).map_or(String::new(), |slot| slot.interface.clone()),
            program: ProgramId { pid: self.program.0, uid: self.program.1 },
            bytes: transferred(self.in_link(links).unwrap_or_else(|| self.carried_or_sampled(slots))),
            rate: transferred(self.rate),
            since_ms: self.since.elapsed().as_millis() as u64,
            moves: self.moves,
        }
    }
}
