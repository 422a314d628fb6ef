//! The state that a program's threads and this library's thread share.

use super::adoption::Adopting;
use super::attendance::Attendance;
use super::connection::Connection;
use super::descriptors::lifted;
use super::engines::Engines;
use super::following::Following;
use super::held_back::Corks;
use super::links::Pairs;
use super::location::{InEngine, Location};
use super::observing::Observing;
use super::region::{Region, in_engine};
use baton_consumer::adoption::Remains;
use baton_consumer::consumer::Conn;
use baton_consumer::fork::{Process, Unshared};
use baton_consumer::held::Counted;
use baton_consumer::signals;
use baton_consumer::waiters::Waiters;
use baton_ipc::channel::Channel;
use baton_ipc::engine::monotonic;
use baton_ipc::message::{Reply, Request};
use baton_ipc::version::OLDEST;
use baton_policy::rules::Rule;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::sockopt::set_socket_linger;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

/// The state that is protected by the lock.
pub(super) struct Inner {
    /// Keeps forked children from inheriting the channel: with it, a child would hide this
    /// process's death from the broker.
    unshared: Option<Unshared>,
    /// `None` once the broker has gone.
    pub channel: Option<Channel>,
    pub regions: BTreeMap<u32, Region>,
    pub connections: BTreeMap<u64, Connection>,
    pub engines: Arc<Engines>,
    /// The last reading of `CLOCK_MONOTONIC`.
    pub clock: u64,
    pub adopting: BTreeMap<u64, Adopting>,
    pub answers: VecDeque<Reply>,
    pub askers: Waiters,
    /// The epoll instance for sockets that someone waits for.
    pub ready: OwnedFd,
    pub next_seq: u64,
    /// Number of the last registered watch.
    pub next_watch: u64,
    /// When to release bytes that are held back.
    pub corks: Corks,
    /// Some connection may have settings that its engine had no space for.
    pub settings_pending: bool,
    /// The thread must look for work again.
    pub look: bool,
    /// The [`Service`](super::Service) was dropped.
    pub ended: bool,
    pub refused: Option<String>,
    /// Rules for connections that have not become streams yet, by the broker's number.
    pub ruled: BTreeMap<u64, Rule>,
    pub observing: Observing,
    pub following: Following,
    /// The text of the service's policy, once it was asked for.
    pub policy: Option<Vec<u8>>,
    /// Links to programs of this machine.
    pub pairs: Pairs,
    /// The version of the protocol that the service agreed to.
    pub version: u32,
}

pub(super) struct Shared {
    inner: Mutex<Inner>,
    /// Engines in this program.
    pub engines: Arc<Engines>,
    /// Wakes the library's thread.
    pub wake: OwnedFd,
    /// Start of the consumers' clock, in nanoseconds of `CLOCK_MONOTONIC`.
    pub started: u64,
    pub attendance: Attendance,
    process: Process,
}

/// The locked state.
pub type Guard<'a> = Counted<MutexGuard<'a, Inner>>;

impl Shared {
    /// Starts the library's thread, which runs `run`.
    ///
    /// # Errors
    /// If there are no descriptors, or no thread can be started.
    pub fn start(channel: Channel, run: fn(&Arc<Shared>)) -> io::Result<Arc<Shared>> {
        let process = Process::this();
        let engines = Arc::new(Engines::default());
        let inner = Inner {
            unshared: Some(Unshared::new(&channel)),
            channel: Some(channel),
            regions: BTreeMap::new(),
            connections: BTreeMap::new(),
            engines: engines.clone(),
            clock: monotonic(),
            adopting: BTreeMap::new(),
            answers: VecDeque::new(),
            askers: Waiters::default(),
            ready: lifted(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            next_seq: 0,
            next_watch: 0,
            corks: Corks::default(),
            settings_pending: false,
            look: false,
            ended: false,
            refused: None,
            ruled: BTreeMap::new(),
            observing: Observing::default(),
            following: Following::default(),
            policy: None,
            pairs: Pairs::default(),
            version: OLDEST,
        };
        let wake = lifted(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let shared = Arc::new(Shared {
            inner: Mutex::new(inner),
            engines,
            wake,
            started: monotonic(),
            attendance: Attendance::default(),
            process,
        });
        let thread = thread::Builder::new().name("baton-service".into());
        signals::blocked(|| {
            let shared = shared.clone();
            // The thread is detached and ends by itself.
            thread.spawn(move || run(&shared)).map(drop)
        })?;
        Ok(shared)
    }

    /// Fails in a forked child.
    pub fn check(&self) -> io::Result<()> {
        let elsewhere = || io::Error::new(ErrorKind::NotConnected, "it belongs to the parent process");
        self.process.is_this().then_some(()).ok_or_else(elsewhere)
    }

    /// Takes the lock. Must not be called in a forked child, where the lock may be held forever.
    pub fn lock(&self) -> Guard<'_> {
        // The state is still valid after a panic: its cursors are always consistent.
        Counted::lock(&self.inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        Counted::try_lock(&self.inner)
    }

    /// Runs `run` under the lock, then wakes sleeping engines, and drives those of this program.
    ///
    /// # Errors
    /// Those of [`Shared::check`].
    pub fn with<R>(&self, run: impl FnOnce(&mut Inner) -> R) -> io::Result<R> {
        self.check()?;
        let _whole = Counted::whole();
        let mut inner = self.lock();
        let result = run(&mut inner);
        inner.wake_engines();
        let looks = std::mem::take(&mut inner.look);
        drop(inner);
        self.drive();
        if looks {
            self.look_again();
        }
        Ok(result)
    }

    /// Makes the thread look for work.
    pub fn look_again(&self) {
        // The write fails only if the counter is at its maximum, and then the thread wakes anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Like [`Shared::with`], and makes the thread look for work afterwards.
    ///
    /// # Errors
    /// Those of [`Shared::check`].
    pub fn change<R>(&self, run: impl FnOnce(&mut Inner) -> R) -> io::Result<R> {
        self.with(|inner| {
            inner.look = true;
            run(inner)
        })
    }
}

impl Inner {
    /// Wakes engines that sleep and for which there is something to do. For those of this program, which never sleep,
    /// it is noted.
    pub fn wake_engines(&self) {
        for region in self.live_regions() {
            let consumer = region.consumer.region();
            if region.is_inside() {
                if consumer.has_rung() {
                    self.engines.note_rung();
                }
            } else if consumer.must_wake_engine() {
                let _ = rustix::io::write(&region.doorbell, &1u64.to_ne_bytes());
            }
        }
    }

    /// Closes the channel to the broker.
    pub fn hang_up(&mut self) {
        self.unshared = None;
        self.channel = None;
    }

    pub fn connection(&self, id: u64) -> Option<&Connection> {
        self.connections.get(&id)
    }

    pub fn say(&mut self, request: &Request, fds: Vec<OwnedFd>) -> io::Result<()> {
        let channel = self.channel.as_mut().ok_or_else(|| self.refused.gone())?;
        channel.send(request.to_bytes(), fds)
    }

    pub fn next_answer(&mut self) -> Option<Reply> {
        self.answers.pop_front()
    }

    pub fn await_answer(&mut self, cx: &Context<'_>) -> Poll<io::Result<Reply>> {
        if self.channel.is_none() {
            return Poll::Ready(Err(self.refused.gone()));
        }
        self.askers.add(cx);
        Poll::Pending
    }

    /// Registers the task as waiting if the call would block.
    pub fn pend<R>(&mut self, id: u64, write: bool, cx: &Context<'_>, done: io::Result<R>) -> Poll<io::Result<R>> {
        if !would_block(&done) {
            return Poll::Ready(done);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.wait(write, cx);
        }
        Poll::Pending
    }

    pub fn read(&mut self, id: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Inner { connections, regions, ready, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if connection.stands() {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !connection.unread.is_empty() {
            let count = io::Read::read(&mut connection.unread, buf);
            if connection.unread.is_empty() {
                // Releases the queue's memory.
                connection.unread = VecDeque::new();
            }
            return count;
        }
        let read = match connection.location() {
            Location::Kernel(_) => {
                let read = connection.read_kernel(id, ready.as_fd(), buf);
                connection.at_home.1 += *read.as_ref().unwrap_or(&0) as u64;
                read
            }
            Location::Away(_) | Location::Coming(_) => Err(ErrorKind::WouldBlock.into()),
            &Location::Engine(InEngine { region, conn, .. }) => {
                in_engine(regions, region, conn, |consumer| consumer.read(conn, buf))
            }
            Location::Pair(_) => return self.read_pair(id, buf).or_else(|error| self.or_end_of_file(id, error)),
            Location::Ended(_) => connection.take_error().map_or(Ok(0), Err),
        };
        read.or_else(|error| self.or_end_of_file(id, error))
    }

    /// A program that has shut down reading reads an end of file where others would wait.
    fn or_end_of_file(&self, id: u64, error: io::Error) -> io::Result<usize> {
        let is_shut = |connection: &Connection| connection.is_shut_for_reading();
        let shut = error.kind() == ErrorKind::WouldBlock && self.connections.get(&id).is_some_and(is_shut);
        if shut { Ok(0) } else { Err(error) }
    }

    pub fn write(&mut self, id: u64, data: &[u8]) -> io::Result<usize> {
        self.write_some(id, data, false)
    }

    pub fn take_bytes_at_home(&mut self, id: u64) -> (u64, u64) {
        self.connections.get_mut(&id).map(|connection| std::mem::take(&mut connection.at_home)).unwrap_or_default()
    }

    pub fn shutdown(&mut self, id: u64) -> io::Result<()> {
        let Inner { connections, regions, ready, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        connection.shut = true;
        match connection.location() {
            Location::Kernel(_) => connection.flush(id, ready.as_fd()).or_else(not_now),
            &Location::Engine(InEngine { region, conn, .. }) => {
                in_engine(regions, region, conn, |consumer| connection.flush_to(consumer, conn)).or_else(not_now)
            }
            // Done on arrival.
            Location::Away(_) | Location::Coming(_) => Ok(()),
            Location::Pair(_) => {
                self.finish_pair(id);
                Ok(())
            }
            Location::Ended(_) => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Handles the drop of a stream.
    pub fn close(&mut self, id: u64) {
        let Inner { connections, regions, ready, .. } = self;
        let Some(connection) = connections.get_mut(&id) else { return };
        connection.closed = true;
        // Tasks that poll the stream's eventfd are not woken any more.
        (connection.readers, connection.writers) = Default::default();
        // Wake watchers, which would otherwise sleep forever.
        connection.watchers.wake();
        connection.watchers.clear();
        match connection.location() {
            // Closed on arrival.
            Location::Away(_) | Location::Coming(_) => return,
            Location::Engine(InEngine { region, conn, .. }) => {
                if let Some(region) = regions.get_mut(region).filter(|region| !region.dead) {
                    if connection.unread.is_empty() && !connection.aborts() {
                        region.consumer.close(*conn);
                    } else {
                        region.consumer.abort(*conn);
                    }
                    // The entry stays until the connection has ended: it may return to the kernel
                    // before, with the last written bytes.
                    let _ = self.say(&Request::Close { id }, Vec::new());
                }
                // If the engine died, the broker will report the restore, unless it is gone too.
                if self.channel.is_some() {
                    return;
                }
            }
            Location::Kernel(_) => {
                // Bytes that the program has had would make the close a reset.
                let known = connection.skip_known(id, ready.as_fd());
                let done = known.and_then(|()| connection.flush(id, ready.as_fd()));
                if matches!(done, Err(error) if error.kind() == ErrorKind::WouldBlock) {
                    return;
                }
                if !connection.unread.is_empty() {
                    // A close with unread bytes resets the connection, as in the kernel.
                    let _ = set_socket_linger(&connection.fd, Some(std::time::Duration::ZERO));
                }
            }
            Location::Pair(_) => {
                connection.flush_pair();
                if !connection.unsent.is_empty() {
                    // It is closed once the peer has made room for them.
                    return;
                }
                if self.close_pair(id) {
                    return;
                }
            }
            Location::Ended(_) => {}
        }
        let mut connection = self.connections.remove(&id).expect("the connection was found above");
        if let Location::Pair(pair) = connection.end(None) {
            drop(self.pairs.leave(*pair));
        }
        drop(connection.into_fd(self.ready.as_fd()));
        let _ = self.say(&Request::Close { id }, Vec::new());
    }

    /// Handles an engine that released a closed connection and its queue pair before the broker's
    /// message arrived.
    pub fn on_parted(&mut self, region: u32, conn: Conn, remains: Remains) {
        let Some(id) = self.regions.get_mut(&region).and_then(|region| region.names.remove(&conn)) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.part(remains);
        if self.channel.is_none() {
            self.end_without_service(id);
        }
    }

    /// Earliest time at which a region needs a look even if nothing happens.
    pub fn next_look(&self) -> Option<baton_tcp::time::Instant> {
        self.regions.values().filter(|region| !region.dead).filter_map(|region| region.consumer.next_look()).min()
    }
}

/// True if a call would wait.
pub(super) fn would_block<R>(done: &io::Result<R>) -> bool {
    matches!(done, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Ignores `WouldBlock`: the work is continued later without the caller.
fn not_now(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) }
}

trait Gone {
    fn gone(&self) -> io::Error;
}

impl Gone for Option<String> {
    /// Error for calls after the broker's last message.
    fn gone(&self) -> io::Error {
        match self {
            Some(why) => io::Error::new(ErrorKind::PermissionDenied, why.clone()),
            None => io::Error::new(ErrorKind::NotConnected, "the service has gone"),
        }
    }
}

/// Time until `at` on the consumers' clock.
pub(super) fn until(started: u64, at: baton_tcp::time::Instant) -> Duration {
    let now = baton_tcp::time::Instant(monotonic().saturating_sub(started));
    Duration::from_nanos(at.since(now).0)
}
