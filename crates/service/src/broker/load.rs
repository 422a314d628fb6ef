//! The load of the engines (CH §3.2): their limits, and the connections that went home for them.
//!
//! ```text
//!   engine --Overloaded--> evict (`load`) --> kernel, for a pause that doubles each time
//!   engine --Load--> limit, history
//!            INCREASE, the pause is over --> Prepare --> planned anew --> engine
//! ```
//!
//! A program that speaks version 3 gets the connection back whole, as an ordinary socket: one that its
//! library goes on carrying takes a fifth more of the program's CPU time. It asks for it again, and
//! `sent_home` knows its pause.
//!
//! An engine's process decides, because it knows its queue. An engine inside a program has no load
//! control: it runs in the calls of the program, so a long queue there means that the program is busy
//! with something else, and the connection would wait for the same program in the kernel.

use super::Broker;
use super::admin::Asker;
use super::clients::Client;
use super::connection::Connection;
use super::state::{Goal, State};
use super::stay_reason::StayReason;
use baton_ipc::load::{EngineLoad, Past};
use baton_ipc::message::Reply;
use baton_journal::{Kind, Level};
use baton_policy::Reason;
use baton_policy::load::{self, State as Control};
use baton_wire::addr::Tuple;
use std::time::{Duration, Instant};

impl Connection {
    /// Returns true if it takes or is about to take a place in its engine.
    pub fn takes_place(&self) -> bool {
        !matches!(self.state, State::Kernel(_))
    }

    /// Returns true if it went home for load and has stayed there long enough.
    fn returns_for_load(&self, now: Instant) -> bool {
        matches!(self.state, State::Kernel(_))
            && self.why == Reason::Load
            && now.saturating_duration_since(self.since) >= Duration::from_secs(load::pause_s(self.shed))
    }
}

impl Broker {
    /// The number of connections that take a place in an engine.
    pub(super) fn places(&self, slot: usize) -> u64 {
        self.connections.all().filter(|connection| connection.slot == slot && connection.takes_place()).count() as u64
    }

    /// An engine has measured its load.
    pub(super) fn on_load(&mut self, slot: usize, load: EngineLoad) {
        let before = self.slots[slot].load.last().map(|load| (load.state, load.soft_limit));
        self.slots[slot].load.push(Instant::now(), load);
        if before.is_some_and(|(_, limit)| limit != load.soft_limit) {
            let EngineLoad { state, soft_limit, connections, queued, watermarks: (low, high), .. } = load;
            self.log(Level::Debug, Kind::ENGINE, |event| {
                event.text(format!(
                    "{}: {}: at most {soft_limit} connections; there are {connections}, and {queued} frames wait \
                     (low {low}, high {high})",
                    self.slots[slot].name,
                    state.name()
                ))
            });
        }
        self.return_by_load(slot);
    }

    /// An engine has more to do than it can.
    pub(super) fn on_overloaded(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if matches!(connection.state, State::Engine(_)) {
            connection.shed = connection.shed.saturating_add(1);
        }
        let client = self.connections.known(id).and_then(|connection| self.clients.get(&connection.client));
        let goal = if client.is_some_and(Client::hears_why) { self.whole(id) } else { Goal::Home };
        self.evict(id, goal, Reason::Load);
    }

    /// Returns connections that went home for load, as many as there is room for, while an engine's
    /// load control increases its limit.
    pub(super) fn return_by_load(&mut self, slot: usize) {
        let load = &self.slots[slot].load;
        if self.stopping || !load.last().is_some_and(|load| load.state == Control::Increase) {
            return;
        }
        let at_most = load.limit().min(self.config.tuning.connections.into());
        let room = at_most.saturating_sub(self.places(slot)) as usize;
        let now = Instant::now();
        let waiting = self.connections.all().filter(|it| it.slot == slot && it.returns_for_load(now));
        let back = waiting.map(|connection| connection.id).take(room).collect();
        self.prepare_again(back);
    }

    /// Checks whether a connection that went home for load, and was given back, may return.
    pub(super) fn may_return(&self, slot: usize, tuple: &Tuple) -> Result<(), StayReason> {
        let Some((since, pause)) = self.sent_home.pause(tuple, Instant::now()) else { return Ok(()) };
        if !pause.is_zero() {
            let text = format!("it went home for load, and stays for {} s", pause.as_secs() + 1);
            return Err(StayReason::new(Reason::Load, text));
        }
        if !self.slots[slot].load.has_risen_since(since) {
            let text = "it went home for load, and the engine's limit has not risen since";
            return Err(StayReason::new(Reason::WaitsForLoad, text));
        }
        Ok(())
    }

    /// Answers with the load of each engine that controls it.
    pub(super) fn list_loads(&mut self, asker: Asker) {
        let (now, mut count) = (Instant::now(), 0);
        let mut replies = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.load.last().is_some()) {
            count += 1;
            replies.extend(slot.load.history().map(|(at, load)| Reply::Load {
                engine: slot.name.clone(),
                past: Past { ago_ms: now.saturating_duration_since(*at).as_millis() as u64, load: *load },
            }));
        }
        replies.into_iter().for_each(|reply| self.tell_client(asker.client, &reply, Vec::new()));
        let done = Reply::Done { ask: asker.ask, count, failed: 0, pause_us: 0 };
        self.tell_client(asker.client, &done, Vec::new());
    }
}
