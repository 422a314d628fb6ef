//! What a fork leaves a child: nothing of what its parent shares with others.
//!
//! A child has copies of the parent's memory and descriptors, but not its threads: a lock may
//! be held in it for ever, and what is sent over a copy is sent for the parent. So what is
//! shared has the [`Process`] noted that it belongs to, and is left as it is in another.
//! Noticed is what `fork` of the C library makes, not a bare `clone`.
//!
//! What this module upholds:
//! * The handler, which runs in a child before `fork` returns there, takes no lock and
//!   allocates nothing: any may be amiss.
//! * A descriptor is closed only in a child, where the value that owns it is never used nor
//!   dropped: [`Unshared`] and [`Copied`] are made for no other.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Forks that lie between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// No descriptor.
const NONE: RawFd = -1;

/// Descriptors that no child keeps. Should there be more, children keep them.
static UNSHARED: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for place in &UNSHARED {
        close_copy(place.swap(NONE, Ordering::Relaxed));
    }
}

/// Closes a child's copy of a descriptor whose owner it never uses; -1 is none.
fn close_copy(fd: RawFd) {
    if fd != NONE {
        // SAFETY: nobody in this process uses or closes it, as the head says.
        unsafe { libc::close(fd) };
    }
}

/// A process, as far as forks tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u64);

impl Process {
    /// This one.
    pub fn this() -> Process {
        static NOTICED: Once = Once::new();
        NOTICED.call_once(|| {
            // SAFETY: the handler takes no lock, allocates nothing and does not unwind.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert_eq!(failed, 0, "memory for a handler of forks");
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// False in a child of it.
    pub fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Keeps children from having a copy of a descriptor, which stays open as long as this.
pub struct Unshared(RawFd);

impl Unshared {
    /// For a descriptor that is closed after this is dropped.
    pub fn new(fd: &impl AsFd) -> Unshared {
        let fd = fd.as_fd().as_raw_fd();
        let free = |place: &AtomicI32| place.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // Found or not.
        let _ = UNSHARED.iter().any(free);
        Unshared(fd)
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        for place in &UNSHARED {
            let _ = place.compare_exchange(self.0, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Closes a child's copy of a descriptor when the child drops this, its copy of what leads to
/// the descriptor.
pub struct Copied {
    fd: AtomicI32,
    parent: Process,
}

impl Copied {
    /// For a descriptor that stays open until this is dropped, or told to forget it.
    pub fn new(fd: &impl AsFd) -> Copied {
        Copied { fd: AtomicI32::new(fd.as_fd().as_raw_fd()), parent: Process::this() }
    }

    /// Somebody else has the descriptor.
    pub fn forget(&self) {
        self.fd.store(NONE, Ordering::Relaxed);
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if !self.parent.is_this() {
            close_copy(*self.fd.get_mut());
        }
    }
}
