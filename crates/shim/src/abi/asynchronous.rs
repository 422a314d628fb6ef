//! Asynchronous I/O of POSIX: threads of libc's own make its calls, and nobody sees these. So
//! what is read or written that way is in the kernel from then on. See [`super`] for what is
//! upheld.

use crate::connection::bring_home;
use crate::os::cancel::Deferred;
use crate::os::real;
use libc::{aiocb, c_int, sigevent};

/// # Safety
/// Null, or what the program asks for.
unsafe fn home(what: *const aiocb) {
    // SAFETY: the caller's promise.
    if let Some(what) = unsafe { what.as_ref() } {
        let _deferred = Deferred::new();
        bring_home(what.aio_fildes, "aio");
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn aio_read(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe {
        home(what);
        real::aio_read(what)
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn aio_read64(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { aio_read(what) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn aio_write(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe {
        home(what);
        real::aio_write(what)
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn aio_write64(what: *mut aiocb) -> c_int {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { aio_write(what) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, told: *mut sigevent) -> c_int {
    // SAFETY: the arguments are the program's: so many pointers, of which some may be null.
    unsafe {
        for number in 0..usize::try_from(count).unwrap_or(0) {
            home(*list.add(number));
        }
        real::lio_listio(mode, list, count, told)
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, told: *mut sigevent) -> c_int {
    // SAFETY: the arguments are the program's; both types are the same here.
    unsafe { lio_listio(mode, list, count, told) }
}
