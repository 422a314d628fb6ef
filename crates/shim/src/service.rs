//! The program's connection to the service. It is made when it is first needed, since a program
//! that moves nothing needs none, and is closed before a fork.
//!
//! An unused link costs every call of the program something: each wait includes the devices, and with the
//! library's thread the kernel counts references to descriptors, which it spares a program of one thread
//! (fs/file.c, `__fget_light`). nginx with answers of 16 KiB, which stay in the kernel, took 5 % more CPU with one.
//! So a link that has not been used for a while ([`patience`](crate::patience)) rests: the program's calls do
//! nothing for it, and the thread alone does what is left, such as TIME-WAIT. Once nothing is left it is closed.

use crate::config::config;
use crate::patience::Patience;
use baton_client::{Attending, Service};
use baton_consumer::clock;
use baton_consumer::held::{Counted, interrupted};
use baton_ipc::placement::Placement;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The time after a failed attempt to connect before the next one.
const AGAIN: Duration = Duration::from_secs(1);

/// How often a thread that is about to wait checks whether the link is in use.
const CHECKED: Duration = Duration::from_millis(500);

/// The link to the service, and when the last attempt to connect failed.
pub struct Link {
    pub service: Option<Service>,
    failed: Option<Instant>,
    patience: Patience,
}

static LINK: RwLock<Link> = RwLock::new(Link { service: None, failed: None, patience: Patience::new() });

/// There is a link to the service.
static MADE: AtomicBool = AtomicBool::new(false);

/// There is one, and it does not rest.
static USED_NOW: AtomicBool = AtomicBool::new(false);

/// When the link was last seen in use, and when that was last checked, in nanoseconds.
static USED: AtomicU64 = AtomicU64::new(0);
static LOOKED: AtomicU64 = AtomicU64::new(0);

fn read() -> Counted<RwLockReadGuard<'static, Link>> {
    Counted::new(|| LINK.read().unwrap_or_else(PoisonError::into_inner))
}

/// Locks the link for this thread alone: no connection is handed over while it is held.
pub fn exclusive() -> Exclusive {
    Counted::new(|| LINK.write().unwrap_or_else(PoisonError::into_inner))
}

/// The lock that [`exclusive`] takes.
pub type Exclusive = Counted<RwLockWriteGuard<'static, Link>>;

/// Calls `run` with the service, after connecting if necessary. Returns `None` if there is no
/// service.
pub fn with<R>(run: impl FnOnce(&Service) -> R) -> Option<R> {
    USED.store(clock::at_once(), Ordering::Relaxed);
    let link = read();
    // If the service was killed, its connections go on or end without it; connect to the next.
    if link.service.as_ref().is_none_or(Service::is_gone) {
        drop(link);
        exclusive().connect();
        return read().service.as_ref().map(run);
    }
    USED_NOW.store(true, Ordering::Relaxed);
    link.service.as_ref().map(run)
}

/// Processes the events of the engines, if a service is in use.
pub fn look() {
    if is_used()
        && let Some(service) = &read().service
    {
        service.look();
    }
}

/// As [`look`], unless it was done recently. For a call that can return without it.
pub fn glance() {
    if is_used()
        && let Some(service) = &read().service
    {
        service.glance();
    }
}

/// This process may have connections whose other ends are on this machine.
static PAIRS: AtomicBool = AtomicBool::new(false);

/// Notes that it may.
pub fn expect_pairs() {
    if !PAIRS.swap(true, Ordering::Relaxed) {
        clock::prepare();
    }
}

/// True if it may.
pub fn has_pairs() -> bool {
    PAIRS.load(Ordering::Relaxed)
}

/// True if calls of this process drive what carries its connections: an engine inside it, or memory that it
/// shares with another program.
pub fn is_direct() -> bool {
    is_used() && (config().placement == Placement::Direct || has_pairs())
}

/// A wait that includes the devices of this process's own engines.
pub struct Attendance {
    /// Changes whenever the list of devices changes.
    pub changes: u64,
    _attending: Attending,
}

/// Begins such a wait, if there are devices, or have been. A caller that finds a device readable must
/// call [`look`].
pub fn attend() -> Option<Attendance> {
    if !is_direct() {
        return None;
    }
    let link = read();
    let service = link.service.as_ref()?;
    let changes = service.device_changes();
    (changes > 0).then(|| Attendance { changes, _attending: service.attend() })
}

/// The descriptors of the devices at this moment.
pub fn devices() -> Vec<RawFd> {
    read().service.as_ref().map_or_else(Vec::new, Service::devices)
}

/// True while there is a link to the service that does not rest.
pub fn is_used() -> bool {
    USED_NOW.load(Ordering::Relaxed)
}

/// True while there is a link to the service.
pub fn is_linked() -> bool {
    MADE.load(Ordering::Relaxed)
}

/// Lets the link rest if no connection has been in an engine or a pair for a while, and closes it if nothing is left
/// of those that were. `is_needed` says whether one is there.
pub fn rest_unless(is_needed: impl FnOnce() -> bool) {
    if !is_linked() || interrupted() {
        return;
    }
    let now = clock::at_once();
    if Duration::from_nanos(now.saturating_sub(LOOKED.load(Ordering::Relaxed))) < CHECKED {
        return;
    }
    LOOKED.store(now, Ordering::Relaxed);
    // A thread that uses the link now has it locked, or its connection.
    let Some(mut link) = Counted::if_free(|| LINK.try_write().ok()) else { return };
    if is_needed() {
        USED.store(now, Ordering::Relaxed);
    } else if link.patience.is_over(USED.load(Ordering::Relaxed), now) {
        USED_NOW.store(false, Ordering::Relaxed);
        if link.service.as_ref().is_some_and(Service::is_idle) {
            link.patience.on_close(now);
            link.close();
        }
    }
}

impl Link {
    /// Closes it. The thread that serves it ends with its last stream.
    pub fn close(&mut self) {
        for made in [&MADE, &USED_NOW] {
            made.store(false, Ordering::Relaxed);
        }
        drop(self.service.take());
    }

    fn connect(&mut self) {
        let is_connected = self.service.as_ref().is_some_and(|service| !service.is_gone());
        if is_connected || self.failed.is_some_and(|failed| failed.elapsed() < AGAIN) {
            return;
        }
        baton_client::keep_descriptors_above(crate::descriptors::floor());
        match crate::os::signals::blocked(|| Service::connect_as(&config().socket, config().placement)) {
            Ok(service) => {
                (self.service, self.failed) = (Some(service), None);
                self.patience.on_link(clock::at_once());
                for made in [&MADE, &USED_NOW] {
                    made.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => {
                crate::log::no_service(&error);
                self.failed = Some(Instant::now());
            }
        }
    }
}
