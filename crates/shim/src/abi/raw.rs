//! `syscall(2)`: a call by number is served like the call by name.
//!
//! Safety rules, besides those of [`super`]: each word becomes the argument that the kernel's call of this number has
//! in that place (syscalls(2)), and pointers in them are looked through only where the call itself would. All others
//! go on to libc as they are.

use super::{descriptors, epoll, fail, files, messages, poll, processes, rings, sockets, transfers};
use crate::os::real;
use crate::os::signals::{note_installed, set_of};
use crate::table::is_known;
use libc::{c_int, c_long, c_uint, c_ulong, off_t, sigset_t};
use std::ptr::null;

/// With this flag `clone` makes a thread, or a child like that of `vfork`, but not a fork.
const SHARES_MEMORY: c_ulong = libc::CLONE_VM as c_ulong;

/// Converts the kernel's signal mask to libc's.
///
/// # Safety
/// `at` is null or points to 64 bits.
unsafe fn mask(at: c_ulong) -> Option<sigset_t> {
    // SAFETY: the caller's promise.
    unsafe { (at as *const u64).as_ref() }.copied().map(set_of)
}

fn pointer(mask: &Option<sigset_t>) -> *const sigset_t {
    mask.as_ref().map_or(null(), std::ptr::from_ref)
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    // SAFETY: the arguments are the program's, for the call of this number.
    unsafe {
        match number {
            libc::SYS_socket => sockets::socket(a as c_int, b as c_int, c as c_int).into(),
            libc::SYS_accept => sockets::accept(a as c_int, b as _, c as _).into(),
            libc::SYS_accept4 => sockets::accept4(a as c_int, b as _, c as _, d as c_int).into(),
            libc::SYS_connect => sockets::connect(a as c_int, b as _, c as _).into(),
            libc::SYS_epoll_create1 => epoll::epoll_create1(a as c_int).into(),
            libc::SYS_epoll_ctl => epoll::epoll_ctl(a as c_int, b as c_int, c as c_int, d as _).into(),
            libc::SYS_epoll_pwait => {
                epoll::epoll_pwait(a as c_int, b as _, c as c_int, d as c_int, pointer(&mask(e))).into()
            }
            libc::SYS_epoll_pwait2 => {
                epoll::epoll_pwait2(a as c_int, b as _, c as c_int, d as _, pointer(&mask(e))).into()
            }
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_execve => processes::execve(a as _, b as _, c as _).into(),
            libc::SYS_sendmmsg => messages::sendmmsg(a as c_int, b as _, c as c_uint, d as c_int).into(),
            libc::SYS_sendmsg => messages::sendmsg(a as c_int, b as _, c as c_int) as c_long,
            // The second descriptor may be the one that the library knows.
            libc::SYS_dup3 => descriptors::dup3(a as c_int, b as c_int, c as c_int).into(),
            libc::SYS_splice => {
                files::splice(a as c_int, b as _, c as c_int, d as _, e as usize, f as c_uint) as c_long
            }
            libc::SYS_rt_sigaction => {
                let done = real::syscall(number, a, b, c, d, e, f);
                note_installed();
                done
            }
            libc::SYS_io_uring_setup if rings::may_create() => real::syscall(number, a, b, c, d, e, f),
            libc::SYS_io_uring_setup => fail(libc::ENOSYS),
            libc::SYS_ppoll => poll::ppoll(a as _, b as _, c as _, pointer(&mask(d))).into(),
            libc::SYS_pselect6 => {
                // The sixth argument points to the mask's address and length (pselect(2)).
                let masked = (f as *const c_ulong).as_ref().and_then(|at| mask(*at));
                poll::pselect(a as c_int, b as _, c as _, d as _, e as _, pointer(&masked)).into()
            }
            libc::SYS_execveat => processes::execveat(a as c_int, b as _, c as _, d as _, e as c_int).into(),
            libc::SYS_clone if a & SHARES_MEMORY == 0 => processes::forking(|| real::syscall(number, a, b, c, d, e, f)),
            libc::SYS_clone3 if (a as *const c_ulong).as_ref().is_some_and(|flags| flags & SHARES_MEMORY == 0) => {
                processes::forking(|| real::syscall(number, a, b, c, d, e, f))
            }
            _ if is_known(a as c_int) => of_descriptor(number, [a, b, c, d, e, f]),
            _ => by_arch(number, [a, b, c, d, e, f]),
        }
    }
}

/// Calls whose first argument is a descriptor that the library may know.
///
/// # Safety
/// As for [`syscall`].
unsafe fn of_descriptor(number: c_long, [a, b, c, d, e, f]: [c_ulong; 6]) -> c_long {
    let fd = a as c_int;
    // SAFETY: the arguments are the program's, for the call of this number.
    unsafe {
        match number {
            libc::SYS_read => transfers::read(fd, b as _, c as usize) as c_long,
            libc::SYS_write => transfers::write(fd, b as _, c as usize) as c_long,
            libc::SYS_readv => transfers::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_writev => transfers::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_preadv2 => transfers::preadv2(fd, b as _, c as c_int, d as off_t, f as c_int) as c_long,
            libc::SYS_pwritev2 => transfers::pwritev2(fd, b as _, c as c_int, d as off_t, f as c_int) as c_long,
            libc::SYS_recvfrom => transfers::recvfrom(fd, b as _, c as usize, d as c_int, e as _, f as _) as c_long,
            libc::SYS_sendto => {
                transfers::sendto(fd, b as _, c as usize, d as c_int, e as _, f as libc::socklen_t) as c_long
            }
            libc::SYS_recvmsg => messages::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmmsg => messages::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _).into(),
            libc::SYS_sendfile => files::sendfile(fd, b as c_int, c as _, d as usize) as c_long,
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int).into(),
            libc::SYS_getsockname => sockets::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => sockets::getpeername(fd, b as _, c as _).into(),
            libc::SYS_getsockopt => sockets::getsockopt(fd, b as c_int, c as c_int, d as _, e as _).into(),
            libc::SYS_setsockopt => {
                sockets::setsockopt(fd, b as c_int, c as c_int, d as _, e as libc::socklen_t).into()
            }
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_ioctl => descriptors::ioctl(fd, b, c).into(),
            _ => by_arch(number, [a, b, c, d, e, f]),
        }
    }
}

/// Calls that exist on some architectures only.
///
/// # Safety
/// As for [`syscall`].
#[cfg(target_arch = "x86_64")]
unsafe fn by_arch(number: c_long, [a, b, c, d, e, f]: [c_ulong; 6]) -> c_long {
    // SAFETY: the arguments are the program's, for the call of this number.
    unsafe {
        match number {
            libc::SYS_poll => poll::poll(a as _, b as _, c as c_int).into(),
            libc::SYS_select => poll::select(a as c_int, b as _, c as _, d as _, e as _).into(),
            libc::SYS_epoll_wait => epoll::epoll_wait(a as c_int, b as _, c as c_int, d as c_int).into(),
            libc::SYS_epoll_create => epoll::epoll_create(a as c_int).into(),
            // A raw `vfork` is replaced by a fork, as libc's is.
            libc::SYS_fork | libc::SYS_vfork => processes::forking(|| real::syscall(libc::SYS_fork, a, b, c, d, e, f)),
            libc::SYS_dup2 => descriptors::dup2(a as c_int, b as c_int).into(),
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// # Safety
/// As for [`syscall`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn by_arch(number: c_long, [a, b, c, d, e, f]: [c_ulong; 6]) -> c_long {
    // SAFETY: the arguments are the program's.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}
