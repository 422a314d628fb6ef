//! How a call waits for one stream.

use crate::connection::{Held, at};
use crate::notifier::{ThreadWait, begin};
use crate::os::signals::{self, Ran};
use crate::os::socket;
use crate::service;
use crate::table::{self, SlotRef};
use std::os::fd::RawFd;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The waits of one call for one stream. The first call of [`StreamWait::wait_on`] sets a watch and
/// returns, so that the caller tries again; each later one sleeps.
pub struct StreamWait {
    fd: RawFd,
    watch: Option<(SlotRef, u64)>,
    /// Device and inode of the socket.
    identity: Option<(u64, u64)>,
    /// The handlers that the thread had run when the call began.
    ran: Ran,
    wait: Option<ThreadWait>,
    deadline: Option<Option<Instant>>,
}

impl StreamWait {
    pub fn new(fd: RawFd) -> StreamWait {
        StreamWait { fd, watch: None, identity: None, ran: signals::ran(), wait: None, deadline: None }
    }

    /// Waits for a stream on which a call would block. `timeout` is the socket's option. It may
    /// return too early.
    ///
    /// # Errors
    /// `EAGAIN` after the time limit, `EINTR` after a handler that interrupts calls, `ENOMEM`.
    pub fn wait_on(&mut self, held: Held, timeout: impl FnOnce() -> Option<Duration>) -> Result<(), i32> {
        let slot_ref = held.slot_ref;
        match (&self.watch, &self.wait) {
            (Some((watched, _)), Some(wait)) if watched.is(&slot_ref) => {
                drop(held);
                if signals::ran().interrupting != self.ran.interrupting {
                    return Err(libc::EINTR);
                }
                let limit = || timeout().map(|span| Instant::now() + span);
                let deadline = *self.deadline.get_or_insert_with(limit);
                match service::attend() {
                    Some(attendance) => wait.notifier.wait_or_receive(deadline, attendance),
                    None => wait.notifier.wait(deadline),
                }
            }
            _ => {
                let wait = begin()?;
                let number = held.stream().map(|stream| stream.watch(Waker::from(wait.notifier.clone())));
                self.watch = number.map(|number| (slot_ref, number));
                self.identity = held.moved().map(|moved| moved.identity);
                self.wait = Some(wait);
                Ok(())
            }
        }
    }

    /// True if the descriptor was closed during the wait. It may name another socket by now, and
    /// the call must not continue on that one. A connection that came home is still the same
    /// socket.
    pub fn descriptor_was_closed(&self) -> bool {
        let names = |watched: &SlotRef| table::find(self.fd).is_some_and(|slot_ref| slot_ref.is(watched));
        // After `dup2` has forgotten the descriptor, it still names its socket for a moment.
        let closed = |watched: &SlotRef| watched.has_closed_one() || socket::identity(self.fd) != self.identity;
        self.watch.as_ref().is_some_and(|(watched, _)| !names(watched) && closed(watched))
    }
}

impl Drop for StreamWait {
    fn drop(&mut self) {
        if let Some((slot_ref, number)) = &self.watch
            && let Some(held) = at(self.fd)
            && held.slot_ref.is(slot_ref)
            && let Some(stream) = held.stream()
        {
            stream.unwatch(*number);
        }
    }
}
