//! The program's `errno`. A call that succeeds leaves it unchanged, whatever the library does in it, as
//! a system call would; a call that fails sets it (errno(3)).
//!
//! A signal handler that interrupts the library sees the program's `errno`, and a value that it leaves
//! there is the program's. The library's own value is restored after the handler.

use super::{last_errno, set_errno};
use libc::{FILE, c_int};
use std::cell::Cell;

thread_local! {
    /// The program's `errno` while the library works for this thread. `None` outside of calls, and
    /// while a signal handler of the program runs.
    static OF_PROGRAM: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// The result type of a libc function.
pub(crate) trait Outcome {
    /// True if the call failed and `errno` has the reason.
    fn has_failed(&self) -> bool;
}

impl Outcome for c_int {
    fn has_failed(&self) -> bool {
        *self == -1
    }
}

impl Outcome for isize {
    fn has_failed(&self) -> bool {
        *self == -1
    }
}

impl Outcome for i64 {
    fn has_failed(&self) -> bool {
        *self == -1
    }
}

impl Outcome for libc::sighandler_t {
    fn has_failed(&self) -> bool {
        *self == libc::SIG_ERR
    }
}

impl Outcome for *mut FILE {
    fn has_failed(&self) -> bool {
        self.is_null()
    }
}

impl Outcome for () {
    fn has_failed(&self) -> bool {
        false
    }
}

/// Restores the previous value of [`OF_PROGRAM`] after a call, also if the thread is unwound.
struct Outer(Option<c_int>);

impl Drop for Outer {
    fn drop(&mut self) {
        OF_PROGRAM.set(self.0);
    }
}

/// Makes a call for the program, and restores its `errno` if the call succeeds.
pub(crate) fn preserving<R: Outcome>(call: impl FnOnce() -> R) -> R {
    let outer = Outer(OF_PROGRAM.replace(Some(last_errno())));
    let done = call();
    if !done.has_failed()
        && let Some(errno) = OF_PROGRAM.get()
    {
        set_errno(errno);
    }
    drop(outer);
    done
}

/// Runs a signal handler of the program, which may leave with `longjmp`. `interrupted` is `errno` when
/// the signal arrived: the library's own value, if the signal interrupted the library.
pub(crate) fn run_handler(interrupted: c_int, handler: impl FnOnce()) {
    let within_call = OF_PROGRAM.take();
    set_errno(within_call.unwrap_or(interrupted));
    handler();
    if within_call.is_some() {
        OF_PROGRAM.set(Some(last_errno()));
        set_errno(interrupted);
    }
}
