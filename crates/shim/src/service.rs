//! The program's connection to the service: made when it is first needed, since a program
//! that moves nothing needs none, and ended before a fork.

use crate::config::config;
use baton_socket::held::Counted;
use baton_socket::service::{Attending, Placement, Service};
use std::os::fd::RawFd;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Time after which a service that was not there is looked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// See the file's head.
pub struct Link {
    pub service: Option<Service>,
    failed: Option<Instant>,
}

static LINK: RwLock<Link> = RwLock::new(Link { service: None, failed: None });

fn read() -> Counted<RwLockReadGuard<'static, Link>> {
    Counted::new(|| LINK.read().unwrap_or_else(PoisonError::into_inner))
}

/// Nobody hands anything over while this is held.
pub fn exclusive() -> Exclusive {
    Counted::new(|| LINK.write().unwrap_or_else(PoisonError::into_inner))
}

/// See [`exclusive`].
pub type Exclusive = Counted<RwLockWriteGuard<'static, Link>>;

/// Does something with the service; none if there is none.
pub fn with<R>(run: impl FnOnce(&Service) -> R) -> Option<R> {
    let link = read();
    // What one that was killed had goes on or ends without it.
    if link.service.as_ref().is_none_or(Service::is_gone) {
        drop(link);
        exclusive().connect();
        return read().service.as_ref().map(run);
    }
    link.service.as_ref().map(run)
}

/// Takes in what engines have said, if a service is in use.
pub fn look() {
    if let Some(service) = &read().service {
        service.look();
    }
}

/// The same, unless somebody did so lately: for a call that need not wait.
pub fn glance() {
    if let Some(service) = &read().service {
        service.glance();
    }
}

/// True if engines run in this process.
pub fn is_direct() -> bool {
    config().placement == Placement::Direct
}

/// A wait that also looks after the devices of this process's own engines.
pub struct Attendance {
    /// Another number whenever the devices are others.
    pub changes: u64,
    _attending: Attending,
}

/// Begins such a wait, if there are devices, or have been. Whoever finds one of them readable takes in
/// what came ([`look`]).
pub fn attend() -> Option<Attendance> {
    if !is_direct() {
        return None;
    }
    let link = read();
    let service = link.service.as_ref()?;
    let changes = service.device_changes();
    (changes > 0).then(|| Attendance { changes, _attending: service.attend() })
}

/// The devices now.
pub fn devices() -> Vec<RawFd> {
    read().service.as_ref().map_or_else(Vec::new, Service::devices)
}

/// True while there is a connection to the service.
pub fn is_used() -> bool {
    read().service.is_some()
}

impl Link {
    fn connect(&mut self) {
        let there = self.service.as_ref().is_some_and(|service| !service.is_gone());
        if there || self.failed.is_some_and(|failed| failed.elapsed() < AGAIN) {
            return;
        }
        baton_socket::service::keep_descriptors_above(crate::descriptors::floor());
        match crate::sys::signals::blocked(|| Service::connect_as(&config().socket, config().placement)) {
            Ok(service) => (self.service, self.failed) = (Some(service), None),
            Err(error) => {
                crate::log::no_service(&error);
                self.failed = Some(Instant::now());
            }
        }
    }
}
