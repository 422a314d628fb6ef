//! What the broker tells its journal: where each connection is and why, its programs, its engines,
//! and what it is asked for. `baton events` shows it.
//!
//! Every move is an event of its own at `debug`. At `info` there is a sum of them instead, every
//! [`SUM_EVERY`] while something moves.

use super::Broker;
use super::lines::Line;
use super::side::Process;
use super::take::Why;
use baton_ipc::message::{Reply, Request};
use baton_journal::{Event, Kind, Level, is_on, tuple_of};
use baton_kernel::steer::Mode;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time between two sums.
const SUM_EVERY: Duration = Duration::from_secs(10);

/// Reasons to stay that are a fault of the host or of the service, which somebody should mend. The
/// others are the connection's own or the policy's.
const FAULTS: [&str; 6] = ["failed", "no-memory", "no-engine", "permission", "conntrack", "engine-hung"];

/// Moves since the last sum.
#[derive(Default)]
pub(super) struct Sum {
    /// When the first of them was.
    since: Option<Instant>,
    moved: u64,
    home: u64,
    lost: u64,
    stays: BTreeMap<&'static str, u64>,
}

impl Sum {
    /// The sum in words, and nothing from now on. `None` if nothing moved.
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

fn level_of(code: &str) -> Level {
    if FAULTS.contains(&code) { Level::Warn } else { Level::Debug }
}

/// What a process is called (`proc(5)`), for people; empty if it has gone.
fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

impl Broker {
    /// Tells something.
    pub(super) fn log(&self, level: Level, kind: Kind, describe: impl FnOnce(Event) -> Event) {
        self.journal.tell(level, kind, describe);
    }

    /// Tells something about a connection.
    fn log_line(&self, level: Level, kind: Kind, line: &Line, describe: impl FnOnce(Event) -> Event) {
        self.log(level, kind, |event| describe(event.tuple(line.tuple).program(line.program)));
    }

    /// Tells something about a program.
    pub(super) fn log_client(&self, level: Level, kind: Kind, client: u32, describe: impl FnOnce(Event) -> Event) {
        let program = self.clients.get(&client).map(|program| (program.pid, program.uid));
        self.log(level, kind, |event| describe(program.into_iter().fold(event, Event::program)));
    }

    /// Tells of a step whose failure changes nothing else.
    pub(super) fn log_failed<T>(&self, during: &str, done: Result<T, impl Display>) {
        self.journal.tell_failed(during, done);
    }

    fn sum(&mut self) -> &mut Sum {
        self.sum.since.get_or_insert_with(Instant::now);
        &mut self.sum
    }

    /// A socket that is not taken: the broker knows nothing of it but its descriptor.
    pub(super) fn log_refused(&mut self, client: u32, fd: impl AsFd, (code, text): &Why) {
        *self.sum().stays.entry(code).or_default() += 1;
        let describe = |event: Event| event.tuple(tuple_of(fd)).reason(*code).text(text);
        self.log_client(level_of(code), Kind::STAYS, client, describe);
    }

    /// A connection stays in the kernel, or goes back there before its program lost sight of it.
    pub(super) fn log_stays(&mut self, id: u64, (code, text): &Why) {
        *self.sum().stays.entry(code).or_default() += 1;
        let Some(line) = self.lines.get(&id) else { return };
        self.log_line(level_of(code), Kind::STAYS, line, |event| event.reason(*code).text(text));
    }

    /// A connection stays in the engine, though it was to leave.
    pub(super) fn log_goes_on(&self, id: u64, code: &'static str, text: &str) {
        let Some(line) = self.lines.get(&id) else { return };
        let level = if code == "closing" { Level::Debug } else { Level::Warn };
        let text = format!("it goes on in the engine: {text}");
        self.log_line(level, Kind::STAYS, line, |event| event.reason(code).text(text));
    }

    /// A connection is in the engine.
    pub(super) fn log_moved(&mut self, id: u64) {
        self.sum().moved += 1;
        let Some(line) = self.lines.get(&id) else { return };
        let interface = &self.sides[line.side].name;
        let describe = |event: Event| event.reason(line.why).took_us(line.pause_us);
        self.log_line(Level::Debug, Kind::MOVED, line, |event| {
            describe(event).text(format!("it is in the engine of {interface}"))
        });
    }

    /// A connection is in the kernel again.
    pub(super) fn log_home(&mut self, id: u64) {
        self.sum().home += 1;
        let Some(line) = self.lines.get(&id) else { return };
        let describe = |event: Event| event.reason(line.why).took_us(line.pause_us);
        self.log_line(Level::Debug, Kind::HOME, line, |event| describe(event).text("it is in the kernel again"));
    }

    /// The kernel has no route for a connection.
    pub(super) fn log_left(&self, id: u64) {
        let Some(line) = self.lines.get(&id) else { return };
        self.log_line(Level::Warn, Kind::LEFT, line, |event| {
            event.reason(line.why).text("the kernel has no route for it; it stands still until there is one")
        });
    }

    /// A connection has ended, or was lost if there is a text.
    pub(super) fn log_over(&mut self, id: u64, text: &str) {
        if !text.is_empty() {
            self.sum().lost += 1;
        }
        let Some(line) = self.lines.get(&id) else { return };
        if text.is_empty() {
            self.log_line(Level::Debug, Kind::ENDED, line, |event| event.text("it has ended in the engine"));
        } else {
            self.log_line(Level::Error, Kind::LOST, line, |event| event.reason("lost").text(text));
        }
    }

    /// The engine does not take a connection.
    pub(super) fn log_engine_refused(&self, id: u64, text: &str) {
        let Some(line) = self.lines.get(&id) else { return };
        self.log_line(Level::Warn, Kind::FAILED, line, |event| {
            event.reason("engine-refused").text(format!("the engine does not take it: {text}"))
        });
    }

    /// A program uses the service, once it does. Who connects only to ask is not told of: the ring
    /// would be full of `baton ps`.
    fn log_connected(&mut self, client: u32, request: &Request) {
        let uses =
            matches!(request, Request::Adopt { .. } | Request::Raw { .. } | Request::Direct {} | Request::Join { .. });
        let Some(program) = self.clients.get_mut(&client).filter(|program| uses && !program.told) else { return };
        program.told = true;
        let pid = program.pid;
        self.log_client(Level::Info, Kind::PROGRAM, client, |event| event.text(format!("{} connected", name_of(pid))));
    }

    /// A program has gone.
    pub(super) fn log_disconnected(&self, client: u32) {
        if self.clients.get(&client).is_some_and(|program| program.told) {
            let here = self.lines.values().filter(|line| line.client == client).count();
            self.log_client(Level::Info, Kind::PROGRAM, client, |event| match here {
                0 => event.text("disconnected"),
                _ => event.text(format!("disconnected; {here} connections are closed as the kernel would close them")),
            });
        }
    }

    /// Somebody may not connect.
    pub(super) fn log_denied(&self, pid: u32, uid: u32, text: &str) {
        let describe = |event: Event| event.program((pid, uid)).reason("denied");
        self.log(Level::Warn, Kind::DENIED, |event| describe(event).text(format!("{}: {text}", name_of(pid))));
    }

    /// A person asks for something, or a signal does, or a change of the host.
    pub(super) fn log_asked(&self, asker: Option<(u32, u64)>, what: &str) {
        match asker {
            Some((client, _)) => self.log_client(Level::Info, Kind::ASKED, client, |event| event.text(what)),
            None => self.log(Level::Info, Kind::SERVICE, |event| event.text(what)),
        }
    }

    /// A message that a program sends.
    pub(super) fn log_heard(&mut self, client: u32, request: &Request) {
        self.log_connected(client, request);
        if is_on(Level::Trace) {
            let text = format!("hears {request:?}");
            self.log_client(Level::Trace, Kind::MESSAGE, client, |event| event.text(text));
        }
    }

    /// A message to a program.
    pub(super) fn log_said(&self, client: u32, reply: &Reply) {
        // An event that tells of telling events would have no end.
        if is_on(Level::Trace) && !matches!(reply, Reply::Event { .. }) {
            let text = format!("says {reply:?}");
            self.log_client(Level::Trace, Kind::MESSAGE, client, |event| event.text(text));
        }
    }

    /// An engine has ended, and these connections were in it.
    pub(super) fn log_engine_ended(&self, at: usize, ended: &Process, why: &'static str, connections: usize) {
        let level = match why {
            "engine-died" | "engine-hung" => Level::Error,
            _ => Level::Info,
        };
        let how = ended.status.filter(|_| why == "engine-died").map(|status| format!(" ({status})"));
        let (how, pid) = (how.unwrap_or_default(), ended.pid().map(|pid| format!(", process {pid},")));
        let (name, pid) = (&self.sides[at].name, pid.unwrap_or_default());
        let text = format!("the engine of {name}{pid} has ended{how}; {connections} connections come home");
        self.log(level, Kind::ENGINE, |event| event.reason(why).text(text));
    }

    /// An engine runs.
    pub(super) fn log_engine_started(&self, at: usize) {
        let side = &self.sides[at];
        let pid = side.engine.as_ref().and_then(Process::pid);
        let whose = pid.map_or("inside a program".to_owned(), |pid| format!("process {pid}"));
        self.log(Level::Info, Kind::ENGINE, |event| event.text(format!("the engine of {} runs: {whose}", side.name)));
    }

    /// The broker serves: how it was configured, and how each interface is steered.
    pub(super) fn log_serving(&mut self) {
        let Broker { config, kernel, sides, journal, .. } = self;
        for side in sides.iter().filter(|side| side.owner.is_none()) {
            let how = match kernel.mode(side.index) {
                Some(Mode::Xdp { driver: true }) => "xdp, in the driver",
                Some(Mode::Xdp { driver: false }) => "xdp, in the generic hook",
                Some(Mode::Tc) | None => "tc",
            };
            journal.tell(Level::Info, Kind::STEERING, |event| event.text(format!("{} is steered by {how}", side.name)));
        }
        let text = format!(
            "rule {}, {} rules for ports; firewall rules: {}; {} connections an engine, {} programs; a move waits {} ms \
             for what is in flight; an engine is silent for {} ms at most",
            config.policy.otherwise,
            config.policy.ports.len(),
            config.rules.word(),
            config.connections,
            config.programs,
            config.drain.as_millis(),
            config.patience.as_millis()
        );
        journal.tell(Level::Info, Kind::CONFIG, |event| event.text(text));
        let names: Vec<&str> = config.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let text = format!("serves {} at {}", names.join(", "), config.socket.display());
        journal.tell(Level::Info, Kind::SERVICE, |event| event.text(text));
    }

    /// The service has ended in form.
    pub(super) fn log_end(&mut self) {
        self.log_sum(true);
        for side in self.sides.iter().filter(|side| side.owner.is_none()) {
            self.log(Level::Info, Kind::STEERING, |event| event.text(format!("{} is steered no more", side.name)));
        }
        self.log(Level::Info, Kind::SERVICE, |event| event.text("ends; every connection is in the kernel again"));
    }

    /// What is due: the sum of moves, counts of what was suppressed.
    pub(super) fn log_sum(&mut self, at_once: bool) {
        let is_due = |since: Instant| at_once || since.elapsed() >= SUM_EVERY;
        if self.sum.since.is_some_and(is_due)
            && let Some(text) = self.sum.take()
        {
            self.log(Level::Info, Kind::MOVES, |event| event.text(text));
        }
        self.journal.look();
    }

    /// Shows events to a program: all to root and the service's user, else those about its user's
    /// programs and about no program.
    pub(super) fn show_events(&mut self, (client, ask): (u32, u64), after: u64, most: u16) {
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
