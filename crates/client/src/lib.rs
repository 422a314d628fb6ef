//! A program's connection to a Baton service: sockets of the kernel are handed to the
//! service's engine, and come back.
//!
//! ```text
//!   program's threads                     this library's thread
//!   Stream::read, write ... | lock |      completions of the engine, messages of the
//!        |                    v           broker, readiness of sockets  --> wakers
//!        |                 Line: where each connection is, what is to be read first
//!        v                    |
//!   region (shared memory) ---+--- socket
//! ```
//!
//! A [`Stream`] is one byte stream wherever its connection is: bytes go through shared
//! memory while the engine has it, and through the program's own descriptor while the
//! kernel has it. It may go from one to the other at any moment, also because the engine
//! died; [`baton_ipc::message`] says how no byte is lost or doubled on the way. [`raw`] is for
//! programs that post buffers of their own instead.
//!
//! # Forks
//!
//! What a program has of a service stays its own when it forks. In the child every call on a
//! [`Service`] or [`Stream`] of the parent fails with `NotConnected`, and dropping one leaves
//! the parent's connection alone: a dropped stream closes the child's copy of the descriptor,
//! and nothing else. The child has neither the shared memory (`MADV_DONTFORK`) nor the channel
//! to the broker, so that a parent's death is its connections' end whatever children it had.
//! Copies of the descriptor keep a connection's socket open, as always: a child that is to
//! live long drops what it does not need. It may connect to the service by itself. Who wants
//! a connection in a child restores it first. Noticed is what `fork` of the C library makes, not
//! a bare `clone`. A child does not use what is [`raw`]: it lacks the memory.

mod adopting;
mod batch;
mod cork;
mod descriptors;
mod direct;
mod events;
mod files;
mod gone;
mod heard;
mod line;
mod options;
pub mod raw;
mod ready;
mod restore;
mod settings;
mod shared;
mod stream;
mod sys;
mod told;

pub use adopting::NotAdopted;
pub use batch::begin as begin_batch;
pub use descriptors::keep_descriptors_above;
pub use direct::Attending;
pub use options::Probing;
pub use ready::Readiness;
pub use stream::{Place, Stream};

use baton_consumer::wake::block_on;
use baton_ipc::channel::Channel;
use baton_ipc::message::{Entry, Reply, Request, Selector, VERSION};
use baton_ipc::placement::Placement;
use baton_journal::{Kind, Level, tell};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shared::Shared;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Where a service listens unless it is told otherwise.
pub const SOCKET: &str = "/run/baton/baton.sock";

/// What moving many connections came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Connections that it was about.
    pub count: u64,
    /// Of them, those that did not move.
    pub failed: u64,
    /// The longest that one of them stood still, in microseconds.
    pub pause_us: u64,
}

/// A connection to a service. Dropped, its streams go on until they are dropped too.
pub struct Service {
    shared: Arc<Shared>,
    /// Number of the last question; held until it is answered.
    asking: Mutex<u64>,
}

impl Service {
    /// Connects to the service that listens at `path`.
    ///
    /// # Errors
    /// As `connect(2)`'s; `PermissionDenied` if this user may not use it.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Service> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
        let shared = Shared::start(Channel::new(descriptors::lifted(socket)))?;
        let service = Service { shared, asking: Mutex::new(0) };
        // One that refuses has hung up, and said why.
        let _ = service.shared.with(|inner| inner.say(&Request::Hello { version: VERSION }, Vec::new()));
        match service.next_answer()? {
            Reply::Welcome { version } if version == VERSION => {
                let at = path.as_ref().display();
                tell(Level::Info, Kind::PROGRAM, |event| event.text(format!("connected to the service at {at}")));
                Ok(service)
            }
            _ => Err(io::Error::new(ErrorKind::Unsupported, "the service is of another version")),
        }
    }

    /// The same, with the engine in this place. With [`Placement::Direct`] the program drives
    /// engines itself: each interface gives it a device of its own, through which its
    /// connections go, and its calls do an engine's work. Where an interface cannot, its own
    /// engine serves the program as any other.
    ///
    /// # Errors
    /// As for [`Service::connect`].
    pub fn connect_as(path: impl AsRef<Path>, placement: Placement) -> io::Result<Service> {
        let service = Service::connect(path)?;
        if placement == Placement::Direct {
            let _ = service.shared.with(|inner| inner.say(&Request::Direct {}, Vec::new()));
            service.next_answer()?;
        }
        Ok(service)
    }

    /// Hands a connected TCP socket over, and waits until the engine has it. Nobody else may
    /// use the descriptor, or a duplicate of it, meanwhile and from then on.
    ///
    /// # Errors
    /// [`NotAdopted`] with the socket, which is as it was.
    pub fn adopt(&self, fd: OwnedFd) -> Result<Stream, NotAdopted> {
        let seq = self.begin_adopt(fd)?;
        let mut refused = None;
        let adopted = block_on(None, |cx| match self.poll_adopted(seq, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(stream)) => Poll::Ready(Ok(stream)),
            Poll::Ready(Err(why)) => {
                refused = Some(why);
                Poll::Ready(Err(ErrorKind::Other.into()))
            }
        });
        adopted.map_err(|_| refused.expect("nothing else ends the wait"))
    }

    /// As [`Service::adopt`], for tasks. Dropped before it is ready, the connection is closed.
    ///
    /// # Errors
    /// As there.
    pub async fn adopt_async(&self, fd: OwnedFd) -> Result<Stream, NotAdopted> {
        let seq = self.begin_adopt(fd)?;
        let _waiting = Waiting { shared: &self.shared, seq };
        std::future::poll_fn(|cx| self.poll_adopted(seq, cx)).await
    }

    fn begin_adopt(&self, fd: OwnedFd) -> Result<u64, NotAdopted> {
        let mut fd = Some(fd);
        let begun = self.shared.with(|inner| fd.take().map(|fd| inner.begin_adopt(fd)));
        match begun {
            Ok(begun) => begun.expect("the socket was there"),
            Err(error) => Err(NotAdopted::broken(fd, &error)),
        }
    }

    fn poll_adopted(&self, seq: u64, cx: &mut Context<'_>) -> Poll<Result<Stream, NotAdopted>> {
        let adopted = self.shared.with(|inner| inner.poll_adopted(seq, cx));
        let adopted = adopted.unwrap_or_else(|error| Poll::Ready(Err(NotAdopted::broken(None, &error))));
        adopted.map_ok(|arrived| Stream::new(self.shared.clone(), arrived))
    }

    /// Takes in what engines have said already, which this library's thread may not have
    /// seen yet.
    pub fn look(&self) {
        self.shared.look();
    }

    /// As [`Service::look`], unless somebody looked in the last 100 µs: for a call that has
    /// something to report as it is.
    pub fn glance(&self) {
        self.shared.glance();
    }

    /// Descriptors of the devices of this program's own engines. Whoever sleeps on one, and
    /// finds it readable, calls [`Service::look`].
    pub fn devices(&self) -> Vec<RawFd> {
        self.shared.with(|inner| inner.devices()).unwrap_or_default()
    }

    /// Another number whenever [`Service::devices`] has changed.
    pub fn device_changes(&self) -> u64 {
        self.shared.device_changes()
    }

    /// To be held while a call sleeps on the devices: nobody else looks after them then.
    pub fn attend(&self) -> Attending {
        Attending::new(&self.shared)
    }

    /// Whether the service has gone: its broker has ended, and no guardian starts another.
    pub fn is_gone(&self) -> bool {
        self.shared.with(|inner| inner.channel.is_none()).unwrap_or(true)
    }

    /// Has a service that ends with the processes that it is there for go on until this process has
    /// ended, too, and serve what descends from it, whatever user that becomes.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone, `PermissionDenied` if this user may not.
    pub fn join(&self) -> io::Result<()> {
        match self.ask(|ask| Request::Join { ask })? {
            (_, Tally { failed: 0, .. }) => Ok(()),
            _ => Err(io::Error::new(ErrorKind::NotConnected, "the service is about to end")),
        }
    }

    /// Every connection that the service knows and this user may see.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let entry = |reply| if let Reply::Entry { entry } = reply { Some(entry) } else { None };
        self.ask(|ask| Request::List { ask }).map(|(replies, _)| replies.into_iter().filter_map(entry).collect())
    }

    /// Has connections of programs that are in the kernel handed over, and waits for it.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone, `PermissionDenied` if this user may not.
    pub fn handoff(&self, which: Selector) -> io::Result<Tally> {
        self.tally(|ask| Request::Handoff { ask, which })
    }

    /// Has connections that are in the engine given back to the kernel.
    ///
    /// # Errors
    /// As for [`Service::handoff`].
    pub fn bring_home(&self, which: Selector) -> io::Result<Tally> {
        self.tally(|ask| Request::Home { ask, which })
    }

    /// Has everything given back to the kernel and the service end.
    ///
    /// # Errors
    /// As for [`Service::handoff`].
    pub fn stop(&self) -> io::Result<Tally> {
        self.tally(|ask| Request::Stop { ask })
    }

    /// Has a new engine take the old one's place, of the binary that is installed now.
    ///
    /// # Errors
    /// As for [`Service::handoff`].
    pub fn upgrade(&self) -> io::Result<Tally> {
        self.tally(|ask| Request::Upgrade { ask })
    }

    fn tally(&self, request: impl FnOnce(u64) -> Request) -> io::Result<Tally> {
        self.ask(request).map(|(_, tally)| tally)
    }

    /// Asks, and waits for the end of the answer.
    fn ask(&self, request: impl FnOnce(u64) -> Request) -> io::Result<(Vec<Reply>, Tally)> {
        self.shared.check()?;
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        *asking += 1;
        self.shared.with(|inner| {
            inner.answers.clear();
            inner.say(&request(*asking), Vec::new())
        })??;
        let mut replies = Vec::new();
        loop {
            match self.next_answer()? {
                reply @ (Reply::Entry { .. } | Reply::Event { .. }) => replies.push(reply),
                Reply::Done { ask, count, failed, pause_us } if ask == *asking => {
                    return Ok((replies, Tally { count, failed, pause_us }));
                }
                // To a question that was given up when the broker died, and heard by the next.
                Reply::Done { .. } => replies.clear(),
                Reply::Restarted {} => {
                    let text = "the service's broker died and was started anew; ask again";
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

/// A task that waits for an adoption.
struct Waiting<'a> {
    shared: &'a Shared,
    seq: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Not by a child.
        let _ = self.shared.with(|inner| inner.abandon(self.seq));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The thread serves streams that are left, and ends with the last one. Not by a child.
        let _ = self.shared.change(|inner| inner.ended = true);
    }
}
