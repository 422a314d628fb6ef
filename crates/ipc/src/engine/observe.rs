//! Points of time of the messages of connections that somebody observes.

use super::Runner;
use crate::message::Selector;
use baton_consumer::clock;
use baton_consumer::memory::SharedWatch;
use baton_port::notes::Notes;
use std::os::fd::OwnedFd;

impl Runner {
    /// Watches those of a consumer's connections that one of `which` selects, in the memory of `file`, or in
    /// that which the consumer has already. With no selector, none. A second file has notes of when frames
    /// arrived.
    pub(super) fn observe(&mut self, key: u32, which: Vec<Selector>, files: Vec<OwnedFd>) {
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
        let selects = move |tuple: &_| which.iter().any(|selector| selector.matches(tuple));
        let _ = self.engine.streamer().watch_those(id, selects);
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
