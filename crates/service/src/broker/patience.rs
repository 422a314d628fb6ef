//! Who does not answer. What a connection waits for its program with is done without it; an
//! engine that goes on, and says of none of its connections what was asked, counts as dead:
//! nobody else's move, and no stop, waits for one that stands still.

use super::Broker;
use super::lines::State;
use super::watchdog::looks;
use std::time::Duration;

/// How long a connection waits for its program's word.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a connection waits with, and for how many looks.
pub(super) type Waiting = (State, u32);

impl Broker {
    /// Looks for connections that have waited too long. To be called once a [`TICK`](super::TICK).
    pub(super) fn lose_patience(&mut self) {
        self.sides.iter_mut().filter_map(|side| side.engine.as_mut()).for_each(|engine| engine.unanswering += 1);
        let mut over = Vec::new();
        for line in self.lines.values_mut() {
            let patience = match line.state {
                State::Preparing | State::Bringing | State::Standing => PATIENCE,
                State::Holding | State::Starting => self.config.patience,
                State::Leaving(_) => self.config.patience + self.config.drain,
                State::Kernel | State::Engine | State::Closing | State::Left { .. } => {
                    line.waiting = None;
                    continue;
                }
            };
            let waited = line.waiting.map_or(0, |(state, waited)| if state == line.state { waited + 1 } else { 0 });
            line.waiting = Some((line.state, waited));
            if waited > looks(patience) {
                over.push((line.id, looks(patience)));
            }
        }
        over.into_iter().for_each(|(id, patience)| self.go_on_without(id, patience));
    }

    fn go_on_without(&mut self, id: u64, patience: u32) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        match line.state {
            State::Preparing => self.on_ready(id, false),
            State::Bringing => self.give_back_whole(id, ("program-silent", "the program does not answer".into())),
            State::Standing => {
                // What it holds stays with it.
                if let Some(found) = line.recovered.take() {
                    self.come_home(id, found);
                }
            }
            State::Holding | State::Starting | State::Leaving(_) => {
                let side = line.side;
                // One that has many to answer for is waited for while it does.
                if self.sides[side].engine.as_ref().is_some_and(|engine| engine.unanswering > patience) {
                    self.on_engine_dead(side, "engine-hung");
                }
            }
            State::Kernel | State::Engine | State::Closing | State::Left { .. } => {}
        }
    }
}
