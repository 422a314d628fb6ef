//! POSIX asynchronous I/O. Threads inside libc make its calls, where the library cannot see them, so
//! the connection comes home first.
//!
//! Safety rules, besides those of [`super`]: only the descriptor of a request is read, before libc gets it; nothing
//! here keeps or completes it. No more entries of a list are read than `count`, and null ones are skipped.

use crate::connection::bring_home;
use crate::os::cancel::Deferred;
use crate::os::real;
use baton_policy::Reason;
use libc::{aiocb, c_int, sigevent};

/// # Safety
/// `what` is null or points to a request of the program.
unsafe fn bring_target_home(what: *const aiocb) {
    // SAFETY: the caller's promise.
    if let Some(what) = unsafe { what.as_ref() } {
        let _deferred = Deferred::new();
        bring_home(what.aio_fildes, Reason::Aio);
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn aio_read(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe {
        bring_target_home(what);
        real::aio_read(what)
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn aio_read64(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { aio_read(what) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn aio_write(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe {
        bring_target_home(what);
        real::aio_write(what)
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn aio_write64(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { aio_write(what) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int {
    // SAFETY: the arguments are the program's: `count` pointers, of which some may be null.
    unsafe {
        for number in 0..usize::try_from(count).unwrap_or(0) {
            bring_target_home(*list.add(number));
        }
        real::lio_listio(mode, list, count, event)
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { lio_listio(mode, list, count, event) }
}
