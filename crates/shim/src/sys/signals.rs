//! Signals are the program's: threads of ours take none, and a broken pipe raises one.
//!
//! What is upheld: the kernel is only asked for handlers, into room of its own type, and a
//! signal goes to the calling thread alone. Masks are changed by the library's [`blocked`].

use std::mem::MaybeUninit;

pub(crate) use baton_socket::signals::blocked;

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
