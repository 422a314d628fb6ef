//! The boundary to the program, and the only unsafe code of this crate.
//!
//! What these modules uphold:
//! * Each exported function has the name and the type of libc's, and does with the program's
//!   pointers what libc's or the kernel's would: no more is read or written than the program
//!   says there is, and nothing is kept beyond the call. Where the kernel would answer a bad
//!   pointer with `EFAULT`, a null one is answered so, and any other faults.
//! * A call that is not ours goes to the next function of that name, with the same arguments.
//! * `errno` is the program's, and changes only where a call fails ([`errno`](crate::os::errno)).
//! * A thread that is cancelled is unwound through these functions only where it waits, or by the
//!   function that a call goes on to: in between it cannot be ([`cancel`](crate::os::cancel)).
//! * Nothing here is called by what it calls: what this library does itself it asks of the
//!   kernel directly, or on descriptors that the table does not know.

mod asynchronous;
mod descriptors;
mod epoll;
mod exports;
mod messages;
mod poll;
mod processes;
mod raw;
mod rings;
mod signals;
mod sockets;
mod transfers;

use crate::os::set_errno;
use crate::transfer::Done;
use libc::c_int;

/// -1, and `errno` says why.
fn fail<R: From<i8>>(errno: i32) -> R {
    set_errno(errno);
    R::from(-1)
}

/// An outcome as C has it; what is the kernel's is made by `kernel`.
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
