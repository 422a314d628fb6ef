//! The signals of a thread: which it blocks, which have handlers of the program, and which of these
//! have run.
//!
//! What is upheld: a signal goes to the calling thread alone. Masks are changed by [`blocked`]
//! only.
//!
//! Signals are sets of 64 bits here, as the kernel's are: the first stands for signal 1.

use super::real;
use libc::{SIG_DFL, SIG_IGN, c_int, sigset_t};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use baton_socket::signals::blocked;

/// Signals with a handler of the program: those after which calls go on (`SA_RESTART`), and
/// those that end them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handlers {
    pub restarting: u64,
    pub interrupting: u64,
}

/// Times that handlers were installed, from 1; what is known of them, and since which.
static CHANGES: AtomicU64 = AtomicU64::new(1);
static KNOWN_SINCE: AtomicU64 = AtomicU64::new(0);
static RESTARTING: AtomicU64 = AtomicU64::new(0);
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// The program's handlers. The kernel is asked when some were installed since, as far as that
/// was seen; with `anew`, always.
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
        // SAFETY: only asks; filled in where it succeeds.
        if unsafe { real::sigaction(signal, null(), action.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: likewise.
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

/// Handlers that a thread has run. One that was put off until the library held no lock has run
/// within a call, which is to end as if it had waited already.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    /// All of them: no `poll`, `select` or `epoll_wait` goes on after one.
    pub any: u32,
    /// Those after which no call goes on.
    pub interrupting: u32,
}

thread_local! {
    /// Only this thread's handlers see it change.
    static RAN: Cell<Ran> = const { Cell::new(Ran { any: 0, interrupting: 0 }) };
}

/// Those that this thread has run so far.
pub(crate) fn ran() -> Ran {
    RAN.try_with(Cell::get).unwrap_or_default()
}

/// This thread is about to run the handler of a signal.
pub(crate) fn count(signal: c_int) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; all zeros are an action, too.
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

/// Handlers are installed, or have been.
pub(crate) fn changed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// Such a set as libc's.
pub(crate) fn set_of(bits: u64) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: all zeros is a set, and longer than the kernel's.
    unsafe {
        set.as_mut_ptr().cast::<u64>().write(bits);
        set.assume_init()
    }
}

/// Signals that the calling thread takes none of.
pub(crate) fn mask() -> u64 {
    let mut set = set_of(0);
    // SAFETY: only asks, into a live set, whose first 64 bits are the kernel's.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut set);
        (&raw const set).cast::<u64>().read()
    }
}

/// A descriptor that is readable while one of these waits for the thread that asks.
pub(crate) fn descriptor(bits: u64) -> std::io::Result<OwnedFd> {
    // SAFETY: a live set.
    let fd = unsafe { libc::signalfd(-1, &set_of(bits), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel does to who writes to a connection that has ended.
pub(crate) fn broken_pipe() {
    // SAFETY: a signal to this very thread.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}
