//! Observers: programs that look where the time of messages goes, of connections in engines.
//!
//! ```text
//!   observer --Observe--> broker --Observe + memory, notes--> engine   stamps
//!            <--Observed--   |   --Watch + memory-----------> program  stamps its calls
//!   reads only               +-- one memory a program and engine, as long as somebody observes it
//!                            +-- steering programs note when frames of that engine arrive, as long
//! ```
//!
//! All observers of a program share the memory. An engine watches the connections that one of them selects;
//! each observer picks its own from the memory. A user's observers see that user's programs, as in a list.

use super::Broker;
use super::admin::Asker;
use super::clients::Client;
use super::engine_slot::{EngineSlot, Memory};
use super::log::name_of;
use super::observed::Observed;
use baton_consumer::memory::SharedWatch;
use baton_ipc::message::{ProgramId, Reply, Selector};
use baton_ipc::order::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The most observers of a user at a time. A message has room for the selectors of three users: root, the
/// service's and the program's.
const OBSERVERS: usize = 8;

/// The connections that a program observes.
struct Observer {
    which: Selector,
    pid: Option<u32>,
    /// The engine records one message in this many.
    every: u32,
}

/// The programs that observe, by their numbers.
#[derive(Default)]
pub(super) struct Observers(BTreeMap<u32, Observer>);

impl Broker {
    /// A program wants to know where the time of these connections' messages goes.
    pub(super) fn begin_observing(&mut self, asker: Asker, which: Selector, pid: Option<u32>, every: u32) {
        let Asker { client, ask } = asker;
        let uid = |client: &u32| self.clients.get(client).map(|program| program.uid);
        let text = if self.observers.0.contains_key(&client) {
            "this program observes connections already; connect once more for others".to_owned()
        } else if self.observers.0.keys().filter(|other| uid(other) == uid(&client)).count() >= OBSERVERS {
            format!("{OBSERVERS} programs of this user observe connections already; end one of them")
        } else {
            self.observers.0.insert(client, Observer { which, pid, every });
            self.follow_all_observers();
            let memories = self.slots.iter().flat_map(EngineSlot::memories);
            let seen = memories.filter_map(|(_, memory)| memory.observed.as_ref());
            let count = seen.filter(|seen| seen.readers.contains(&client)).count() as u64;
            return self.tell_client(client, &Reply::Done { ask, count, failed: 0, pause_us: 0 }, Vec::new());
        };
        self.tell_client(client, &Reply::Failed { ask, text }, Vec::new());
    }

    /// A program has gone. Connections that it alone observed are watched no more.
    pub(super) fn end_observing(&mut self, client: u32) {
        if self.observers.0.remove(&client).is_some() {
            self.follow_all_observers();
        }
    }

    fn follow_all_observers(&mut self) {
        let all = self.slots.iter().enumerate();
        let all = all.flat_map(|(at, slot)| slot.memories().map(move |(program, _)| (at, program)));
        let all: Vec<(usize, u32)> = all.collect();
        all.into_iter().for_each(|(at, program)| self.follow_observers(at, program));
    }

    /// Has an engine and a program stamp what observers want to see of the program's connections there.
    pub(super) fn follow_observers(&mut self, at: usize, program: u32) {
        if self.observers.0.is_empty() && !self.is_observed(at, program) {
            return;
        }
        let followed = self.try_to_follow(at, program);
        self.log_failed("having an engine stamp points of time", followed);
    }

    fn is_observed(&self, at: usize, program: u32) -> bool {
        self.slots[at].memory(program).is_some_and(|memory| memory.observed.is_some())
    }

    /// The observers of a program, with what they select, and of how many messages one is recorded.
    fn observers_of(&self, program: &Client) -> Vec<(u32, (Selector, u32))> {
        let sees = |client: u32, observer: &Observer| {
            let mine = self.clients.get(&client).is_some_and(|client| client.uid == program.uid);
            (mine || self.rules(client)) && observer.pid.is_none_or(|pid| pid == program.pid)
        };
        let seeing = self.observers.0.iter().filter(|(client, observer)| sees(**client, observer));
        seeing.map(|(client, observer)| (*client, (observer.which, observer.every))).collect()
    }

    fn try_to_follow(&mut self, at: usize, program: u32) -> io::Result<()> {
        let Some(its) = self.clients.get(&program) else { return Ok(()) };
        let (observers, calls) = (self.observers_of(its), its.stamps_calls());
        let who = ProgramId { pid: its.pid, uid: its.uid };
        let slot = &mut self.slots[at];
        let engine = slot.name.clone();
        let Some(Memory { region, observed, .. }) = slot.memory_mut(program) else { return Ok(()) };
        let region = *region;
        if observers.is_empty() {
            if observed.take().is_some() {
                slot.tell(&Order::Observe { key: region, which: Vec::new() }, Vec::new());
                if calls {
                    self.tell_client(program, &Reply::Watch { region }, Vec::new());
                }
                self.end_notes(at);
            }
            return Ok(());
        }
        // Steps that can fail come first, so that nothing is begun by halves.
        let made = if observed.is_none() { Some(SharedWatch::create()?) } else { None };
        let fresh = made.is_some();
        let has = |reader: &u32| observed.as_ref().is_some_and(|seen| seen.readers.contains(reader));
        let Some(memory) = made.as_ref().or(observed.as_ref().map(|seen| &seen.memory)) else { return Ok(()) };
        let copy = || io::Result::Ok(if fresh { vec![memory.as_fd().try_clone_to_owned()?] } else { Vec::new() });
        let (mut engines, programs): (Vec<OwnedFd>, Vec<OwnedFd>) = (copy()?, copy()?);
        let readers = observers.iter().map(|(client, _)| *client);
        let new = readers.clone().filter(|reader| !has(reader)).map(|reader| Ok((reader, memory.read_only()?)));
        let new = new.collect::<io::Result<Vec<_>>>()?;
        let seen = match made {
            Some(memory) => observed.insert(Observed { memory, readers: BTreeSet::new() }),
            None => observed.as_mut().expect("it was there, or would have been made"),
        };
        seen.readers = readers.collect();
        let mut which: Vec<(Selector, u32)> = Vec::new();
        for (_, wanted) in &observers {
            if !which.contains(wanted) {
                which.push(*wanted);
            }
        }
        if fresh {
            engines.extend(self.notes(at));
        }
        self.slots[at].tell(&Order::Observe { key: region, which }, engines);
        if calls && fresh {
            self.tell_client(program, &Reply::Watch { region }, programs);
        }
        for (reader, file) in new {
            let (name, engine) = (name_of(who.pid), engine.clone());
            self.tell_client(reader, &Reply::Observed { region, program: who, name, engine, calls, fresh }, vec![file]);
        }
        Ok(())
    }

    /// Has the steering programs note when frames of an engine arrive. Returns the notes for the engine. Without
    /// them it stamps all the same.
    fn notes(&mut self, at: usize) -> Option<OwnedFd> {
        let slot = &self.slots[at];
        let begun = self.kernel.steering(slot.index).ok()?.begin_notes(slot.number());
        begun.map_err(|error| self.log_failed::<()>("noting when frames arrive", Err(error))).ok()
    }

    /// Ends that, if nobody observes a program of the engine any more.
    pub(super) fn end_notes(&mut self, at: usize) {
        let slot = &self.slots[at];
        if slot.memories().any(|(_, memory)| memory.observed.is_some()) {
            return;
        }
        if let Ok(steering) = self.kernel.steering(slot.index) {
            let ended = steering.end_notes(slot.number());
            self.log_failed("noting no more when frames arrive", ended);
        }
    }

    /// The engine or the program of a memory has gone: its observers are told that nothing follows.
    pub(super) fn end_observed(&mut self, memory: &Memory) {
        let Some(seen) = &memory.observed else { return };
        for reader in &seen.readers {
            self.tell_client(*reader, &Reply::Dead { region: memory.region }, Vec::new());
        }
    }
}
