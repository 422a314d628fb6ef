//! Programs: who may connect, and what they say. One that makes no sense is cut off, and
//! loses its own connections.

use super::connection::{Goal, State};
use super::discard::Room;
use super::engine_slot::EngineSlot;
use super::home::Departure;
use super::stay_reason::StayReason;
use super::{Broker, Config};
use crate::record::{self, Record};
use baton_engine::region::Layout;
use baton_policy::Refusal;
use baton_socket::adoption::LeftBehind;
use baton_socket::service::channel::{Channel, Parcel};
use baton_socket::service::message::{RawSizes, Reply, Request, VERSION};
use baton_socket::service::read_two;
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

/// Messages of one program that are heard before the others' turn comes.
const TURN: usize = 64;

/// So many of these are those that take long.
const LONG: usize = 16;

/// A program.
pub(super) struct Client {
    pub channel: Channel,
    pub pid: u32,
    pub uid: u32,
    /// It has said who it is.
    greeted: bool,
    /// Connections of its.
    pub connections: usize,
    /// The last adoption that a predecessor began: the request may still be there.
    pub heard: Option<u64>,
    /// What its memory is, if it is not for streams.
    pub raw: Option<RawSizes>,
    /// It drives engines itself.
    pub direct: bool,
    /// To be kept again with what changes.
    socket: Arc<OwnedFd>,
}

/// Listens where programs connect. A socket that nobody listens on is a left-over.
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
    // Before it can be connected to, nobody may: its file gets the socket's own mode
    // (`unix_bind_bsd` in `net/unix/af_unix.c`). A umask would be the whole process's.
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

/// True if one process is among the ancestors of another, which may end meanwhile: then it is
/// nobody's.
pub(super) fn descends(mut pid: u32, ancestor: u32) -> bool {
    // Only so far: parents change while they are asked for.
    for _ in 0..64 {
        match parent(pid) {
            Some(parent) if parent == ancestor => return true,
            Some(parent @ 2..) => pid = parent,
            _ => return false,
        }
    }
    false
}

/// A process's parent (`proc_pid_stat(5)`, field 4; the second may hold anything but ends with
/// the last parenthesis).
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

impl Client {
    /// At the other end of `socket`.
    pub fn new(socket: Arc<OwnedFd>, pid: u32, uid: u32, greeted: bool) -> io::Result<Client> {
        let channel = Channel::new(socket.try_clone()?);
        Ok(Client { channel, pid, uid, greeted, connections: 0, heard: None, raw: None, direct: false, socket })
    }

    /// The region that it gets in an engine.
    pub fn layout(&self, config: &Config) -> Layout {
        self.raw.map_or_else(|| config.consumer.layout(), |raw| raw.layout())
    }

    /// Connections that it may have at most, and bytes that one may bring along in a queue.
    pub fn limits(&self, config: &Config) -> (usize, usize) {
        let streams = config.consumer.brings_at_most() as usize;
        match self.raw {
            None => (config.consumer.connections as usize, streams),
            Some(raw) => (raw.connections as usize, streams.min(raw.data_bytes as usize)),
        }
    }

    /// What is kept of it.
    fn record(&self, client: u32) -> Record {
        Record::Client { client, pid: self.pid, uid: self.uid, raw: self.raw, direct: self.direct }
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
                "the service has as many programs as it may".to_owned()
            } else {
                let socket = Arc::new(socket);
                let Ok(program) = Client::new(socket.clone(), pid, uid, false) else { continue };
                self.next_client += 1;
                let client = self.next_client;
                self.checkpoints.keep(record::client(client), &program.record(client), &[&socket]);
                self.clients.insert(client, program);
                continue;
            };
            let _ = Channel::new(socket).send(Reply::Refused { text }.to_bytes(), Vec::new());
        }
    }

    /// Says something to a program, if it is there.
    pub(super) fn tell_client(&mut self, at: u32, reply: &Reply, fds: Vec<OwnedFd>) {
        if let Some(client) = self.clients.get_mut(&at) {
            // One that has gone is found out by hearing it.
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
            // A request is taken away once it was carried out: else another broker hears it.
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
                    // What is left unread would reset the channel before it hears why.
                    program.channel.consume();
                    Err(error.to_string())
                }
            };
            if let Err(text) = said {
                self.tell_client(client, &Reply::Refused { text }, Vec::new());
                return self.on_client_gone(client);
            }
        }
    }

    /// False while what its user's programs brought is being closed.
    pub(super) fn may_speak(&self, client: u32) -> bool {
        self.clients.get(&client).is_some_and(|program| self.closers.room(program.uid) != Room::Soon)
    }

    /// What makes no sense is the end, with the reason.
    fn on_parcel(&mut self, client: u32, parcel: Parcel) -> Result<(), String> {
        let user = self.clients.get(&client).map_or(0, |program| program.uid);
        if !parcel.fds.is_empty() && self.closers.room(user) == Room::None {
            self.discard(client, parcel.fds);
            return Err("descriptors that this user sent before do not close".into());
        }
        let mut fds = parcel.fds.into_iter();
        let said = match Request::from_bytes(&parcel.bytes) {
            Some(request) => self.on_request(client, request, &mut fds),
            None => Err("that is no message".into()),
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
        let greeted = self.clients.get(&client).is_some_and(|program| program.greeted);
        match request {
            Request::Hello { version } if version == VERSION => {
                if let Some(program) = self.clients.get_mut(&client) {
                    program.greeted = true;
                }
                self.tell_client(client, &Reply::Welcome { version: VERSION }, Vec::new());
            }
            Request::Hello { version } => return Err(format!("version {version} is not spoken here, {VERSION} is")),
            _ if !greeted => return Err("say Hello first".into()),
            Request::Adopt { seq } if self.heard_before(client, seq) => {}
            Request::Adopt { seq } => match fds.next() {
                Some(fd) => self.adopt(client, seq, fd),
                None => return Err("a socket's descriptor comes with it".into()),
            },
            Request::Brought { id, taken } if self.is_at(client, id, State::Bringing) => self.on_brought(id, taken),
            Request::Ready { id, free } if self.is_at(client, id, State::Preparing) => self.on_ready(id, free),
            Request::Restore { id } if self.owns(client, id) => self.restore_whole(id),
            Request::LeftBehind { id, unread, unsent } if self.is_at(client, id, State::Standing) => {
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
            Request::Has { id } if self.owns(client, id) => {}
            Request::Has { id } => self.tell_client(
                client,
                &Reply::Gone { seq: 0, id, text: Departure::Ended.text().to_owned() },
                Vec::new(),
            ),
            Request::Pending { seq } => self.on_pending(client, seq),
            // Of a connection that has ended meanwhile, it may be.
            Request::Brought { .. }
            | Request::Ready { .. }
            | Request::Restore { .. }
            | Request::LeftBehind { .. }
            | Request::PutBack { .. }
            | Request::Info { .. }
            | Request::Close { .. } => {}
            Request::List { ask } => self.list(client, ask),
            Request::Handoff { ask, which } => self.begin_handoff((client, ask), which),
            Request::Home { ask, which } => self.begin_home((client, ask), which),
            Request::Stop { ask } if self.rules(client) => self.begin_stop(Some((client, ask))),
            Request::Upgrade { ask } if self.rules(client) => self.replace_engines(Some((client, ask)), "upgrade"),
            Request::Join { ask } if self.rules(client) => self.on_join(client, ask),
            Request::Stop { .. } | Request::Upgrade { .. } | Request::Join { .. } => {
                return Err("only root and the service's user may".into());
            }
        }
        Ok(())
    }

    /// Whether a predecessor heard this, and died over it.
    fn heard_before(&mut self, client: u32, seq: u64) -> bool {
        self.clients.get_mut(&client).is_some_and(|program| program.heard.take_if(|heard| *heard == seq).is_some())
    }

    /// An adoption that its program waits for, and whose answer it may never get: it was a
    /// predecessor's.
    fn on_pending(&mut self, client: u32, seq: u64) {
        if self.connections.values().all(|connection| (connection.client, connection.seq) != (client, seq)) {
            let text = "the broker died meanwhile".to_owned();
            let stays = Reply::Stays { seq, id: 0, code: "broker-died".into(), text };
            self.tell_client(client, &stays, Vec::new());
        }
    }

    /// A program wants memory for queue pairs of its own: no more of it than others have.
    fn make_raw(&mut self, client: u32, sizes: RawSizes) -> Result<(), String> {
        let has_memory = |slot: &EngineSlot| slot.memory(client).is_some();
        let used = self.slots.iter().any(has_memory)
            || self.connections.values().any(|connection| connection.client == client);
        let most = self.config.consumer.layout();
        if sizes.connections > most.qps || sizes.data_bytes > most.data_bytes {
            let (connections, bytes) = (most.qps, most.data_bytes);
            return Err(format!("a program has {connections} connections and {bytes} bytes of memory at most"));
        }
        sizes.layout().bytes().map_err(|error| error.to_string())?;
        let Some(program) = self.clients.get_mut(&client) else { return Ok(()) };
        // Heard once more by another broker, it is the same.
        if used && program.raw != Some(sizes) {
            return Err("what a program's memory is it says before its first adoption".into());
        }
        program.raw = Some(sizes);
        self.checkpoints.keep(record::client(client), &program.record(client), &[&program.socket]);
        self.tell_client(client, &Reply::Welcome { version: VERSION }, Vec::new());
        Ok(())
    }

    /// A program drives engines itself from now on.
    fn make_direct(&mut self, client: u32) {
        let Some(program) = self.clients.get_mut(&client) else { return };
        program.direct = true;
        self.checkpoints.keep(record::client(client), &program.record(client), &[&program.socket]);
        self.tell_client(client, &Reply::Welcome { version: VERSION }, Vec::new());
    }

    fn owns(&self, client: u32, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.client == client)
    }

    fn is_at(&self, client: u32, id: u64, state: State) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.client == client && connection.state == state)
    }

    fn is_in_kernel(&self, client: u32, id: u64) -> bool {
        self.is_at(client, id, State::Kernel) || self.is_at(client, id, State::Preparing)
    }

    /// True for root and for the user whose service it is.
    pub(super) fn rules(&self, client: u32) -> bool {
        self.clients.get(&client).is_some_and(|program| program.uid == 0 || program.uid == geteuid().as_raw())
    }

    /// The kernel closes what it left behind, as it would have if the program had never
    /// handed it over.
    pub(super) fn on_client_gone(&mut self, client: u32) {
        if self.clients.remove(&client).is_none() {
            return;
        }
        self.checkpoints.forget(record::client(client));
        self.reap_engines_of(client);
        let left: Vec<u64> = self
            .connections
            .values()
            .filter(|connection| connection.client == client)
            .map(|connection| connection.id)
            .collect();
        for id in left {
            match self.connections[&id].state {
                State::Kernel | State::Preparing | State::Holding => self.forget(id),
                State::Engine => self.leave(id, Goal::Close, "program-gone"),
                State::Leaving(_) => {
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.state = State::Leaving(Goal::Close);
                    }
                }
                State::Bringing => {
                    self.give_back_whole(id, StayReason::new("program-gone", Refusal::NotConnected.to_string()))
                }
                State::Standing => self.on_left_behind(id, LeftBehind::default()),
                // Found out where they arrive.
                State::Starting | State::Closing | State::Left { .. } => {}
            }
        }
        self.forget_memory(client);
    }

    /// A program that has gone has its memory forgotten once no connection needs it.
    pub(super) fn forget_memory(&mut self, client: u32) {
        if self.clients.contains_key(&client) || self.connections.values().any(|connection| connection.client == client)
        {
            return;
        }
        for slot in &mut self.slots {
            let memory = slot.engine.as_mut().and_then(|engine| engine.consumers.remove(&client));
            if let Some(memory) = memory {
                self.checkpoints.forget(record::region(memory.region));
                slot.tell(&baton_socket::service::order::Order::Forget { key: memory.region }, Vec::new());
            }
        }
    }
}
