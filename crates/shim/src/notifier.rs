//! How a thread waits for streams: it sleeps on an eventfd, which the watches of the streams
//! write to.
//!
//! The wait is one system call, so that signals have the same effect on it as on the program's
//! own call. Without a time limit it is a `read`: like `recv`, it is restarted after a handler
//! with `SA_RESTART` and fails with `EINTR` after any other. With a time limit it is a `poll`:
//! like `recv` with `SO_RCVTIMEO`, it always fails with `EINTR`.
//!
//! If engines run in this process, the wait includes their devices. No system call waits for two
//! descriptors and is also restarted after a handler. So after a signal the library looks up
//! what the signal must do. If the program has handlers of both kinds, the wait blocks the
//! signals of the restarting ones and watches for them with a signalfd; they are delivered
//! between two waits. A frame wakes only one of the sleeping threads.

use crate::busy_poll::Pause;
use crate::descriptors::out_of_the_way;
use crate::os::epoll::{Interest, control, wait_without};
use crate::os::signals::{self, Handlers};
use crate::os::wait::{read_eventfd, wait_readable};
use crate::service::{self, Attendance};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

/// The number of forks. A notifier made before the last fork is shared with the parent.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in a child: from now on each thread makes a new notifier.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// An eventfd that wakes a sleeping thread, and whether it was written to since it was cleared.
pub struct Notifier(OwnedFd, AtomicBool);

impl Notifier {
    pub fn new(flags: EventfdFlags) -> std::io::Result<Notifier> {
        Ok(Notifier(out_of_the_way(eventfd(0, flags | EventfdFlags::CLOEXEC)?), AtomicBool::new(false)))
    }

    pub fn notify(&self) {
        // If the count is at its maximum, the eventfd is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        // Set after the write: if it were set before, `clear` could reset it before the write, and
        // the eventfd would stay readable for ever.
        self.1.store(true, Ordering::Release);
    }

    /// Sleeps until it is notified, or until `deadline`, which is `EAGAIN`.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<(), i32> {
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if wait_readable(self.as_fd(), Some(left))? == 0 {
                return Err(libc::EAGAIN);
            }
        }
        read_eventfd(self.as_fd())
    }

    /// As [`Notifier::wait`], and also until a frame arrives at a device of this process's engines,
    /// which the caller then has to drive. The thread may have begun its `pause` before.
    pub fn wait_or_arrival(
        &self,
        deadline: Option<Instant>,
        attendance: Attendance,
        mut pause: Option<Pause>,
    ) -> Result<(), i32> {
        let notified = loop {
            let handlers = if deadline.is_none() { signals::handlers(false) } else { Handlers::default() };
            let between = if handlers.interrupting != 0 { handlers.restarting & !signals::mask() } else { 0 };
            let devices = Devices::of(self, &attendance, between)?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let mut events = Vec::with_capacity(4);
            let wait = |left: Option<Duration>| {
                let slept = wait_without(devices.set.as_fd(), &mut events, left, between);
                (slept, slept.unwrap_or(1))
            };
            match pause.take().unwrap_or_else(Pause::begin).wait(left, wait) {
                Ok(0) if deadline.is_some() => return Err(libc::EAGAIN),
                Ok(_) if events.iter().all(|event| event.data.u64() == SIGNAL) => {}
                Ok(_) => break events.iter().any(|event| event.data.u64() == NOTIFIER),
                Err(libc::EINTR) if deadline.is_none() && signals::handlers(true).interrupting == 0 => {}
                Err(error) => return Err(error),
            }
        };
        drop(attendance);
        if notified {
            self.clear();
        }
        Ok(())
    }

    /// Resets it.
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
    /// The number of waits that this thread is in: a handler may interrupt one and begin another.
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// The data of events in a [`Devices`] set.
const NOTIFIER: u64 = 0;
const DEVICE: u64 = 1;
const SIGNAL: u64 = 2;

/// An epoll set with a thread's notifier and the devices. Devices are added with EPOLLEXCLUSIVE, so
/// a frame wakes one of the threads that wait.
struct Devices {
    /// The number of forks, the version of the list of devices, and the signals in the signalfd.
    made_for: (u32, u64, u64),
    set: OwnedFd,
    _signals: Option<OwnedFd>,
}

thread_local! {
    static DEVICES: RefCell<Option<Arc<Devices>>> = const { RefCell::new(None) };
}

impl Devices {
    /// The set of this thread, made anew if it is out of date.
    fn of(notifier: &Notifier, attendance: &Attendance, signals: u64) -> Result<Arc<Devices>, i32> {
        let made_for = (FORKS.load(Ordering::Relaxed), attendance.changes, signals);
        let known = DEVICES
            .try_with(|devices| devices.borrow().as_ref().filter(|devices| devices.made_for == made_for).cloned());
        if let Ok(Some(devices)) = known {
            return Ok(devices);
        }
        let devices = Arc::new(Devices::make(notifier, made_for).map_err(|_| libc::ENOMEM)?);
        // While thread-local data is destroyed the set is not kept: each wait makes one.
        let _ = DEVICES.try_with(|place| place.replace(Some(devices.clone())));
        Ok(devices)
    }

    fn make(notifier: &Notifier, made_for: (u32, u64, u64)) -> std::io::Result<Devices> {
        let set = out_of_the_way(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(&set, notifier, EventData::new_u64(NOTIFIER), EventFlags::IN)?;
        for device in service::devices() {
            // An error means that the device has been closed; it is not needed.
            let _ = control(
                set.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                device,
                Some(Interest { events: (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32, data: DEVICE }),
            );
        }
        let signals = match made_for.2 {
            0 => None,
            signals => Some(out_of_the_way(signals::signalfd(signals)?)),
        };
        if let Some(signals) = &signals {
            epoll::add(&set, signals, EventData::new_u64(SIGNAL), EventFlags::IN)?;
        }
        Ok(Devices { made_for, set, _signals: signals })
    }
}

/// One wait of this thread, with its notifier.
pub struct ThreadWait {
    pub notifier: Arc<Notifier>,
}

/// Begins a wait.
///
/// # Errors
/// `ENOMEM` if no eventfd can be made.
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
            // The notification may have been for the wait that this one interrupted.
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
    // A destructor of thread-local data may still read.
    of_thread.unwrap_or_else(|_| make())
}
