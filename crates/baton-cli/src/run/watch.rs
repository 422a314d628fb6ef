//! What a run does when all of its service was killed at once: broker, guardian and engines.
//!
//! What the engines had is ended, by a reset at both ends, since nobody can bring it home
//! (`baton_kernel::steer`). What programs' own engines have goes on until it ends. Then one of the runs
//! that live starts another service at the same place, which programs find there. A service that has
//! ended in form is not started again: somebody told it to end.

use super::place::Place;
use super::service::{bury, join, start};
use baton_client::Service;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Longest wait for another run that starts a service.
const TO_WAIT: Duration = Duration::from_secs(1);

/// A thread that replaces a killed service. It stops when this is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What became of a service that was killed.
enum Next {
    Another(Service),
    /// Something of the old one lives.
    Later,
    /// There is to be none.
    None,
}

impl Watch {
    /// Watches the service that this run has joined.
    ///
    /// # Errors
    /// If there can be no thread.
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
    // It takes its socket along when it ends in form.
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
    // Programs' own engines have to end first, and so has whatever else steers the interface.
    if bury(&setup.interfaces).map_or(true, |left| left > 0) {
        return Next::Later;
    }
    start(place, &locked, &setup).map_or(Next::None, Next::Another)
}
