//! An epoll set of the program and its entries for connections, as data: who is in it, who is ready,
//! and which threads have to be woken.
//!
//! Nothing here knows where a connection is. `epoll.rs` asks that and reports; `membership.rs` moves
//! connections between this set and the kernel's.

mod entry;

pub use entry::{Entry, SlotId};

use crate::busy_poll;
use crate::gather::Gather;
use crate::locks::locked;
use crate::notifier::Notifier;
use crate::os::epoll::{Interest, control, random};
use crate::os::socket::is_inherited;
use crate::service::{self, Attendance};
use crate::sharing::Sharing;
use baton_consumer::clock;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLEXCLUSIVE};
use rustix::event::EventfdFlags;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// An epoll set of the program.
pub struct Set {
    pub fd: RawFd,
    /// The data of the notifier's and of the devices' events in the kernel's set.
    pub notifier_data: u64,
    pub device_data: u64,
    /// The version of the list of devices that are in it: [`Attendance::changes`].
    pub devices: AtomicU64,
    pub notifier: Option<Arc<Notifier>>,
    pub notifier_is_in: AtomicBool,
    pub entries: Mutex<HashMap<(u32, RawFd), Arc<Entry>>>,
    pub ready: Mutex<VecDeque<Arc<Entry>>>,
    pub gather: Mutex<Gather>,
    /// The number of threads that are in the kernel's `epoll_wait` or about to enter it.
    pub sleepers: AtomicU32,
    /// It is in another set, or polled: the kernel must see when it is ready.
    pub nested: AtomicBool,
    /// It was notified since its entries were checked last.
    pub notified: AtomicBool,
    /// The last report was full before the kernel was asked.
    pub kernel_waits: AtomicBool,
    /// When the kernel was last asked for events, in nanoseconds.
    kernel_asked: AtomicU64,
    /// The sets that are in it.
    pub inner: Mutex<Vec<Inner>>,
    /// The other processes that share it.
    pub shared: Mutex<Shared>,
}

/// How long other processes share a set: see [`Set::is_shared`].
#[derive(Default)]
pub struct Shared {
    pub for_good: bool,
    until: Vec<Sharing>,
}

/// A set that is in another.
pub struct Inner {
    pub fd: RawFd,
    pub set: Weak<Set>,
    /// The interest of the outer set, and the data of its events.
    pub interest: Interest,
}

impl Set {
    pub fn new(fd: RawFd) -> Set {
        let notifier = Notifier::new(EventfdFlags::NONBLOCK).ok().map(Arc::new);
        Set {
            fd,
            notifier_data: random(),
            device_data: random(),
            devices: AtomicU64::new(0),
            notifier,
            notifier_is_in: AtomicBool::new(false),
            entries: Mutex::default(),
            ready: Mutex::default(),
            gather: Mutex::default(),
            sleepers: AtomicU32::new(0),
            nested: AtomicBool::new(false),
            notified: AtomicBool::new(false),
            kernel_waits: AtomicBool::new(false),
            kernel_asked: AtomicU64::new(0),
            inner: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    /// True while another process has the set and could wait on it.
    pub fn is_shared(&self) -> bool {
        let mut shared = locked(&self.shared);
        shared.until.retain(Sharing::lasts);
        shared.for_good || !shared.until.is_empty()
    }

    /// Records that a child shares the set from now on: for good, unless it is closed on exec.
    pub fn share(&self, sharing: Option<&Sharing>) {
        let mut shared = locked(&self.shared);
        shared.until.retain(Sharing::lasts);
        match sharing {
            Some(sharing) if !is_inherited(self.fd) => shared.until.push(sharing.clone()),
            _ => shared.for_good = true,
        }
    }

    /// Called when an entry is ready: wakes the threads that sleep in the kernel.
    pub fn wake(&self) {
        let nested = self.nested.load(Ordering::Relaxed);
        if nested {
            self.notified.store(true, Ordering::Release);
        }
        if nested || self.sleepers.load(Ordering::SeqCst) > 0 {
            self.notifier.iter().for_each(|notifier| notifier.notify());
        }
    }

    /// True if a thread that polls is to ask the kernel for events, too. That costs more than a look at memory.
    pub fn is_kernel_due(&self) -> bool {
        busy_poll::is_kernel_due(self.kernel_asked.load(Ordering::Relaxed))
    }

    /// Notes that the kernel has been asked for events.
    pub fn note_kernel_asked(&self) {
        self.kernel_asked.store(clock::at_once(), Ordering::Relaxed);
    }

    pub fn has_ready(&self) -> bool {
        !locked(&self.ready).is_empty()
    }

    /// Adds the notifier to the kernel's set.
    pub fn prepare(&self) -> Result<(), i32> {
        if self.notifier_is_in.load(Ordering::Acquire) {
            return Ok(());
        }
        let notifier = self.notifier.as_ref().ok_or(libc::ENOMEM)?.as_fd().as_raw_fd();
        let level = if self.nested.load(Ordering::Relaxed) { 0 } else { EPOLLET as u32 };
        let interest = Interest { events: libc::EPOLLIN as u32 | level, data: self.notifier_data };
        match control(self.fd, EPOLL_CTL_ADD, notifier, Some(interest)) {
            Ok(()) | Err(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        self.notifier_is_in.store(true, Ordering::Release);
        Ok(())
    }

    /// True if a connection in it has ever been in an engine.
    pub fn has_moved(&self) -> bool {
        self.notifier_is_in.load(Ordering::Acquire)
    }

    /// Prepares the wait that is about to begin to include the devices, if there are any.
    pub fn attend(&self) -> Option<Attendance> {
        // Not in a nested set: a readable device would make the outer set look ready.
        let may = self.has_moved() && !self.nested.load(Ordering::Acquire);
        let Some(attendance) = service::attend().filter(|_| may) else {
            self.leave_devices();
            return None;
        };
        if self.devices.swap(attendance.changes, Ordering::AcqRel) != attendance.changes {
            let interest = Interest { events: (libc::EPOLLIN | EPOLLEXCLUSIVE) as u32, data: self.device_data };
            // An error means that the device has been closed; it is not needed.
            for device in service::devices() {
                let _ = control(self.fd, EPOLL_CTL_ADD, device, Some(interest));
            }
        }
        Some(attendance)
    }

    /// Takes the devices out of the kernel's set, if they are in it.
    pub fn leave_devices(&self) {
        if self.devices.load(Ordering::Acquire) != 0 && self.devices.swap(0, Ordering::AcqRel) != 0 {
            for device in service::devices() {
                let _ = control(self.fd, EPOLL_CTL_DEL, device, None);
            }
        }
    }

    pub fn enter(&self, entry: Arc<Entry>) {
        locked(&self.entries).insert((entry.slot.number, entry.fd), entry);
    }

    pub fn push(&self, entry: Arc<Entry>) {
        locked(&self.ready).push_back(entry);
        self.wake();
    }

    pub fn drop_entry(&self, entry: &Entry) {
        entry.drop_out();
        locked(&self.entries).remove(&(entry.slot.number, entry.fd));
        locked(&self.ready).retain(|other| !std::ptr::eq(&**other, entry));
    }
}
