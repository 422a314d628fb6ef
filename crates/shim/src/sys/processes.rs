//! Forks, and programs that take this one's place. See [`super`] for what is upheld.
//!
//! Handlers of `pthread_atfork` see every fork of libc. A child of `vfork` would use the
//! parent's tables, so it is a fork. What takes this program's place, or is started beside
//! it, gets the descriptors that are not closed on exec: their connections come home first.
//! Calls with arguments of any number are gone on with where they came from.

use super::cancel::Deferred;
use super::errno::kept;
use super::{real, rings};
use crate::connection::bring_home;
use crate::everything::{self, bring_inherited_home};
use crate::fork;
use libc::{c_char, c_int, c_void, pid_t};
use std::sync::atomic::AtomicPtr;

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = account_for_all_now;

extern "C" fn account_for_all_now() {
    everything::account();
}

extern "C" fn init() {
    // Programs change their environment.
    crate::config::config();
    crate::log::open();
    // SAFETY: functions that stay as long as the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

unsafe extern "C" fn prepare() {
    kept(|| {
        let _deferred = Deferred::new();
        fork::prepare();
    });
}

unsafe extern "C" fn parent() {
    kept(|| {
        let _deferred = Deferred::new();
        fork::parent();
    });
}

unsafe extern "C" fn child() {
    kept(|| {
        let _deferred = Deferred::new();
        fork::child();
    });
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn vfork() -> pid_t {
    // SAFETY: no arguments.
    unsafe { real::fork() }
}

type Words = *const *const c_char;

/// # Safety
/// As of libc's.
pub(super) unsafe fn execve(path: *const c_char, argv: Words, envp: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execve(path, argv, envp) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn execv(path: *const c_char, argv: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execv(path, argv) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn execvp(path: *const c_char, argv: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execvp(path, argv) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn execvpe(path: *const c_char, argv: Words, envp: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execvpe(path, argv, envp) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn fexecve(fd: c_int, argv: Words, envp: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::fexecve(fd, argv, envp) }
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn execveat(at: c_int, path: *const c_char, argv: Words, envp: Words, flags: c_int) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execveat(at, path, argv, envp, flags) }
}

/// The program that will be started gets this one too, even if it is closed on exec.
///
/// # Safety
/// As of libc's.
pub(super) unsafe fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int {
    let _deferred = Deferred::new();
    bring_home(fd, "inherited");
    // SAFETY: the arguments are the program's.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, to) }
}

/// A fork that calls no handlers.
///
/// # Safety
/// As of libc's.
#[expect(non_snake_case)]
pub(super) unsafe fn _Fork() -> pid_t {
    static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: who calls it by this name has a libc that has it, with this type.
    forking(|| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> pid_t>(real::address(&AT, c"_Fork"))()
    })
}

/// A child that libc knows nothing of.
pub(super) fn forking<R: Default + PartialEq>(make: impl FnOnce() -> R) -> R {
    let _deferred = Deferred::new();
    fork::prepare();
    let made = make();
    if made == R::default() {
        fork::child()
    } else {
        fork::parent()
    }
    made
}

/// # Safety
/// As of libc's.
pub(super) unsafe fn system(line: *const c_char) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::system(line) }
}

macro_rules! passed_on {
    ($($name:ident $before:ident |$argument:ident| $first:expr $(, if $may:expr, else $instead:expr)?;)*) => {$(
        extern "C" fn $before($argument: c_int) -> *mut c_void {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            kept(|| $first);
            $(
                let mut may = false;
                kept(|| may = $may);
                if !may {
                    return $instead;
                }
            )?
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            real::address(&AT, NAME)
        }

        /// # Safety
        /// As of libc's.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            // All six registers that carry arguments, and the number of vectors (x86-64 psABI
            // §3.2.3), are as the caller left them when libc's function begins; so is the stack.
            // The first is still there for ours.
            std::arch::naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "call {before}",
                "mov r11, rax",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        }
    )*};
}

passed_on! {
    posix_spawn before_posix_spawn |_first| bring_inherited_home();
    posix_spawnp before_posix_spawnp |_first| bring_inherited_home();
    popen before_popen |_first| bring_inherited_home();
    execl before_execl |_first| bring_inherited_home();
    execlp before_execlp |_first| bring_inherited_home();
    execle before_execle |_first| bring_inherited_home();
    // Calls of liburing are the kernel's own: who begins with it is not followed.
    io_uring_queue_init before_queue_init |_first| (), if rings::may_begin(), else rings::none as *mut c_void;
    io_uring_queue_init_params before_queue_init_params |_first| (), if rings::may_begin(), else rings::none as *mut c_void;
    io_uring_queue_init_mem before_queue_init_mem |_first| (), if rings::may_begin(), else rings::none as *mut c_void;
    io_uring_setup before_io_uring_setup |_first| (), if rings::may_begin(), else rings::none as *mut c_void;
    // libc writes to the descriptor by itself.
    dprintf before_dprintf |fd| bring_home(fd, "stdio");
    vdprintf before_vdprintf |fd| bring_home(fd, "stdio");
    __dprintf_chk before_dprintf_chk |fd| bring_home(fd, "stdio");
    __vdprintf_chk before_vdprintf_chk |fd| bring_home(fd, "stdio");
}
