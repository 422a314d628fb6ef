//! Steps on a connection's socket, taken in the socket's network namespace.

use super::KernelSide;
use crate::both_ends::{Apart, capture_each};
use crate::capture_error::CaptureError;
use crate::captured::Captured;
use crate::kernel_error::KernelError;
use crate::{capture, make_husk, rebuild, recapture, resume};
use baton_tcp::state::State;
use baton_wire::addr::Tuple;
use std::os::fd::AsFd;

impl KernelSide {
    /// Like [`capture()`]; counts refusals.
    ///
    /// # Errors
    /// Errors from [`capture()`].
    pub fn capture(&mut self, fd: impl AsFd) -> Result<Captured, KernelError> {
        let fd = fd.as_fd();
        let captured = self.with(fd, |_| Ok::<_, KernelError>(capture(fd)?));
        self.counted(captured)
    }

    /// Like [`both_ends::capture_both`](crate::both_ends::capture_both), for sockets of any network namespace.
    ///
    /// # Errors
    /// Errors from [`both_ends::capture_both`](crate::both_ends::capture_both).
    pub fn capture_both(&mut self, ours: impl AsFd, theirs: impl AsFd) -> Result<[Captured; 2], Apart> {
        capture_each([ours.as_fd(), theirs.as_fd()], |fd| self.with(fd, |_| capture(fd)))
    }

    /// Like [`recapture()`].
    ///
    /// # Errors
    /// Errors from [`recapture()`].
    pub fn recapture(&mut self, fd: impl AsFd, previous: &Captured) -> Result<Captured, KernelError> {
        let fd = fd.as_fd();
        let captured: Result<_, CaptureError> = self.with(fd, |_| recapture(fd, previous));
        self.counted(captured)
    }

    /// Like [`make_husk()`].
    ///
    /// # Errors
    /// Errors from [`make_husk()`].
    pub fn make_husk(&mut self, fd: impl AsFd, captured: &Captured) -> Result<(), KernelError> {
        let fd = fd.as_fd();
        self.with(fd, |_| Ok(make_husk(fd, captured)?))
    }

    /// Like [`rebuild()`]; counts refusals.
    ///
    /// # Errors
    /// Errors from [`rebuild()`].
    pub fn rebuild(&mut self, fd: impl AsFd, captured: &Captured) -> Result<(), KernelError> {
        let fd = fd.as_fd();
        let rebuilt = self.with(fd, |_| Ok::<_, KernelError>(rebuild(fd, captured)?));
        self.counted(rebuilt)?;
        let p = &captured.protocol;
        let fin_acknowledged = match p.state {
            State::CloseWait | State::FinWait2 => Some(true),
            // Conntrack will see a FIN that waits behind the closed window.
            State::FinWait1 => (p.snd_nxt == p.write_seq).then_some(false),
            _ => None,
        };
        if let Some(acknowledged) = fin_acknowledged {
            let tuple = Tuple::new(captured.local, captured.remote);
            self.tell_tracked(fd, tuple, |conntrack, tuple| conntrack.half_closed(tuple, acknowledged));
        }
        Ok(())
    }

    /// Like [`resume()`].
    ///
    /// # Errors
    /// Errors from [`resume()`].
    pub fn resume(&mut self, fd: impl AsFd, captured: &Captured) -> Result<(), KernelError> {
        let fd = fd.as_fd();
        self.with(fd, |_| Ok(resume(fd, captured)?))
    }
}
