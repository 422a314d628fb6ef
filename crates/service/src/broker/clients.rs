//! Programs: which may connect, and what they send. A program that breaks the protocol is
//! disconnected and loses only its own connections.

use super::admin::Asker;
use super::departure::Departure;
use super::discard::Room;
use super::engine_slot::{EngineSlot, Held};
use super::state::{Goal, State};
use super::stay_reason::StayReason;
use super::{Broker, Config};
use baton_consumer::adoption::LeftBehind;
use baton_engine::region::Layout;
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{RawSizes, Reply, Request, Told};
use baton_ipc::queues::read_two;
use baton_ipc::record::{self, Record};
use baton_ipc::version::{NEWEST, OLDEST, agree};
use baton_journal::{Kind, Level};
use baton_policy::survival::Class;
use baton_policy::{Reason, Refusal};
use rustix::fs::{Mode, chmod, fchmod};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen as listen_on,
    socket_with,
};
use rustix::process::geteuid;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The cost of the messages that are read from one program before the others get a turn.
const TURN: usize = 64;

/// The cost, against [`TURN`], of a message that carries descriptors. Any other costs 1.
const LONG: usize = 16;

/// A program that is connected to the broker.
pub(super) struct Client {
    pub channel: Channel,
    pub pid: u32,
    pub uid: u32,
    /// The version of the protocol that it speaks; `None` before its Hello.
    pub version: Option<u32>,
    /// The number of its connections.
    pub connections: usize,
    /// The last adoption that a predecessor began. Its request may still be in the socket.
    pub heard: Option<u64>,
    /// The sizes of its memory, if it uses raw queue pairs and not streams.
    pub raw: Option<RawSizes>,
    /// It runs engines itself.
    pub direct: bool,
    /// The journal has an event that says that the program uses the service.
    pub told: bool,
    /// The eventfd that the programs at the other sides of its links ring.
    pub bell: Option<Arc<OwnedFd>>,
    /// The channel's socket, which is kept again with each change to the record.
    socket: Arc<OwnedFd>,
}

/// Listens for programs. Replaces a socket file on which nobody listens.
pub(super) fn listen(config: &Config) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(&config.socket)?;
    let make = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    };
    let socket = make()?;
    if let Some(directory) = config.socket.parent() {
        std::fs::create_dir_all(directory)?;
    }
    // Nobody may connect before `chmod` below: the file takes the socket's own mode
    // (`unix_bind_bsd` in `net/unix/af_unix.c`). A umask would apply to the whole process.
    fchmod(&socket, Mode::empty())?;
    match bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if connect(make()?, &address) == Err(rustix::io::Errno::CONNREFUSED) => {
            std::fs::remove_file(&config.socket)?;
            bind(&socket, &address)
        }
        bound => bound,
    }?;
    listen_on(&socket, 64)?;
    chmod(&config.socket, Mode::from_raw_mode(config.mode))?;
    Ok(socket)
}

/// The socket that an adoption has to carry.
fn the_socket(fd: Option<OwnedFd>) -> Result<OwnedFd, String> {
    fd.ok_or_else(|| "an adoption must carry the socket's descriptor".into())
}

impl Client {
    /// True if it takes a connection and has its engine adopt it by one message.
    pub fn adopts_at_once(&self) -> bool {
        self.version.is_some_and(|version| version >= 2)
    }

    /// Returns true if the program is told why a connection is given back, so that it lets it return.
    pub fn hears_why(&self) -> bool {
        self.version.is_some_and(|version| version >= 3)
    }

    /// Returns true if the program can stamp its calls for observers. It has no calls to stamp if it handles
    /// queue pairs itself.
    pub fn stamps_calls(&self) -> bool {
        self.version.is_some_and(|version| version >= 5) && self.raw.is_none()
    }

    /// Returns true if both ends of a connection may exchange bytes through memory that this program shares
    /// with another.
    pub fn joins_pairs(&self) -> bool {
        self.version.is_some_and(|version| version >= 7) && self.raw.is_none()
    }

    /// Returns true if the program announces what it is about to write to a link, so that others can read along.
    pub fn announces(&self) -> bool {
        self.version.is_some_and(|version| version >= 6)
    }

    /// Returns true if the program lets go of a link once it is told to.
    pub fn lets_links_go(&self) -> bool {
        self.version.is_some_and(|version| version >= 6)
    }

    /// A program at the other end of `socket`.
    pub fn new(socket: Arc<OwnedFd>, pid: u32, uid: u32, version: Option<u32>) -> io::Result<Client> {
        let channel = Channel::new(socket.try_clone()?);
        Ok(Client {
            channel,
            pid,
            uid,
            version,
            connections: 0,
            heard: None,
            raw: None,
            direct: false,
            told: false,
            bell: None,
            socket,
        })
    }

    /// The layout of its region in an engine.
    pub fn layout(&self, config: &Config) -> Layout {
        self.raw.map_or_else(|| config.consumer.layout(), |raw| raw.layout())
    }

    /// The most connections that it may have, and the most bytes in a queue that comes along.
    pub fn limits(&self, config: &Config) -> (usize, usize) {
        let streams = config.consumer.brings_at_most() as usize;
        match self.raw {
            None => (config.consumer.connections as usize, streams),
            Some(raw) => (raw.connections as usize, streams.min(raw.data_bytes as usize)),
        }
    }

    /// Its record for the guardian.
    fn record(&self, client: u32) -> Record {
        let Client { pid, uid, raw, direct, version, .. } = *self;
        Record::Client { client, pid, uid, raw, direct, version }
    }
}

impl Broker {
    pub(super) fn accept(&mut self) {
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
            let Ok(who) = socket_peercred(&socket) else { continue };
            let (pid, uid) = (who.pid.as_raw_nonzero().get() as u32, who.uid.as_raw());
            let may =
                uid == 0 || uid == geteuid().as_raw() || self.config.users.contains(&uid) || self.members.have(pid);
            let text = if !may {
                format!("user {uid} may not use this service")
            } else if self.clients.len() >= self.config.programs {
                "the service has reached its limit of programs".to_owned()
            } else {
                let socket = Arc::new(socket);
                let program = match Client::new(socket.clone(), pid, uid, None) {
                    Ok(program) => program,
                    Err(error) => {
                        self.log_failed("taking a program in", Err::<(), _>(error));
                        continue;
                    }
                };
                self.next_client += 1;
                let client = self.next_client;
                self.checkpoints.keep(record::client(client), &program.record(client), &[&socket]);
                self.clients.insert(client, program);
                continue;
            };
            self.log_denied(pid, uid, &text);
            let _ = Channel::new(socket).send(Reply::Refused { text }.to_bytes(), Vec::new());
        }
    }

    /// Sends a message to a program, if it is still connected.
    pub(super) fn tell_client(&mut self, at: u32, reply: &Reply, fds: Vec<OwnedFd>) {
        self.log_said(at, reply);
        if let Some(client) = self.clients.get_mut(&at) {
            // If the program is gone, the next read from it shows that.
            let sent = client.channel.send(reply.to_bytes(), fds);
            if sent.is_err_and(|error| error.kind() == ErrorKind::OutOfMemory) {
                self.deaf.push(at);
            }
        }
    }

    pub(super) fn hear_client(&mut self, client: u32) {
        let mut left = TURN;
        while left > 0 && self.may_speak(client) {
            let Some(program) = self.clients.get_mut(&client) else { return };
            let _ = program.channel.flush();
            // A request is removed only after it was carried out, so that otherwise another broker
            // reads it.
            let said = match program.channel.peek() {
                Ok(Some(parcel)) => {
                    left = left.saturating_sub(if parcel.fds.is_empty() { 1 } else { LONG });
                    let said = self.on_parcel(client, parcel);
                    if let Some(program) = self.clients.get(&client) {
                        program.channel.consume();
                    }
                    said
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
                Ok(None) => return self.on_client_gone(client),
                Err(error) => {
                    // An unread message would reset the channel before the program reads the
                    // reason.
                    program.channel.consume();
                    Err(error.to_string())
                }
            };
            if let Err(text) = said {
                self.log_client(Level::Warn, Kind::DENIED, client, |event| {
                    event.reason("cut-off").text(format!("it is cut off: {text}"))
                });
                self.tell_client(client, &Reply::Refused { text }, Vec::new());
                return self.on_client_gone(client);
            }
        }
    }

    /// Returns false while descriptors that the user's programs sent are still being closed.
    pub(super) fn may_speak(&self, client: u32) -> bool {
        self.clients.get(&client).is_some_and(|program| self.closers.room(program.uid) != Room::Soon)
    }

    /// Handles a message. An invalid one yields the reason to disconnect the program.
    fn on_parcel(&mut self, client: u32, parcel: Parcel) -> Result<(), String> {
        let user = self.clients.get(&client).map_or(0, |program| program.uid);
        if !parcel.fds.is_empty() && self.closers.room(user) == Room::None {
            self.discard(client, parcel.fds);
            return Err("descriptors that this user sent earlier cannot be closed".into());
        }
        let mut fds = parcel.fds.into_iter();
        let said = match Request::from_bytes(&parcel.bytes) {
            Some(request) => self.on_request(client, request, &mut fds),
            None => Err("this is not a valid message".into()),
        };
        self.discard(client, fds);
        said
    }

    fn on_request(
        &mut self,
        client: u32,
        request: Request,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<(), String> {
        self.log_heard(client, &request);
        let greeted = self.clients.get(&client).is_some_and(|program| program.version.is_some());
        match request {
            Request::Hello { oldest, newest } => {
                let version = agree(oldest, newest).ok_or_else(|| {
                    format!("protocol versions {oldest} to {newest} are not supported; this service speaks {OLDEST} to {NEWEST}")
                })?;
                if let Some(program) = self.clients.get_mut(&client) {
                    program.version = Some(version);
                }
                self.welcome(client);
            }
            _ if !greeted => return Err("the first message must be Hello".into()),
            Request::Adopt { seq } | Request::Offer { seq, .. } if self.heard_before(client, seq) => {}
            Request::Adopt { seq } => self.adopt(client, seq, the_socket(fds.next())?, (Told::default(), None)),
            Request::Offer { seq, told, held } => {
                let held = held.map(|(tuple, engine)| Held { tuple, engine });
                self.adopt(client, seq, the_socket(fds.next())?, (told, held))
            }
            Request::Brought { id, taken } if self.is_at(client, id, |state| matches!(state, State::Bringing(_))) => {
                self.on_brought(id, taken)
            }
            Request::Brought { id, taken } if self.is_at(client, id, |state| matches!(state, State::Paired(_))) => {
                self.on_brought_pair(id, taken)
            }
            Request::Brought { id, taken: false } if self.is_starting_in(client, id) => self.on_brought(id, false),
            Request::Ready { id, free } if self.is_asked(client, id) => self.on_ready(id, free),
            Request::Restore { id } if self.owns(client, id) => self.on_restore(id),
            Request::LeftBehind { id, unread, unsent }
                if self.is_at(client, id, |state| matches!(state, State::Standing(_))) =>
            {
                let file = self.memory_file(client, fds.next()).map_err(|e| e.to_string())?;
                let (unread, unsent) = read_two(file, unread, unsent).map_err(|e| e.to_string())?;
                self.on_left_behind(id, LeftBehind { unsent, unread, shut: false });
            }
            Request::PutBack { id, unread, unsent } if self.is_in_kernel(client, id) => {
                let file = self.memory_file(client, fds.next()).map_err(|e| e.to_string())?;
                let (unread, unsent) = read_two(file, unread, unsent).map_err(|e| e.to_string())?;
                self.put_back(id, LeftBehind { unsent, unread, shut: false });
            }
            Request::Raw { sizes } => self.make_raw(client, sizes)?,
            Request::Direct {} => self.make_direct(client),
            Request::Info { id } if self.owns(client, id) => self.ask_info(id),
            Request::Close { id } if self.owns(client, id) => self.on_close(id),
            Request::Has { id } if self.owns(client, id) => self.confirm(id),
            Request::Has { id } => {
                self.tell_client(client, &Reply::Gone { seq: 0, id, loss: Departure::Ended.loss() }, Vec::new())
            }
            Request::Pending { seq } => self.on_pending(client, seq),
            // The connection may have ended in the meantime.
            Request::Brought { .. }
            | Request::Ready { .. }
            | Request::Restore { .. }
            | Request::LeftBehind { .. }
            | Request::PutBack { .. }
            | Request::Info { .. }
            | Request::Close { .. } => {}
            Request::List { ask } => self.list(client, ask),
            Request::Loads { ask } => self.list_loads(Asker { client, ask }),
            Request::Events { ask, after, most } => self.show_events(Asker { client, ask }, after, most),
            Request::Handoff { ask, which } => self.begin_handoff(Asker { client, ask }, which, None),
            Request::HandoffTo { ask, which, to } => self.begin_handoff(Asker { client, ask }, which, Some(to)),
            Request::Home { ask, which } => self.begin_home(Asker { client, ask }, which),
            Request::Stop { ask } if self.rules(client) => self.begin_stop(Some(Asker { client, ask })),
            Request::Upgrade { ask } if self.rules(client) => {
                self.replace_engines(Some(Asker { client, ask }), Reason::Upgrade)
            }
            Request::Join { ask } if self.rules(client) => self.on_join(client, ask),
            Request::Reload { ask, len } if self.rules(client) => {
                let file = self.memory_file(client, fds.next()).map_err(|e| e.to_string())?;
                let (text, _) = read_two(file, len, 0).map_err(|e| e.to_string())?;
                self.on_reload(Asker { client, ask }, &text);
            }
            Request::Policy { ask } => self.show_policy(client, ask),
            Request::Expect { ask, rule, port, packets } => {
                self.show_expected(Asker { client, ask }, Class { rule, port }, packets)
            }
            Request::Observe { ask, which, pid, every } => {
                self.begin_observing(Asker { client, ask }, which, pid, every)
            }
            Request::Follow { ask, which } => self.begin_following(Asker { client, ask }, which),
            Request::Stop { .. } | Request::Upgrade { .. } | Request::Join { .. } | Request::Reload { .. } => {
                return Err("only root and the service's user may do this".into());
            }
        }
        Ok(())
    }

    /// Returns true if a predecessor read this adoption and died before it answered.
    fn heard_before(&mut self, client: u32, seq: u64) -> bool {
        self.clients.get_mut(&client).is_some_and(|program| program.heard.take_if(|heard| *heard == seq).is_some())
    }

    /// A program waits for an adoption that it sent to a predecessor. If no connection has this
    /// number, the answer would never come.
    fn on_pending(&mut self, client: u32, seq: u64) {
        if self.connections.of_client(client).all(|connection| connection.adoption != Some(seq)) {
            let text = "the broker died before it answered".to_owned();
            let stays = Reply::Stays { seq, id: 0, code: Reason::BrokerDied.to_string(), text };
            self.tell_client(client, &stays, Vec::new());
        }
    }

    /// A program asks for memory for raw queue pairs, which may not exceed what others have.
    fn make_raw(&mut self, client: u32, sizes: RawSizes) -> Result<(), String> {
        let has_memory = |slot: &EngineSlot| slot.memory(client).is_some();
        let used = self.slots.iter().any(has_memory) || self.connections.of_client(client).next().is_some();
        let most = self.config.consumer.layout();
        if sizes.connections > most.qps || sizes.data_bytes > most.data_bytes {
            let (connections, bytes) = (most.qps, most.data_bytes);
            return Err(format!("a program may have at most {connections} connections and {bytes} bytes of memory"));
        }
        sizes.layout().bytes().map_err(|error| error.to_string())?;
        let Some(program) = self.clients.get_mut(&client) else { return Ok(()) };
        // Another broker may read the same request again.
        if used && program.raw != Some(sizes) {
            return Err("a program must choose its memory before its first adoption".into());
        }
        program.raw = Some(sizes);
        self.welcome(client);
        Ok(())
    }

    /// A program runs engines itself from now on.
    fn make_direct(&mut self, client: u32) {
        let Some(program) = self.clients.get_mut(&client) else { return };
        program.direct = true;
        self.welcome(client);
    }

    /// Records a program's choices, and confirms them.
    fn welcome(&mut self, client: u32) {
        self.keep_client(client);
        let Some(version) = self.clients.get(&client).and_then(|program| program.version) else { return };
        self.tell_client(client, &Reply::Welcome { version }, Vec::new());
    }

    /// Records what is known of a program.
    pub(super) fn keep_client(&mut self, client: u32) {
        let Some(program) = self.clients.get(&client) else { return };
        let fds: Vec<&Arc<OwnedFd>> = std::iter::once(&program.socket).chain(&program.bell).collect();
        self.checkpoints.keep(record::client(client), &program.record(client), &fds);
    }

    /// True if an engine inside the program is to adopt the connection.
    fn is_starting_in(&self, client: u32, id: u64) -> bool {
        let slot = self.connections.get(id).and_then(|connection| self.slots.get(connection.slot));
        self.is_at(client, id, |state| matches!(state, State::Starting(_)))
            && slot.is_some_and(|slot| slot.is_of(client))
    }

    /// True if this broker asked the program to prepare the connection, and what the program says now can be
    /// the answer. An answer to a predecessor comes before the program's word that it has the connection.
    fn is_asked(&self, client: u32, id: u64) -> bool {
        self.is_at(client, id, |state| matches!(state, State::Preparing(_)))
            && self.connections.get(id).is_some_and(|connection| connection.confirmed)
    }

    /// The program has the connection, and knows of this broker.
    fn confirm(&mut self, id: u64) {
        self.connections.get_mut(id).into_iter().for_each(|connection| connection.confirmed = true);
    }

    fn owns(&self, client: u32, id: u64) -> bool {
        self.is_at(client, id, |_| true)
    }

    fn is_at(&self, client: u32, id: u64, wanted: impl Fn(&State) -> bool) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.client == client && wanted(&connection.state))
    }

    fn is_in_kernel(&self, client: u32, id: u64) -> bool {
        self.is_at(client, id, |state| matches!(state, State::Kernel(_) | State::Preparing(_)))
    }

    /// Returns true for root and for the user that the service runs as.
    pub(super) fn rules(&self, client: u32) -> bool {
        self.clients.get(&client).is_some_and(|program| program.uid == 0 || program.uid == geteuid().as_raw())
    }

    /// A program has gone. The kernel closes its connections, as it would have closed them if the
    /// program had never handed them over.
    pub(super) fn on_client_gone(&mut self, client: u32) {
        self.log_disconnected(client);
        if self.clients.remove(&client).is_none() {
            return;
        }
        self.checkpoints.forget(record::client(client));
        self.end_observing(client);
        self.end_following(client);
        self.meetings_without(client);
        self.reap_engines_of(client);
        let ids = self.connections.ids(|connection| connection.client == client);
        ids.iter().for_each(|id| self.skip_what_was_read(*id));
        for id in ids {
            let Some(connection) = self.connections.known_mut(id) else { continue };
            match &mut connection.state {
                State::Kernel(_) | State::Preparing(_) | State::Holding(_) | State::Meeting(_) => self.forget(id),
                State::Paired(_) => self.end_pair_of_dead(id),
                State::Engine(_) => self.evict(id, Goal::Close, Reason::ProgramGone),
                State::Leaving(leaving) => {
                    leaving.goal = Goal::Close;
                    connection.waited = None;
                }
                State::Bringing(_) => {
                    self.undo_bringing(id, StayReason::new(Reason::ProgramGone, Refusal::NotConnected.to_string()))
                }
                State::Standing(_) => self.on_left_behind(id, LeftBehind::default()),
                // This is handled where they arrive.
                State::Starting(_) | State::Closing(_) | State::Stranded(_) | State::Between => {}
            }
        }
        self.forget_memory(client);
    }

    /// Forgets the memory of a program that has gone, once no connection needs it.
    pub(super) fn forget_memory(&mut self, client: u32) {
        if self.clients.contains_key(&client) || self.connections.of_client(client).next().is_some() {
            return;
        }
        for at in 0..self.slots.len() {
            let engine = self.slots[at].engine.as_mut();
            let Some(memory) = engine.and_then(|engine| engine.consumers.remove(&client)) else { continue };
            self.checkpoints.forget(record::region(memory.region));
            self.slots[at].tell(&baton_ipc::order::Order::Forget { key: memory.region }, Vec::new());
            self.end_observed(&memory);
            self.end_notes(at);
        }
        self.forget_links(client);
    }
}
