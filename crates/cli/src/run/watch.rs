//! Replaces a service whose processes (broker, guardian and engines) were all killed at once.
//!
//! The connections of the service's engines are reset at both ends, since no process is left that
//! could restore them to the kernel (`baton_kernel::steer`). The connections in programs' own
//! engines continue until they close. Then one of the surviving runs starts another service at the
//! same place, where programs find it. A service that ended in order is not started again, because
//! somebody asked it to end.

use super::place::Place;
use super::service::{bury, join, start};
use baton_client::Service;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(100);

/// Longest wait for another run that starts a service.
const TO_WAIT: Duration = Duration::from_secs(1);

/// A thread that replaces a killed service. It stops when this is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The step that follows when a service is gone.
enum Next {
    /// This one replaces it.
    Another(Service),
    /// Part of the old one is still alive, or another run holds the lock: try again.
    Later,
    /// It needs no replacement, or could not be replaced.
    None,
}

impl Watch {
    /// Watches the service that this run has joined.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(place: Place, service: Service) -> io::Result<Watch> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("baton-watch".into()).spawn(move || {
            let mut service = service;
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if !service.is_gone() {
                    continue;
                }
                match replace(&place) {
                    Next::Another(another) => service = another,
                    Next::Later => {}
                    Next::None => return,
                }
            }
        })?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn replace(place: &Place) -> Next {
    // A service that ends in order removes its socket.
    if !place.socket().exists() {
        return Next::None;
    }
    let Ok(locked) = place.lock(TO_WAIT) else { return Next::Later };
    // Another run was faster.
    if let Ok(service) = join(&place.socket()) {
        return Next::Another(service);
    }
    if place.is_alive() {
        return Next::Later;
    }
    let Ok(setup) = place.with() else { return Next::None };
    // Programs' own engines, and any other service that steers the interface, must end first.
    if bury(&setup.interfaces).map_or(true, |left| left > 0) {
        return Next::Later;
    }
    start(place, &locked, &setup).map_or(Next::None, Next::Another)
}
