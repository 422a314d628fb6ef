//! A connection as the broker knows it.

use super::engine_slot::EngineSlot;
use super::rules::Return;
use super::timeouts::Waiting;
use crate::record::{Home, Phase, Record};
use baton_engine::ledger::End;
use baton_kernel::conntrack::Ending;
use baton_kernel::kernel_side::Plan;
use baton_kernel::{BypassingFrames, Captured};
use baton_socket::service::message::Entry;
use baton_wire::addr::{Addr, Tuple};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time in which a rate is taken, at least.
const SAMPLE: Duration = Duration::from_millis(500);

/// Where a connection is, and whose word it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In the kernel.
    Kernel,
    /// In the kernel; its program is asked not to use it.
    Preparing,
    /// In the kernel; the engine is asked to keep its frames.
    Holding,
    /// On neither side; its program is to take in what it brings along.
    Bringing,
    /// On neither side; the engine is asked to adopt it.
    Starting,
    /// In the engine.
    Engine,
    /// In the engine, which is asked to stop it.
    Leaving(Goal),
    /// It stands still in the engine; its program is asked what it holds.
    Standing,
    /// In the engine, which ends it: its program let go of it.
    Closing,
    /// On neither side: its engine is dead, or never had it, and the kernel has no route for it
    /// now. Its frames are dropped meanwhile.
    Left {
        /// What its program is told once the kernel has it; `None` if it never left the kernel, as
        /// far as its program knows.
        told: Option<Home>,
        /// Whether there are bytes that its program has not read.
        unread: bool,
    },
}

/// What becomes of a connection that leaves the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// The kernel has it, and its program goes on with what it holds.
    Home,
    /// The kernel has all of it.
    Whole,
    /// The kernel closes it: its program has gone.
    Close,
}

pub(super) struct Connection {
    pub id: u64,
    pub client: u32,
    pub program: (u32, u32),
    /// Of the adoption, while its program waits for it.
    pub seq: u64,
    pub fd: Arc<OwnedFd>,
    pub tuple: Tuple,
    pub state: State,
    pub plan: Option<Plan>,
    /// Which interface, by its place.
    pub slot: usize,
    /// Since when the engine keeps its frames, while it is still in the kernel.
    pub held: Option<Instant>,
    /// What was captured, until the ledger has it, or the kernel again.
    pub captured: Option<Captured>,
    /// The same without bytes.
    pub head: Option<Captured>,
    /// What it is while it stands still.
    pub standing: Option<super::from_ledger::Found>,
    /// The memory that it was brought to.
    pub region: u32,
    /// Its index in the ledger.
    pub conn: Option<u32>,
    /// What it waits for its program with, and since when.
    pub waiting: Option<Waiting>,
    /// Its program has let go of it.
    pub closed: bool,
    /// Where it is to go once it has arrived in the engine, and why.
    pub recall: Option<(Goal, &'static str)>,
    /// It goes back to the engine by itself, and when.
    pub returns: Option<Return>,
    /// What its program was told when it came home last.
    pub home: Option<Home>,
    pub why: &'static str,
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
            why: "handed-over",
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

    /// It stands still from now on.
    pub fn stop(&mut self) {
        self.stood_still = Some(Instant::now());
    }

    /// It goes on somewhere.
    pub fn arrive(&mut self, state: State, why: &'static str) {
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

    /// True if frames of it are steered.
    pub fn is_away(&self) -> bool {
        !matches!(self.state, State::Kernel | State::Preparing | State::Holding)
    }

    /// What was captured is not needed once the ledger has the connection, unless it left the
    /// engine since; whether that is so from now on.
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

    /// How it has ended in its engine; nothing if it goes on there, or never was there. Before
    /// the ledger has it (`captured`), its place there may say how another ended.
    pub fn ending(&self, slots: &[EngineSlot]) -> Option<Ending> {
        let is_there = matches!(self.state, State::Engine | State::Leaving(_) | State::Standing | State::Closing);
        if !is_there {
            return None;
        }
        let end = self.conn.and_then(|conn| slots.get(self.slot)?.ledger.ledger().end(conn, &self.tuple));
        match end {
            Some(End::Open) => None,
            Some(End::Reset) => Some(Ending::Reset),
            // Another has its place by now: most close in form.
            Some(End::Closed) | None => Some(Ending::Closed),
        }
    }

    /// True if its peer's segments go past its engine.
    pub fn is_bypassed(&mut self, now: Instant) -> bool {
        // Of a socket that cannot be asked nothing is known.
        self.state == State::Engine && self.bypassing.look(&*self.fd, now).unwrap_or(false)
    }

    /// Looks at what moved since the last time.
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

    /// Bytes sent and received in the engine, as of now; those of one that closes, too.
    fn carried(&self, slots: &[EngineSlot]) -> Option<(u64, u64)> {
        let there = matches!(self.state, State::Engine | State::Leaving(_) | State::Standing | State::Closing);
        let ledger = slots.get(self.slot)?.ledger.ledger();
        ledger.positions(self.conn.filter(|_| there)?, &self.tuple)
    }

    /// What the guardian keeps of it, being at `phase`; `head` is what was captured last.
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

    /// How far it has come, while no step is being made.
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

    /// As it is shown.
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
            why: self.why.into(),
            interface: slots.get(self.slot).map_or(String::new(), |slot| slot.interface.clone()),
            program: self.program,
            bytes: self.carried(slots).unwrap_or(self.bytes),
            rate: self.rate,
            since_ms: self.since.elapsed().as_millis() as u64,
            moves: self.moves,
        }
    }
}
