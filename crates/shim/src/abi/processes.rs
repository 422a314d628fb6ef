//! Forks, and the execution of other programs.
//!
//! Safety rules, besides those of [`super`]: the handlers of a fork use the locks that `fork::prepare` took, and their
//! functions exist as long as the process. Assembly leaves the registers of all arguments, integers and vectors, and
//! the stack as they were when it jumps on, so libc's function sees the program's call. A function that `dlsym` found by
//! libc's name for it has libc's type.
//!
//! Handlers of `pthread_atfork` see every fork of libc. A child of `vfork` would use the parent's
//! tables, so `vfork` is replaced by a fork. A program that is executed or spawned inherits the
//! descriptors that are not closed on exec, so their connections come home first. Functions with a
//! variable number of arguments are written in assembly: they jump on to libc's function with all
//! arguments in place.

use super::rings;
use crate::connection::bring_home;
use crate::connections::{self, bring_inherited_home};
use crate::fork;
use crate::os::cancel::Deferred;
use crate::os::errno::preserving;
use crate::os::real;
use baton_policy::Reason;
use libc::{c_char, c_int, c_void, pid_t};
use std::sync::atomic::AtomicPtr;

// SAFETY: the loader calls each entry of this section, and of the next, once, as a C function: no arguments of
// libc's are used, and nothing is returned.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

// SAFETY: as above.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = fini;

extern "C" fn fini() {
    connections::account();
}

extern "C" fn init() {
    // Read the settings now: a program may change its environment later.
    crate::config::config();
    crate::log::open();
    // SAFETY: the functions exist as long as the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// # Safety
/// For `pthread_atfork` alone, as the next two.
unsafe extern "C" fn prepare() {
    preserving(|| {
        let _deferred = Deferred::new();
        fork::prepare();
    });
}

/// # Safety
/// As for [`prepare`].
unsafe extern "C" fn parent() {
    preserving(|| {
        let _deferred = Deferred::new();
        fork::parent();
    });
}

/// # Safety
/// As for [`prepare`].
unsafe extern "C" fn child() {
    preserving(|| {
        let _deferred = Deferred::new();
        fork::child();
    });
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn vfork() -> pid_t {
    // SAFETY: no arguments.
    unsafe { real::fork() }
}

type Words = *const *const c_char;

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn execve(path: *const c_char, argv: Words, envp: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execve(path, argv, envp) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn execv(path: *const c_char, argv: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execv(path, argv) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn execvp(path: *const c_char, argv: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execvp(path, argv) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn execvpe(path: *const c_char, argv: Words, envp: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execvpe(path, argv, envp) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn fexecve(fd: c_int, argv: Words, envp: Words) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::fexecve(fd, argv, envp) }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn execveat(at: c_int, path: *const c_char, argv: Words, envp: Words, flags: c_int) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::execveat(at, path, argv, envp, flags) }
}

/// The spawned program gets a duplicate of `fd`, even if `fd` is closed on exec.
///
/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int {
    let _deferred = Deferred::new();
    bring_home(fd, Reason::Inherited);
    // SAFETY: the arguments are the program's.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, to) }
}

/// A fork that runs no `pthread_atfork` handlers.
///
/// # Safety
/// As for libc's function of this name.
#[expect(non_snake_case)]
pub(super) unsafe fn _Fork() -> pid_t {
    static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: a program that calls it by this name has a libc that provides it, with this type.
    forking(|| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> pid_t>(real::address(&AT, c"_Fork"))()
    })
}

/// Makes a child with a system call, of which libc does not know. `make` returns 0 in the child.
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
/// As for libc's function of this name.
pub(super) unsafe fn system(line: *const c_char) -> c_int {
    bring_inherited_home();
    // SAFETY: the arguments are the program's.
    unsafe { real::system(line) }
}

macro_rules! forwarded {
    ($($name:ident $before:ident |$argument:ident| $first:expr $(, if $may:expr, else $instead:expr)?;)*) => {$(
        extern "C" fn $before($argument: c_int) -> *mut c_void {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            preserving(|| $first);
            $(
                let mut may = false;
                preserving(|| may = $may);
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
        /// As for libc's function of this name.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            // The six argument registers, the eight vector registers of arguments and their number (x86-64
            // psABI §3.2.3) are restored before the jump to libc's function, and so is the stack, which is
            // aligned for the call. The Rust function gets the first argument, which is still in its register.
            std::arch::naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "sub rsp, 128",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "call {before}",
                "mov r11, rax",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        }
    )*};
}

forwarded! {
    posix_spawn before_posix_spawn |_first| bring_inherited_home();
    posix_spawnp before_posix_spawnp |_first| bring_inherited_home();
    popen before_popen |_first| bring_inherited_home();
    execl before_execl |_first| bring_inherited_home();
    execlp before_execlp |_first| bring_inherited_home();
    execle before_execle |_first| bring_inherited_home();
    // liburing makes its system calls without libc, so a ring cannot be followed once it exists.
    io_uring_queue_init before_queue_init |_first| (), if rings::may_create(), else rings::unsupported as *mut c_void;
    io_uring_queue_init_params before_queue_init_params |_first| (), if rings::may_create(), else rings::unsupported as *mut c_void;
    io_uring_queue_init_mem before_queue_init_mem |_first| (), if rings::may_create(), else rings::unsupported as *mut c_void;
    io_uring_setup before_io_uring_setup |_first| (), if rings::may_create(), else rings::unsupported as *mut c_void;
    // libc writes to the descriptor itself, without calling these functions.
    dprintf before_dprintf |fd| bring_home(fd, Reason::Stdio);
    vdprintf before_vdprintf |fd| bring_home(fd, Reason::Stdio);
    __dprintf_chk before_dprintf_chk |fd| bring_home(fd, Reason::Stdio);
    __vdprintf_chk before_vdprintf_chk |fd| bring_home(fd, Reason::Stdio);
}
