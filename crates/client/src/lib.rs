//! A program's connection to a Baton service, which moves kernel sockets to the service's engine
//! and back.
//!
//! ```text
//!  program's threads                     this library's thread
//!  Stream::read, write ... | lock |      completions of the engine, messages of the
//!       |                    v           broker, readiness of sockets  --> wakers
//!       |                 Connection: its location, and what is to be read first
//!       v                    |
//!  region (shared memory) ---+--- socket
//! ```
//!
//! A [`Stream`] is one byte stream regardless of its connection's location: bytes pass through
//! shared memory while the engine has the connection, and through the program's own descriptor
//! while the kernel has it. It may move from one to the other at any moment, including when the
//! engine dies; [`baton_ipc::message`] explains why no byte is lost or duplicated. Programs that
//! post buffers of their own use [`raw`] instead.
//!
//! # Forks
//!
//! A program's streams and services are not inherited by a forked child. In the child, every call
//! on a [`Service`] or [`Stream`] of the parent fails with `NotConnected`. Dropping one there
//! leaves the parent's connection alone: dropping a stream only closes the child's copy of the
//! descriptor. The child has neither the shared memory (`MADV_DONTFORK`) nor the channel to the
//! broker, so a connection ends with the parent however many children the parent had. Copies of a
//! descriptor keep its socket open, as always, so a long-lived child should drop those it does not
//! need. A child may connect to the service by itself. To use a connection in a child, restore it
//! to the kernel before the fork. Only libc's `fork` is detected, not a raw `clone`. A child must
//! not use [`raw`] objects, because it lacks their memory.

mod adopting;
mod adoption;
mod arriving;
mod attendance;
mod batch;
mod connection;
mod cork;
mod descriptors;
mod direct;
mod engines;
mod events;
mod files;
mod following;
mod heard;
mod held_back;
mod idle_pairs;
mod links;
mod local_engine;
mod location;
mod near;
mod observer;
mod observing;
mod options;
mod pair_info;
mod pairs;
mod posted;
pub mod raw;
mod ready;
mod region;
mod restore;
mod service_loss;
mod setting;
mod settings;
mod shared;
mod stream;
mod sys;
mod told;
mod watchers;

pub use adoption::NotAdopted;
pub use batch::begin as begin_batch;
pub use baton_ipc::message::Told;
pub use descriptors::keep_descriptors_above;
pub use direct::Attending;
pub use following::{FollowNews, Followed};
pub use near::Lookout;
pub use observing::{Observed, Sighting};
pub use options::Probing;
pub use ready::Readiness;
pub use stream::{Place, Stream};

use baton_consumer::wake::block_on;
use baton_ipc::channel::Channel;
use baton_ipc::load::Past;
use baton_ipc::message::{Destination, Entry, Reply, Request, Selector};
use baton_ipc::placement::Placement;
use baton_ipc::queues::write_queues;
use baton_ipc::version::{HELLO, agree};
use baton_journal::{Kind, Level, tell};
use baton_policy::rules::Policy;
use baton_policy::survival::{Class, Expected};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shared::Shared;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// The version of the protocol that names where connections are handed over to.
const KNOWS_DESTINATIONS: u32 = 8;

/// Path of the service's socket unless another is configured.
pub const SOCKET: &str = "/run/baton/baton.sock";

/// Result of moving a set of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Number of selected connections.
    pub count: u64,
    /// How many of those did not move.
    pub failed: u64,
    /// Longest time that one of them was stopped, in microseconds.
    pub pause_us: u64,
}

/// A connection to a service. Its streams remain usable after it is dropped.
pub struct Service {
    shared: Arc<Shared>,
    /// Number of the last question. The lock is held until the answer is complete.
    asking: Mutex<u64>,
}

impl Service {
    /// Connects to the service that listens at `path`.
    ///
    /// # Errors
    /// Those of `connect(2)`; `PermissionDenied` if this user may not use the service.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Service> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
        let shared = Shared::start(Channel::new(descriptors::lifted(socket)), events::run)?;
        let service = Service { shared, asking: Mutex::new(0) };
        // A broker that refuses has sent its reason and hung up, so the answer is read in any case.
        let _ = service.shared.with(|inner| inner.say(&HELLO, Vec::new()));
        match service.next_answer()? {
            Reply::Welcome { version } if agree(version, version).is_some() => {
                service.shared.with(|inner| inner.version = version)?;
                let at = path.as_ref().display();
                tell(Level::Info, Kind::PROGRAM, |event| event.text(format!("connected to the service at {at}")));
                Ok(service)
            }
            _ => Err(io::Error::new(ErrorKind::Unsupported, "the service speaks another version of the protocol")),
        }
    }

    /// Connects like [`Service::connect`] and chooses where the engine runs. With
    /// [`Placement::Direct`] the program drives engines itself: each interface gives it a device of
    /// its own for its connections, and the program's calls do the engine's work. An interface that
    /// cannot do so serves the program with its own engine.
    ///
    /// # Errors
    /// Those of [`Service::connect`].
    pub fn connect_as(path: impl AsRef<Path>, placement: Placement) -> io::Result<Service> {
        let service = Service::connect(path)?;
        if placement == Placement::Direct {
            let _ = service.shared.with(|inner| inner.say(&Request::Direct {}, Vec::new()));
            service.next_answer()?;
        }
        Ok(service)
    }

    /// Hands a connected TCP socket over, and waits until the engine has adopted it. From the call
    /// on, nobody else may use the descriptor or a duplicate of it.
    ///
    /// # Errors
    /// [`NotAdopted`] with the socket in its previous state.
    pub fn adopt(&self, fd: OwnedFd) -> Result<Stream, NotAdopted> {
        self.adopt_told(fd, Told::default())
    }

    /// Like [`Service::adopt`], and tells the service's policy what only this program knows of the
    /// connection.
    ///
    /// # Errors
    /// Those of [`Service::adopt`].
    pub fn adopt_told(&self, fd: OwnedFd, told: Told) -> Result<Stream, NotAdopted> {
        let seq = self.begin_adopt(fd, told)?;
        let mut refused = None;
        let adopted = block_on(None, |cx| match self.poll_adopted(seq, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(stream)) => Poll::Ready(Ok(stream)),
            Poll::Ready(Err(why)) => {
                refused = Some(why);
                Poll::Ready(Err(ErrorKind::Other.into()))
            }
        });
        adopted.map_err(|_| refused.expect("only a refusal ends the wait with an error"))
    }

    /// Like [`Service::adopt`], for tasks. If the future is dropped before it is ready, the
    /// connection is closed.
    ///
    /// # Errors
    /// Those of [`Service::adopt`].
    pub async fn adopt_async(&self, fd: OwnedFd) -> Result<Stream, NotAdopted> {
        let seq = self.begin_adopt(fd, Told::default())?;
        let _waiting = Waiting { shared: &self.shared, seq };
        std::future::poll_fn(|cx| self.poll_adopted(seq, cx)).await
    }

    fn begin_adopt(&self, fd: OwnedFd, told: Told) -> Result<u64, NotAdopted> {
        let mut fd = Some(fd);
        let begun = self.shared.with(|inner| fd.take().map(|fd| inner.begin_adopt(fd, told)));
        match begun {
            Ok(begun) => begun.expect("the closure was given the socket"),
            Err(error) => Err(NotAdopted::broken(fd, &error)),
        }
    }

    fn poll_adopted(&self, seq: u64, cx: &mut Context<'_>) -> Poll<Result<Stream, NotAdopted>> {
        let adopted = self.shared.with(|inner| inner.poll_adopted(seq, cx));
        let adopted = adopted.unwrap_or_else(|error| Poll::Ready(Err(NotAdopted::broken(None, &error))));
        adopted.map_ok(|arrived| Stream::new(self.shared.clone(), arrived))
    }

    /// Takes in what engines have announced and this library's thread may not have seen yet.
    pub fn look(&self) {
        self.shared.look();
    }

    /// Like [`Service::look`], unless someone looked within the last 100 µs. For calls that report
    /// a state.
    pub fn glance(&self) {
        self.shared.glance();
    }

    /// Descriptors of the devices of this program's own engines. A thread that sleeps on one and
    /// finds it readable must call [`Service::look`].
    pub fn devices(&self) -> Vec<RawFd> {
        self.shared.with(|inner| inner.devices()).unwrap_or_default()
    }

    /// A number that changes whenever the list of [`Service::devices`] changes.
    pub fn device_changes(&self) -> u64 {
        self.shared.device_changes()
    }

    /// Returns a guard to hold while a call sleeps on the devices. The library's thread leaves the
    /// devices to that call.
    pub fn attend(&self) -> Attending {
        Attending::new(&self.shared)
    }

    /// Returns whether the service has gone: its broker has ended and no guardian will start
    /// another.
    pub fn is_gone(&self) -> bool {
        self.shared.with(|inner| inner.channel.is_none()).unwrap_or(true)
    }

    /// True if nothing is left of its connections: no stream, and none that an engine still has to end.
    pub fn is_idle(&self) -> bool {
        self.shared.with(|inner| inner.connections.is_empty() && inner.adopting.is_empty()).unwrap_or(true)
    }

    /// Makes a service that lives as long as its member processes count this process among them.
    /// The service then also serves descendants of this process, whichever user they become.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone, `PermissionDenied` if this user may not join.
    pub fn join(&self) -> io::Result<()> {
        match self.ask(|ask| Request::Join { ask })? {
            (_, Tally { failed: 0, .. }) => Ok(()),
            _ => Err(io::Error::new(ErrorKind::NotConnected, "the service is about to end")),
        }
    }

    /// Lists every connection that the service knows and this user may see.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let entry = |reply| if let Reply::Entry { entry } = reply { Some(entry) } else { None };
        self.ask(|ask| Request::List { ask }).map(|(replies, _)| replies.into_iter().filter_map(entry).collect())
    }

    /// The loads of the service's engines, each with its history, the oldest first.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone.
    pub fn loads(&self) -> io::Result<Vec<(String, Past)>> {
        let load = |reply| if let Reply::Load { engine, past } = reply { Some((engine, past)) } else { None };
        self.ask(|ask| Request::Loads { ask }).map(|(replies, _)| replies.into_iter().filter_map(load).collect())
    }

    /// Hands over the selected connections that are in the kernel, and waits until that is done.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone, `PermissionDenied` if this user may not do so.
    pub fn handoff(&self, which: Selector) -> io::Result<Tally> {
        self.tally(|ask| Request::Handoff { ask, which })
    }

    /// As [`Service::handoff`], to an engine or into pairs. Without a destination, connections go where they were
    /// before.
    ///
    /// # Errors
    /// Those of [`Service::handoff`]; `Unsupported` if the service does not know destinations.
    pub fn handoff_to(&self, which: Selector, to: Destination) -> io::Result<Tally> {
        if self.shared.with(|inner| inner.version)? < KNOWS_DESTINATIONS {
            return Err(io::Error::new(ErrorKind::Unsupported, "the service knows no destinations: restart it"));
        }
        self.tally(|ask| Request::HandoffTo { ask, which, to })
    }

    /// Restores the selected connections to the kernel.
    ///
    /// # Errors
    /// Those of [`Service::handoff`].
    pub fn bring_home(&self, which: Selector) -> io::Result<Tally> {
        self.tally(|ask| Request::Home { ask, which })
    }

    /// Restores all connections to the kernel and ends the service.
    ///
    /// # Errors
    /// Those of [`Service::handoff`].
    pub fn stop(&self) -> io::Result<Tally> {
        self.tally(|ask| Request::Stop { ask })
    }

    /// Replaces the engine by a new one, started from the binary that is installed now.
    ///
    /// # Errors
    /// Those of [`Service::handoff`].
    pub fn upgrade(&self) -> io::Result<Tally> {
        self.tally(|ask| Request::Upgrade { ask })
    }

    fn tally(&self, request: impl FnOnce(u64) -> Request) -> io::Result<Tally> {
        self.ask(request).map(|(_, tally)| tally)
    }

    /// Has the service replace its policy by this one, or by that of its configuration file, read again.
    /// Connections that may not be in an engine by the new one come home; the tally counts them.
    ///
    /// # Errors
    /// `InvalidInput` with the service's reason: then nothing has changed. Others as for
    /// [`Service::list`].
    pub fn reload(&self, policy: Option<&Policy>) -> io::Result<Tally> {
        let text = policy.map(Policy::to_string).unwrap_or_default();
        let file = write_queues(text.as_bytes(), &[])?;
        let ask = |ask| Request::Reload { ask, len: text.len() as u32 };
        self.ask_with(ask, file.into_iter().collect()).map(|(_, tally)| tally)
    }

    /// The service's policy.
    ///
    /// # Errors
    /// `InvalidData` if this version cannot read it. Others as for [`Service::list`].
    pub fn policy(&self) -> io::Result<Policy> {
        self.ask(|ask| Request::Policy { ask })?;
        let text = self.shared.with(|inner| inner.policy.take())?.unwrap_or_default();
        let policy = String::from_utf8(text).ok().and_then(|text| text.parse().ok());
        policy.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the service's policy cannot be read"))
    }

    /// The packets that a connection of this class is expected to send yet, which has sent this many;
    /// `None` if no rule of the service's policy is `predict`.
    ///
    /// # Errors
    /// As for [`Service::list`].
    pub fn expected(&self, Class { rule, port }: Class, packets: u64) -> io::Result<Option<Expected>> {
        let (replies, _) = self.ask(|ask| Request::Expect { ask, rule, port, packets })?;
        Ok(replies.into_iter().find_map(|reply| match reply {
            Reply::Expected { packets, ended } => Some(Expected { packets, ended }),
            _ => None,
        }))
    }

    /// Sends a question and collects its answer.
    fn ask(&self, request: impl FnOnce(u64) -> Request) -> io::Result<(Vec<Reply>, Tally)> {
        self.ask_with(request, Vec::new())
    }

    fn ask_with(&self, request: impl FnOnce(u64) -> Request, fds: Vec<OwnedFd>) -> io::Result<(Vec<Reply>, Tally)> {
        self.shared.check()?;
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        *asking += 1;
        self.shared.with(|inner| {
            inner.answers.clear();
            inner.say(&request(*asking), fds)
        })??;
        let mut replies = Vec::new();
        loop {
            match self.next_answer()? {
                reply @ (Reply::Entry { .. } | Reply::Load { .. } | Reply::Event { .. }) => replies.push(reply),
                Reply::Done { ask, count, failed, pause_us } if ask == *asking => {
                    return Ok((replies, Tally { count, failed, pause_us }));
                }
                Reply::Failed { ask, text } if ask == *asking => {
                    return Err(io::Error::new(ErrorKind::InvalidInput, text));
                }
                // The answer to an earlier question, which was abandoned when the broker died and
                // reached the next broker.
                Reply::Done { .. } => replies.clear(),
                Reply::Restarted {} => {
                    let text = "the service's broker died and was restarted; ask again";
                    return Err(io::Error::new(ErrorKind::ConnectionReset, text));
                }
                _ => {}
            }
        }
    }

    fn next_answer(&self) -> io::Result<Reply> {
        block_on(None, |cx| {
            self.shared.with(|inner| match inner.next_answer() {
                Some(reply) => Poll::Ready(Ok(reply)),
                None => inner.await_answer(cx),
            })?
        })
    }
}

/// Abandons an adoption when the task that waits for it is dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    seq: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // This does nothing in a forked child.
        let _ = self.shared.with(|inner| inner.abandon(self.seq));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The thread serves the remaining streams and ends with the last one. This does nothing in
        // a forked child.
        let _ = self.shared.change(|inner| inner.ended = true);
    }
}
