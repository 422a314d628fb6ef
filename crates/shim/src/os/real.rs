//! The real functions behind the exported ones: the next symbols of the same names, which are libc's
//! unless another library is preloaded too.
//!
//! Safety rules: each is called with the type that libc's headers give it. The program guarantees that
//! the arguments it passes are valid.

use libc::{
    aiocb, c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t,
    off64_t, pid_t, pollfd, sigevent, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

fn find(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = at.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a zero-terminated name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    at.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            let found = find(&AT, NAME);
            if found.is_null() {
                // This libc does not have the function.
                super::set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: libc's function of this name has this type.
            let call: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { std::mem::transmute(found) };
            // SAFETY: the arguments are those that the program passed.
            unsafe { call($($arg),*) }
        }
    )*};
}

real! {
    read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    preadv2(fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    pwritev2(fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
    sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, size: socklen_t) -> ssize_t;
    recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(out: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
    splice(from: c_int, at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    accept(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int;
    accept4(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, addr: *const sockaddr, size: socklen_t) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, size: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, size: socklen_t) -> c_int;
    getsockname(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, arg: c_ulong) -> c_int;
    ioctl(fd: c_int, request: c_ulong, arg: c_ulong) -> c_int;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    epoll_pwait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(set: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    aio_read(what: *mut aiocb) -> c_int;
    aio_write(what: *mut aiocb) -> c_int;
    lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    execvp(path: *const c_char, argv: *const *const c_char) -> c_int;
    execvpe(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    execveat(at: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
    fork() -> pid_t;
    system(line: *const c_char) -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    signal(signal: c_int, handler: libc::sighandler_t) -> isize;
    __sysv_signal(signal: c_int, handler: libc::sighandler_t) -> isize;
    sigset(signal: c_int, handler: libc::sighandler_t) -> isize;
    syscall(number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong) -> c_long;
}

/// The address of the next function of a name, for functions that are jumped to or have another type.
pub(crate) fn address(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    find(at, name)
}
