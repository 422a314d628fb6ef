//! The boundary to the program: the functions that replace libc's. This directory and
//! [`os`](crate::os) have the only unsafe code of this crate.
//!
//! Safety rules of these modules:
//! * Each exported function has the name and the type of libc's function, and treats the program's
//!   pointers as libc or the kernel would: it reads and writes no more than the program says, and
//!   keeps no pointer after the call. Where the kernel would answer a bad pointer with `EFAULT`, a
//!   null pointer fails with `EFAULT`; any other bad pointer faults.
//! * A call on a descriptor that the library does not know goes to the next function of that name,
//!   with the same arguments.
//! * `errno` belongs to the program, and changes only if a call fails ([`errno`](crate::os::errno)).
//! * A cancelled thread is unwound through these functions only where it waits, or inside the
//!   function that a call goes on to. Elsewhere it cannot be cancelled
//!   ([`cancel`](crate::os::cancel)).
//! * These functions are not re-entered by the library itself: it calls the kernel directly, or
//!   uses descriptors that the table does not know.

mod asynchronous;
mod descriptors;
mod epoll;
mod exports;
mod files;
mod messages;
mod poll;
mod processes;
mod raw;
mod rings;
mod signals;
mod sockets;
mod transfers;

use crate::connection::KernelCall;
use crate::os::errno::{Outcome, preserving};
use crate::os::set_errno;
use crate::transfer::Done;
use libc::c_int;

/// Sets `errno` and returns -1.
fn fail<R: From<i8>>(errno: i32) -> R {
    set_errno(errno);
    R::from(-1)
}

/// Makes a call that `stays` in the kernel as the program's own: it costs hardly more, since the library touches
/// no `errno` and nothing in it can be cancelled. Any other is served by `ours`, which has the program's `errno`
/// preserved.
#[inline(always)]
fn unless<R: Outcome>(stays: Option<KernelCall>, kernel: impl FnOnce() -> R, ours: impl FnOnce() -> R) -> R {
    match stays {
        Some(_call) => kernel(),
        None => preserving(ours),
    }
}

/// Converts a result to C's convention. If the kernel serves the call, `kernel` makes it.
fn finish<T: TryInto<R>, R: From<i8>>(done: Done<T>, kernel: impl FnOnce() -> R) -> R {
    match done {
        Done::Carried(value) => value.try_into().unwrap_or_else(|_| fail(libc::EOVERFLOW)),
        Done::Failed(errno) => fail(errno),
        Done::Kernel(_call) => kernel(),
    }
}

fn zero_or(done: Result<(), i32>) -> c_int {
    done.map_or_else(fail, |()| 0)
}
