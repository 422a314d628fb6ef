//! The death of an engine: its connections come home, and another engine is started.

use super::Broker;
use super::engine_slot::Memory;
use super::from_ledger::{Found, read_from_ledger};
use super::state::State;
use super::stay_reason::StayReason;
use baton_ipc::message::Reply;
use baton_ipc::record;
use baton_policy::Reason;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use std::collections::BTreeMap;

impl Broker {
    pub(super) fn on_engine_dead(&mut self, at: usize, why: Reason) {
        let Some(dead) = self.slots[at].reap() else { return };
        let now = Instant(baton_ipc::engine::monotonic().saturating_sub(self.base));
        let (number, in_program) = (self.slots[at].number(), self.slots[at].owner.is_some());
        if let Ok(steering) = self.kernel.steering(self.slots[at].index) {
            let closed = if in_program { steering.close_engine(number) } else { steering.set_engine(false) };
            self.log_failed("leading frames past an engine that has ended", closed);
        }
        for (client, memory) in &dead.consumers {
            self.tell_client(*client, &Reply::Dead { region: memory.region }, Vec::new());
            self.end_observed(memory);
        }
        // By address and port, because the broker does not know every connection's index in the
        // ledger.
        let ledger = self.slots[at].ledger.ledger();
        let records: BTreeMap<Tuple, u32> =
            (0..ledger.len()).filter_map(|index| Some((ledger.name(index)?, index))).collect();
        let here = self.connections.ids(|connection| connection.slot == at);
        let is_away = |id: &&u64| self.connections.get(**id).is_some_and(|connection| connection.state.is_away());
        let away = here.iter().filter(is_away).count();
        self.log_engine_ended(at, &dead, why, away);
        for id in here {
            let Some(connection) = self.connections.known_mut(id) else { continue };
            match connection.state {
                State::Holding(_) => self.stays_in_kernel(id, StayReason::new(Reason::NoEngine, "the engine died")),
                State::Starting(_) | State::Engine(_) | State::Leaving(_) | State::Closing(_) => {
                    if connection.stood_still.is_none() {
                        connection.stop();
                    }
                    connection.why = why;
                    let (tuple, ledger) = (connection.tuple(), &self.slots[at].ledger);
                    let memory = dead.consumers.get(&connection.client);
                    let found = records
                        .get(&tuple)
                        .zip(memory)
                        .and_then(|(index, memory)| read_from_ledger(ledger, *index, &tuple, now, &memory.memory));
                    self.rebuild_survivor(id, found);
                }
                // These are in the kernel or on the way there, or wait for a message from the
                // program, after which the broker sees that there is no engine.
                State::Kernel(_)
                | State::Preparing(_)
                | State::Meeting(_)
                | State::Paired(_)
                | State::Bringing(_)
                | State::Standing(_)
                | State::Stranded(_)
                | State::Between => {}
            }
        }
        for Memory { region, .. } in dead.consumers.values() {
            self.checkpoints.forget(record::region(*region));
        }
        if in_program {
            self.checkpoints.forget(self.slots[at].ledger_key());
        } else {
            self.checkpoints.forget(record::engine(at));
        }
        self.revive();
    }

    /// Rebuilds a connection whose engine is dead.
    fn rebuild_survivor(&mut self, id: u64, found: Option<Found>) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        let (ledger, tuple) = (self.slots[connection.slot].ledger.ledger(), connection.tuple());
        let conn = connection.state.in_engine().and_then(|engine| engine.place.conn);
        let has_ended = conn.is_some_and(|conn| ledger.has_ended(conn, &tuple));
        if found.is_none() && (has_ended || !connection.state.has_queues()) {
            // The connection had ended, except for the peer's last answer.
            return self.ended(id);
        }
        let Some((_, engine)) = self.connections.take(id, State::survivor) else { return };
        self.rebuild_from(id, engine, found, false);
    }
}
