//! Signals are the program's: threads of ours take none, and a broken pipe raises one. A
//! handler never runs while its thread holds a lock of ours, so it may end the program, or leave
//! by `longjmp`: in front of each there is one of ours, which puts the signal off.
//!
//! What is upheld: the kernel has our handler where the program installed one, which gets what
//! the kernel gave to ours, and the program is told of its own; a signal goes to the calling
//! thread alone. Masks are changed by the library's [`blocked`] and [`postpone`].
//!
//! Signals are sets of 64 bits here, as the kernel's are: the first stands for signal 1.

use super::{cancel, last_errno, real, set_errno};
use baton_consumer::held::interrupted;
use baton_consumer::signals::{FAULTS, postpone};
use libc::{SIG_DFL, SIG_IGN, c_int, c_void, siginfo_t, sigset_t};
use std::cell::Cell;
use std::mem::{MaybeUninit, transmute};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use baton_consumer::signals::blocked;

/// Signals with a handler of the program: those after which calls go on (`SA_RESTART`), and
/// those that end them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handlers {
    pub gentle: u64,
    pub rough: u64,
}

/// Times that handlers were installed, from 1; what is known of them, and since which.
static CHANGES: AtomicU64 = AtomicU64::new(1);
static KNOWN_SINCE: AtomicU64 = AtomicU64::new(0);
static GENTLE: AtomicU64 = AtomicU64::new(0);
static ROUGH: AtomicU64 = AtomicU64::new(0);

/// The program's handlers. The kernel is asked when some were installed since, as far as that
/// was seen; with `anew`, always.
pub(crate) fn handlers(anew: bool) -> Handlers {
    let changes = CHANGES.load(Ordering::Acquire);
    if !anew && KNOWN_SINCE.load(Ordering::Acquire) == changes {
        return Handlers { gentle: GENTLE.load(Ordering::Relaxed), rough: ROUGH.load(Ordering::Relaxed) };
    }
    let mut found = Handlers::default();
    for signal in 1..=64 {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only asks; filled in where it succeeds.
        if unsafe { real::sigaction(signal, null(), action.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: likewise.
        let action = unsafe { action.assume_init() };
        if matches!(action.sa_sigaction, SIG_DFL | SIG_IGN) {
            continue;
        }
        let set = if action.sa_flags & libc::SA_RESTART != 0 { &mut found.gentle } else { &mut found.rough };
        *set |= 1 << (signal - 1);
    }
    GENTLE.store(found.gentle, Ordering::Relaxed);
    ROUGH.store(found.rough, Ordering::Relaxed);
    KNOWN_SINCE.store(changes, Ordering::Release);
    found
}

/// Handlers that a thread has run. One that was put off until the library held no lock has run
/// within a call, which is to end as if it had waited already.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    /// All of them: no `poll`, `select` or `epoll_wait` goes on after one.
    pub any: u32,
    /// Those after which no call goes on.
    pub rough: u32,
}

thread_local! {
    /// Only this thread's handlers see it change.
    static RAN: Cell<Ran> = const { Cell::new(Ran { any: 0, rough: 0 }) };
}

/// Those that this thread has run so far.
pub(crate) fn ran() -> Ran {
    RAN.try_with(Cell::get).unwrap_or_default()
}

/// This thread is about to run the handler of a signal.
fn count(signal: c_int) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; all zeros are an action, too.
    let flags = unsafe {
        real::sigaction(signal, null(), action.as_mut_ptr());
        action.assume_init().sa_flags
    };
    let rough = u32::from(flags & libc::SA_RESTART == 0);
    let _ = RAN.try_with(|ran| {
        let Ran { any, rough: before } = ran.get();
        ran.set(Ran { any: any.wrapping_add(1), rough: before.wrapping_add(rough) });
    });
}

/// Handlers are installed, or have been.
pub(super) fn changed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// Such a set as libc's.
pub(crate) fn set_of(bits: u64) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: all zeros is a set, and longer than the kernel's.
    unsafe {
        set.as_mut_ptr().cast::<u64>().write(bits);
        set.assume_init()
    }
}

/// Signals that the calling thread takes none of.
pub(crate) fn mask() -> u64 {
    let mut set = set_of(0);
    // SAFETY: only asks, into a live set, whose first 64 bits are the kernel's.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut set);
        (&raw const set).cast::<u64>().read()
    }
}

/// A descriptor that is readable while one of these waits for the thread that asks.
pub(crate) fn descriptor(bits: u64) -> std::io::Result<OwnedFd> {
    // SAFETY: a live set.
    let fd = unsafe { libc::signalfd(-1, &set_of(bits), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The program's handlers, each with what the kernel has otherwise of its flags.
static OF_PROGRAM: [AtomicU64; 65] = [const { AtomicU64::new(0) }; 65];

/// Addresses are shorter.
const ADDRESS: u64 = (1 << 62) - 1;
const WITH_INFO: u64 = 1 << 62;
const ONCE: u64 = 1 << 63;

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// In front of the program's handler.
unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = last_errno();
    if interrupted() {
        // SAFETY: the kernel's arguments.
        unsafe { postpone(info, context) };
        return set_errno(errno);
    }
    count(signal);
    let known = OF_PROGRAM[signal as usize].load(Ordering::Acquire);
    if known & ONCE != 0 {
        // SAFETY: a live action, all zeros but for what it does.
        unsafe {
            let mut no_more = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            no_more.sa_sigaction = SIG_DFL;
            real::sigaction(signal, &no_more, null_mut());
        }
    }
    // SAFETY: what the program gave as a handler of this signal. One that takes less does not
    // see the rest of the registers.
    let handler = || unsafe { transmute::<usize, Handler>((known & ADDRESS) as usize)(signal, info, context) };
    super::errno::by_program(errno, || cancel::by_program(handler));
}

/// What is to be installed for the program's action, and what is remembered of that; none if it
/// is the kernel's as it is.
fn in_front_of(signal: c_int, mut action: libc::sigaction) -> Option<(libc::sigaction, u64)> {
    // Ours is known to who asked the kernel by `syscall(2)`.
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

/// The kernel's action as the program knows it.
fn as_known(action: &mut libc::sigaction, known: u64) {
    if action.sa_sigaction == on_signal as *const () as usize {
        action.sa_sigaction = (known & ADDRESS) as usize;
        for (flag, bit) in [(libc::SA_SIGINFO, WITH_INFO), (libc::SA_RESETHAND, ONCE)] {
            action.sa_flags = action.sa_flags & !flag | if known & bit != 0 { flag } else { 0 };
        }
    }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(of_program) = usize::try_from(signal).ok().and_then(|signal| OF_PROGRAM.get(signal)) else {
        // SAFETY: the arguments are the program's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    // SAFETY: likewise, and null or an action.
    let ours = unsafe { new.as_ref() }.and_then(|new| in_front_of(signal, *new));
    let before = match ours {
        Some((_, known)) => of_program.swap(known, Ordering::AcqRel),
        None => of_program.load(Ordering::Acquire),
    };
    // SAFETY: likewise.
    let done = unsafe { real::sigaction(signal, ours.as_ref().map_or(new, |(action, _)| action), old) };
    if done != 0 {
        of_program.store(before, Ordering::Release);
        return done;
    }
    // SAFETY: likewise: null, or filled in by the kernel.
    if let Some(old) = unsafe { old.as_mut() } {
        as_known(old, before);
    }
    if !new.is_null() {
        changed();
    }
    done
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the arguments are the program's.
    let done = unsafe { real::siginterrupt(signal, interrupts) };
    changed();
    done
}

/// Functions that install a handler, and give the one before.
macro_rules! installs {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As of libc's.
        pub(super) unsafe fn $name(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
            let mut known = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: the arguments are the program's; an action is asked for, and then
            // installed as it is, but for ours in front of it.
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

/// What the kernel does to who writes to a connection that has ended.
pub(crate) fn broken_pipe() {
    // SAFETY: a signal to this very thread.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::locked;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    static RAN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_signal: c_int) {
        assert!(!interrupted(), "a handler may do what it likes");
        RAN.fetch_add(1, Ordering::Relaxed);
    }

    fn raise(signal: c_int) {
        // SAFETY: a signal to this very thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
    }

    /// What a handler that ends the program waits for at the end may be what it interrupted.
    #[test]
    fn a_handler_waits_until_no_lock_is_held() {
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
        assert_eq!(ran(), Ran { any: begun.any + 1, ..begun }, "a call that began before goes on, a poll does not");
        assert_eq!((RAN.load(Ordering::Relaxed), mask()), (1, before));
        raise(libc::SIGUSR1);
        assert_eq!(RAN.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_handler_for_one_time_runs_once() {
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
            assert_eq!(ran(), Ran { any: begun.any + 1, rough: begun.rough + 1 });
            assert_eq!(ONCE_RAN.load(Ordering::Relaxed), libc::SIGUSR2 as u32);
            assert_eq!(sigaction(libc::SIGUSR2, null(), &mut known), 0);
            assert_eq!(known.sa_sigaction, SIG_DFL);
        }
    }

    static ONCE_RAN: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn count_once(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
        // SAFETY: the kernel's.
        ONCE_RAN.store(unsafe { (*info).si_signo } as u32, Ordering::Relaxed);
    }
}
