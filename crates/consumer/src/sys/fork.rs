//! State that a forked child does not inherit: everything that its parent shares with other
//! processes.
//!
//! A child has copies of the parent's memory and descriptors, but not its threads. So a lock may be
//! held forever in the child, and bytes sent over a copied descriptor would be sent on behalf of
//! the parent. Therefore each shared object records the [`Process`] that it belongs to, and is not
//! used in any other. Only libc's `fork` is detected, not a raw `clone`.
//!
//! Invariants of this module:
//!
//! * The handler, which runs in a child before `fork` returns there, takes no lock and allocates
//!   nothing, because either may be in an inconsistent state.
//! * A descriptor is closed only in a child, where the value that owns it is neither used nor
//!   dropped: [`Unshared`] and [`Copied`] are made for no other descriptors.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Marks a free slot.
const NONE: RawFd = -1;

/// Descriptors that are closed in children. If there are more, children keep the rest.
static UNSHARED: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for place in &UNSHARED {
        close_copy(place.swap(NONE, Ordering::Relaxed));
    }
}

/// Closes a child's copy of a descriptor whose owner the child never uses; -1 is ignored.
fn close_copy(fd: RawFd) {
    if fd != NONE {
        // SAFETY: nobody in this process uses or closes it; see the module's invariants.
        unsafe { libc::close(fd) };
    }
}

/// A process, identified by the number of forks before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u64);

impl Process {
    /// Returns the calling process.
    pub fn this() -> Process {
        static NOTICED: Once = Once::new();
        NOTICED.call_once(|| {
            // SAFETY: the handler takes no lock, allocates nothing and does not unwind.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert_eq!(failed, 0, "no memory for a fork handler");
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// False in a forked child of the process.
    pub fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// While this exists, a descriptor is closed in forked children.
pub struct Unshared(RawFd);

impl Unshared {
    /// Registers a descriptor that is closed only after this is dropped.
    pub fn new(fd: &impl AsFd) -> Unshared {
        let fd = fd.as_fd().as_raw_fd();
        let free = |place: &AtomicI32| place.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // If no slot is free, children keep the descriptor.
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

/// Closes a child's copy of a descriptor when the child drops this value, which is a copy of an
/// object that uses the descriptor.
pub struct Copied {
    fd: AtomicI32,
    parent: Process,
}

impl Copied {
    /// Registers a descriptor that stays open until this is dropped or [`Copied::forget`] is
    /// called.
    pub fn new(fd: &impl AsFd) -> Copied {
        Copied { fd: AtomicI32::new(fd.as_fd().as_raw_fd()), parent: Process::this() }
    }

    /// The descriptor belongs to someone else now.
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
