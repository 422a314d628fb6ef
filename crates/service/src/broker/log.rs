//! The events that the broker tells its journal: where each connection is and why, what programs
//! and engines do, and what people ask for. `baton events` shows them.
//!
//! At `debug`, each move is an event. At `info`, an event every [`SUM_EVERY`] sums up the moves,
//! while there are any.

use super::Broker;
use super::admin::Asker;
use super::connection::Connection;
use super::departure::Departure;
use super::engine_slot::Process;

use baton_ipc::message::{Reply, Request};
use baton_journal::{Event, Kind, Level, is_on, tuple_of};
use baton_kernel::steer::Mode;
use baton_policy::{Reason, Refusal};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time between two sums.
const SUM_EVERY: Duration = Duration::from_secs(10);

/// Reasons to stay that are a fault of the host or of the service, which an administrator should
/// repair. The other reasons come from the connection or from the policy.
const FAULTS: [Reason; 6] = [
    Reason::Failed,
    Reason::NoMemory,
    Reason::NoEngine,
    Reason::Refused(Refusal::Permission),
    Reason::Refused(Refusal::Conntrack),
    Reason::EngineHung,
];

/// Moves since the last sum.
#[derive(Default)]
pub(super) struct Sum {
    /// The time of the first of them.
    since: Option<Instant>,
    moved: u64,
    home: u64,
    lost: u64,
    stays: BTreeMap<&'static str, u64>,
}

impl Sum {
    /// Returns the sum in words and begins a new one. `None` if nothing moved.
    fn take(&mut self) -> Option<String> {
        let Sum { since, moved, home, lost, stays } = std::mem::take(self);
        let seconds = since?.elapsed().as_secs().max(1);
        let all: u64 = stays.values().sum();
        let mut text = format!("in {seconds} s {moved} connections went to the engine, {home} came home, ");
        // Writing to a string does not fail.
        let _ = write!(text, "{lost} were lost, {all} stayed");
        let mut stays: Vec<_> = stays.into_iter().collect();
        stays.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (at, (code, count)) in stays.into_iter().enumerate() {
            let _ = write!(text, "{}{code} {count}", if at == 0 { ": " } else { ", " });
        }
        Some(text)
    }
}

fn level_of(code: Reason) -> Level {
    if FAULTS.contains(&code) { Level::Warn } else { Level::Debug }
}

/// A process's name (`proc(5)`), for people. Empty if the process has ended.
pub(super) fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

impl Broker {
    /// Tells the journal an event.
    pub(super) fn log(&self, level: Level, kind: Kind, describe: impl FnOnce(Event) -> Event) {
        self.journal.tell(level, kind, describe);
    }

    /// Tells an event about a connection.
    fn log_connection(&self, level: Level, kind: Kind, connection: &Connection, describe: impl FnOnce(Event) -> Event) {
        self.log(level, kind, |event| describe(event.tuple(connection.tuple()).program(connection.program)));
    }

    /// Tells an event about a program.
    pub(super) fn log_client(&self, level: Level, kind: Kind, client: u32, describe: impl FnOnce(Event) -> Event) {
        let program = self.clients.get(&client).map(|program| (program.pid, program.uid));
        self.log(level, kind, |event| describe(program.into_iter().fold(event, Event::program)));
    }

    /// Tells that a step failed, if it did. The failure has no other effect.
    pub(super) fn log_failed<T>(&self, during: &str, done: Result<T, impl Display>) {
        self.journal.tell_failed(during, done);
    }

    fn sum(&mut self) -> &mut Sum {
        self.sum.since.get_or_insert_with(Instant::now);
        &mut self.sum
    }

    /// The broker refuses a socket, of which it has only the descriptor.
    pub(super) fn log_refused(&mut self, client: u32, fd: impl AsFd, code: Reason, text: &str) {
        *self.sum().stays.entry(code.code()).or_default() += 1;
        let describe = |event: Event| event.tuple(tuple_of(fd)).reason(code).text(text);
        self.log_client(level_of(code), Kind::STAYS, client, describe);
    }

    /// A connection stays in the kernel, or returns there before its move was complete.
    pub(super) fn log_stays_in_kernel(&mut self, id: u64, code: Reason, text: &str) {
        *self.sum().stays.entry(code.code()).or_default() += 1;
        let Some(connection) = self.connections.known(id) else { return };
        self.log_connection(level_of(code), Kind::STAYS, connection, |event| event.reason(code).text(text));
    }

    /// A connection stays in the engine, although it was asked to leave.
    pub(super) fn log_stays_in_engine(&self, id: u64, code: Reason, text: &str) {
        let Some(connection) = self.connections.known(id) else { return };
        let level = if code == Reason::Closing { Level::Debug } else { Level::Warn };
        let text = format!("it continues in the engine: {text}");
        self.log_connection(level, Kind::STAYS, connection, |event| event.reason(code).text(text));
    }

    /// A connection is in the engine.
    pub(super) fn log_moved(&mut self, id: u64) {
        self.sum().moved += 1;
        let Some(connection) = self.connections.known(id) else { return };
        let interface = &self.slots[connection.slot].name;
        let describe = |event: Event| event.reason(connection.why).took_us(connection.pause_us);
        self.log_connection(Level::Debug, Kind::MOVED, connection, |event| {
            describe(event).text(format!("it is in the engine of {interface}"))
        });
    }

    /// A connection is in the kernel again.
    pub(super) fn log_home(&mut self, id: u64) {
        self.sum().home += 1;
        let Some(connection) = self.connections.known(id) else { return };
        let describe = |event: Event| event.reason(connection.why).took_us(connection.pause_us);
        self.log_connection(Level::Debug, Kind::HOME, connection, |event| {
            describe(event).text("it is in the kernel again")
        });
    }

    /// The kernel has no route for a connection.
    pub(super) fn log_stranded(&self, id: u64) {
        let Some(connection) = self.connections.known(id) else { return };
        self.log_connection(Level::Warn, Kind::LEFT, connection, |event| {
            event.reason(connection.why).text("the kernel has no route for it; it waits until there is one")
        });
    }

    /// A connection has left the service for good.
    pub(super) fn log_departure(&mut self, id: u64, departure: Departure<'_>) {
        if matches!(departure, Departure::Lost(_)) {
            self.sum().lost += 1;
        }
        let Some(connection) = self.connections.known(id) else { return };
        match departure {
            Departure::Ended => {
                let describe = |event: Event| event.text("it has ended in the engine");
                self.log_connection(Level::Debug, Kind::ENDED, connection, describe);
            }
            Departure::Lost(text) => {
                let describe = |event: Event| event.reason(Reason::Lost).text(text);
                self.log_connection(Level::Error, Kind::LOST, connection, describe);
            }
        }
    }

    /// The engine does not take a connection.
    pub(super) fn log_engine_refused(&self, id: u64, text: &str) {
        let Some(connection) = self.connections.known(id) else { return };
        self.log_connection(Level::Warn, Kind::FAILED, connection, |event| {
            event.reason(Reason::EngineRefused).text(format!("the engine does not take it: {text}"))
        });
    }

    /// A program begins to use the service. Programs that only ask for lists are not events,
    /// because `baton ps` would fill the ring.
    fn log_connected(&mut self, client: u32, request: &Request) {
        let uses = matches!(
            request,
            Request::Adopt { .. }
                | Request::Offer { .. }
                | Request::Raw { .. }
                | Request::Direct {}
                | Request::Join { .. }
        );
        let Some(program) = self.clients.get_mut(&client).filter(|program| uses && !program.told) else { return };
        program.told = true;
        let pid = program.pid;
        self.log_client(Level::Info, Kind::PROGRAM, client, |event| event.text(format!("{} connected", name_of(pid))));
    }

    /// A program has disconnected.
    pub(super) fn log_disconnected(&self, client: u32) {
        if self.clients.get(&client).is_some_and(|program| program.told) {
            let here = self.connections.of_client(client).count();
            self.log_client(Level::Info, Kind::PROGRAM, client, |event| match here {
                0 => event.text("disconnected"),
                _ => event.text(format!("disconnected; {here} connections are closed as the kernel would close them")),
            });
        }
    }

    /// A process is not allowed to connect.
    pub(super) fn log_denied(&self, pid: u32, uid: u32, text: &str) {
        let describe = |event: Event| event.program((pid, uid)).reason("denied");
        self.log(Level::Warn, Kind::DENIED, |event| describe(event).text(format!("{}: {text}", name_of(pid))));
    }

    /// A person, a signal or a change of the host asks for something.
    pub(super) fn log_asked(&self, asker: Option<Asker>, what: &str) {
        match asker {
            Some(Asker { client, .. }) => self.log_client(Level::Info, Kind::ASKED, client, |event| event.text(what)),
            None => self.log(Level::Info, Kind::SERVICE, |event| event.text(what)),
        }
    }

    /// A message from a program.
    pub(super) fn log_heard(&mut self, client: u32, request: &Request) {
        self.log_connected(client, request);
        if is_on(Level::Trace) {
            let text = format!("hears {request:?}");
            self.log_client(Level::Trace, Kind::MESSAGE, client, |event| event.text(text));
        }
    }

    /// A message to a program.
    pub(super) fn log_said(&self, client: u32, reply: &Reply) {
        // Logging a reply that carries an event would make another event, without end.
        if is_on(Level::Trace) && !matches!(reply, Reply::Event { .. }) {
            let text = format!("says {reply:?}");
            self.log_client(Level::Trace, Kind::MESSAGE, client, |event| event.text(text));
        }
    }

    /// An engine has ended with this number of connections in it.
    pub(super) fn log_engine_ended(&self, at: usize, ended: &Process, why: Reason, connections: usize) {
        let level = match why {
            Reason::EngineDied | Reason::EngineHung => Level::Error,
            _ => Level::Info,
        };
        let how = ended.status.filter(|_| why == Reason::EngineDied).map(|status| format!(" ({status})"));
        let (how, pid) = (how.unwrap_or_default(), ended.pid().map(|pid| format!(", process {pid},")));
        let (name, pid) = (&self.slots[at].name, pid.unwrap_or_default());
        let text = format!("the engine of {name}{pid} has ended{how}; {connections} connections come home");
        self.log(level, Kind::ENGINE, |event| event.reason(why).text(text));
    }

    /// An engine runs.
    pub(super) fn log_engine_started(&self, at: usize) {
        let slot = &self.slots[at];
        let pid = slot.engine.as_ref().and_then(Process::pid);
        let whose = pid.map_or("inside a program".to_owned(), |pid| format!("process {pid}"));
        self.log(Level::Info, Kind::ENGINE, |event| event.text(format!("the engine of {} runs: {whose}", slot.name)));
    }

    /// The broker serves. Tells the configuration, and how each interface is steered.
    pub(super) fn log_serving(&mut self) {
        let Broker { config, kernel, slots, journal, .. } = self;
        for slot in slots.iter().filter(|slot| slot.owner.is_none()) {
            let how = match kernel.mode(slot.index) {
                Some(Mode::Xdp { driver: true }) => "xdp, in the driver",
                Some(Mode::Xdp { driver: false }) => "xdp, in the generic hook",
                Some(Mode::Tc) | None => "tc",
            };
            journal.tell(Level::Info, Kind::STEERING, |event| event.text(format!("{} is steered by {how}", slot.name)));
        }
        let text = format!(
            "rule {}, {} rules for ports; firewall rules: {}; {} connections an engine, {} programs; a move waits {} ms \
             for what is in flight; an engine is silent for {} ms at most",
            config.policy.otherwise,
            config.policy.entries.len(),
            config.rules.word(),
            config.tuning.connections,
            config.programs,
            config.drain.as_millis(),
            config.patience.as_millis()
        );
        journal.tell(Level::Info, Kind::CONFIG, |event| event.text(text));
        let names: Vec<&str> = config.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let text = format!("serves {} at {}", names.join(", "), config.socket.display());
        journal.tell(Level::Info, Kind::SERVICE, |event| event.text(text));
    }

    /// The service ends as it was asked to.
    pub(super) fn log_end(&mut self) {
        self.log_sum(true);
        for slot in self.slots.iter().filter(|slot| slot.owner.is_none()) {
            self.log(Level::Info, Kind::STEERING, |event| event.text(format!("{} is steered no more", slot.name)));
        }
        self.log(Level::Info, Kind::SERVICE, |event| event.text("ends; every connection is in the kernel again"));
    }

    /// Tells what is due: the sum of moves (always, with `at_once`), and the numbers of events that
    /// were suppressed.
    pub(super) fn log_sum(&mut self, at_once: bool) {
        let is_due = |since: Instant| at_once || since.elapsed() >= SUM_EVERY;
        if self.sum.since.is_some_and(is_due)
            && let Some(text) = self.sum.take()
        {
            self.log(Level::Info, Kind::MOVES, |event| event.text(text));
        }
        self.journal.look();
    }

    /// Sends events to a program. Root and the service's user get all events. Other users get those
    /// about their own programs and those about no program.
    pub(super) fn show_events(&mut self, Asker { client, ask }: Asker, after: u64, most: u16) {
        let uid = self.clients.get(&client).map_or(u32::MAX, |program| program.uid);
        let all = self.rules(client);
        let may_see = |event: &Event| all || event.program.is_none_or(|program| program.1 == uid);
        let (events, last) = self.journal.since(after, most.into(), may_see);
        for event in events {
            self.tell_client(client, &Reply::Event { event }, Vec::new());
        }
        self.tell_client(client, &Reply::Done { ask, count: last, failed: 0, pause_us: 0 }, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_the_most_frequent_reason_first() {
        let mut sum = Sum { since: Some(Instant::now()), moved: 3, home: 1, ..Sum::default() };
        sum.stays = BTreeMap::from([("loopback", 2), ("not-tcp", 7)]);
        let text = "in 1 s 3 connections went to the engine, 1 came home, 0 were lost, 9 stayed: not-tcp 7, loopback 2";
        assert_eq!(sum.take().as_deref(), Some(text));
        assert_eq!(sum.take(), None);
    }
}
