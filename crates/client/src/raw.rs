//! Queue pairs over a service's connections: the program chooses its own buffers in memory that it
//! shares with the engine.
//!
//! ```text
//!  adopt(socket) --> Coming --take_in(where)--> Adopted --> Happened ...
//!                       |                          |
//!                   NotAdopted                    Home: the socket
//! ```
//!
//! There is no thread and no copy: the program calls [`RawService::poll`], and [`RawService::wait`]
//! when there is nothing to do. The next call of either tells a sleeping engine about posted
//! buffers.
//!
//! *How a connection leaves.* A connection may return to the kernel at any moment: because the
//! program asks for it ([`RawService::send_home`]), because an administrator does, or because its
//! engine died. An event then frees each posted buffer: a receive with the bytes that arrived, a
//! send as not acknowledged. [`RawEvent::Home`] follows with the same descriptor, now a plain
//! socket, and with the posted bytes that the kernel does not have. The program must write these
//! first. No byte is lost or duplicated. If the program has shut down its sending direction, it
//! must shut down the socket too, because the engine may not have seen the request. A connection
//! that is handed over again gets a new id.

mod event;

pub use event::{Landing, Place, RawEvent};

use super::adoption::NotAdopted;
use baton_consumer::memory::SharedMemory;
use baton_consumer::qp::{QpEvent, QueuePairs};
use baton_engine::region::Extent;
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{Incoming, RawSizes, Reply, Request};
use baton_ipc::queues::read_two;
use baton_ipc::version::{HELLO, agree};
use baton_policy::Reason;
use baton_port::wait::WaitSet;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How many polls pass between looks at the broker's channel, which cost a system call, if none of
/// them waits.
const HEAR_EVERY: u32 = 64;

/// Delay before a message that the broker had no space for is sent again.
const RETRY: Duration = Duration::from_millis(5);

/// Memory shared with an engine.
struct Memory {
    pairs: QueuePairs,
    doorbell: OwnedFd,
    completions: OwnedFd,
    dead: bool,
}

enum At {
    /// It is arriving with these queued bytes.
    Coming {
        memory: u32,
        unread: Vec<u8>,
        unsent: Vec<u8>,
        landing: Option<Landing>,
    },
    Engine(Place),
}

struct Connection {
    fd: OwnedFd,
    seq: u64,
    at: At,
}

/// A program's connection to a service, for queue pairs. Dropping it closes its connections, as the
/// end of the program would.
pub struct RawService {
    channel: Channel,
    sizes: RawSizes,
    memories: BTreeMap<u32, Memory>,
    adopting: BTreeMap<u64, OwnedFd>,
    connections: BTreeMap<u64, Connection>,
    events: VecDeque<RawEvent>,
    next_seq: u64,
    polls: u32,
    refused: Option<String>,
    gone: bool,
}

impl RawService {
    /// Connects to the service that listens at `path`, and asks for memory of these sizes in each
    /// engine that gets one of the program's connections.
    ///
    /// # Errors
    /// Those of `connect(2)`; `PermissionDenied` if this user may not use the service, or not this
    /// much memory.
    pub fn connect(path: impl AsRef<Path>, sizes: RawSizes) -> io::Result<RawService> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
        let mut channel = Channel::new(socket);
        // A broker that refuses has sent its reason and hung up, so the answer is read in any case.
        for request in [HELLO, Request::Raw { sizes }] {
            let _ = channel.send(request.to_bytes(), Vec::new());
            match next_reply(&channel)? {
                Reply::Welcome { version } if agree(version, version).is_some() => {}
                Reply::Refused { text } => return Err(io::Error::new(ErrorKind::PermissionDenied, text)),
                _ => {
                    return Err(io::Error::new(
                        ErrorKind::Unsupported,
                        "the service speaks another version of the protocol",
                    ));
                }
            }
        }
        Ok(RawService {
            channel,
            sizes,
            memories: BTreeMap::new(),
            adopting: BTreeMap::new(),
            connections: BTreeMap::new(),
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

    /// Hands a connected TCP socket over. [`RawEvent::Coming`] or [`RawEvent::NotAdopted`] follows
    /// with the number that this call returns. Nobody else may use the descriptor or a duplicate of
    /// it until it comes back.
    ///
    /// # Errors
    /// [`NotAdopted`] with the socket in its previous state.
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

    /// Accepts an arriving connection. Its queued bytes are written to `landing`, whose buffers
    /// belong to the engine until events name their ids. [`RawEvent::Adopted`] follows, or
    /// [`RawEvent::Home`] if the engine does not take the connection.
    ///
    /// # Errors
    /// `NotFound` if no such connection is arriving, `InvalidInput` if a buffer is too short.
    /// Nothing has changed then.
    pub fn take_in(&mut self, id: u64, landing: Landing) -> io::Result<()> {
        let RawService { connections, memories, .. } = self;
        let Some(Connection { at: At::Coming { memory, unread, unsent, landing: place @ None }, .. }) =
            connections.get_mut(&id)
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

    /// Declines an arriving connection; [`RawEvent::NotAdopted`] follows.
    ///
    /// # Errors
    /// Those of sending to the broker.
    pub fn refuse(&mut self, id: u64) -> io::Result<()> {
        self.say(&Request::Brought { id, taken: false }, Vec::new())
    }

    /// Asks for a connection to return to the kernel; [`RawEvent::Home`] or [`RawEvent::Stays`]
    /// follows.
    ///
    /// # Errors
    /// Those of sending to the broker.
    pub fn send_home(&mut self, id: u64) -> io::Result<()> {
        self.say(&Request::Restore { id }, Vec::new())
    }

    /// Closes a connection that the engine has, after the bytes posted for sending.
    /// [`RawEvent::Gone`] follows. If the engine dies first, the connection still returns to the
    /// kernel.
    ///
    /// # Errors
    /// `WouldBlock` if the request ring is full; `NotFound` if the engine does not have the
    /// connection.
    pub fn close(&mut self, id: u64) -> io::Result<()> {
        let Some(Connection { at: At::Engine(place), .. }) = self.connections.get(&id) else {
            return Err(ErrorKind::NotFound.into());
        };
        let memory = self.memories.get_mut(&place.memory).ok_or(ErrorKind::NotFound)?;
        memory.pairs.close(place.qp).map_err(io::Error::from)?;
        self.say(&Request::Close { id }, Vec::new())
    }

    /// Returns the queue pairs of a memory, and through them the memory itself.
    pub fn memory(&mut self, number: u32) -> Option<&mut QueuePairs> {
        self.memories.get_mut(&number).map(|memory| &mut memory.pairs)
    }

    /// Releases the memory of an engine that has died.
    pub fn forget(&mut self, number: u32) {
        if self.memories.get(&number).is_some_and(|memory| memory.dead) {
            self.memories.remove(&number);
        }
    }

    /// Returns the next event, if there is one.
    ///
    /// # Errors
    /// `NotConnected` once the service has gone, `PermissionDenied` if it has disconnected this
    /// program. No further events follow.
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

    /// Waits until there may be an event, for at most `timeout`.
    ///
    /// # Errors
    /// Those of `ppoll(2)`.
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
        let RawService { memories, connections, events, .. } = self;
        let Some(Memory { pairs, .. }) = memories.get_mut(&number) else { return };
        while let Some(event) = pairs.poll() {
            let QpEvent::Adopted { qp, token } = event else {
                events.push_back(RawEvent::Happened { memory: number, event });
                continue;
            };
            match connections.get_mut(&token) {
                Some(Connection { at: at @ At::Coming { landing: Some(_), .. }, .. }) => {
                    let place = Place { memory: number, qp };
                    let At::Coming { landing: Some(landing), .. } = std::mem::replace(at, At::Engine(place)) else {
                        unreachable!("the pattern above matched")
                    };
                    events.push_back(RawEvent::Adopted { id: token, place });
                    pairs
                        .post_brought(qp, landing.unread, landing.unsent)
                        .expect("the queues of a new queue pair are empty");
                }
                // The adoption was abandoned. If the request ring is full, the queue pair stays
                // open.
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
                // A broker that hung up with unread messages may have sent its reason before.
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
        super::heard::tell_of(&reply, |id| baton_journal::tuple_of(&self.connections.get(&id)?.fd));
        match reply {
            Reply::Region { region, .. } => {
                if let (Some(file), Some(doorbell), Some(completions)) = (fds.next(), fds.next(), fds.next()) {
                    self.on_memory(region, file, doorbell, completions);
                }
            }
            Reply::Bring { incoming: Incoming { seq, id, region, send, unread, .. } } => {
                self.on_bring(seq, id, region, fds.next(), send, unread)
            }
            Reply::Stays { seq, id, code, text } => self.on_stays(seq, id, code, text),
            Reply::Home { id, rcv_pos, tail_pos, .. } => self.on_home(id, rcv_pos, tail_pos),
            Reply::Gone { seq, id, loss } => self.on_gone(seq, id, loss.0.unwrap_or_default()),
            Reply::Dead { region } => {
                self.hear_engine(region);
                if let Some(memory) = self.memories.get_mut(&region) {
                    memory.dead = true;
                    self.events.push_back(RawEvent::Dead { memory: region });
                }
            }
            // A connection in the kernel belongs to the program, which hands it over itself.
            Reply::Prepare { id } => drop(self.say(&Request::Ready { id, free: false }, Vec::new())),
            Reply::Restarted {} => self.report(),
            Reply::Refused { text } => self.refused = Some(text),
            // Answers to requests that this library never makes.
            Reply::Welcome { .. }
            | Reply::Stand { .. }
            | Reply::Entry { .. }
            | Reply::Load { .. }
            | Reply::Event { .. }
            | Reply::Expected { .. }
            | Reply::Done { .. }
            | Reply::Engine {}
            | Reply::LocalEngine { .. }
            | Reply::BringToEngine { .. }
            | Reply::Policy { .. }
            | Reply::Watch { .. }
            | Reply::Observed { .. }
            | Reply::Followed { .. }
            | Reply::Unfollowed { .. }
            | Reply::Failed { .. }
            | Reply::Ruled { .. }
            | Reply::Waits { .. }
            | Reply::Link { .. }
            | Reply::Unlink { .. }
            | Reply::Pair { .. }
            | Reply::GivenBack { .. }
            | Reply::Info { .. } => {}
        }
    }

    /// Lists the connections and pending adoptions here for a new broker.
    fn report(&mut self) {
        let connections = self.connections.keys().map(|id| Request::Has { id: *id });
        let pending = self.adopting.keys().map(|seq| Request::Pending { seq: *seq });
        for request in connections.chain(pending).collect::<Vec<_>>() {
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
        if self.connections.contains_key(&id) {
            // A new broker repeats the message, but it means another engine's memory.
            return drop(self.refuse(id));
        }
        let queues = read_two(file, send, unread).ok().filter(|_| self.memories.contains_key(&memory));
        let fd = self.adopting.remove(&seq);
        match (queues, fd) {
            (Some((unsent, unread)), Some(fd)) => {
                let (waiting, read) = (unsent.len() as u32, unread.len() as u32);
                self.connections
                    .insert(id, Connection { fd, seq, at: At::Coming { memory, unread, unsent, landing: None } });
                self.events.push_back(RawEvent::Coming { seq, id, memory, unread: read, unsent: waiting });
            }
            (_, fd) => {
                self.adopting.extend(fd.map(|fd| (seq, fd)));
                let _ = self.refuse(id);
            }
        }
    }

    fn on_stays(&mut self, seq: u64, id: u64, code: String, text: String) {
        let comes = |connection: &Connection| matches!(connection.at, At::Coming { .. });
        let (seq, fd) = match self.adopting.remove(&seq) {
            Some(fd) => (seq, fd),
            None if self.connections.get(&id).is_some_and(comes) => {
                let connection = self.connections.remove(&id).expect("the connection was found above");
                (connection.seq, connection.fd)
            }
            None if self.connections.contains_key(&id) => return self.events.push_back(RawEvent::Stays { id, text }),
            None => return,
        };
        self.events.push_back(RawEvent::NotAdopted { seq, refused: NotAdopted { fd: Some(fd), code, text } });
    }

    /// Frees the connection's buffers and returns the sent bytes that the kernel does not have.
    fn depart(&mut self, place: Place, rcv_pos: u64, tail_pos: u64) -> Vec<u8> {
        // Process the engine's last completions first.
        self.hear_engine(place.memory);
        let Some(memory) = self.memories.get_mut(&place.memory) else { return Vec::new() };
        let rest = memory.pairs.depart(place.qp, rcv_pos, tail_pos);
        self.hear_engine(place.memory);
        rest
    }

    fn on_home(&mut self, id: u64, rcv_pos: u64, tail_pos: u64) {
        // The engine may have announced the adoption in shared memory already.
        if let Some(Connection { at: At::Coming { memory, .. }, .. }) = self.connections.get(&id) {
            let memory = *memory;
            self.hear_engine(memory);
        }
        let Some(Connection { fd, at, .. }) = self.connections.remove(&id) else { return };
        let (unread, unsent) = match at {
            At::Engine(place) => (Vec::new(), self.depart(place, rcv_pos, tail_pos)),
            // The kernel has the bytes to be sent.
            At::Coming { unread, .. } => (unread, Vec::new()),
        };
        self.events.push_back(RawEvent::Home { id, fd, unread, unsent });
        // The socket belongs to the program again.
        let _ = self.say(&Request::Close { id }, Vec::new());
    }

    fn on_gone(&mut self, seq: u64, id: u64, text: String) {
        if let Some(fd) = self.adopting.remove(&seq) {
            // It was lost before it arrived, so nobody owns what is left of the socket.
            drop(fd);
            let refused = NotAdopted::because(Reason::Lost, None, text);
            return self.events.push_back(RawEvent::NotAdopted { seq, refused });
        }
        let Some(Connection { at, .. }) = self.connections.remove(&id) else { return };
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
