//! Queue pairs over connections of a service: buffers of the program's own choosing, in
//! memory that it shares with the engine.
//!
//! ```text
//!   adopt(socket) --> Coming --take_in(where)--> Adopted --> Happened ...
//!                        |                          |
//!                    NotAdopted                    Home: the socket
//! ```
//!
//! There is no thread and no copy: the program calls [`RawService::poll`], and
//! [`RawService::wait`] when there is nothing. What was posted is told to an engine that
//! sleeps by the next of either.
//!
//! *Where a connection goes.* It may go home to the kernel at any moment: asked for
//! ([`RawService::send_home`]), by an administrator, or because its engine died. Then each
//! posted buffer is said to be free: a receive with the bytes that arrived, a send as not
//! acknowledged. [`RawEvent::Home`] follows, with the same descriptor as a plain socket, and
//! the posted bytes that the kernel does not have; the program writes them first. No byte
//! is lost or doubled. If it ended its direction before, it says so to the socket too: the
//! engine may not have heard of it. Handed over again, it is another connection.

mod event;

pub use event::{Landing, Place, RawEvent};

use super::adopting::NotAdopted;
use baton_consumer::memory::SharedMemory;
use baton_consumer::qp::{QpEvent, QueuePairs};
use baton_engine::region::{Extent, RequestError};
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{RawSizes, Reply, Request, VERSION};
use baton_ipc::queues::read_two;
use baton_port::wait::WaitSet;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Polls after which the broker is listened to, if none waited: it costs a system call.
const HEAR_EVERY: u32 = 64;

/// Time after which a message that the broker had no room for is tried again.
const RETRY: Duration = Duration::from_millis(5);

/// Memory shared with an engine.
struct Memory {
    pairs: QueuePairs,
    doorbell: OwnedFd,
    completions: OwnedFd,
    dead: bool,
}

enum At {
    /// It brings this along.
    Coming {
        memory: u32,
        unread: Vec<u8>,
        unsent: Vec<u8>,
        landing: Option<Landing>,
    },
    Engine(Place),
}

struct Line {
    fd: OwnedFd,
    seq: u64,
    at: At,
}

/// A program's connection to a service, for queue pairs. Dropped, its connections are closed
/// as if the program had ended.
pub struct RawService {
    channel: Channel,
    sizes: RawSizes,
    memories: BTreeMap<u32, Memory>,
    adopting: BTreeMap<u64, OwnedFd>,
    lines: BTreeMap<u64, Line>,
    events: VecDeque<RawEvent>,
    next_seq: u64,
    polls: u32,
    refused: Option<String>,
    gone: bool,
}

impl RawService {
    /// Connects to the service that listens at `path`, for memory of these sizes in each
    /// engine that gets a connection.
    ///
    /// # Errors
    /// As `connect(2)`'s; `PermissionDenied` if this user may not use it, or not so much.
    pub fn connect(path: impl AsRef<Path>, sizes: RawSizes) -> io::Result<RawService> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
        let mut channel = Channel::new(socket);
        // One that refuses has hung up, and said why.
        for request in [Request::Hello { version: VERSION }, Request::Raw { sizes }] {
            let _ = channel.send(request.to_bytes(), Vec::new());
            match next_reply(&channel)? {
                Reply::Welcome { version } if version == VERSION => {}
                Reply::Refused { text } => return Err(io::Error::new(ErrorKind::PermissionDenied, text)),
                _ => return Err(io::Error::new(ErrorKind::Unsupported, "the service is of another version")),
            }
        }
        Ok(RawService {
            channel,
            sizes,
            memories: BTreeMap::new(),
            adopting: BTreeMap::new(),
            lines: BTreeMap::new(),
            events: VecDeque::new(),
            next_seq: 0,
            polls: 0,
            refused: None,
            gone: false,
        })
    }

    fn say(&mut self, request: &Request, fds: Vec<OwnedFd>) -> io::Result<()> {
        self.channel.send(request.to_bytes(), fds)
    }

    /// Hands a connected TCP socket over; [`RawEvent::Coming`] or [`RawEvent::NotAdopted`]
    /// follows, with the number that is returned. Nobody else may use the descriptor, or a
    /// duplicate of it, until it comes back.
    ///
    /// # Errors
    /// [`NotAdopted`] with the socket, which is as it was.
    pub fn adopt(&mut self, fd: OwnedFd) -> Result<u64, NotAdopted> {
        let lent = match fd.try_clone() {
            Ok(lent) => lent,
            Err(error) => return Err(NotAdopted::broken(Some(fd), &error)),
        };
        self.next_seq += 1;
        let seq = self.next_seq;
        if let Err(error) = self.say(&Request::Adopt { seq }, vec![lent]) {
            return Err(NotAdopted::broken(Some(fd), &error));
        }
        self.adopting.insert(seq, fd);
        Ok(seq)
    }

    /// Takes a connection in that comes. What it brings along is written to `landing`, whose
    /// buffers are the engine's until events say their ids. [`RawEvent::Adopted`] follows,
    /// or [`RawEvent::Home`] if the engine does not take it.
    ///
    /// # Errors
    /// `NotFound` if no such connection comes, `InvalidInput` if a buffer is too short: then
    /// nothing has changed.
    pub fn take_in(&mut self, id: u64, landing: Landing) -> io::Result<()> {
        let RawService { lines, memories, .. } = self;
        let Some(Line { at: At::Coming { memory, unread, unsent, landing: place @ None }, .. }) = lines.get_mut(&id)
        else {
            return Err(ErrorKind::NotFound.into());
        };
        let pairs = &memories.get(memory).ok_or(ErrorKind::NotFound)?.pairs;
        let part = |(buffer, id): (Extent, u64), bytes: &[u8]| {
            let part = buffer.part(0, bytes.len() as u32);
            (part.len() as usize == bytes.len()).then_some((part, id)).ok_or(ErrorKind::InvalidInput)
        };
        let landing = Landing { unread: part(landing.unread, unread)?, unsent: part(landing.unsent, unsent)? };
        pairs.write(landing.unread.0, unread);
        pairs.write(landing.unsent.0, unsent);
        *place = Some(landing);
        self.say(&Request::Brought { id, taken: true }, Vec::new())
    }

    /// Does not take it in; [`RawEvent::NotAdopted`] follows.
    ///
    /// # Errors
    /// As of a broker that has gone.
    pub fn refuse(&mut self, id: u64) -> io::Result<()> {
        self.say(&Request::Brought { id, taken: false }, Vec::new())
    }

    /// Asks for a connection to go home: [`RawEvent::Home`] or [`RawEvent::Stays`] follows.
    ///
    /// # Errors
    /// As of a broker that has gone.
    pub fn send_home(&mut self, id: u64) -> io::Result<()> {
        self.say(&Request::Restore { id }, Vec::new())
    }

    /// Lets go of a connection that the engine has: it is closed behind what is posted to
    /// send, and [`RawEvent::Gone`] follows. If its engine dies before, it comes home all the
    /// same.
    ///
    /// # Errors
    /// `WouldBlock` if too much is asked of the engine at once; `NotFound` if it is not there.
    pub fn close(&mut self, id: u64) -> io::Result<()> {
        let Some(Line { at: At::Engine(place), .. }) = self.lines.get(&id) else {
            return Err(ErrorKind::NotFound.into());
        };
        let memory = self.memories.get_mut(&place.memory).ok_or(ErrorKind::NotFound)?;
        memory.pairs.close(place.qp).map_err(|RequestError::Full| ErrorKind::WouldBlock)?;
        self.say(&Request::Close { id }, Vec::new())
    }

    /// The queue pairs of a memory, and the memory itself.
    pub fn memory(&mut self, number: u32) -> Option<&mut QueuePairs> {
        self.memories.get_mut(&number).map(|memory| &mut memory.pairs)
    }

    /// Lets go of the memory of an engine that has died.
    pub fn forget(&mut self, number: u32) {
        if self.memories.get(&number).is_some_and(|memory| memory.dead) {
            self.memories.remove(&number);
        }
    }

    /// The next thing that happened.
    ///
    /// # Errors
    /// `NotConnected` once the service has gone, `PermissionDenied` if it has cut us off:
    /// nothing more happens.
    pub fn poll(&mut self) -> io::Result<Option<RawEvent>> {
        if self.events.is_empty() {
            self.polls = self.polls.wrapping_add(1);
            if self.polls.is_multiple_of(HEAR_EVERY) {
                self.hear_broker();
            }
            let live: Vec<u32> = self.live().map(|(number, _)| number).collect();
            live.into_iter().for_each(|number| self.hear_engine(number));
        }
        self.wake_engines();
        match (self.events.pop_front(), &self.refused) {
            (Some(event), _) => Ok(Some(event)),
            (None, _) if !self.gone => Ok(None),
            (None, Some(why)) => Err(io::Error::new(ErrorKind::PermissionDenied, why.clone())),
            (None, None) => Err(io::Error::new(ErrorKind::NotConnected, "the service has gone")),
        }
    }

    /// Waits until something may have happened, for `timeout` at most.
    ///
    /// # Errors
    /// As `ppoll(2)`'s.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.hear_broker();
        self.wake_engines();
        let sleep = self.events.is_empty() && !self.gone;
        if sleep && self.live().all(|(_, memory)| memory.pairs.region().prepare_sleep()) {
            let mut set = WaitSet::new();
            set.add(&self.channel);
            self.live().for_each(|(_, memory)| set.add(&memory.completions));
            let retry = self.channel.is_waiting().then_some(RETRY);
            let timeout = retry.map_or(timeout, |retry| Some(timeout.map_or(retry, |timeout| timeout.min(retry))));
            set.wait(timeout)?;
            for (_, memory) in self.live() {
                let _ = rustix::io::read(&memory.completions, &mut [0; 8]);
            }
            self.hear_broker();
        }
        self.live().for_each(|(_, memory)| memory.pairs.region().awake());
        Ok(())
    }

    fn live(&self) -> impl Iterator<Item = (u32, &Memory)> {
        self.memories.iter().filter(|(_, memory)| !memory.dead).map(|(number, memory)| (*number, memory))
    }

    fn wake_engines(&self) {
        for (_, memory) in self.live() {
            if memory.pairs.region().must_wake_engine() {
                let _ = rustix::io::write(&memory.doorbell, &1u64.to_ne_bytes());
            }
        }
    }

    fn hear_engine(&mut self, number: u32) {
        let RawService { memories, lines, events, .. } = self;
        let Some(Memory { pairs, .. }) = memories.get_mut(&number) else { return };
        while let Some(event) = pairs.poll() {
            let QpEvent::Adopted { qp, token } = event else {
                events.push_back(RawEvent::Happened { memory: number, event });
                continue;
            };
            match lines.get_mut(&token) {
                Some(Line { at: at @ At::Coming { landing: Some(_), .. }, .. }) => {
                    let place = Place { memory: number, qp };
                    let At::Coming { landing: Some(landing), .. } = std::mem::replace(at, At::Engine(place)) else {
                        unreachable!("it was that just now")
                    };
                    events.push_back(RawEvent::Adopted { id: token, place });
                    pairs.post_brought(qp, landing.unread, landing.unsent).expect("its queues are empty");
                }
                // Nobody waits for it any more. A ring that is full of requests leaves it open.
                _ => drop(pairs.close(qp)),
            }
        }
    }

    fn hear_broker(&mut self) {
        while !self.gone {
            let _ = self.channel.flush();
            match self.channel.receive() {
                Ok(Some(parcel)) => self.on_parcel(parcel),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A broker that hung up on what it had not read may have said why before.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionReset) => {}
                Ok(None) | Err(_) => {
                    self.gone = true;
                    let error = io::Error::new(ErrorKind::NotConnected, "the service has gone");
                    for (seq, fd) in std::mem::take(&mut self.adopting) {
                        let refused = NotAdopted::broken(Some(fd), &error);
                        self.events.push_back(RawEvent::NotAdopted { seq, refused });
                    }
                }
            }
        }
    }

    fn on_parcel(&mut self, parcel: Parcel) {
        let mut fds = parcel.fds.into_iter();
        let Some(reply) = Reply::from_bytes(&parcel.bytes) else { return };
        super::heard::tell_of(&reply, |id| baton_journal::tuple_of(&self.lines.get(&id)?.fd));
        match reply {
            Reply::Region { region, .. } => {
                if let (Some(file), Some(doorbell), Some(completions)) = (fds.next(), fds.next(), fds.next()) {
                    self.on_memory(region, file, doorbell, completions);
                }
            }
            Reply::Bring { seq, id, region, send, unread, .. } => {
                self.on_bring(seq, id, region, fds.next(), send, unread)
            }
            Reply::Stays { seq, id, code, text } => self.on_stays(seq, id, code, text),
            Reply::Home { id, rcv_pos, tail_pos, .. } => self.on_home(id, rcv_pos, tail_pos),
            Reply::Gone { seq, id, text } => self.on_gone(seq, id, text),
            Reply::Dead { region } => {
                self.hear_engine(region);
                if let Some(memory) = self.memories.get_mut(&region) {
                    memory.dead = true;
                    self.events.push_back(RawEvent::Dead { memory: region });
                }
            }
            // What is home is the program's own, which hands it over itself.
            Reply::Prepare { id } => drop(self.say(&Request::Ready { id, free: false }, Vec::new())),
            Reply::Restarted {} => self.report(),
            Reply::Refused { text } => self.refused = Some(text),
            // Nothing here asks for these.
            Reply::Welcome { .. }
            | Reply::Stand { .. }
            | Reply::Entry { .. }
            | Reply::Event { .. }
            | Reply::Done { .. }
            | Reply::Engine {}
            | Reply::Info { .. } => {}
        }
    }

    /// Says what there is here, and what is waited for, to a new broker.
    fn report(&mut self) {
        let lines = self.lines.keys().map(|id| Request::Has { id: *id });
        let pending = self.adopting.keys().map(|seq| Request::Pending { seq: *seq });
        for request in lines.chain(pending).collect::<Vec<_>>() {
            let _ = self.say(&request, Vec::new());
        }
    }

    fn on_memory(&mut self, number: u32, file: OwnedFd, doorbell: OwnedFd, completions: OwnedFd) {
        let Ok(memory) = SharedMemory::open(file) else { return };
        let region = memory.region();
        if region.layout() == self.sizes.layout() && !self.memories.contains_key(&number) {
            let pairs = QueuePairs::new(region.clone());
            self.memories.insert(number, Memory { pairs, doorbell, completions, dead: false });
            self.events.push_back(RawEvent::Memory { memory: number });
        }
    }

    fn on_bring(&mut self, seq: u64, id: u64, memory: u32, file: Option<OwnedFd>, send: u32, unread: u32) {
        if self.lines.contains_key(&id) {
            // Said again by a new broker, whose engine is not the one that it was to go to.
            return drop(self.refuse(id));
        }
        let queues = read_two(file, send, unread).ok().filter(|_| self.memories.contains_key(&memory));
        let fd = self.adopting.remove(&seq);
        match (queues, fd) {
            (Some((unsent, unread)), Some(fd)) => {
                let (waiting, read) = (unsent.len() as u32, unread.len() as u32);
                self.lines.insert(id, Line { fd, seq, at: At::Coming { memory, unread, unsent, landing: None } });
                self.events.push_back(RawEvent::Coming { seq, id, memory, unread: read, unsent: waiting });
            }
            (_, fd) => {
                self.adopting.extend(fd.map(|fd| (seq, fd)));
                let _ = self.refuse(id);
            }
        }
    }

    fn on_stays(&mut self, seq: u64, id: u64, code: String, text: String) {
        let comes = |line: &Line| matches!(line.at, At::Coming { .. });
        let (seq, fd) = match self.adopting.remove(&seq) {
            Some(fd) => (seq, fd),
            None if self.lines.get(&id).is_some_and(comes) => {
                let line = self.lines.remove(&id).expect("it was there just now");
                (line.seq, line.fd)
            }
            None if self.lines.contains_key(&id) => return self.events.push_back(RawEvent::Stays { id, text }),
            None => return,
        };
        self.events.push_back(RawEvent::NotAdopted { seq, refused: NotAdopted { fd: Some(fd), code, text } });
    }

    /// Its buffers are free; what the kernel does not have is returned.
    fn depart(&mut self, place: Place, rcv_pos: u64, tail_pos: u64) -> Vec<u8> {
        // What its engine said last comes first.
        self.hear_engine(place.memory);
        let Some(memory) = self.memories.get_mut(&place.memory) else { return Vec::new() };
        let rest = memory.pairs.depart(place.qp, rcv_pos, tail_pos);
        self.hear_engine(place.memory);
        rest
    }

    fn on_home(&mut self, id: u64, rcv_pos: u64, tail_pos: u64) {
        // The engine, it may be, has said in the memory that it has it.
        if let Some(Line { at: At::Coming { memory, .. }, .. }) = self.lines.get(&id) {
            let memory = *memory;
            self.hear_engine(memory);
        }
        let Some(Line { fd, at, .. }) = self.lines.remove(&id) else { return };
        let (unread, unsent) = match at {
            At::Engine(place) => (Vec::new(), self.depart(place, rcv_pos, tail_pos)),
            // The kernel has what was to be sent.
            At::Coming { unread, .. } => (unread, Vec::new()),
        };
        self.events.push_back(RawEvent::Home { id, fd, unread, unsent });
        // It is the program's own again.
        let _ = self.say(&Request::Close { id }, Vec::new());
    }

    fn on_gone(&mut self, seq: u64, id: u64, text: String) {
        if let Some(fd) = self.adopting.remove(&seq) {
            // Lost before it was brought here: what is left of the socket is nobody's.
            drop(fd);
            let refused = NotAdopted { fd: None, code: "lost".into(), text };
            return self.events.push_back(RawEvent::NotAdopted { seq, refused });
        }
        let Some(Line { at, .. }) = self.lines.remove(&id) else { return };
        if let At::Engine(place) = at {
            self.depart(place, 0, u64::MAX);
        }
        self.events.push_back(RawEvent::Gone { id, text });
    }
}

/// Waits for the broker's next message.
fn next_reply(channel: &Channel) -> io::Result<Reply> {
    loop {
        match channel.receive() {
            Ok(Some(parcel)) => return Reply::from_bytes(&parcel.bytes).ok_or(ErrorKind::InvalidData.into()),
            Ok(None) => return Err(io::Error::new(ErrorKind::NotConnected, "the service has gone")),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut set = WaitSet::new();
                set.add(channel);
                set.wait(None)?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionReset) => {}
            Err(error) => return Err(error),
        }
    }
}
