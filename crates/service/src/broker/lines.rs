//! A connection as the broker knows it.

use super::side::Side;
use baton_host::Captured;
use baton_host::kernel_side::Plan;
use baton_socket::service::message::Entry;
use baton_wire::addr::Tuple;
use std::os::fd::OwnedFd;
use std::time::Instant;

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

pub(super) struct Line {
    pub id: u64,
    pub client: u32,
    pub program: (u32, u32),
    /// Of the adoption, while its program waits for it.
    pub seq: u64,
    pub fd: OwnedFd,
    pub tuple: Tuple,
    pub state: State,
    pub plan: Option<Plan>,
    /// Which interface, by its place.
    pub side: usize,
    /// What was captured, until the ledger has it.
    pub captured: Option<Captured>,
    /// The same without bytes.
    pub shell: Option<Captured>,
    /// What it is while it stands still.
    pub recovered: Option<super::recover::Found>,
    /// Its index in the ledger.
    pub conn: Option<u32>,
    /// Its program has let go of it.
    pub closed: bool,
    pub why: &'static str,
    pub since: Instant,
    pub stood_still: Option<Instant>,
    pub pause_us: u64,
    pub moves: u64,
    bytes: (u64, u64),
    rate: (u64, u64),
    sampled: Instant,
}

impl Line {
    pub fn new(id: u64, client: u32, program: (u32, u32), seq: u64, fd: OwnedFd, tuple: Tuple) -> Line {
        let now = Instant::now();
        Line {
            id,
            client,
            program,
            seq,
            fd,
            tuple,
            state: State::Kernel,
            plan: None,
            side: 0,
            captured: None,
            shell: None,
            recovered: None,
            conn: None,
            closed: false,
            why: "handed-over",
            since: now,
            stood_still: None,
            pause_us: 0,
            moves: 0,
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
        if let Some(stopped) = self.stood_still.take() {
            self.pause_us = (now - stopped).as_micros() as u64;
        }
    }

    /// True if frames of it are steered.
    pub fn is_away(&self) -> bool {
        !matches!(self.state, State::Kernel | State::Preparing | State::Holding)
    }

    /// Looks at what moved since the last time; what was captured is not needed once the
    /// ledger has the connection.
    pub fn sample(&mut self, sides: &[Side]) {
        let positions = || sides.get(self.side)?.ledger.ledger().positions(self.conn?);
        let Some((sent, received)) = positions().filter(|_| self.state == State::Engine) else {
            self.rate = (0, 0);
            return;
        };
        if self.captured.is_some()
            && sides[self.side].ledger.ledger().name(self.conn.unwrap_or(u32::MAX)) == Some(self.tuple)
        {
            self.captured = None;
        }
        let elapsed = self.sampled.elapsed();
        if elapsed.as_millis() >= 500 {
            let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / elapsed.as_secs_f64()) as u64;
            self.rate = (rate(sent, self.bytes.0), rate(received, self.bytes.1));
            self.sampled = Instant::now();
            self.bytes = (sent, received);
        }
    }

    /// As it is shown.
    pub fn entry(&self, sides: &[Side]) -> Entry {
        let place = match self.state {
            State::Kernel | State::Preparing | State::Holding => "kernel",
            State::Engine => "engine",
            State::Bringing | State::Starting => "to-engine",
            State::Leaving(_) | State::Standing => "to-kernel",
            State::Closing => "closing",
        };
        Entry {
            id: self.id,
            tuple: self.tuple,
            place: place.into(),
            why: self.why.into(),
            interface: sides.get(self.side).map_or(String::new(), |side| side.name.clone()),
            program: self.program,
            bytes: self.bytes,
            rate: self.rate,
            since_ms: self.since.elapsed().as_millis() as u64,
            moves: self.moves,
        }
    }
}
