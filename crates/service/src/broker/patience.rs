//! Programs that do not answer. What a connection waits for them with is done without them:
//! nobody else's move, and no stop, waits for a program that stands still.

use super::Broker;
use super::lines::State;
use std::time::{Duration, Instant};

/// How long a connection waits for its program's word.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that waits for its program, and since when.
pub(super) type Waiting = (State, Instant);

impl Broker {
    /// Looks for connections that have waited too long.
    pub(super) fn lose_patience(&mut self) {
        let mut over = Vec::new();
        for line in self.lines.values_mut() {
            let waits = matches!(line.state, State::Preparing | State::Bringing | State::Standing);
            match line.waiting {
                Some((state, since)) if state == line.state => {
                    if since.elapsed() > PATIENCE {
                        over.push(line.id);
                    }
                }
                _ => line.waiting = waits.then(|| (line.state, Instant::now())),
            }
        }
        over.into_iter().for_each(|id| self.go_on_without(id));
    }

    fn go_on_without(&mut self, id: u64) {
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
            _ => {}
        }
    }
}
