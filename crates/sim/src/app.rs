//! A host's program: its listeners, and all its ends of connections.

use crate::chance::pick;
use crate::end::{Buffers, End, Phase, UNPOST, keepalive};
use crate::script::{Dialogue, Expect};
use crate::stream::WrongByte;
use baton_engine::options;
use baton_engine::region::{Completion, ConsumerRegion, Events, Request};
use baton_tcp::time::{Duration, Instant};
use baton_wire::addr::Addr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which end opened which dialogue: the world's knowledge, by the client's address and
/// port and the server's port.
pub type Directory = BTreeMap<(Addr, u16, u16), usize>;

/// A breach of a property that every run must have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A byte arrived that was never sent there.
    #[error("dialogue {id}: wrong byte {wrong:?} at the {end}")]
    WrongByte {
        /// Number of the dialogue.
        id: usize,
        /// Which end.
        end: &'static str,
        /// The first byte that differs.
        wrong: WrongByte,
    },
    /// A connection did not end as it had to.
    #[error("dialogue {id} had to be {expect:?}: {what}")]
    WrongEnd {
        /// Number of the dialogue.
        id: usize,
        /// How it had to end.
        expect: Expect,
        /// How it ended.
        what: String,
    },
    /// A host sent more behind its FIN, or another FIN.
    #[error("beyond the end of a stream: {0}")]
    BeyondFin(String),
    /// Something is still there that should be gone, or grew beyond its bound.
    #[error("{0}")]
    Leak(String),
    /// Virtual or real work without end.
    #[error("no end in sight: {0}")]
    Stuck(String),
}

/// Token of a request that opens dialogue `n` is `n`; of listeners this and up.
const LISTENERS: u64 = 1 << 32;
/// Pause before a client tries a port again that is still in use.
const RETRY: Duration = Duration::from_millis(500);

/// Pause before a program looks again at what it could not do.
const AGAIN: Duration = Duration::from_millis(20);

/// Silence after which an accepted connection is given up that nobody opened.
const NOBODY: Duration = Duration::from_secs(60);

/// How a dialogue went, as one end saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Bytes read.
    pub received: u64,
    /// Bytes posted to send.
    pub sent: u64,
    /// errno that it ended with; 0 for none.
    pub error: u32,
    /// The peer's stream came to its end.
    pub peer_fin: bool,
    /// This end reset the connection.
    pub aborted: bool,
}

/// A connection that nobody is known to have opened yet.
#[derive(Clone, Copy)]
struct Stranger {
    since: Instant,
    seen: Events,
}

/// Which engine, and which queue pair of it.
pub type Place = (usize, u32);

/// One host's program.
pub struct App {
    /// True if it opens connections; else it listens.
    client: bool,
    /// The program's region at each engine.
    pub(crate) regions: Vec<ConsumerRegion>,
    pub(crate) ends: BTreeMap<Place, End>,
    /// Ends that may have something to do.
    pub(crate) dirty: BTreeSet<Place>,
    /// Events of queue pairs whose connection has not arrived yet.
    pub(crate) early: BTreeMap<Place, Events>,
    /// Accepted, and not in the directory yet, by queue pair.
    strangers: BTreeMap<u32, Stranger>,
    /// Clients to be opened, or to be tried again.
    openings: Vec<(Instant, usize)>,
    /// Clients whose open the engine has not answered.
    asked: BTreeSet<usize>,
    /// Requests that wait for space in the ring, by engine.
    pub(crate) pending: Vec<VecDeque<Request>>,
    /// How each dialogue ended here, by number, clients apart from servers.
    pub reports: BTreeMap<(usize, bool), Report>,
    /// Connections that nobody had opened.
    pub ghosts: u64,
    buffers: (u32, u32),
    completions: u64,
    /// Which end lends a buffer of which size; `None` if none does.
    lends: Option<fastrand::Rng>,
    /// Bytes that came in a lent buffer.
    pub lent: u64,
    /// It has work that no completion announced.
    pub(crate) woken: bool,
    /// A violation found outside of its turn.
    pub(crate) wrong: Option<Violation>,
}

impl App {
    /// The client's program, or the server's, with a region for each engine; `buffers`
    /// are the sizes of each end's send and receive buffer, in bytes. With a seed in `lends`, ends lend buffers.
    pub fn new(client: bool, regions: Vec<ConsumerRegion>, buffers: (u32, u32), lends: Option<u64>) -> App {
        App {
            client,
            pending: regions.iter().map(|_| VecDeque::new()).collect(),
            regions,
            early: BTreeMap::new(),
            ends: BTreeMap::new(),
            dirty: BTreeSet::new(),
            strangers: BTreeMap::new(),
            openings: Vec::new(),
            asked: BTreeSet::new(),
            reports: BTreeMap::new(),
            ghosts: 0,
            buffers,
            completions: 0,
            lends: lends.map(fastrand::Rng::with_seed),
            lent: 0,
            woken: false,
            wrong: None,
        }
    }

    /// Listens at `port` on every address.
    pub fn listen(&mut self, v6: bool, port: u16, backlog: u32, options: u64) {
        let local = if v6 { Addr::UNSPECIFIED } else { Addr::v4([0; 4]) };
        let token = LISTENERS + u64::from(port);
        self.pending[0].push_back(Request::Listen { token, local, local_port: port, backlog, options });
    }

    /// Opens dialogue `id` at `at`.
    pub fn open_at(&mut self, at: Instant, id: usize) {
        self.openings.push((at, id));
    }

    /// True if a completion waits.
    pub fn has_completion(&self) -> bool {
        self.regions.iter().any(ConsumerRegion::has_completion)
    }

    /// Completions taken so far.
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// True if there is nothing left to do.
    pub fn is_done(&self) -> bool {
        self.ends.is_empty() && self.openings.is_empty() && self.asked.is_empty() && self.strangers.is_empty()
    }

    /// When it wants to run even if nothing happens.
    pub fn alarm(&self, now: Instant) -> Option<Instant> {
        let openings = self.openings.iter().map(|(at, _)| *at);
        let again = {
            let waits = !self.strangers.is_empty() || self.pending.iter().any(|pending| !pending.is_empty());
            waits.then(|| now + AGAIN)
        };
        let again = if self.woken { Some(now) } else { again };
        self.ends.values().filter_map(End::alarm).chain(openings).chain(again).min()
    }

    /// Every end is to look again at what it may do.
    pub fn stir(&mut self) {
        self.dirty.extend(self.ends.keys());
    }

    /// Takes completions and lets every end do what it can. The other host is `peer`.
    ///
    /// # Errors
    /// The violation found.
    pub fn run(
        &mut self,
        now: Instant,
        calm: bool,
        peer: Addr,
        dialogues: &[Dialogue],
        directory: &mut Directory,
    ) -> Result<(), Violation> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.open_due(now, peer, dialogues);
        self.woken = false;
        for side in 0..self.regions.len() {
            while let Some(completion) = self.regions[side].poll_completion() {
                self.completions += 1;
                self.handle_completion(now, side, completion, dialogues, directory)?;
            }
        }
        for (qp, stranger) in std::mem::take(&mut self.strangers) {
            self.accept(qp, stranger, now, dialogues, directory);
        }
        let due = self.ends.iter().filter(|(_, end)| end.alarm().is_some_and(|at| at <= now)).map(|(at, _)| *at);
        let due: Vec<Place> = due.collect();
        self.dirty.extend(due);
        for place in std::mem::take(&mut self.dirty) {
            let Some(end) = self.ends.get_mut(&place) else { continue };
            let role = if end.client { "client" } else { "server" };
            end.run(now, calm, &self.regions[place.0], &mut self.pending[place.0])
                .map_err(|wrong| Violation::WrongByte { id: end.id, end: role, wrong })?;
        }
        for (pending, region) in self.pending.iter_mut().zip(&self.regions) {
            while let Some(request) = pending.pop_front() {
                if region.request(&request).is_err() {
                    pending.push_front(request);
                    break;
                }
            }
        }
        Ok(())
    }

    /// A buffer for an end that waits for bytes at this engine: its queue pair, the stream position of the first, and
    /// the buffer.
    pub fn lend(&mut self, side: usize) -> Option<(u32, u64, Vec<u8>)> {
        let rng = self.lends.as_mut()?;
        let region = &self.regions[side];
        let waiting = self.ends.iter().filter(|((at, _), _)| *at == side);
        let waiting = waiting.filter_map(|((_, qp), end)| Some((*qp, end.awaited(region)?)));
        let waiting: Vec<(u32, u64)> = waiting.collect();
        let (qp, position) = *waiting.get(rng.usize(..waiting.len().max(1)))?;
        Some((qp, position, vec![0; pick(rng, &[1, 100, 1448, 5_000, 100_000])]))
    }

    /// The engine placed these bytes in the buffer that an end lent.
    pub fn take_placed(&mut self, place: Place, bytes: &[u8]) {
        let Some(end) = self.ends.get_mut(&place).filter(|_| !bytes.is_empty()) else { return };
        self.lent += bytes.len() as u64;
        self.dirty.insert(place);
        let role = if end.client { "client" } else { "server" };
        if let Err(wrong) = end.take_placed(&self.regions[place.0], bytes) {
            self.wrong = Some(Violation::WrongByte { id: end.id, end: role, wrong });
        }
    }

    /// Everything that is still open, in words.
    pub fn describe(&self) -> String {
        let ends = self.ends.iter().map(|((side, _), end)| end.describe(&self.regions[*side]));
        let rest =
            format!("{:?} to be opened, {:?} asked, {} strangers", self.openings, self.asked, self.strangers.len());
        ends.chain([rest]).collect::<Vec<_>>().join("\n  ")
    }

    fn open_due(&mut self, now: Instant, peer: Addr, dialogues: &[Dialogue]) {
        for (at, id) in std::mem::take(&mut self.openings) {
            if at > now {
                self.openings.push((at, id));
                continue;
            }
            self.asked.insert(id);
            let dialogue = &dialogues[id];
            let (local_port, remote_port, script) = if self.client {
                (dialogue.from_port, dialogue.port, &dialogue.client)
            } else {
                (dialogue.port, dialogue.from_port, &dialogue.server)
            };
            let local = if peer.is_v4() { Addr::v4([0; 4]) } else { Addr::UNSPECIFIED };
            let options = if script.nodelay { options::NODELAY } else { 0 };
            let token = id as u64;
            self.pending[0].push_back(Request::Connect {
                token,
                local,
                local_port,
                remote: peer,
                remote_port,
                options,
            });
        }
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        side: usize,
        completion: Completion,
        dialogues: &[Dialogue],
        directory: &mut Directory,
    ) -> Result<(), Violation> {
        match completion {
            Completion::Opened { token, .. } if token >= LISTENERS => {}
            Completion::Opened { qp, token } => {
                let id = token as usize;
                self.asked.remove(&id);
                let identity = self.regions[0].qp(qp).identity();
                if self.client {
                    directory.insert((identity.local, identity.local_port, identity.remote_port), id);
                }
                self.begin(id, self.client, qp, Events::NONE, dialogues);
            }
            Completion::Accepted { qp, .. } => {
                self.accept(qp, Stranger { since: now, seen: Events::NONE }, now, dialogues, directory);
            }
            Completion::Failed { token, .. } if token < LISTENERS => {
                self.asked.remove(&(token as usize));
                self.openings.push((now + RETRY, token as usize));
            }
            Completion::Done { token, .. } if token >= UNPOST => self.take_back((side, (token - UNPOST) as u32), true),
            Completion::Failed { token, .. } if token >= UNPOST => {
                self.take_back((side, (token - UNPOST) as u32), false)
            }
            Completion::Failed { token, errno } => {
                return Err(Violation::Leak(format!("request {token:#x} failed with errno {errno}")));
            }
            Completion::Done { .. } => {}
            Completion::Adopted { qp, .. } => {
                if !self.ends.contains_key(&(side, qp)) {
                    self.early.insert((side, qp), Events::NONE);
                }
            }
            Completion::Ready { qp, events } => {
                if let Some(stranger) = self.strangers.get_mut(&qp).filter(|_| side == 0) {
                    stranger.seen |= events;
                }
                if let Some(early) = self.early.get_mut(&(side, qp)) {
                    *early |= events;
                }
                let Some(end) = self.ends.get_mut(&(side, qp)) else { return Ok(()) };
                end.on_events(&self.regions[side], events);
                self.dirty.insert((side, qp));
                if end.phase == Phase::Done {
                    self.finish((side, qp));
                }
            }
        }
        Ok(())
    }

    /// A listener got a connection. The directory says which dialogue it belongs to, once the
    /// client's program has heard of it. A connection that nobody opened comes from a cookie
    /// that returned twice, the second time after the connection had ended: the program gives
    /// it up when it hears nothing.
    fn accept(&mut self, qp: u32, stranger: Stranger, now: Instant, dialogues: &[Dialogue], directory: &mut Directory) {
        let identity = self.regions[0].qp(qp).identity();
        // Removed, since a tuple may be opened again.
        match directory.remove(&(identity.remote, identity.remote_port, identity.local_port)) {
            Some(id) => self.begin(id, false, qp, stranger.seen, dialogues),
            None if now.since(stranger.since) > NOBODY => {
                self.ghosts += 1;
                self.pending[0].push_back(Request::Abort { qp });
            }
            None => {
                self.strangers.insert(qp, stranger);
            }
        }
    }

    fn begin(&mut self, id: usize, client: bool, qp: u32, seen: Events, dialogues: &[Dialogue]) {
        let dialogue = &dialogues[id];
        let script = if client { &dialogue.client } else { &dialogue.server };
        let buffers = self.buffers_of(qp);
        let mut end = End::new(id, client, client || dialogue.crossed, qp, script.clone(), buffers);
        // Events from before the program knew the queue pair.
        end.on_events(&self.regions[0], seen | self.regions[0].qp(qp).take_events());
        self.ends.insert((0, qp), end);
        self.dirty.insert((0, qp));
        if script.keepalive {
            self.pending[0].push_back(keepalive(qp));
        }
    }

    pub(crate) fn buffers_of(&self, qp: u32) -> Buffers {
        let (send, receive) = self.buffers;
        Buffers { base: u64::from(qp) * u64::from(send + receive), send, receive }
    }

    /// The engine's answer to an end that asked for its buffers.
    fn take_back(&mut self, place: Place, forgot: bool) {
        if let Some(end) = self.ends.get_mut(&place) {
            end.on_unposted(&self.regions[place.0], forgot);
            self.dirty.insert(place);
        }
    }

    fn finish(&mut self, place: Place) {
        let Some(end) = self.ends.remove(&place) else { return };
        let report = Report {
            received: end.received(),
            sent: end.sent(),
            error: end.error,
            peer_fin: end.seen.contains(Events::PEER_FIN),
            aborted: end.aborted,
        };
        self.reports.insert((end.id, end.client), report);
    }
}
