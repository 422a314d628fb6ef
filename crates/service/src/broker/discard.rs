//! Descriptors that programs send, and that are not kept.
//!
//! To close one may take as long as whoever made it likes: a file of a file system that the
//! program runs itself, a socket that lingers. So one thread a user closes them, outside
//! the broker's. While many of a user's wait there, no program of that user is heard; if they
//! do not get fewer, it is, but brings no more. It begins after the message that they came
//! with was taken off the socket, so that nothing else is left to be closed there.

use super::Broker;
use baton_ipc::engine::monotonic;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::fcntl_get_seals;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Descriptors of one user that wait to be closed, while its programs are heard.
const AT_MOST: usize = 256;

/// Longest time for which a user's programs are not heard because nothing of its closes.
const STUCK: Duration = Duration::from_secs(3);

/// Those of one user.
struct Closer {
    queue: Sender<Arc<OwnedFd>>,
    count: Arc<Count>,
}

#[derive(Default)]
struct Count {
    waiting: AtomicUsize,
    /// When the last was closed, or the first came.
    moved_ns: AtomicU64,
}

/// Whether a user's programs may bring more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// They may.
    Free,
    /// Soon: those that wait are being closed.
    Soon,
    /// They do not close.
    None,
}

/// Those of all users.
pub(super) struct Closers {
    users: BTreeMap<u32, Closer>,
    soon: Vec<(u32, Arc<OwnedFd>)>,
    /// A user's are few again.
    fewer: Arc<OwnedFd>,
}

impl Closers {
    pub fn new() -> io::Result<Closers> {
        let fewer = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Closers { users: BTreeMap::new(), soon: Vec::new(), fewer })
    }

    /// Readable once a user's programs may be heard again.
    pub fn fewer(&self) -> &OwnedFd {
        &self.fewer
    }

    /// To be closed by [`Closers::flush`].
    pub fn add(&mut self, user: u32, fd: impl Into<Arc<OwnedFd>>) {
        self.soon.push((user, fd.into()));
    }

    pub fn room(&self, user: u32) -> Room {
        let Some(Closer { count, .. }) = self.users.get(&user) else { return Room::Free };
        if count.waiting.load(Ordering::Relaxed) <= AT_MOST {
            return Room::Free;
        }
        let since = monotonic().saturating_sub(count.moved_ns.load(Ordering::Relaxed));
        if since < STUCK.as_nanos() as u64 { Room::Soon } else { Room::None }
    }

    /// Hands over what came before.
    pub fn flush(&mut self) {
        let _ = rustix::io::read(&*self.fewer, &mut [0; 8]);
        for (user, fd) in std::mem::take(&mut self.soon) {
            let closer = match self.users.entry(user) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => match Closer::start(self.fewer.clone()) {
                    Ok(closer) => entry.insert(closer),
                    // Without a thread it is closed here, after all.
                    Err(_) => continue,
                },
            };
            if closer.count.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
                closer.count.moved_ns.store(monotonic(), Ordering::Relaxed);
            }
            // It ends with the broker.
            let _ = closer.queue.send(fd);
        }
    }
}

impl Closer {
    fn start(fewer: Arc<OwnedFd>) -> io::Result<Closer> {
        let (queue, fds) = channel::<Arc<OwnedFd>>();
        let count = Arc::new(Count::default());
        thread::Builder::new().name("baton-close".into()).spawn({
            let count = count.clone();
            move || {
                for fd in fds {
                    drop(fd);
                    count.moved_ns.store(monotonic(), Ordering::Relaxed);
                    if count.waiting.fetch_sub(1, Ordering::Relaxed) == AT_MOST + 1 {
                        // Only a counter at its maximum refuses, and that wakes as well.
                        let _ = rustix::io::write(&*fewer, &1u64.to_ne_bytes());
                    }
                }
            }
        })?;
        Ok(Closer { queue, count })
    }
}

impl Broker {
    /// Closes what a program sent, without waiting for it.
    pub(super) fn discard<F: Into<Arc<OwnedFd>>>(&mut self, client: u32, fds: impl IntoIterator<Item = F>) {
        let user = self.clients.get(&client).map_or(0, |program| program.uid);
        fds.into_iter().for_each(|fd| self.closers.add(user, fd));
    }

    /// A memory file that came with a message. Nothing else is read: a read of another kind
    /// of file may wait for whoever made it.
    ///
    /// # Errors
    /// `InvalidData` if it is none.
    pub(super) fn memory_file(&mut self, client: u32, fd: Option<OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let Some(fd) = fd else { return Ok(None) };
        if fcntl_get_seals(&fd).is_ok() {
            return Ok(Some(fd));
        }
        self.discard(client, [fd]);
        Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is no memory file"))
    }
}
