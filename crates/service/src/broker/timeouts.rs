//! Timeouts. If a program does not answer, the broker continues without it. If an engine runs but
//! settles none of its connections, it counts as dead, so that a stuck engine delays no other move
//! and no stop.

use super::Broker;
use super::state::{InPair, State};
use super::stay_reason::StayReason;
use super::watchdog::looks;
use baton_policy::Reason;
use std::time::Duration;

/// How long a connection waits for a message from its program.
const PATIENCE: Duration = Duration::from_secs(5);

impl Broker {
    /// Finds connections that have waited too long. Call it once per [`TICK`](super::TICK).
    pub(super) fn check_timeouts(&mut self) {
        self.slots.iter_mut().filter_map(|slot| slot.engine.as_mut()).for_each(|engine| engine.unanswering += 1);
        let mut over = Vec::new();
        for connection in self.connections.all_mut() {
            let patience = match connection.state {
                State::Preparing(_) | State::Meeting(_) | State::Bringing(_) | State::Standing(_) => PATIENCE,
                State::Paired(InPair { settled: false, .. }) => PATIENCE,
                State::Holding(_) | State::Starting(_) => self.config.patience,
                State::Leaving(_) => self.config.patience + self.config.drain,
                State::Kernel(_) | State::Engine(_) | State::Paired(_) | State::Closing(_) => continue,
                State::Stranded(_) | State::Between => continue,
            };
            let waited = connection.waited.map_or(0, |waited| waited + 1);
            connection.waited = Some(waited);
            if waited > looks(patience) {
                over.push((connection.id, looks(patience)));
            }
        }
        over.into_iter().for_each(|(id, patience)| self.go_on_without(id, patience));
    }

    fn go_on_without(&mut self, id: u64, patience: u32) {
        // Continuing without an engine may have ended this connection.
        let Some(connection) = self.connections.get(id) else { return };
        match connection.state {
            State::Preparing(_) => self.on_ready(id, false),
            State::Meeting(_) => self
                .does_not_meet(id, StayReason::new(Reason::ProgramSilent, "the other end's program does not answer")),
            State::Paired(_) => self.unpair_without_program(id, Reason::ProgramSilent),
            State::Bringing(_) => {
                self.undo_bringing(id, StayReason::new(Reason::ProgramSilent, "the program does not answer"))
            }
            State::Standing(_) => self.rebuild_without_program(id),
            State::Holding(_) | State::Starting(_) | State::Leaving(_) => {
                let slot = connection.slot;
                // An engine that still settles other connections gets more time.
                if self.slots[slot].engine.as_ref().is_some_and(|engine| engine.unanswering > patience) {
                    self.on_engine_dead(slot, Reason::EngineHung);
                }
            }
            State::Kernel(_) | State::Engine(_) | State::Closing(_) | State::Stranded(_) | State::Between => {}
        }
    }
}
