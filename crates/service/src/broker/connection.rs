//! A connection as the broker knows it.

use super::engine_slot::EngineSlot;
use super::rules::Return;
use super::timeouts::Waiting;
use baton_engine::ledger::End;
use baton_ipc::message::Entry;
use baton_ipc::record::{Home, Phase, Record};
use baton_kernel::conntrack::Ending;
use baton_kernel::kernel_side::Plan;
use baton_kernel::{BypassingFrames, Captured};
use baton_policy::Reason;
use baton_wire::addr::{Addr, Tuple};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shortest time over which a rate is measured.
const SAMPLE: Duration = Duration::from_millis(500);

/// Where a connection is, and whose message it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In the kernel.
    Kernel,
    /// In the kernel. The program was asked not to use it.
    Preparing,
    /// In the kernel. The engine was asked to hold its frames.
    Holding,
    /// In neither. The program is to take in the bytes that the connection brings along.
    Bringing,
    /// In neither. The engine was asked to adopt it.
    Starting,
    /// In the engine.
    Engine,
    /// In the engine, which was asked to suspend it.
    Leaving(Goal),
    /// Suspended in the engine. The program was asked which bytes it holds.
    Standing,
    /// In the engine, which finishes it, because the program has closed it.
    Closing,
    /// In neither: its engine is dead or never had it, and the kernel has no route for it now. Its
    /// frames are dropped in the meantime.
    Left {
        /// What the program is told once the kernel has the connection. `None` if, as far as the
        /// program knows, the connection never left the kernel.
        told: Option<Home>,
        /// Whether there are bytes that the program has not read.
        unread: bool,
    },
}

/// Where a connection that leaves the engine is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// To the kernel. The program continues with the bytes that it holds.
    Home,
    /// To the kernel, with all bytes.
    Whole,
    /// To the kernel, which closes it, because the program is gone.
    Close,
}

pub(super) struct Connection {
    pub id: u64,
    pub client: u32,
    pub program: (u32, u32),
    /// The number of the adoption, while the program waits for its result; else 0.
    pub seq: u64,
    pub fd: Arc<OwnedFd>,
    pub tuple: Tuple,
    pub state: State,
    pub plan: Option<Plan>,
    /// The index of its engine slot.
    pub slot: usize,
    /// When the engine began to hold its frames, while the connection is still in the kernel.
    pub held: Option<Instant>,
    /// What was captured, until the ledger or the kernel has the connection.
    pub captured: Option<Captured>,
    /// The captured connection without the bytes of its queues.
    pub head: Option<Captured>,
    /// What the ledger says of it, while it is suspended.
    pub standing: Option<super::from_ledger::Found>,
    /// The region to which it was brought.
    pub region: u32,
    /// Its index in the engine's ledger.
    pub conn: Option<u32>,
    /// The state in which it waits for a message, and for how long it has.
    pub waiting: Option<Waiting>,
    /// The program has closed it.
    pub closed: bool,
    /// Where it is to go once it has arrived in the engine, and why.
    pub recall: Option<(Goal, Reason)>,
    /// If it is to return to the engine by itself, the condition for that.
    pub returns: Option<Return>,
    /// What the program was told when the connection last came home.
    pub home: Option<Home>,
    pub why: Reason,
    pub since: Instant,
    pub stood_still: Option<Instant>,
    pub pause_us: u64,
    pub moves: u64,
    bypassing: BypassingFrames,
    bytes: (u64, u64),
    rate: (u64, u64),
    sampled: Instant,
}

impl Connection {
    pub fn new(id: u64, client: u32, program: (u32, u32), seq: u64, fd: Arc<OwnedFd>, tuple: Tuple) -> Connection {
        let now = Instant::now();
        Connection {
            id,
            client,
            program,
            seq,
            fd,
            tuple,
            state: State::Kernel,
            plan: None,
            slot: 0,
            held: None,
            captured: None,
            head: None,
            standing: None,
            region: 0,
            conn: None,
            waiting: None,
            closed: false,
            recall: None,
            returns: None,
            home: None,
            why: Reason::HandedOver,
            since: now,
            stood_still: None,
            pause_us: 0,
            moves: 0,
            bypassing: BypassingFrames::default(),
            bytes: (0, 0),
            rate: (0, 0),
            sampled: now,
        }
    }

    /// Notes that the connection stands still from now on.
    pub fn stop(&mut self) {
        self.stood_still = Some(Instant::now());
    }

    /// Notes that the connection runs again, in `state`.
    pub fn arrive(&mut self, state: State, why: Reason) {
        let now = Instant::now();
        self.state = state;
        self.why = why;
        self.since = now;
        self.moves += 1;
        self.bypassing = BypassingFrames::default();
        if let Some(stopped) = self.stood_still.take() {
            self.pause_us = (now - stopped).as_micros() as u64;
        }
    }

    /// Returns true if its frames are steered.
    pub fn is_away(&self) -> bool {
        !matches!(self.state, State::Kernel | State::Preparing | State::Holding)
    }

    /// Drops the captured connection once the ledger has it, unless it has left the engine since.
    /// Returns true if it was dropped now.
    pub fn is_settled(&mut self, slots: &[EngineSlot]) -> bool {
        if matches!(self.state, State::Left { .. }) {
            return false;
        }
        let ledger = slots[self.slot].ledger.ledger();
        let has = self.captured.is_some() && self.conn.is_some_and(|conn| ledger.name(conn) == Some(self.tuple));
        if has {
            self.captured = None;
        }
        has
    }

    /// How the connection ended in its engine. `None` if it still runs there or never was there.
    /// While `captured` is set, the ledger does not have the connection yet, and its place there
    /// may still describe an earlier one.
    pub fn ending(&self, slots: &[EngineSlot]) -> Option<Ending> {
        let is_there = matches!(self.state, State::Engine | State::Leaving(_) | State::Standing | State::Closing);
        if !is_there {
            return None;
        }
        let end = self.conn.and_then(|conn| slots.get(self.slot)?.ledger.ledger().end(conn, &self.tuple));
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
        self.state == State::Engine && self.bypassing.look(&*self.fd, now).unwrap_or(false)
    }

    /// Measures the rates since the last call.
    pub fn sample(&mut self, slots: &[EngineSlot], now: Instant) {
        if self.state != State::Engine {
            self.rate = (0, 0);
            return;
        }
        let elapsed = now.saturating_duration_since(self.sampled);
        if elapsed < SAMPLE {
            return;
        }
        let Some((sent, received)) = self.carried(slots) else {
            self.rate = (0, 0);
            return;
        };
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / elapsed.as_secs_f64()) as u64;
        self.rate = (rate(sent, self.bytes.0), rate(received, self.bytes.1));
        self.sampled = now;
        self.bytes = (sent, received);
    }

    /// The bytes sent and received in the engine so far, including those of a closing connection.
    fn carried(&self, slots: &[EngineSlot]) -> Option<(u64, u64)> {
        let there = matches!(self.state, State::Engine | State::Leaving(_) | State::Standing | State::Closing);
        let ledger = slots.get(self.slot)?.ledger.ledger();
        ledger.positions(self.conn.filter(|_| there)?, &self.tuple)
    }

    /// The record of this connection for the guardian, at `phase`; `head` is what was captured
    /// last.
    pub fn record(&self, interface: &str, phase: Phase, head: Option<&Captured>) -> Record {
        let plan = self.plan.as_ref();
        Record::Connection {
            id: self.id,
            client: self.client,
            program: self.program,
            seq: self.seq,
            tuple: self.tuple,
            interface: interface.to_owned(),
            query: plan.map_or((0, 0), |plan| (plan.query.mark, plan.query.device)),
            way: plan.map_or((0, Addr(0)), |plan| (plan.way.interface, plan.way.via)),
            phase,
            closed: self.closed || self.state == State::Closing,
            moves: self.moves,
            head: head.map(Captured::head_to_bytes).unwrap_or_default(),
        }
    }

    /// How far the connection's move has come, between two steps.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Kernel | State::Preparing => self.home.map_or(Phase::Kernel, |home| Phase::Rebuilt(Some(home))),
            State::Holding => Phase::Kernel,
            State::Bringing => Phase::Captured,
            State::Starting => Phase::Brought,
            State::Left { told, unread } => Phase::Left(told.unwrap_or(Home::WHOLE), unread),
            State::Engine | State::Leaving(_) | State::Standing | State::Closing => {
                if self.captured.is_some() {
                    Phase::Brought
                } else {
                    Phase::Engine
                }
            }
        }
    }

    /// The connection as a list shows it.
    pub fn entry(&self, slots: &[EngineSlot]) -> Entry {
        let place = match self.state {
            State::Kernel | State::Preparing | State::Holding => "kernel",
            State::Engine => "engine",
            State::Bringing | State::Starting => "to-engine",
            State::Leaving(_) | State::Standing | State::Left { .. } => "to-kernel",
            State::Closing => "closing",
        };
        Entry {
            id: self.id,
            tuple: self.tuple,
            place: place.into(),
            why: self.why.to_string(),
            interface: slots.get(self.slot).map_or(String::new(), |slot| slot.interface.clone()),
            program: self.program,
            bytes: self.carried(slots).unwrap_or(self.bytes),
            rate: self.rate,
            since_ms: self.since.elapsed().as_millis() as u64,
            moves: self.moves,
        }
    }
}
