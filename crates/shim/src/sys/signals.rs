//! Signals are the program's: threads of ours take none, and a broken pipe raises one.
//!
//! What is upheld: the calling thread's mask is, after [`blocked`], what it was.

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
pub(crate) fn blocked<R>(run: impl FnOnce() -> R) -> R {
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

/// True if every handler of the program lets calls go on after it (`SA_RESTART`).
pub(crate) fn all_restart() -> bool {
    let flags = |signal| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only asks; filled in where it succeeds.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } == 0;
        // SAFETY: likewise.
        asked.then(|| unsafe { action.assume_init() })
    };
    let handlers = (1..=libc::SIGRTMAX()).filter_map(flags);
    let mut handlers = handlers.filter(|it| !matches!(it.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN));
    handlers.all(|it| it.sa_flags & libc::SA_RESTART != 0)
}

/// What the kernel does to who writes to a connection that has ended.
pub(crate) fn broken_pipe() {
    // SAFETY: a signal to this very thread.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}
