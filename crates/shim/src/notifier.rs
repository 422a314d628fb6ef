//! How a thread waits for streams: it has an eventfd that their watches ring.
//!
//! The wait is one system call of the kernel, so that signals do to it what they would do to
//! the program's own call: without a time limit a `read`, which goes on after a handler that
//! was installed with `SA_RESTART` and fails with `EINTR` after another, as `recv` does; with
//! one a `poll`, which always fails, as `recv` with `SO_RCVTIMEO` does.
//!
//! Where engines run in this process, the wait is on their devices too. No call of the kernel
//! waits for two descriptors and goes on after a handler. So what a signal would do is looked
//! up when one came; where it depends on which, those after which calls go on are not taken in
//! the wait: they end it by a descriptor, and are taken between two. Of threads that sleep, a
//! frame wakes one.

use crate::busy_poll;
use crate::connection::{Held, at};
use crate::descriptors::out_of_the_way;
use crate::os::epoll::{Interest, control, wait_without};
use crate::os::signals::{self, Handlers, Ran};
use crate::os::socket;
use crate::os::wait::{take, wait_for};
use crate::service::{self, Attendance};
use crate::table::{self, SlotRef};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Forks so far: a bell from before is the parent's too.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// In a child: each thread has a new bell.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// An eventfd that wakes a thread, and whether it was rung since it was cleared.
pub struct Notifier(OwnedFd, AtomicBool);

impl Notifier {
    pub fn new(flags: EventfdFlags) -> std::io::Result<Notifier> {
        Ok(Notifier(out_of_the_way(eventfd(0, flags | EventfdFlags::CLOEXEC)?), AtomicBool::new(false)))
    }

    pub fn notify(&self) {
        // One that rings already wakes as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        // Said before, it could be forgotten before it rings, which would not end.
        self.1.store(true, Ordering::Release);
    }

    /// Sleeps until it rings, or until `deadline` with `EAGAIN`.
    fn wait(&self, deadline: Option<Instant>) -> Result<(), i32> {
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if wait_for(self.as_fd(), Some(left))? == 0 {
                return Err(libc::EAGAIN);
            }
        }
        take(self.as_fd())
    }

    /// The same, or until a frame comes, which is then taken in.
    fn wait_or_receive(&self, deadline: Option<Instant>, attendance: Attendance) -> Result<(), i32> {
        let slept = loop {
            let handlers = if deadline.is_none() { signals::handlers(false) } else { Handlers::default() };
            let between = if handlers.interrupting != 0 { handlers.restarting & !signals::mask() } else { 0 };
            let devices = Devices::of(self, &attendance, between)?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let mut events = Vec::with_capacity(4);
            let wait = |left: Option<Duration>| {
                let slept = wait_without(devices.set.as_fd(), &mut events, left, between);
                (slept, slept.unwrap_or(1))
            };
            match busy_poll::wait(left, wait) {
                Ok(0) if deadline.is_some() => return Err(libc::EAGAIN),
                Ok(_) if events.iter().all(|event| event.data.u64() == SIGNAL) => {}
                Ok(_) => break events.iter().any(|event| event.data.u64() == NOTIFIER),
                Err(libc::EINTR) if deadline.is_none() && signals::handlers(true).interrupting == 0 => {}
                Err(error) => return Err(error),
            }
        };
        drop(attendance);
        if slept {
            self.clear();
        }
        service::look();
        Ok(())
    }

    /// Forgets that it rang.
    pub fn clear(&self) {
        if !self.1.swap(false, Ordering::Acquire) {
            return;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)) == Ok(1) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

thread_local! {
    static OWN: RefCell<Option<(u32, Arc<Notifier>)>> = const { RefCell::new(None) };
    /// Waits that this thread is in: a handler may interrupt one and wait itself.
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// What is told of in a set of devices.
const NOTIFIER: u64 = 0;
const DEVICE: u64 = 1;
const SIGNAL: u64 = 2;

/// A set of a thread's bell and the devices: of threads that wait so, one is woken.
struct Devices {
    /// Forks, changes of devices, and signals that end a wait by a descriptor.
    made_for: (u32, u64, u64),
    set: OwnedFd,
    _signals: Option<OwnedFd>,
}

thread_local! {
    static DEVICES: RefCell<Option<Arc<Devices>>> = const { RefCell::new(None) };
}

impl Devices {
    /// This thread's.
    fn of(notifier: &Notifier, attendance: &Attendance, signals: u64) -> Result<Arc<Devices>, i32> {
        let made_for = (FORKS.load(Ordering::Relaxed), attendance.changes, signals);
        let known = DEVICES
            .try_with(|devices| devices.borrow().as_ref().filter(|devices| devices.made_for == made_for).cloned());
        if let Ok(Some(devices)) = known {
            return Ok(devices);
        }
        let devices = Arc::new(Devices::make(notifier, made_for).map_err(|_| libc::ENOMEM)?);
        // A thread that is about to end makes one a wait.
        let _ = DEVICES.try_with(|place| place.replace(Some(devices.clone())));
        Ok(devices)
    }

    fn make(notifier: &Notifier, made_for: (u32, u64, u64)) -> std::io::Result<Devices> {
        let set = out_of_the_way(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(&set, notifier, EventData::new_u64(NOTIFIER), EventFlags::IN)?;
        for device in service::devices() {
            // One that has gone meanwhile brings nothing.
            let _ = control(
                set.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                device,
                Some(Interest { events: (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32, data: DEVICE }),
            );
        }
        let signals = match made_for.2 {
            0 => None,
            signals => Some(out_of_the_way(signals::descriptor(signals)?)),
        };
        if let Some(signals) = &signals {
            epoll::add(&set, signals, EventData::new_u64(SIGNAL), EventFlags::IN)?;
        }
        Ok(Devices { made_for, set, _signals: signals })
    }
}

/// This thread's bell, for one wait.
pub struct ThreadWait {
    pub notifier: Arc<Notifier>,
}

/// Begins a wait; `ENOMEM` if this thread can have no bell.
pub fn begin() -> Result<ThreadWait, i32> {
    let notifier = own()?;
    let waits = WAITS.try_with(|waits| waits.replace(waits.get() + 1)).unwrap_or(1);
    if waits == 0 {
        notifier.clear();
    }
    Ok(ThreadWait { notifier })
}

impl Drop for ThreadWait {
    fn drop(&mut self) {
        let waits = WAITS.try_with(|waits| waits.replace(waits.get().saturating_sub(1))).unwrap_or(0);
        if waits > 1 {
            // What rang may have been meant for the wait that was interrupted.
            self.notifier.notify();
        }
    }
}

fn own() -> Result<Arc<Notifier>, i32> {
    let forks = FORKS.load(Ordering::Relaxed);
    let make = || Notifier::new(EventfdFlags::empty()).map(Arc::new).map_err(|_| libc::ENOMEM);
    let of_thread = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        match &*own {
            Some((made, notifier)) if *made == forks => Ok(notifier.clone()),
            _ => Ok(own.insert((forks, make()?)).1.clone()),
        }
    });
    // A thread that is about to end may read still.
    of_thread.unwrap_or_else(|_| make())
}

/// One wait on one stream: looked at once more after the watch was set, then slept.
pub struct StreamWait {
    fd: RawFd,
    watch: Option<(SlotRef, u64)>,
    /// The socket's.
    identity: Option<(u64, u64)>,
    /// Handlers that the thread had run when the call began.
    ran: Ran,
    wait: Option<ThreadWait>,
    deadline: Option<Option<Instant>>,
}

impl StreamWait {
    pub fn new(fd: RawFd) -> StreamWait {
        StreamWait { fd, watch: None, identity: None, ran: signals::ran(), wait: None, deadline: None }
    }

    /// Waits for the stream that would block, for as long as the socket's option says, and
    /// may return too early.
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

    /// Its descriptor was closed meanwhile, and may be another's: a call that goes on would be on
    /// that one. What came home is the same socket.
    pub fn descriptor_was_closed(&self) -> bool {
        let same = |watched: &SlotRef| table::find(self.fd).is_some_and(|slot_ref| slot_ref.is(watched));
        let gone = self.watch.as_ref().is_some_and(|(watched, _)| !same(watched));
        gone && socket::identity(self.fd) != self.identity
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
