//! Threads that are cancelled (pthreads(7)). See [`super`] for what is upheld.
//!
//! libc lets a thread that is cancelled leave from the call that it is in, by unwinding. While
//! this library works its thread is not cancelled, in whatever call of libc it is; where it
//! waits it is, as the program would be in its own call: what it holds is dropped on the way.

use libc::c_int;
use std::cell::Cell;
use std::time::Duration;

/// `pthread.h`.
const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

unsafe extern "C" {
    // These unwind only where a thread may be cancelled at any time, which no call here is for.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

thread_local! {
    /// Whether the program lets this thread be cancelled, while the library works for it.
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
}

fn set(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: a live number.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// This thread is not cancelled while this lives.
#[must_use]
pub(crate) struct Deferred {
    was_enabled: bool,
    /// A handler may have interrupted a wait.
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

/// Runs a handler of the program, which may have interrupted the library, and may leave by
/// `longjmp`: its thread may be cancelled as the program last said.
pub(crate) fn run_handler(handler: impl FnOnce()) {
    let allowed = ALLOWED.replace(false);
    let was_deferred = allowed && set(ENABLE) == DISABLE;
    handler();
    if was_deferred {
        set(DISABLE);
    }
    ALLOWED.set(allowed);
}

/// Does the library's part of a call in which a thread may be cancelled: one that is already
/// is now.
pub(crate) fn deferred<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: whoever is to be cancelled here is unwound through frames that allow it.
    unsafe { pthread_testcancel() };
    let _deferred = Deferred::new();
    work()
}

/// Makes a call of libc that waits so long for the program, whose thread may be cancelled in it.
pub(crate) fn cancellable<T>(left: Option<Duration>, call: impl FnOnce() -> T) -> T {
    if !ALLOWED.get() || left == Some(Duration::ZERO) {
        return call();
    }
    set(ENABLE);
    let done = call();
    // What the call came to is still to be asked for.
    let errno = super::last_errno();
    set(DISABLE);
    super::set_errno(errno);
    done
}
