//! The program's connection to the service. It is made when it is first needed, since a program
//! that moves nothing needs none, and is closed before a fork.

use crate::config::config;
use baton_client::{Attending, Service};
use baton_consumer::clock;
use baton_consumer::held::Counted;
use baton_ipc::placement::Placement;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The time after a failed attempt to connect before the next one.
const AGAIN: Duration = Duration::from_secs(1);

/// The link to the service, and when the last attempt to connect failed.
pub struct Link {
    pub service: Option<Service>,
    failed: Option<Instant>,
}

static LINK: RwLock<Link> = RwLock::new(Link { service: None, failed: None });

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
    let link = read();
    // If the service was killed, its connections go on or end without it; connect to the next.
    if link.service.as_ref().is_none_or(Service::is_gone) {
        drop(link);
        exclusive().connect();
        return read().service.as_ref().map(run);
    }
    link.service.as_ref().map(run)
}

/// Processes the events of the engines, if a service is in use.
pub fn look() {
    if let Some(service) = &read().service {
        service.look();
    }
}

/// As [`look`], unless it was done recently. For a call that can return without it.
pub fn glance() {
    if let Some(service) = &read().service {
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
    config().placement == Placement::Direct || has_pairs()
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

/// True while there is a connection to the service.
pub fn is_used() -> bool {
    read().service.is_some()
}

impl Link {
    fn connect(&mut self) {
        let is_connected = self.service.as_ref().is_some_and(|service| !service.is_gone());
        if is_connected || self.failed.is_some_and(|failed| failed.elapsed() < AGAIN) {
            return;
        }
        baton_client::keep_descriptors_above(crate::descriptors::floor());
        match crate::os::signals::blocked(|| Service::connect_as(&config().socket, config().placement)) {
            Ok(service) => (self.service, self.failed) = (Some(service), None),
            Err(error) => {
                crate::log::no_service(&error);
                self.failed = Some(Instant::now());
            }
        }
    }
}
