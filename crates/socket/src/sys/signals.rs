//! Signals are the program's: threads of ours take none.
//!
//! What this module upholds: the calling thread's mask is, after [`blocked`], what it was.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// The mask that a thread had; put back also by a panic.
struct Before(libc::sigset_t);

impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: a mask that the kernel filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}

/// Runs `run` with every signal blocked in this thread. A thread that it starts has them
/// blocked for good.
pub fn blocked<R>(run: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first call fills `all`, the second, which cannot fail with SIG_SETMASK,
    // `before`.
    let _before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Before(before.assume_init())
    };
    run()
}
