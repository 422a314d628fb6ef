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
//! died; [`message`] says how no byte is lost or doubled on the way.

pub mod channel;
pub mod codec;
mod events;
mod line;
pub mod message;
mod options;
mod restore;
mod settings;
mod shared;
mod stream;

pub use events::{read_two, write_queues};
pub use options::Probing;
pub use shared::NotAdopted;
pub use stream::{Place, Stream};

use crate::driver::block_on;
use channel::Channel;
use message::{Entry, Reply, Request, Selector, VERSION};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shared::Shared;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

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
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Connects to the service that listens at `path`.
    ///
    /// # Errors
    /// As `connect(2)`'s; `PermissionDenied` if this user may not use it.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Service> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
        let (shared, thread) = Shared::start(Channel::new(socket))?;
        let service = Service { shared, thread: Some(thread) };
        // One that refuses has hung up, and said why.
        let _ = service.shared.with(|inner| inner.say(&Request::Hello { version: VERSION }, Vec::new()));
        match service.ask(None, |reply| matches!(reply, Reply::Welcome { .. }))?.pop() {
            Some(Reply::Welcome { version }) if version == VERSION => Ok(service),
            _ => Err(io::Error::new(ErrorKind::Unsupported, "the service is of another version")),
        }
    }

    /// Hands a connected TCP socket over, and waits until the engine has it. Nobody else may
    /// use the descriptor, or a duplicate of it, meanwhile and from then on.
    ///
    /// # Errors
    /// [`NotAdopted`] with the socket, which is as it was.
    pub fn adopt(&self, fd: OwnedFd) -> Result<Stream, NotAdopted> {
        let seq = self.shared.with(|inner| inner.begin_adopt(fd))?;
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

    /// As [`Service::adopt`], for tasks.
    ///
    /// # Errors
    /// As there.
    pub async fn adopt_async(&self, fd: OwnedFd) -> Result<Stream, NotAdopted> {
        let seq = self.shared.with(|inner| inner.begin_adopt(fd))?;
        std::future::poll_fn(|cx| self.poll_adopted(seq, cx)).await
    }

    fn poll_adopted(&self, seq: u64, cx: &mut Context<'_>) -> Poll<Result<Stream, NotAdopted>> {
        let adopted = self.shared.with(|inner| inner.poll_adopted(seq, cx));
        adopted.map_ok(|id| Stream::new(self.shared.clone(), id))
    }

    /// Every connection that the service knows and this user may see.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let replies = self.ask(Some(Request::List {}), |reply| matches!(reply, Reply::Done { .. }))?;
        let entry = |reply| if let Reply::Entry { entry } = reply { Some(entry) } else { None };
        Ok(replies.into_iter().filter_map(entry).collect())
    }

    /// Has connections of programs that are in the kernel handed over, and waits for it.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone, `PermissionDenied` if this user may not.
    pub fn handoff(&self, which: Selector) -> io::Result<Tally> {
        self.tally(Request::Handoff { which })
    }

    /// Has connections that are in the engine given back to the kernel.
    ///
    /// # Errors
    /// As for [`Service::handoff`].
    pub fn bring_home(&self, which: Selector) -> io::Result<Tally> {
        self.tally(Request::Home { which })
    }

    /// Has everything given back to the kernel and the service end.
    ///
    /// # Errors
    /// As for [`Service::handoff`].
    pub fn stop(&self) -> io::Result<Tally> {
        self.tally(Request::Stop {})
    }

    /// Has a new engine take the old one's place, of the binary that is installed now.
    ///
    /// # Errors
    /// As for [`Service::handoff`].
    pub fn upgrade(&self) -> io::Result<Tally> {
        self.tally(Request::Upgrade {})
    }

    fn tally(&self, request: Request) -> io::Result<Tally> {
        match self.ask(Some(request), |reply| matches!(reply, Reply::Done { .. }))?.pop() {
            Some(Reply::Done { count, failed, pause_us }) => Ok(Tally { count, failed, pause_us }),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Asks, and waits for the answer that is the last; all of them, in order.
    fn ask(&self, request: Option<Request>, last: impl Fn(&Reply) -> bool) -> io::Result<Vec<Reply>> {
        let asked = request.is_some();
        if let Some(request) = request {
            self.shared.with(|inner| {
                inner.answers.clear();
                inner.say(&request, Vec::new())
            })?;
        }
        let mut replies = Vec::new();
        block_on(None, |cx| {
            self.shared.with(|inner| {
                while let Some(reply) = inner.next_answer() {
                    if asked && reply == (Reply::Restarted {}) {
                        let text = "the service's broker died and was started anew; ask again";
                        return Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionReset, text)));
                    }
                    let ends = last(&reply);
                    replies.push(reply);
                    if ends {
                        return Poll::Ready(Ok(()));
                    }
                }
                inner.await_answer(cx)
            })
        })?;
        Ok(replies)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.end_service();
        // The thread serves streams that are left, and ends with the last one.
        drop(self.thread.take());
    }
}
