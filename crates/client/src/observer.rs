//! Where the time of messages goes: a program's calls are stamped for those who observe it, and a program
//! may observe others.

use super::Service;
use super::observing::{Observing, Sighting, Wanted};
use super::shared::Inner;
use baton_consumer::clock;
use baton_consumer::memory::SharedWatch;
use baton_ipc::message::Selector;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// The version of the protocol that knows observers.
const OBSERVES: u32 = 5;

impl Inner {
    /// Stamps this program's calls on the connections of a region from now on, in the memory of `file`.
    /// Without a file, no more.
    pub fn stamp_calls(&mut self, region: u32, file: Option<OwnedFd>) {
        let Some(region) = self.regions.get_mut(&region) else { return };
        match file.map(SharedWatch::open) {
            Some(Ok(shared)) => {
                clock::prepare();
                region.consumer.watch(shared.memory().clone(), clock::at_once);
            }
            // Memory that cannot be mapped stays empty.
            Some(Err(_)) | None => region.consumer.unwatch(),
        }
    }

    /// The service has gone, and nobody will say when an observer goes.
    pub fn end_watching(&mut self) {
        self.regions.values_mut().for_each(|region| region.consumer.unwatch());
        self.observing.end_all();
        self.following.end_all();
    }
}

impl Service {
    /// Observes connections in engines, of this process alone if `pid` is given, as long as this service is
    /// not dropped. [`Service::sightings`] has what comes of it. Returns the number of memories that are
    /// there at once.
    ///
    /// # Errors
    /// `Unsupported` if the service is too old. `InvalidInput` with the service's reason, for example if too
    /// many observe. Others as for [`Service::list`].
    pub fn observe(&self, which: Selector, pid: Option<u32>) -> io::Result<u64> {
        self.observe_some(which, pid, 1)
    }

    /// As [`Service::observe`], but has one message in `every` recorded only, on average, unless another observer
    /// wants more. That is what engines with hundreds of busy connections can afford; counts are estimates then
    /// ([`WatchedConnection::one_in`](baton_consumer::memory::WatchedConnection::one_in)).
    ///
    /// # Errors
    /// Those of [`Service::observe`].
    pub fn observe_some(&self, which: Selector, pid: Option<u32>, every: u32) -> io::Result<u64> {
        let wanted = Wanted { which, pid, every };
        self.shared.with(|inner| {
            if inner.version < OBSERVES {
                let text = "the service is older than this program, and cannot show times";
                return Err(io::Error::new(ErrorKind::Unsupported, text));
            }
            inner.observing = Observing { wanted: Some(wanted), news: Vec::new() };
            Ok(())
        })??;
        self.tally(|ask| wanted.question(ask)).map(|tally| tally.count)
    }

    /// News since the last call, the oldest first.
    pub fn sightings(&self) -> Vec<Sighting> {
        self.shared.with(|inner| std::mem::take(&mut inner.observing.news)).unwrap_or_default()
    }
}
