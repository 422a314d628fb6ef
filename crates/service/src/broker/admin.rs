//! Requests of people: lists, moves of many connections, a stop, new engines.

use super::Broker;
use super::connection::Connection;
use super::engine_slot::EngineSlot;
use super::state::{Goal, State};
use super::stay_reason::StayReason;
use baton_ipc::message::{Destination, Reply, Selector};
use baton_policy::Reason;
use rustix::process::geteuid;
use std::collections::BTreeSet;

/// The step that follows once all connections of a job have arrived.
enum Then {
    /// The answer is sent.
    Answer,
    /// The service ends.
    Stop,
    /// The engines are restarted; then the connections return to them.
    Restart,
    /// The engines are starting. These connections return to them afterwards.
    Return(Vec<u64>),
}

/// The program that asked, and its question.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    /// Number of the program that asked.
    pub client: u32,
    /// The number of its request.
    pub ask: u64,
}

/// A set of moves that somebody waits for.
pub(super) struct Job {
    asker: Option<Asker>,
    waiting: BTreeSet<u64>,
    moved: Vec<u64>,
    failed: u64,
    pause_us: u64,
    then: Then,
}

impl Broker {
    /// The matching connections of the program's user, or of all users for root and the service's
    /// user.
    fn visible(&self, client: u32, which: Selector) -> Vec<u64> {
        let Some(program) = self.clients.get(&client) else { return Vec::new() };
        let all = program.uid == 0 || program.uid == geteuid().as_raw();
        let mine = |uid: u32| all || uid == program.uid;
        self.connections.ids(|connection| mine(connection.program.1) && which.matches(&connection.tuple()))
    }

    pub(super) fn list(&mut self, client: u32, ask: u64) {
        let visible = self.visible(client, Selector::All);
        for id in &visible {
            let Some(connection) = self.connections.known(*id) else { continue };
            let entry = connection.entry(&self.slots, &self.links);
            self.tell_client(client, &Reply::Entry { entry }, Vec::new());
        }
        let done = Reply::Done { ask, count: visible.len() as u64, failed: 0, pause_us: 0 };
        self.tell_client(client, &done, Vec::new());
    }

    pub(super) fn begin_handoff(&mut self, asker: Asker, which: Selector, to: Option<Destination>) {
        let visible = self.visible(asker.client, which);
        let place = match to {
            None => "where they were",
            Some(Destination::Pair) => "into pairs",
            Some(_) => "to the engine",
        };
        self.log_asked(Some(asker), &format!("{} connections are to go {place}", visible.len()));
        self.prepare_all(Some(asker), (visible, to), 0, Then::Answer);
    }

    pub(super) fn begin_home(&mut self, asker: Asker, which: Selector) {
        let visible = self.visible(asker.client, which);
        self.log_asked(Some(asker), &format!("{} connections are to come home", visible.len()));
        for id in &visible {
            // Somebody wants it at home, so it must not return to the engine by itself.
            if let Some(connection) = self.connections.known_mut(*id) {
                connection.returns = None;
                if matches!(connection.why, Reason::Load | Reason::GaveWay) {
                    connection.why = Reason::AskedFor;
                }
            }
        }
        self.evict_all(Some(asker), visible, Then::Answer, Reason::AskedFor);
    }

    /// Returns connections that may not be in an engine by a new policy to the kernel.
    pub(super) fn begin_policy(&mut self, asker: Asker, unwelcome: Vec<u64>) {
        self.evict_all(Some(asker), unwelcome, Then::Answer, Reason::PolicyChanged);
    }

    /// Returns every connection to the kernel, then stops.
    pub(super) fn begin_stop(&mut self, asker: Option<Asker>) {
        self.log_asked(asker, "the service is to end");
        self.stopping = true;
        for id in self.connections.ids(|connection| matches!(connection.state, State::Preparing(_))) {
            self.stays_in_kernel(id, StayReason::new(Reason::Stopping, "the service is stopping"));
        }
        let all = self.connections.ids(|_| true);
        self.evict_all(asker, all, Then::Stop, Reason::Stop);
    }

    /// Returns every connection to the kernel, restarts the engines, and moves the connections to
    /// them.
    pub(super) fn replace_engines(&mut self, asker: Option<Asker>, why: Reason) {
        self.log_asked(asker, "new engines are to take over");
        let all = self.connections.ids(|_| true);
        self.evict_all(asker, all, Then::Restart, why);
    }

    fn evict_all(&mut self, asker: Option<Asker>, which: Vec<u64>, then: Then, why: Reason) {
        // In the kernel, or about to leave it.
        let here = |connection: &Connection| matches!(connection.state, State::Kernel(_) | State::Preparing(_));
        let there = |id: &u64| self.connections.get(*id).is_some_and(|connection| !here(connection));
        let waiting: BTreeSet<u64> = which.into_iter().filter(there).collect();
        self.jobs.push(Job { asker, waiting: waiting.clone(), moved: Vec::new(), failed: 0, pause_us: 0, then });
        waiting.into_iter().for_each(|id| self.evict(id, Goal::Home, why));
        self.finish_jobs();
    }

    /// Moves connections to the engine again, where their programs allow it.
    pub(super) fn prepare_again(&mut self, which: Vec<u64>) {
        if !which.is_empty() {
            self.prepare_all(None, (which, None), 0, Then::Answer);
        }
    }

    /// Moves connections out of the kernel: where they were before, or to a place that is named.
    fn prepare_all(
        &mut self,
        asker: Option<Asker>,
        (which, to): (Vec<u64>, Option<Destination>),
        pause_us: u64,
        then: Then,
    ) {
        let is_kernel = |connection: &Connection| matches!(connection.state, State::Kernel(_));
        let there = |id: &u64| self.connections.get(*id).is_some_and(is_kernel);
        let waiting: BTreeSet<u64> = which.into_iter().filter(there).collect();
        self.jobs.push(Job { asker, waiting: waiting.clone(), moved: Vec::new(), failed: 0, pause_us, then });
        for id in waiting {
            let Some((connection, kernel)) = self.connections.take(id, State::in_kernel) else { continue };
            connection.enter(State::Preparing(kernel));
            connection.goes_to = to;
            let client = connection.client;
            self.tell_client(client, &Reply::Prepare { id }, Vec::new());
        }
        self.finish_jobs();
    }

    /// Returns true once everything that a stop waits for is in the kernel. Other jobs do not delay
    /// it.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopping && !self.jobs.iter().any(|job| matches!(job.then, Then::Stop))
    }

    /// A connection has arrived: where it was to go (`moved`), or not.
    pub(super) fn settled(&mut self, id: u64, moved: bool) {
        if self.jobs.is_empty() {
            return;
        }
        let pause = self.connections.get(id).map_or(0, |connection| connection.pause_us);
        for job in &mut self.jobs {
            if job.waiting.remove(&id) {
                job.failed += u64::from(!moved);
                job.moved.push(id);
                job.pause_us = job.pause_us.max(pause);
            }
        }
        self.finish_jobs();
    }

    fn finish_jobs(&mut self) {
        while let Some(at) =
            self.jobs.iter().position(|job| job.waiting.is_empty() && !matches!(job.then, Then::Return(_)))
        {
            let job = self.jobs.swap_remove(at);
            match job.then {
                Then::Answer | Then::Stop => {
                    let Some(Asker { client, ask }) = job.asker else { continue };
                    let Job { ref moved, failed, pause_us, .. } = job;
                    let done = Reply::Done { ask, count: moved.len() as u64, failed, pause_us };
                    self.tell_client(client, &done, Vec::new());
                }
                Then::Restart => {
                    let moved = job.moved.clone();
                    self.jobs.push(Job { then: Then::Return(moved), ..job });
                    (0..self.slots.len()).for_each(|slot| self.on_engine_dead(slot, Reason::Upgrade));
                }
                Then::Return(_) => unreachable!("such a job waits for the engines"),
            }
        }
    }

    /// An engine runs. Once all do, the connections that waited for them return.
    pub(super) fn on_engine_started(&mut self) {
        let runs =
            |slot: &EngineSlot| slot.owner.is_some() || slot.engine.as_ref().is_some_and(|engine| engine.started);
        if !self.slots.iter().all(runs) {
            return;
        }
        let returning = |job: &Job| matches!(job.then, Then::Return(_));
        while let Some(at) = self.jobs.iter().position(returning) {
            let job = self.jobs.swap_remove(at);
            let Then::Return(back) = job.then else { unreachable!("the search matched this variant") };
            self.prepare_all(job.asker, (back, None), job.pause_us, Then::Answer);
        }
    }
}
