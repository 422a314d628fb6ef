//! Signals are the program's: threads of ours take none, and a broken pipe raises one.
//!
//! What is upheld: the kernel is only asked for handlers, into room of its own type, and a
//! signal goes to the calling thread alone. Masks are changed by the library's [`blocked`].
//!
//! Signals are sets of 64 bits here, as the kernel's are: the first stands for signal 1.

use super::real;
use libc::{c_int, sigset_t};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use baton_socket::signals::blocked;

/// Signals with a handler of the program: those after which calls go on (`SA_RESTART`), and
/// those that end them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handlers {
    pub gentle: u64,
    pub rough: u64,
}

/// Times that handlers were installed, from 1; what is known of them, and since which.
static CHANGES: AtomicU64 = AtomicU64::new(1);
static KNOWN_SINCE: AtomicU64 = AtomicU64::new(0);
static GENTLE: AtomicU64 = AtomicU64::new(0);
static ROUGH: AtomicU64 = AtomicU64::new(0);

/// The program's handlers. The kernel is asked when some were installed since, as far as that
/// was seen; with `anew`, always.
pub(crate) fn handlers(anew: bool) -> Handlers {
    let changes = CHANGES.load(Ordering::Acquire);
    if !anew && KNOWN_SINCE.load(Ordering::Acquire) == changes {
        return Handlers { gentle: GENTLE.load(Ordering::Relaxed), rough: ROUGH.load(Ordering::Relaxed) };
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
        if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            continue;
        }
        let set = if action.sa_flags & libc::SA_RESTART != 0 { &mut found.gentle } else { &mut found.rough };
        *set |= 1 << (signal - 1);
    }
    GENTLE.store(found.gentle, Ordering::Relaxed);
    ROUGH.store(found.rough, Ordering::Relaxed);
    KNOWN_SINCE.store(changes, Ordering::Release);
    found
}

/// Handlers are installed, or have been.
pub(super) fn changed() {
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

/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the arguments are the program's.
    let done = unsafe { real::sigaction(signal, new, old) };
    if !new.is_null() {
        changed();
    }
    done
}

/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let done = unsafe { real::siginterrupt(signal, interrupts) };
    changed();
    done
}

/// Functions that install a handler, and give the one before.
macro_rules! installs {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As of libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
            // SAFETY: the arguments are the program's.
            let before = unsafe { real::$name(signal, handler) };
            changed();
            before.cast_unsigned()
        }
    )*};
}

installs! { signal __sysv_signal sigset }

/// What the kernel does to who writes to a connection that has ended.
pub(crate) fn broken_pipe() {
    // SAFETY: a signal to this very thread.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}
