//! The exported functions, except those in assembly ([`super::processes`]). Each calls the function of
//! the same name in one of these modules, and preserves the program's `errno` ([`errno`](crate::os::errno))
//! unless that function does ([`unless`](super::unless)).
//!
//! Safety rules: each function has the name and the type that libc's headers give it. `fcntl`, `ioctl` and `syscall`,
//! which C declares with a variable number of arguments, take as many integers as there can be: these are in the same
//! registers either way (x86-64 psABI §3.2.3, AAPCS64), and one that the program did not pass has any value. Each
//! passes the program's arguments on unchanged; the program guarantees that they are valid.

use super::{asynchronous, descriptors, epoll, files, messages, poll, processes, raw, signals, sockets, transfers};
use crate::os::errno::preserving;
use libc::{
    FILE, aiocb, c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t,
    off_t, off64_t, pid_t, pollfd, sigevent, sighandler_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    timeval,
};

macro_rules! exported {
    ($by:ident: $($module:ident {
        $($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*
    })*) => {$($(
        /// # Safety
        /// As for libc's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the arguments are the program's.
            $by(|| unsafe { $module::$name($($arg),*) })
        }
    )*)*};
}

/// Makes a call of a function that preserves the program's `errno` itself.
fn as_it_is<R>(call: impl FnOnce() -> R) -> R {
    call()
}

exported! { as_it_is:
    transfers {
        read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
        __read_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t) -> ssize_t;
        write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
        readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
        writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
        preadv2(fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
        pwritev2(fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
        preadv64v2(fd: c_int, iov: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t;
        pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t;
        recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
        __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t, flags: c_int) -> ssize_t;
        send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
        recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
        __recvfrom_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
        sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, size: socklen_t) -> ssize_t;
    }
    files {
        sendfile(out: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
        sendfile64(out: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t;
        splice(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    }
    sockets {
        getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, size: *mut socklen_t) -> c_int;
        setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, size: socklen_t) -> c_int;
    }
    descriptors {
        close(fd: c_int) -> c_int;
    }
}

exported! { preserving:
    messages {
        sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
        recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
        sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
        recvmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    }
    sockets {
        socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
        accept(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int;
        accept4(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> c_int;
        connect(fd: c_int, addr: *const sockaddr, size: socklen_t) -> c_int;
        shutdown(fd: c_int, how: c_int) -> c_int;
        getsockname(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int;
        getpeername(fd: c_int, addr: *mut sockaddr, size: *mut socklen_t) -> c_int;
    }
    descriptors {
        close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
        closefrom(first: c_int) -> ();
        dup(fd: c_int) -> c_int;
        dup2(fd: c_int, to: c_int) -> c_int;
        dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
        fcntl(fd: c_int, command: c_int, arg: c_ulong) -> c_int;
        fcntl64(fd: c_int, command: c_int, arg: c_ulong) -> c_int;
        ioctl(fd: c_int, request: c_ulong, arg: c_ulong) -> c_int;
        fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    }
    poll {
        poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int;
        ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
        __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize) -> c_int;
        select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
        pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    }
    epoll {
        epoll_create(size: c_int) -> c_int;
        epoll_create1(flags: c_int) -> c_int;
        epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
        epoll_pwait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
        epoll_pwait2(set: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    }
    signals {
        sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
        signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
        __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
        sigset(signal: c_int, handler: sighandler_t) -> sighandler_t;
        siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    }
    asynchronous {
        aio_read(what: *mut aiocb) -> c_int;
        aio_read64(what: *mut aiocb) -> c_int;
        aio_write(what: *mut aiocb) -> c_int;
        aio_write64(what: *mut aiocb) -> c_int;
        lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
        lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    }
    processes {
        vfork() -> pid_t;
        execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        execv(path: *const c_char, argv: *const *const c_char) -> c_int;
        execvp(path: *const c_char, argv: *const *const c_char) -> c_int;
        execvpe(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        execveat(at: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int;
        posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
        _Fork() -> pid_t;
        system(line: *const c_char) -> c_int;
    }
    raw {
        syscall(number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong) -> c_long;
    }
}
