//! The signals of a thread: those it blocks, those with handlers of the program, and the handlers that
//! have run.
//!
//! Safety rules: a signal is sent to the calling thread only. Masks are changed by [`blocked`] only.
//!
//! A set of signals has 64 bits here, as in the kernel: the lowest bit stands for signal 1.

use super::real;
use libc::{SIG_DFL, SIG_IGN, c_int, sigset_t};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use baton_consumer::signals::blocked;

/// The signals with a handler of the program: those whose handlers restart interrupted calls
/// (`SA_RESTART`), and those whose handlers interrupt them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handlers {
    pub restarting: u64,
    pub interrupting: u64,
}

/// The number of times that handlers were installed, counted from 1; the sets as they were read last,
/// and the count at that time.
static CHANGES: AtomicU64 = AtomicU64::new(1);
static KNOWN_SINCE: AtomicU64 = AtomicU64::new(0);
static RESTARTING: AtomicU64 = AtomicU64::new(0);
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// The program's handlers. The kernel is asked if a handler is known to have been installed since the
/// last time, or if `anew` is set.
pub(crate) fn handlers(anew: bool) -> Handlers {
    let changes = CHANGES.load(Ordering::Acquire);
    if !anew && KNOWN_SINCE.load(Ordering::Acquire) == changes {
        return Handlers {
            restarting: RESTARTING.load(Ordering::Relaxed),
            interrupting: INTERRUPTING.load(Ordering::Relaxed),
        };
    }
    let mut found = Handlers::default();
    for signal in 1..=64 {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only queries; the kernel fills the action in if it succeeds.
        if unsafe { real::sigaction(signal, null(), action.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: as above.
        let action = unsafe { action.assume_init() };
        if matches!(action.sa_sigaction, SIG_DFL | SIG_IGN) {
            continue;
        }
        let set = if action.sa_flags & libc::SA_RESTART != 0 { &mut found.restarting } else { &mut found.interrupting };
        *set |= 1 << (signal - 1);
    }
    RESTARTING.store(found.restarting, Ordering::Relaxed);
    INTERRUPTING.store(found.interrupting, Ordering::Relaxed);
    KNOWN_SINCE.store(changes, Ordering::Release);
    found
}

/// The number of handlers that a thread has run. A handler that was postponed until the library held no
/// lock runs during a call, which must then end as if it had been interrupted in its wait.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    /// All handlers: none of them lets a `poll`, `select` or `epoll_wait` continue.
    pub any: u32,
    /// The handlers that interrupt every call.
    pub interrupting: u32,
}

thread_local! {
    /// Changed only by handlers in this thread.
    static RAN: Cell<Ran> = const { Cell::new(Ran { any: 0, interrupting: 0 }) };
}

/// The handlers that this thread has run so far.
pub(crate) fn ran() -> Ran {
    RAN.try_with(Cell::get).unwrap_or_default()
}

/// Counts a handler that this thread is about to run.
pub(crate) fn count_handler(signal: c_int) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only queries; all zeros are a valid action.
    let flags = unsafe {
        real::sigaction(signal, null(), action.as_mut_ptr());
        action.assume_init().sa_flags
    };
    let interrupting = u32::from(flags & libc::SA_RESTART == 0);
    let _ = RAN.try_with(|ran| {
        let Ran { any, interrupting: before } = ran.get();
        ran.set(Ran { any: any.wrapping_add(1), interrupting: before.wrapping_add(interrupting) });
    });
}

/// Called when a handler has been installed.
pub(crate) fn note_installed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// Converts a set to libc's type.
pub(crate) fn set_of(bits: u64) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: all zeros is a valid set, and libc's type is longer than 64 bits.
    unsafe {
        set.as_mut_ptr().cast::<u64>().write(bits);
        set.assume_init()
    }
}

/// The signals that the calling thread blocks.
pub(crate) fn mask() -> u64 {
    let mut set = set_of(0);
    // SAFETY: only queries, into a live set whose first 64 bits are the kernel's.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut set);
        (&raw const set).cast::<u64>().read()
    }
}

/// A signalfd: readable while one of these signals is pending for the thread that polls it.
pub(crate) fn signalfd(bits: u64) -> std::io::Result<OwnedFd> {
    // SAFETY: a live set.
    let fd = unsafe { libc::signalfd(-1, &set_of(bits), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just created, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Raises SIGPIPE in this thread, as the kernel does for a write on a connection that has ended.
pub(crate) fn broken_pipe() {
    // SAFETY: a signal to the calling thread.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}
