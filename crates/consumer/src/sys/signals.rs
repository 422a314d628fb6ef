//! Signals are the program's: threads of ours take none, and a handler that comes while a
//! thread holds a lock of ours waits until it holds none.
//!
//! What this module upholds: the calling thread's mask is, after [`blocked`], what it was. A
//! handler's context is changed in its mask alone, which is what it was once the signal that
//! was put off has come again; that is sent to the calling thread, with what it brought.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Faults of the instruction that runs, and `abort`'s: whoever handles these does so at once.
pub const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];

/// A signal that comes again, and the mask that the thread had; a child gets none.
#[derive(Clone, Copy)]
struct Postponed {
    process: i32,
    info: libc::siginfo_t,
    mask: u64,
}

thread_local! {
    static POSTPONED: Cell<Option<Postponed>> = const { Cell::new(None) };
    /// There is one. It is looked at whenever a lock is freed.
    static IS_POSTPONED: AtomicBool = const { AtomicBool::new(false) };
}

/// In a handler, while this thread holds a lock ([`interrupted`](crate::held::interrupted)): the
/// signal comes again when it holds none, and no other comes before.
///
/// # Safety
/// The arguments are those that the kernel gave to the handler, which returns without doing
/// anything else.
pub unsafe fn postpone(info: *const libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the caller's promise: both are live, and nobody else's. The kernel's set is the
    // first word of libc's.
    let (info, mask) =
        unsafe { (info.read(), &mut *(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>()) };
    POSTPONED.set(Some(Postponed { process: std::process::id().cast_signed(), info, mask: *mask }));
    IS_POSTPONED.with(|is| is.store(true, Ordering::Relaxed));
    *mask |= FAULTS.iter().fold(!0, |all, signal| all & !(1 << (signal - 1)));
}

/// What was put off comes, and the mask is what it was.
#[inline]
pub(crate) fn resume() {
    // A thread that is about to end puts nothing off.
    if IS_POSTPONED.try_with(|is| is.load(Ordering::Relaxed)) == Ok(true) {
        IS_POSTPONED.with(|is| is.store(false, Ordering::Relaxed));
        POSTPONED.take().into_iter().for_each(send_again);
    }
}

#[cold]
fn send_again(Postponed { process, info, mask }: Postponed) {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: plain calls with live arguments; all zeros is a set, and longer than the kernel's.
    // `errno` is the calling thread's, and is not to tell of these.
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
