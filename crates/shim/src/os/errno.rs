//! `errno` as the program knows it. A call that succeeds leaves it as it was, whatever the library
//! does meanwhile, as the kernel's calls do; one that fails sets it (errno(3)).
//!
//! A handler that interrupts the library sees the program's `errno` too, and what it leaves there
//! is the program's. The library's own is put back behind it.

use super::{last_errno, set_errno};
use libc::{FILE, c_int};
use std::cell::Cell;

thread_local! {
    /// What the program has in `errno` while this thread works for it. Empty outside of calls, and
    /// while a handler of the program runs.
    static OF_PROGRAM: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// What a function of libc returns.
pub(crate) trait Outcome {
    /// True if `errno` says why.
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

/// Puts back what was known of the program before a call. A thread may be unwound in one.
struct Outer(Option<c_int>);

impl Drop for Outer {
    fn drop(&mut self) {
        OF_PROGRAM.set(self.0);
    }
}

/// Makes a call for the program.
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

/// Runs a handler of the program, which may leave by `longjmp`. `interrupted` is `errno` as it was
/// when the signal came: the library's own, where a call of it was interrupted.
pub(crate) fn run_handler(interrupted: c_int, handler: impl FnOnce()) {
    let within_call = OF_PROGRAM.take();
    set_errno(within_call.unwrap_or(interrupted));
    handler();
    if within_call.is_some() {
        OF_PROGRAM.set(Some(last_errno()));
        set_errno(interrupted);
    }
}
