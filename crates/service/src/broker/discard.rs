//! Descriptors that programs send and the broker does not keep.
//!
//! Closing a descriptor can block for as long as the file's owner likes, for example on a file
//! system that the program serves itself, or on a socket that lingers. So a separate thread for
//! each user closes them. While many of a user's descriptors wait there, the broker reads from none
//! of that user's programs. If their number does not fall, the broker reads again, but accepts no
//! more descriptors. It starts to close descriptors only after it has removed their message from
//! the socket, so that nothing else is left to be closed there.

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

/// The number of a user's descriptors that may wait to be closed while its programs are served.
const AT_MOST: usize = 256;

/// The longest time for which a user's programs are not served while none of its descriptors
/// closes.
const STUCK: Duration = Duration::from_secs(3);

/// The thread that closes one user's descriptors.
struct Closer {
    queue: Sender<Arc<OwnedFd>>,
    count: Arc<Count>,
}

#[derive(Default)]
struct Count {
    waiting: AtomicUsize,
    /// When the last descriptor was closed, or the first one arrived.
    moved_ns: AtomicU64,
}

/// Whether a user's programs may send more descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// They may.
    Free,
    /// Not yet: the descriptors that wait are being closed.
    Soon,
    /// No: the descriptors that wait do not close.
    None,
}

/// The closing threads of all users.
pub(super) struct Closers {
    users: BTreeMap<u32, Closer>,
    soon: Vec<(u32, Arc<OwnedFd>)>,
    /// Signals that a user's programs may be served again.
    fewer: Arc<OwnedFd>,
}

impl Closers {
    pub fn new() -> io::Result<Closers> {
        let fewer = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Closers { users: BTreeMap::new(), soon: Vec::new(), fewer })
    }

    /// Readable once a user's programs may be served again.
    pub fn fewer(&self) -> &OwnedFd {
        &self.fewer
    }

    /// Queues a descriptor, which [`Closers::flush`] hands over.
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

    /// Hands the queued descriptors over to the threads.
    pub fn flush(&mut self) {
        let _ = rustix::io::read(&*self.fewer, &mut [0; 8]);
        for (user, fd) in std::mem::take(&mut self.soon) {
            let closer = match self.users.entry(user) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => match Closer::start(self.fewer.clone()) {
                    Ok(closer) => entry.insert(closer),
                    // Without a thread, the descriptor has to be closed here.
                    Err(_) => continue,
                },
            };
            if closer.count.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
                closer.count.moved_ns.store(monotonic(), Ordering::Relaxed);
            }
            // The thread lives as long as the broker.
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
                        // The write fails only if the counter is at its maximum, and then the
                        // broker wakes as well.
                        let _ = rustix::io::write(&*fewer, &1u64.to_ne_bytes());
                    }
                }
            }
        })?;
        Ok(Closer { queue, count })
    }
}

impl Broker {
    /// Closes descriptors that a program sent, without waiting.
    pub(super) fn discard<F: Into<Arc<OwnedFd>>>(&mut self, client: u32, fds: impl IntoIterator<Item = F>) {
        let user = self.clients.get(&client).map_or(0, |program| program.uid);
        fds.into_iter().for_each(|fd| self.closers.add(user, fd));
    }

    /// A memory file that came with a message. Any other file is discarded, because reading it
    /// could block for as long as the file's owner likes.
    ///
    /// # Errors
    /// `InvalidData` if the descriptor is not a memory file.
    pub(super) fn memory_file(&mut self, client: u32, fd: Option<OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let Some(fd) = fd else { return Ok(None) };
        if fcntl_get_seals(&fd).is_ok() {
            return Ok(Some(fd));
        }
        self.discard(client, [fd]);
        Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is not a memory file"))
    }
}
