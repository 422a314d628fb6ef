//! Functions that install signal handlers. A handler of the program must never run while its thread
//! holds a lock of the library, because it may end the program or leave with `longjmp`. So the
//! library installs its own handler in front of each, which postpones the signal if necessary.
//!
//! Safety rules: where the program installs a handler, the kernel has the library's. That one calls
//! the program's handler with the kernel's arguments if it knows one, and queries of the program return the
//! program's handler. [`postpone`] postpones signals.

use crate::os::signals::{count_handler, note_installed};
use crate::os::{cancel, errno, last_errno, real, set_errno};
use baton_consumer::held::interrupted;
use baton_consumer::signals::{FAULTS, postpone};
use libc::{SIG_DFL, SIG_IGN, c_int, c_void, siginfo_t};
use std::mem::{MaybeUninit, transmute};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

/// The program's handlers, each with those of its flags that the kernel's action does not have.
static OF_PROGRAM: [AtomicU64; 65] = [const { AtomicU64::new(0) }; 65];

/// The bits of an address; user-space addresses are shorter than this.
const ADDRESS: u64 = (1 << 62) - 1;
const WITH_INFO: u64 = 1 << 62;
const ONCE: u64 = 1 << 63;

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// The handler that the kernel has instead of the program's.
///
/// # Safety
/// For the kernel alone, which passes the signal's information and the interrupted context.
unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let interrupted_errno = last_errno();
    if interrupted() {
        // SAFETY: the kernel's arguments.
        unsafe { postpone(info, context) };
        return set_errno(interrupted_errno);
    }
    count_handler(signal);
    let known = OF_PROGRAM[signal as usize].load(Ordering::Acquire);
    // A program may have installed this function itself, as what the kernel has for another signal.
    if known & ADDRESS == 0 {
        return set_errno(interrupted_errno);
    }
    if known & ONCE != 0 {
        // SAFETY: a live action, which is all zeros except for the disposition.
        unsafe {
            let mut no_more = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            no_more.sa_sigaction = SIG_DFL;
            real::sigaction(signal, &no_more, null_mut());
        }
    }
    // SAFETY: the program installed this address as a handler of this signal. A handler that takes
    // one argument ignores the other registers.
    let handler = || unsafe { transmute::<usize, Handler>((known & ADDRESS) as usize)(signal, info, context) };
    errno::run_handler(interrupted_errno, || cancel::run_handler(handler));
}

/// The action to install in place of the program's, and the word to remember for it. Returns `None` if
/// the program's action is installed unchanged.
fn in_front_of(signal: c_int, mut action: libc::sigaction) -> Option<(libc::sigaction, u64)> {
    // A program that queried the kernel with `syscall(2)` may pass the library's own handler.
    let is_ours = action.sa_sigaction == on_signal as *const () as usize;
    let is_plain = is_ours || matches!(action.sa_sigaction, SIG_DFL | SIG_IGN | libc::SIG_ERR);
    if is_plain || FAULTS.contains(&signal) || action.sa_sigaction as u64 > ADDRESS {
        return None;
    }
    let mut known = action.sa_sigaction as u64;
    for (flag, bit) in [(libc::SA_SIGINFO, WITH_INFO), (libc::SA_RESETHAND, ONCE)] {
        known |= if action.sa_flags & flag != 0 { bit } else { 0 };
    }
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
    Some((action, known))
}

/// Converts the kernel's action to the one that the program installed.
fn as_known(action: &mut libc::sigaction, known: u64) {
    if action.sa_sigaction == on_signal as *const () as usize {
        action.sa_sigaction = (known & ADDRESS) as usize;
        for (flag, bit) in [(libc::SA_SIGINFO, WITH_INFO), (libc::SA_RESETHAND, ONCE)] {
            action.sa_flags = action.sa_flags & !flag | if known & bit != 0 { flag } else { 0 };
        }
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(of_program) = usize::try_from(signal).ok().and_then(|signal| OF_PROGRAM.get(signal)) else {
        // SAFETY: the arguments are the program's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    // SAFETY: as above: null or an action.
    let ours = unsafe { new.as_ref() }.and_then(|new| in_front_of(signal, *new));
    let before = match ours {
        Some((_, known)) => of_program.swap(known, Ordering::AcqRel),
        None => of_program.load(Ordering::Acquire),
    };
    // SAFETY: as above.
    let done = unsafe { real::sigaction(signal, ours.as_ref().map_or(new, |(action, _)| action), old) };
    if done != 0 {
        of_program.store(before, Ordering::Release);
        return done;
    }
    // SAFETY: as above: null, or filled in by the kernel.
    if let Some(old) = unsafe { old.as_mut() } {
        as_known(old, before);
    }
    if !new.is_null() {
        note_installed();
    }
    done
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let done = unsafe { real::siginterrupt(signal, interrupts) };
    note_installed();
    done
}

/// Functions that install a handler and return the previous one.
macro_rules! installs {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As for libc's function of this name.
        pub(super) unsafe fn $name(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
            let mut known = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: the arguments are the program's. The action that libc installed is queried, and
            // installed again with the library's handler in front.
            unsafe {
                let is_signal = sigaction(signal, null(), known.as_mut_ptr()) == 0;
                let before = real::$name(signal, handler).cast_unsigned();
                let mut now = MaybeUninit::<libc::sigaction>::uninit();
                if is_signal && real::sigaction(signal, null(), now.as_mut_ptr()) == 0 {
                    let ours = on_signal as *const () as usize;
                    if now.assume_init().sa_sigaction != ours {
                        sigaction(signal, now.as_ptr(), null_mut());
                    }
                    if before == ours {
                        return known.assume_init().sa_sigaction;
                    }
                }
                before
            }
        }
    )*};
}

installs! { signal __sysv_signal sigset }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::locked;
    use crate::os::signals::{Ran, mask, ran};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    static RAN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_signal: c_int) {
        assert!(!interrupted(), "a handler runs without the library's locks");
        RAN.fetch_add(1, Ordering::Relaxed);
    }

    fn raise(signal: c_int) {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
    }

    /// A handler that ends the program may need a lock that the interrupted code holds.
    #[test]
    fn a_handler_runs_only_when_no_lock_is_held() {
        let mutex = [Mutex::new(()), Mutex::new(())];
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        let before = mask();
        let handler = count as *const () as libc::sighandler_t;
        // SAFETY: a handler that lives as long as the program, and room for an action.
        let action = unsafe {
            assert_eq!(signal(libc::SIGUSR1, handler), SIG_DFL);
            assert_eq!(signal(libc::SIGUSR1, handler), handler);
            assert_eq!(sigaction(libc::SIGUSR1, null(), action.as_mut_ptr()), 0);
            action.assume_init()
        };
        assert_eq!((action.sa_sigaction, action.sa_flags & libc::SA_SIGINFO), (handler, 0));
        let first = locked(&mutex[0]);
        let second = locked(&mutex[1]);
        let begun = ran();
        raise(libc::SIGUSR1);
        drop(second);
        assert_eq!((RAN.load(Ordering::Relaxed), ran()), (0, begun));
        drop(first);
        assert_eq!(ran(), Ran { any: begun.any + 1, ..begun }, "it restarts calls and interrupts polls");
        assert_eq!((RAN.load(Ordering::Relaxed), mask()), (1, before));
        raise(libc::SIGUSR1);
        assert_eq!(RAN.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_handler_with_sa_resethand_runs_once() {
        let handler = count_once as *const () as usize;
        // SAFETY: as above; all zeros is an action.
        unsafe {
            let mut once = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            (once.sa_sigaction, once.sa_flags) = (handler, libc::SA_RESETHAND | libc::SA_SIGINFO);
            assert_eq!(sigaction(libc::SIGUSR2, &once, null_mut()), 0);
            let mut known = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            assert_eq!(sigaction(libc::SIGUSR2, null(), &mut known), 0);
            let asked = libc::SA_RESETHAND | libc::SA_SIGINFO;
            assert_eq!((known.sa_sigaction, known.sa_flags & asked), (handler, asked));
            let mutex = Mutex::new(());
            let held = locked(&mutex);
            let begun = ran();
            raise(libc::SIGUSR2);
            drop(held);
            assert_eq!(ran(), Ran { any: begun.any + 1, interrupting: begun.interrupting + 1 });
            assert_eq!(ONCE_RAN.load(Ordering::Relaxed), libc::SIGUSR2 as u32);
            assert_eq!(sigaction(libc::SIGUSR2, null(), &mut known), 0);
            assert_eq!(known.sa_sigaction, SIG_DFL);
        }
    }

    static ONCE_RAN: AtomicU32 = AtomicU32::new(0);

    /// # Safety
    /// For the kernel alone, as a handler that was installed with `SA_SIGINFO`.
    unsafe extern "C" fn count_once(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
        // SAFETY: the kernel's argument.
        ONCE_RAN.store(unsafe { (*info).si_signo } as u32, Ordering::Relaxed);
    }
}
