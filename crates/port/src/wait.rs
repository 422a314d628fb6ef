//! Sleeping until a port has something to say.
//!
//! A port never waits. Its driver does, on the descriptors of everything that it
//! waits for (ports, doorbells) at once:
//!
//! ```text
//!   port.prepare_wait()  false: frames are waiting, do not sleep
//!   set.wait(timeout)    ppoll over what port.poll_fds() and others added
//!   port.finish_wait()
//! ```

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::sys;

/// A port that can be slept on.
pub trait Waitable {
    /// Adds the descriptors that become readable when frames arrive. They stay the same for as
    /// long as the port is open. A port that adds none has all its frames available now.
    fn poll_fds(&self, set: &mut WaitSet);

    /// Call it right before a wait. False if frames are waiting already.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    /// Call it right after a wait.
    fn finish_wait(&mut self) {}
}

/// Descriptors to wait for, each for input.
#[derive(Default)]
pub struct WaitSet {
    fds: Vec<libc::pollfd>,
}

impl WaitSet {
    /// A set of no descriptors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor; it must stay open while the set is waited on.
    pub fn add(&mut self, fd: &impl AsRawFd) {
        self.fds.push(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    }

    /// Sleeps until a descriptor has something to say or `timeout` has passed
    /// (`None`: for ever; a signal ends the wait early), and returns how many do.
    ///
    /// # Errors
    /// As `ppoll(2)`'s.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        sys::io::poll(&mut self.fds, timeout)
    }

    /// Whether `fd` had something to say when the last wait ended.
    pub fn is_ready(&self, fd: RawFd) -> bool {
        self.fds.iter().any(|p| p.fd == fd && p.revents != 0)
    }
}
