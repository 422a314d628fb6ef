//! Where the time of messages goes: a program's calls are stamped for those who observe it, and a program
//! may observe others.

use super::Service;
use super::shared::Inner;
use baton_consumer::clock;
use baton_consumer::memory::{SharedWatch, WatchReader};
use baton_ipc::message::{ProgramId, Request, Selector};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// The version of the protocol that knows observers.
const OBSERVES: u32 = 4;

/// Points of time of the connections of a program in an engine.
pub struct Observed {
    /// Number of the memory that the program shares with the engine. No other has it.
    pub region: u32,
    /// The program.
    pub program: ProgramId,
    /// The program's name.
    pub name: String,
    /// The engine's name: its interface, with a number for an engine inside the program.
    pub engine: String,
    /// The program stamps its calls. If it does not, for it uses an older library or handles queue pairs
    /// itself, only the engine stamps.
    pub calls: bool,
    /// Nobody observed before, so every time in it came since.
    pub fresh: bool,
    /// What is stamped. The program can write anything there, so it is the program's word.
    pub memory: WatchReader,
}

/// What an observer hears of the service.
pub enum Sighting {
    /// Points that can be read from now on.
    Begun(Observed),
    /// Nothing is stamped any more in the memory of this region: the engine or the program has gone.
    Ended(u32),
    /// The same for all memories before. If a new broker goes on, others follow.
    AllEnded,
}

/// What this program observes.
#[derive(Default)]
pub(super) struct Observing {
    wanted: Option<(Selector, Option<u32>)>,
    news: Vec<Sighting>,
}

impl Observing {
    /// The service has memory for this program to read.
    pub fn begin(&mut self, observed: Option<Observed>) {
        // What cannot be mapped is not seen.
        self.news.extend(observed.filter(|_| self.wanted.is_some()).map(Sighting::Begun));
    }

    /// The engine or the program of a region has gone.
    pub fn end(&mut self, region: u32) {
        self.news.extend(self.wanted.map(|_| Sighting::Ended(region)));
    }

    /// The broker has gone, and what it had set up with it.
    pub fn end_all(&mut self) {
        self.news.extend(self.wanted.map(|_| Sighting::AllEnded));
    }

    /// The request for a new broker, which knows of no observer. Nobody waits for the answer.
    pub fn question(&self) -> Option<Request> {
        self.wanted.map(|(which, pid)| Request::Observe { ask: 0, which, pid })
    }
}

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
            // What cannot be mapped is not stamped.
            Some(Err(_)) | None => region.consumer.unwatch(),
        }
    }

    /// The service has gone, and nobody will say when an observer goes.
    pub fn end_watching(&mut self) {
        self.regions.values_mut().for_each(|region| region.consumer.unwatch());
        self.observing.end_all();
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
        self.shared.with(|inner| {
            if inner.version < OBSERVES {
                let text = "the service is older than this program, and cannot show times";
                return Err(io::Error::new(ErrorKind::Unsupported, text));
            }
            inner.observing = Observing { wanted: Some((which, pid)), news: Vec::new() };
            Ok(())
        })??;
        self.tally(|ask| Request::Observe { ask, which, pid }).map(|tally| tally.count)
    }

    /// What came since the last call.
    pub fn sightings(&self) -> Vec<Sighting> {
        self.shared.with(|inner| std::mem::take(&mut inner.observing.news)).unwrap_or_default()
    }
}
