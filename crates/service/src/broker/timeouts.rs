//! Timeouts. If a program does not answer, the broker continues without it. If an engine runs but
//! settles none of its connections, it counts as dead, so that a stuck engine delays no other move
//! and no stop.

use super::Broker;
use super::connection::State;
use super::stay_reason::StayReason;
use super::watchdog::looks;
use baton_policy::Reason;
use std::time::Duration;

/// How long a connection waits for a message from its program.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state in which a connection waits, and the number of checks for which it has.
pub(super) type Waiting = (State, u32);

impl Broker {
    /// Finds connections that have waited too long. Call it once per [`TICK`](super::TICK).
    pub(super) fn check_timeouts(&mut self) {
        self.slots.iter_mut().filter_map(|slot| slot.engine.as_mut()).for_each(|engine| engine.unanswering += 1);
        let mut over = Vec::new();
        for connection in self.connections.values_mut() {
            let patience = match connection.state {
                State::Preparing | State::Bringing | State::Standing => PATIENCE,
                State::Holding | State::Starting => self.config.patience,
                State::Leaving(_) => self.config.patience + self.config.drain,
                State::Kernel | State::Engine | State::Closing | State::Left { .. } => {
                    connection.waiting = None;
                    continue;
                }
            };
            let waited =
                connection.waiting.map_or(0, |(state, waited)| if state == connection.state { waited + 1 } else { 0 });
            connection.waiting = Some((connection.state, waited));
            if waited > looks(patience) {
                over.push((connection.id, looks(patience)));
            }
        }
        over.into_iter().for_each(|(id, patience)| self.go_on_without(id, patience));
    }

    fn go_on_without(&mut self, id: u64, patience: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            State::Preparing => self.on_ready(id, false),
            State::Bringing => {
                self.give_back_whole(id, StayReason::new(Reason::ProgramSilent, "the program does not answer"))
            }
            State::Standing => {
                // The program keeps the bytes that it holds.
                if let Some(found) = connection.standing.take() {
                    self.come_home(id, found);
                }
            }
            State::Holding | State::Starting | State::Leaving(_) => {
                let slot = connection.slot;
                // An engine that still settles other connections gets more time.
                if self.slots[slot].engine.as_ref().is_some_and(|engine| engine.unanswering > patience) {
                    self.on_engine_dead(slot, Reason::EngineHung);
                }
            }
            State::Kernel | State::Engine | State::Closing | State::Left { .. } => {}
        }
    }
}
