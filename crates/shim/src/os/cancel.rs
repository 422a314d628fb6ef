//! Cancellation of threads (pthreads(7)).
//!
//! libc ends a cancelled thread by unwinding it from the call it is in. Cancellation of a thread is
//! disabled while the library works for it, whichever functions of libc it calls. It is enabled
//! while the library waits, as in the program's own call; the unwinding drops what the wait holds.
//!
//! Safety rules: cancellation is enabled only in calls whose callers are `C-unwind` functions up to
//! the program, so a thread is unwound only through frames that allow it.

use libc::c_int;
use std::cell::Cell;
use std::time::Duration;

/// Values from `pthread.h`.
const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

// SAFETY: the types are those of `pthread.h`.
unsafe extern "C" {
    // It unwinds only if asynchronous cancellation is on, which this library does not support.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

// SAFETY: as above; a cancelled thread unwinds from it.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

thread_local! {
    /// Whether the program has cancellation enabled, while the library works for this thread.
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
}

fn set(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: a pointer to a live local.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Cancellation of this thread is disabled while this exists.
#[must_use]
pub(crate) struct Deferred {
    was_enabled: bool,
    /// The value of [`ALLOWED`] before: a signal handler may have interrupted a wait.
    allowed_before: bool,
}

impl Deferred {
    pub fn new() -> Deferred {
        let (was_enabled, allowed_before) = (set(DISABLE) == ENABLE, ALLOWED.get());
        if was_enabled {
            ALLOWED.set(true);
        }
        Deferred { was_enabled, allowed_before }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if self.was_enabled {
            ALLOWED.set(self.allowed_before);
            set(ENABLE);
        }
    }
}

/// Runs a signal handler of the program, which may have interrupted the library and may leave with
/// `longjmp`, with the program's own setting of cancellation.
pub(crate) fn run_handler(handler: impl FnOnce()) {
    let allowed = ALLOWED.replace(false);
    let was_deferred = allowed && set(ENABLE) == DISABLE;
    handler();
    if was_deferred {
        set(DISABLE);
    }
    ALLOWED.set(allowed);
}

/// Runs the library's part of a call that is a cancellation point: acts on a pending cancellation, then
/// runs `work` with cancellation disabled.
pub(crate) fn deferred<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a cancelled thread is unwound through frames that allow it.
    unsafe { pthread_testcancel() };
    let _deferred = Deferred::new();
    work()
}

/// Makes a call of libc that waits for the time `left`, with the program's own setting of cancellation.
pub(crate) fn cancellable<T>(left: Option<Duration>, call: impl FnOnce() -> T) -> T {
    if !ALLOWED.get() || left == Some(Duration::ZERO) {
        return call();
    }
    set(ENABLE);
    let done = call();
    // The caller still needs the call's `errno`.
    let errno = super::last_errno();
    set(DISABLE);
    super::set_errno(errno);
    done
}
