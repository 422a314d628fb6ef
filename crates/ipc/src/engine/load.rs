//! The load control of an engine's process (CH §3.2).
//!
//! Frames, adoptions and departures are the triggers, so the engine decides: it knows its queue
//! and its connections. It tells the broker the limit, and which connections are to go home.

use super::delay::Delay;
use super::{Connection, Runner};
use crate::load::EngineLoad;
use crate::order::Report;
use baton_policy::heavy::Heavy;
use baton_policy::load::{LoadControl, Observed, State, Watermarks};
use baton_policy::watermarks::{Meter, watermarks};
use baton_tcp::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// Counters of the sketch: an eighth of 2,048 connections, the part that goes home at once near the right limit.
const COUNTERS: usize = 256;

/// The longest time between two reports while frames arrive, in nanoseconds.
const SAY_NS: u64 = 1_000_000_000;

pub(super) struct Load {
    control: LoadControl,
    /// The watermarks follow the measured rate.
    finds: bool,
    meter: Meter,
    delay: Delay,
    heavy: Heavy,
    /// Frames taken since the device was last seen empty.
    in_a_row: u32,
    /// Time of the last turn.
    turned: Instant,
    /// The engine has slept since.
    slept: bool,
    /// Connections that the broker was asked to take home.
    asked: BTreeSet<u64>,
    queued: u32,
    idle_permille: u16,
    /// The state and limit that the broker was told last, and the time in nanoseconds.
    said: Option<(State, u32)>,
    said_at: u64,
}

impl Load {
    /// The control of an engine that has memory for `most` connections.
    pub fn new(now: Instant, most: u32, fixed: Option<Watermarks>) -> Load {
        let control = LoadControl::new(
            NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN),
            // Until the first window no queue is too long.
            fixed.unwrap_or(Watermarks::UNKNOWN),
        );
        Load {
            control,
            finds: fixed.is_none(),
            meter: Meter::new(now.0),
            delay: Delay::new(),
            heavy: Heavy::new(COUNTERS),
            in_a_row: 0,
            turned: now,
            slept: false,
            asked: BTreeSet::new(),
            queued: 0,
            idle_permille: 1000,
            said: None,
            said_at: now.0,
        }
    }

    /// Notes that the engine is about to sleep.
    pub fn sleeps(&mut self) {
        self.slept = true;
    }

    /// A connection is not on its way home any more.
    pub fn stays(&mut self, id: u64) {
        self.asked.remove(&id);
    }

    /// A connection has come.
    pub fn came(&mut self, connections: usize) {
        self.control.count(count(connections));
    }

    /// A connection has ended or gone home.
    pub fn left(&mut self, id: u64, connections: usize) {
        self.asked.remove(&id);
        self.heavy.forget(id);
        self.control.count(count(connections));
    }

    /// The connections to take home now, the heaviest first. If the sketch has too few, the oldest
    /// follow.
    fn surplus(&mut self, connections: &BTreeMap<u64, Connection>) -> Vec<u64> {
        let excess = self.control.excess(count(connections.len())) as usize;
        let more = excess.saturating_sub(self.asked.len());
        let mut named = Vec::new();
        for id in self.heavy.heaviest().into_iter().chain(connections.keys().copied()) {
            if named.len() == more {
                break;
            }
            let is_there = connections.get(&id).is_some_and(|it| it.conn.is_some() && it.drain.is_none());
            if is_there && self.asked.insert(id) {
                named.push(id);
            }
        }
        named
    }

    fn reading(&self, connections: usize) -> EngineLoad {
        let marks = self.control.watermarks();
        EngineLoad {
            state: self.control.state(),
            soft_limit: self.control.soft_limit(),
            connections: count(connections),
            queued: self.queued,
            watermarks: (marks.low(), marks.high()),
            idle_permille: self.idle_permille,
        }
    }
}

fn count(connections: usize) -> u32 {
    u32::try_from(connections).unwrap_or(u32::MAX)
}

impl Runner {
    /// Controls the load from now on.
    pub(super) fn control_load(&mut self, fixed: Option<(u32, u32)>) {
        let fixed = fixed.and_then(|(low, high)| Watermarks::new(low, high));
        self.load = Some(Load::new(self.now(), self.most, fixed));
    }

    /// A turn has taken `frames` frames.
    pub(super) fn weigh(&mut self, now: Instant, frames: usize) {
        let Runner { load: Some(load), port, engine, names, connections, .. } = self else { return };
        if std::mem::take(&mut load.slept) {
            load.meter.slept(now.since(load.turned).0);
        }
        load.turned = now;
        if frames > 0 {
            let (burst, ring) = (self.rx_budget as u32, port.ring());
            let queued = port.waiting().unwrap_or_else(|| {
                let is_full = frames >= self.rx_budget;
                load.in_a_row = if is_full { load.in_a_row.saturating_add(frames as u32).min(ring) } else { 0 };
                load.in_a_row
            });
            // One sample a burst, and none while nothing waits.
            if queued >= burst
                && let Some(id) = names.get(&engine.streamer().last_connection().0)
            {
                load.heavy.count(*id);
            }
            if load.meter.is_due(now.0) {
                // It counts as sleep, but the engine wanted to work.
                load.meter.was_delayed(load.delay.since_last_ns());
            }
            if let Some(window) = load.meter.on_burst(now.0, frames as u32, queued) {
                if load.finds {
                    load.control.set_watermarks(watermarks(window.frames, window.busy_ns, burst, ring));
                }
                load.queued = window.queued(load.control.watermarks());
                load.idle_permille = window.idle_permille();
                let (connected, roomy) = (count(connections.len()), window.is_roomy());
                let observed = Observed { queued: load.queued, connections: connected, roomy };
                if load.control.observe(observed) && load.control.state() == State::Decrease {
                    load.meter.clear();
                }
                let named = load.surplus(connections);
                load.heavy.age();
                named.into_iter().for_each(|id| self.say(Report::Overloaded { id }, Vec::new()));
            }
        }
        self.say_load(now, frames > 0);
    }

    /// Tells the broker a new limit or state at once, and measurements now and then.
    fn say_load(&mut self, now: Instant, measured: bool) {
        let connections = self.connections.len();
        let Some(load) = &mut self.load else { return };
        let decided = Some((load.control.state(), load.control.soft_limit()));
        if load.said != decided || measured && now.0.saturating_sub(load.said_at) >= SAY_NS {
            (load.said, load.said_at) = (decided, now.0);
            let load = load.reading(connections);
            self.say(Report::Load { load }, Vec::new());
        }
    }
}
