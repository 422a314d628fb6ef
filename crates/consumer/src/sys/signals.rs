//! Keeps signals from disturbing this library: its threads receive none, and a signal that arrives
//! while a thread holds one of its locks is postponed until the lock is released.
//!
//! Invariants of this module: after [`blocked`], the calling thread's signal mask is the previous
//! one. Only the mask in a handler's context is changed, and it is restored once the postponed
//! signal was sent again. That signal goes to the calling thread, with its original information.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals for faults of the current instruction, and that of `abort`. Their handlers run at once.
pub const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];

/// A postponed signal and the thread's mask before it. Forked children do not receive it.
#[derive(Clone, Copy)]
struct Postponed {
    process: i32,
    info: libc::siginfo_t,
    mask: u64,
}

thread_local! {
    static POSTPONED: Cell<Option<Postponed>> = const { Cell::new(None) };
    /// True if a signal is postponed. It is checked whenever a lock is released.
    static IS_POSTPONED: AtomicBool = const { AtomicBool::new(false) };
}

/// Postpones a signal. To be called in its handler while this thread holds a lock
/// ([`interrupted`](crate::held::interrupted)): the signal is sent again when the thread holds
/// none, and no other signal arrives before.
///
/// # Safety
/// The arguments must be those that the kernel gave to the handler, and the handler must return
/// without doing anything else.
pub unsafe fn postpone(info: *const libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the caller promises that both are live and not used by anyone else. The kernel's set
    // is the first word of libc's.
    let (info, mask) =
        unsafe { (info.read(), &mut *(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>()) };
    POSTPONED.set(Some(Postponed { process: std::process::id().cast_signed(), info, mask: *mask }));
    IS_POSTPONED.with(|is| is.store(true, Ordering::Relaxed));
    *mask |= FAULTS.iter().fold(!0, |all, signal| all & !(1 << (signal - 1)));
}

/// Sends a postponed signal again and restores the mask.
#[inline]
pub(crate) fn resume() {
    // During thread-local teardown nothing is postponed.
    if IS_POSTPONED.try_with(|is| is.load(Ordering::Relaxed)) == Ok(true) {
        IS_POSTPONED.with(|is| is.store(false, Ordering::Relaxed));
        POSTPONED.take().into_iter().for_each(send_again);
    }
}

#[cold]
fn send_again(Postponed { process, info, mask }: Postponed) {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: plain calls with live arguments. All zeros is a valid set, and longer than the
    // kernel's. `errno` belongs to the calling thread and must not change here.
    unsafe {
        let errno = *libc::__errno_location();
        if libc::getpid() == process {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, libc::gettid(), info.si_signo, &info);
        }
        before.as_mut_ptr().cast::<u64>().write(mask);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        *libc::__errno_location() = errno;
    }
}

/// The previous signal mask of a thread, which is restored on drop and thus also after a panic.
struct Before(libc::sigset_t);

impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: the mask was filled in by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}

/// Runs `run` with every signal blocked in this thread. Threads that it starts keep them blocked.
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
