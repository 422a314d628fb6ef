//! Points of time of the messages of connections that somebody observes.

use super::Runner;
use crate::message::Selector;
use baton_consumer::clock;
use baton_consumer::memory::SharedWatch;
use baton_latency::Recorded;
use baton_port::notes::Notes;
use baton_wire::addr::Tuple;
use std::os::fd::OwnedFd;

impl Runner {
    /// Watches those of a consumer's connections that one of `which` selects, in the memory of `file`, or in
    /// that which the consumer has already. With no selector, none. One message in so many is recorded, at one
    /// rate for all connections of which not every message is. A second file has notes of when frames arrived.
    pub(super) fn observe(&mut self, key: u32, which: Vec<(Selector, u32)>, files: Vec<OwnedFd>) {
        let Some(consumer) = self.consumers.get_mut(&key) else { return };
        let id = consumer.id;
        consumer.observed = !which.is_empty();
        if which.is_empty() {
            self.engine.unwatch(id);
            return self.read_notes_no_more();
        }
        let mut files = files.into_iter();
        let (memory, notes) = (files.next(), files.next());
        if let Some(Ok(notes)) = notes.map(Notes::open) {
            self.port.read_notes(Some(notes));
        }
        if let Some(Ok(shared)) = memory.map(SharedWatch::open) {
            clock::prepare();
            self.engine.watch(id, shared.memory().clone(), clock::at_once);
        }
        // Without memory, or with all its slots taken, connections go unwatched.
        let one_in = which.iter().map(|(_, every)| *every).filter(|every| *every > 1).min().unwrap_or(1);
        let selects = move |tuple: &_| recorded(&which, tuple);
        let _ = self.engine.streamer().watch_those(id, selects, one_in);
    }

    /// The broker has gone, and nobody will say when an observer goes.
    pub(super) fn observe_nothing(&mut self) {
        for consumer in self.consumers.values_mut().filter(|consumer| consumer.observed) {
            consumer.observed = false;
            self.engine.unwatch(consumer.id);
        }
        self.read_notes_no_more();
    }

    /// Ends the reading of notes, if no consumer is observed.
    pub(super) fn read_notes_no_more(&mut self) {
        if self.consumers.values().all(|consumer| !consumer.observed) {
            self.port.read_notes(None);
        }
    }
}

/// Where the times of a connection go, if it is observed.
fn recorded(which: &[(Selector, u32)], tuple: &Tuple) -> Option<Recorded> {
    let those = which.iter().filter(|(selector, _)| selector.matches(tuple));
    let least = those.map(|(_, every)| *every).min()?;
    Some(if least > 1 { Recorded::Sampled } else { Recorded::Wholly })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_observer_who_wants_most_of_a_connection_decides() {
        let tuple = |port: u16| Tuple::new(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 80).into());
        let which =
            [(Selector::Port(1), 128), (Selector::Port(2), 1), (Selector::Port(2), 128), (Selector::Port(3), 0)];
        let recorded = |port| recorded(&which, &tuple(port));
        assert_eq!([recorded(1), recorded(2)], [Some(Recorded::Sampled), Some(Recorded::Wholly)]);
        assert_eq!([recorded(3), recorded(4)], [Some(Recorded::Wholly), None]);
    }
}
