//! Descriptors that programs send, and that are not kept.
//!
//! To close one may take as long as whoever made it likes: a file of a file system that the
//! program runs itself, a socket that lingers. So one thread a user closes them, outside
//! the broker's; a user whose descriptors do not close brings no more. It begins after the
//! message that they came with was taken off the socket, so that nothing else is left to
//! be closed there.

use super::Broker;
use rustix::fs::fcntl_get_seals;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Descriptors of one user that wait to be closed, at most.
const AT_MOST: usize = 256;

/// Those of one user.
struct Closer {
    queue: Sender<Arc<OwnedFd>>,
    waiting: Arc<AtomicUsize>,
}

/// Those of all users.
#[derive(Default)]
pub(super) struct Closers {
    users: BTreeMap<u32, Closer>,
    soon: Vec<(u32, Arc<OwnedFd>)>,
}

impl Closers {
    /// To be closed by [`Closers::flush`].
    pub fn add(&mut self, user: u32, fd: impl Into<Arc<OwnedFd>>) {
        self.soon.push((user, fd.into()));
    }

    /// True if a user's descriptors do not close.
    pub fn is_full(&self, user: u32) -> bool {
        let waiting = self.users.get(&user).map_or(0, |closer| closer.waiting.load(Ordering::Relaxed));
        waiting + self.soon.iter().filter(|(of, _)| *of == user).count() > AT_MOST
    }

    /// Hands over what came before.
    pub fn flush(&mut self) {
        for (user, fd) in std::mem::take(&mut self.soon) {
            let closer = match self.users.entry(user) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => match Closer::start() {
                    Ok(closer) => entry.insert(closer),
                    // Without a thread it is closed here, after all.
                    Err(_) => continue,
                },
            };
            closer.waiting.fetch_add(1, Ordering::Relaxed);
            // It ends with the broker.
            let _ = closer.queue.send(fd);
        }
    }
}

impl Closer {
    fn start() -> io::Result<Closer> {
        let (queue, fds) = channel::<Arc<OwnedFd>>();
        let waiting = Arc::new(AtomicUsize::new(0));
        thread::Builder::new().name("baton-close".into()).spawn({
            let waiting = waiting.clone();
            move || {
                for fd in fds {
                    drop(fd);
                    waiting.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Closer { queue, waiting })
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
