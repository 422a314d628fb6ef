//! The service's policy: what it is asked with, and a new one.

use super::Broker;
use super::admin::Asker;
use super::connection::Connection;
use super::state::State;
use baton_ipc::message::{Reply, Told};
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, Record};
use baton_journal::{Kind, Level};
use baton_policy::conditions::{Direction, Facts, cgroup_of};
use baton_policy::rules::{Policy, Rule, Ruling};
use baton_policy::survival::{Class, Expected};
use std::fs::read_to_string;
use std::sync::Arc;

impl Broker {
    /// Adds what the kernel does not say of a socket: its interface, its program, and what the program
    /// told. Files are read only if a condition asks for what they say.
    pub(super) fn complete(&self, facts: Facts, client: u32, slot: usize, told: Told) -> Facts {
        let program = self.clients.get(&client);
        let asks = |key: &str| self.config.policy.asks_for(key);
        let of_program = |key: &str, file: &str| {
            let pid = program.filter(|_| asks(key))?.pid;
            read_to_string(format!("/proc/{pid}/{file}")).ok()
        };
        let direction = |accepted| if accepted { Direction::Accepted } else { Direction::Connected };
        Facts {
            interface: self.slots.get(slot).map(|slot| slot.interface.clone()),
            direction: told.accepted.map(direction),
            user: program.map(|program| program.uid),
            program: of_program("program", "comm").map(|name| name.trim_end().to_owned()),
            cgroup: of_program("cgroup", "cgroup").and_then(|lines| cgroup_of(&lines)),
            sends: told.sends.or(facts.sends),
            age_us: told.age_us,
            ..facts
        }
    }

    /// A new policy, as text. Without text, the service's own source is read again.
    pub(super) fn on_reload(&mut self, asker: Asker, text: &[u8]) {
        let read = match (text.is_empty(), &self.config.source) {
            (true, Some(source)) => (source.0)(),
            (true, None) => Err("the service has no configuration file; name the file to load".to_owned()),
            (false, _) => std::str::from_utf8(text).map_err(|error| error.to_string()).and_then(|text| {
                text.parse()
                    .map_err(|error| format!("the policy cannot be read: {error}; install one version of Baton"))
            }),
        };
        let Asker { client, ask } = asker;
        let policy: Policy = match read {
            Ok(policy) => policy,
            Err(text) => {
                self.log(Level::Error, Kind::CONFIG, |event| event.text(format!("the policy stays as it is: {text}")));
                return self.tell_client(client, &Reply::Failed { ask, text }, Vec::new());
            }
        };
        let unwelcome = self.unwelcome(&policy);
        let (entries, home) = (policy.entries.len(), unwelcome.len());
        self.log(Level::Info, Kind::CONFIG, |event| {
            event
                .text(format!("a new policy of {entries} rules and {}; {home} connections come home", policy.otherwise))
        });
        self.config.policy = policy;
        self.keep_policy();
        self.predict_by_policy();
        self.begin_policy(asker, unwelcome);
    }

    /// Records the policy for a successor.
    fn keep_policy(&mut self) {
        let text = self.config.policy.to_string();
        let kept = write_queues(text.as_bytes(), &[]).map(|file| file.map(Arc::new));
        if let Ok(Some(file)) = kept {
            self.checkpoints.keep(record::POLICY, &Record::Policy { len: text.len() as u32 }, &[&file]);
        }
    }

    pub(super) fn show_policy(&mut self, client: u32, ask: u64) {
        let text = self.config.policy.to_string();
        if let Ok(file) = write_queues(text.as_bytes(), &[]) {
            self.tell_client(client, &Reply::Policy { len: text.len() as u32 }, file.into_iter().collect());
        }
        self.tell_client(client, &Reply::Done { ask, count: 0, failed: 0, pause_us: 0 }, Vec::new());
    }

    /// Answers how many packets a connection is expected to send yet.
    pub(super) fn show_expected(&mut self, Asker { client, ask }: Asker, class: Class, packets: u64) {
        if let Some(Expected { packets, ended }) = self.expected_of(class, packets) {
            self.tell_client(client, &Reply::Expected { packets, ended }, Vec::new());
        }
        self.tell_client(client, &Reply::Done { ask, count: 0, failed: 0, pause_us: 0 }, Vec::new());
    }

    /// The rule by which a connection moves, if that may bring it home again.
    pub(super) fn rule_to_tell(&self, connection: &Connection) -> Option<Rule> {
        match self.config.policy.ruling(&connection.facts) {
            Ruling::By { rule, .. } if !rule.keeps(u64::MAX) => Some(rule),
            Ruling::By { .. } | Ruling::Unknown(_) => None,
        }
    }

    /// The connections that are in an engine, or on their way there, and may not be by this policy.
    fn unwelcome(&self, policy: &Policy) -> Vec<u64> {
        self.connections.ids(|connection| {
            let is_there = !matches!(connection.state, State::Kernel(_) | State::Preparing(_) | State::Stranded(_));
            let Ruling::By { rule, later: None, .. } = policy.ruling(&connection.facts) else { return false };
            let may_stay = match rule {
                Rule::Never => false,
                Rule::Pairs => connection.plan.between.is_some(),
                _ => true,
            };
            is_there && !may_stay
        })
    }
}
