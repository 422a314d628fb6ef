//! How a call waits for one stream.

use crate::busy_poll::Pause;
use crate::connection::{self, Held, at};
use crate::notifier::{ThreadWait, begin};
use crate::os::signals::{self, Ran};
use crate::os::socket;
use crate::service;
use crate::table::{self, SlotRef};
use baton_client::Stream;
use std::os::fd::RawFd;
use std::task::Waker;
use std::time::Instant;

/// The waits of one call for one stream. The first call of [`StreamWait::wait_on`] looks for bytes, if the stream
/// is in a pair, then sets a watch and returns, so that the caller tries again; each later one sleeps.
pub struct StreamWait {
    fd: RawFd,
    /// The connection that it has looked at or watches, and its socket's device and inode.
    waited: Option<(SlotRef, Option<(u64, u64)>)>,
    watch: Option<(SlotRef, u64)>,
    /// The handlers that the thread had run when the call began.
    ran: Ran,
    wait: Option<ThreadWait>,
    deadline: Option<Option<Instant>>,
    /// It has looked, as often as a call does.
    looked: bool,
    /// The pause that began with a look that found nothing.
    pause: Option<Pause>,
    /// The caller has to drive the engines of this program: something may have arrived.
    arrival: bool,
}

impl StreamWait {
    pub fn new(fd: RawFd) -> StreamWait {
        let (waited, watch, wait, deadline, looked, pause, arrival) = Default::default();
        StreamWait { fd, waited, watch, ran: signals::ran(), wait, deadline, looked, pause, arrival }
    }

    /// Waits for a stream on which a call that sends or receives would block. It may return too early.
    ///
    /// # Errors
    /// `EAGAIN` after the socket's time limit, `EINTR` after a handler that interrupts calls, `ENOMEM`.
    pub fn wait_on(&mut self, held: Held, sends: bool) -> Result<(), i32> {
        let slot_ref = held.slot_ref;
        match (&self.watch, &self.wait) {
            (Some((watched, _)), Some(wait)) if watched.is(&slot_ref) => {
                drop(held);
                if signals::ran().interrupting != self.ran.interrupting {
                    return Err(libc::EINTR);
                }
                let limit = || socket::timeout(self.fd, sends).map(|span| Instant::now() + span);
                let deadline = *self.deadline.get_or_insert_with(limit);
                let Some(attendance) = service::attend() else { return wait.notifier.wait(deadline) };
                wait.notifier.wait_or_arrival(deadline, attendance, self.pause.take())?;
                if sends {
                    service::look();
                } else {
                    self.arrival = true;
                }
                Ok(())
            }
            _ => {
                self.waited = Some((slot_ref, held.moved().map(|moved| moved.identity)));
                let held = if sends { Some(held) } else { self.look(held) };
                let Some(held) = held else { return Ok(()) };
                let wait = begin()?;
                let number = held.stream().map(|stream| stream.watch(Waker::from(wait.notifier.clone())));
                self.watch = number.map(|number| (slot_ref, number));
                self.wait = Some(wait);
                Ok(())
            }
        }
    }

    /// True, once, if the last wait ended because something may have arrived: a read then has to be one that drives
    /// the engines ([`Stream::read_arriving`]).
    pub fn take_arrival(&mut self) -> bool {
        std::mem::take(&mut self.arrival)
    }

    /// Looks for bytes in a pair's memory. Returns `None` if the caller may find some, or something else.
    fn look(&mut self, held: Held) -> Option<Held> {
        let slot_ref = held.slot_ref;
        let looks = !std::mem::replace(&mut self.looked, true);
        let Some(lookout) = held.stream().filter(|_| looks).and_then(Stream::look_out) else { return Some(held) };
        drop(held);
        self.pause = Some(Pause::begin().look(|| lookout.is_over())?);
        connection::held(slot_ref)
    }

    /// True if the descriptor was closed during the wait. It may name another socket by now, and
    /// the call must not continue on that one. A connection that came home is still the same
    /// socket.
    pub fn descriptor_was_closed(&self) -> bool {
        let names = |waited: &SlotRef| table::find(self.fd).is_some_and(|slot_ref| slot_ref.is(waited));
        // After `dup2` has forgotten the descriptor, it still names its socket for a moment.
        let is_another = |identity| socket::identity(self.fd) != identity;
        let closed = |(waited, identity): &(SlotRef, _)| waited.has_closed_one() || is_another(*identity);
        self.waited.as_ref().is_some_and(|waited| !names(&waited.0) && closed(waited))
    }
}

impl Drop for StreamWait {
    fn drop(&mut self) {
        if self.arrival {
            service::look();
        }
        if let Some((slot_ref, number)) = &self.watch
            && let Some(held) = at(self.fd)
            && held.slot_ref.is(slot_ref)
            && let Some(stream) = held.stream()
        {
            stream.unwatch(*number);
        }
    }
}
