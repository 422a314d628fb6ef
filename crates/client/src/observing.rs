//! An observer's state: connections of others, and where the time of their messages goes.

use baton_consumer::memory::WatchReader;
use baton_ipc::message::{ProgramId, Request, Selector};

/// Points of time of the connections of a program in an engine.
pub struct Observed {
    /// Number of the memory that the program shares with the engine. No other has it.
    pub region: u32,
    /// Process and user of the program.
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
    /// The times. The program can write anything there, so they are the program's word.
    pub memory: WatchReader,
}

/// News of the service for an observer.
pub enum Sighting {
    /// Points that can be read from now on.
    Begun(Observed),
    /// Nothing is stamped any more in the memory of this region: the engine or the program has gone.
    Ended(u32),
    /// The same for all memories before. If a new broker goes on, others follow.
    AllEnded,
}

/// The connections that a program observes.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub which: Selector,
    /// Only those of this process.
    pub pid: Option<u32>,
    /// The engine records one message in this many.
    pub every: u32,
}

impl Wanted {
    /// The request for them.
    pub fn question(self, ask: u64) -> Request {
        let Wanted { which, pid, every } = self;
        Request::Observe { ask, which, pid, every }
    }
}

/// The connections that this program observes, and news of them.
#[derive(Default)]
pub(super) struct Observing {
    pub wanted: Option<Wanted>,
    pub news: Vec<Sighting>,
}

impl Observing {
    /// The service has memory for this program to read.
    pub fn begin(&mut self, observed: Option<Observed>) {
        // Memory that cannot be mapped is not seen.
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
        self.wanted.map(|wanted| wanted.question(0))
    }
}
