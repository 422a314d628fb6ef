//! The death of an engine: its connections come home, and another engine is started.

use super::Broker;
use super::connection::State;
use super::engine_slot::Memory;
use super::from_ledger::read_from_ledger;
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
        for (client, Memory { region, .. }) in &dead.consumers {
            self.tell_client(*client, &Reply::Dead { region: *region }, Vec::new());
        }
        // By address and port, because the broker does not know every connection's index in the
        // ledger.
        let ledger = self.slots[at].ledger.ledger();
        let records: BTreeMap<Tuple, u32> =
            (0..ledger.len()).filter_map(|index| Some((ledger.name(index)?, index))).collect();
        let here: Vec<u64> = self
            .connections
            .values()
            .filter(|connection| connection.slot == at)
            .map(|connection| connection.id)
            .collect();
        let away = here.iter().filter(|id| self.connections[id].is_away()).count();
        self.log_engine_ended(at, &dead, why, away);
        for id in here {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            match connection.state {
                State::Holding => self.stays(id, StayReason::new(Reason::NoEngine, "the engine died")),
                State::Starting | State::Engine | State::Leaving(_) | State::Closing => {
                    if connection.stood_still.is_none() {
                        connection.stop();
                    }
                    connection.why = why;
                    let found = records.get(&connection.tuple).zip(dead.consumers.get(&connection.client)).and_then(
                        |(index, memory)| {
                            read_from_ledger(&self.slots[at].ledger, *index, &connection.tuple, now, &memory.memory)
                        },
                    );
                    let ended = |conn| self.slots[at].ledger.ledger().has_ended(conn, &connection.tuple);
                    let captured = connection.captured.take().filter(|_| !connection.conn.is_some_and(ended));
                    match (found, captured) {
                        (Some(found), _) => self.come_home(id, found),
                        (None, Some(captured)) => self.come_home_as_captured(id, captured, why),
                        // The connection had ended, except for the peer's last answer.
                        (None, None) => self.ended(id),
                    }
                }
                // These are in the kernel or on the way there, or wait for a message from the
                // program, after which the broker sees that there is no engine.
                State::Kernel | State::Preparing | State::Bringing | State::Standing | State::Left { .. } => {}
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
}
