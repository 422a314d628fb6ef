//! An engine has died: what it had comes home, and another is started.

use super::Broker;
use super::lines::State;
use super::recover::recover;
use super::side::Memory;
use baton_ipc::message::Reply;
use baton_ipc::record;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use std::collections::BTreeMap;

impl Broker {
    pub(super) fn on_engine_dead(&mut self, at: usize, why: &'static str) {
        let Some(dead) = self.sides[at].bury() else { return };
        let now = Instant(baton_ipc::engine::monotonic().saturating_sub(self.base));
        let (number, in_program) = (self.sides[at].number(), self.sides[at].owner.is_some());
        if let Ok(steering) = self.kernel.steering(self.sides[at].index) {
            let closed = if in_program { steering.close_engine(number) } else { steering.set_engine(false) };
            self.log_failed("leading frames past an engine that has ended", closed);
        }
        for (client, Memory { region, .. }) in &dead.consumers {
            self.tell_client(*client, &Reply::Dead { region: *region }, Vec::new());
        }
        // By name: of some we have not heard where they are in the ledger.
        let ledger = self.sides[at].ledger.ledger();
        let records: BTreeMap<Tuple, u32> =
            (0..ledger.len()).filter_map(|index| Some((ledger.name(index)?, index))).collect();
        let here: Vec<u64> = self.lines.values().filter(|line| line.side == at).map(|line| line.id).collect();
        let away = here.iter().filter(|id| self.lines[id].is_away()).count();
        self.log_engine_ended(at, &dead, why, away);
        for id in here {
            let Some(line) = self.lines.get_mut(&id) else { continue };
            match line.state {
                State::Holding => self.stays(id, ("no-engine", "the engine died".into())),
                State::Starting | State::Engine | State::Leaving(_) | State::Closing => {
                    if line.stood_still.is_none() {
                        line.stop();
                    }
                    line.why = why;
                    let found =
                        records.get(&line.tuple).zip(dead.consumers.get(&line.client)).and_then(|(index, memory)| {
                            recover(&self.sides[at].ledger, *index, &line.tuple, now, &memory.memory)
                        });
                    let ended = |conn| self.sides[at].ledger.ledger().has_ended(conn, &line.tuple);
                    let captured = line.captured.take().filter(|_| !line.conn.is_some_and(ended));
                    match (found, captured) {
                        (Some(found), _) => self.come_home(id, found),
                        (None, Some(captured)) => self.come_home_as_captured(id, captured, why),
                        // It had ended, but for the peer's last answer.
                        (None, None) => self.lost(id, ""),
                    }
                }
                // In the kernel, or on its way there, or waiting for its program's word, after
                // which it is seen that there is no engine.
                State::Kernel | State::Preparing | State::Bringing | State::Standing | State::Left { .. } => {}
            }
        }
        for Memory { region, .. } in dead.consumers.values() {
            self.vault.forget(record::region(*region));
        }
        if in_program {
            self.vault.forget(self.sides[at].ledger_key());
        } else {
            self.vault.forget(record::engine(at));
        }
        self.revive();
    }
}
