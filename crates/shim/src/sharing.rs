//! How long a child shares what its parent had when it forked.
//!
//! Each fork has a pipe that is closed on exec: the parent keeps the reading end, the child
//! the writing one, and so does every child of it. Once all of them have ended or become other
//! programs, the reading end says that nobody is there, and what is closed on exec is the
//! parent's alone again.

use crate::descriptors::out_of_the_way;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Children of one fork, and theirs.
#[derive(Clone)]
pub struct Sharing(Arc<OwnedFd>);

/// The child's end.
pub struct Held(OwnedFd);

/// For a fork that is about to be; none if the process may have no more descriptors.
pub fn begin() -> Option<(Sharing, Held)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    Some((Sharing(Arc::new(out_of_the_way(read))), Held(out_of_the_way(write))))
}

impl Sharing {
    /// True while one of them is what it was.
    pub fn lasts(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::empty())], Some(&now)) != Ok(1)
    }
}

impl Held {
    /// In the child: kept as long as it is this program.
    pub fn keep(self) {
        std::mem::forget(self.0);
    }
}
