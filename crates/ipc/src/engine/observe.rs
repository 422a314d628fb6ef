//! Points of time of the messages of connections that somebody observes.

use super::Runner;
use crate::message::Selector;
use baton_consumer::clock;
use baton_consumer::memory::SharedWatch;
use std::os::fd::OwnedFd;

impl Runner {
    /// Watches those of a consumer's connections that one of `which` selects, in the memory of `file`, or in
    /// that which the consumer has already. With no selector, none.
    pub(super) fn observe(&mut self, key: u32, which: Vec<Selector>, file: Option<OwnedFd>) {
        let Some(consumer) = self.consumers.get_mut(&key) else { return };
        let id = consumer.id;
        consumer.observed = !which.is_empty();
        if which.is_empty() {
            return self.engine.unwatch(id);
        }
        if let Some(Ok(shared)) = file.map(SharedWatch::open) {
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
    }
}
