//! Calls that create, name, connect and close sockets.

use super::memory::{address, give_address};
use super::{baton, memory, status, to_c};
use baton_socket::posix::{Answer, Errno, Fd, Posix, Side};
use libc::{c_int, c_ulong, sockaddr, socklen_t};
use std::net::{Shutdown, SocketAddr};

/// `socket(2)`: AF_INET or AF_INET6, and SOCK_STREAM with or without SOCK_NONBLOCK. The
/// descriptor is valid for this engine only; the kernel does not know it.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_socket(b: *mut baton, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's promise.
    to_c(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| posix.socket(domain, kind, protocol))))
}

/// `bind(2)`.
///
/// # Safety
/// `addr` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_bind(b: *mut baton, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let (engine, addr) = unsafe { (baton::of(b)?, address(addr, len)?) };
        engine.enter(|posix| posix.bind(fd, addr))
    })())
}

/// `listen(2)`.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_listen(b: *mut baton, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| posix.listen(fd, backlog))))
}

/// `accept4(2)`.
///
/// # Safety
/// `addr` and `len` are NULL, or `addr` points to `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_accept4(
    b: *mut baton,
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    to_c((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        let (accepted, peer) = engine.blocking(fd, Side::Read, true, |posix| posix.accept(fd, flags))?;
        // SAFETY: the caller's promise.
        let given = unsafe { give_address(peer, addr, len) };
        if given.is_err() {
            engine.enter(|posix| posix.close(accepted))?;
        }
        given.map(|()| accepted)
    })())
}

/// `connect(2)`. On a blocking socket it waits with the engine's wait callback. Without a
/// callback, and on a non-blocking socket, it fails with `EINPROGRESS`; the socket is
/// connected once it is writable.
///
/// # Safety
/// `addr` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_connect(b: *mut baton, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let (engine, addr) = unsafe { (baton::of(b)?, address(addr, len)?) };
        let begun = engine.enter(|posix| posix.connect(fd, addr));
        if begun != Err(Errno(libc::EINPROGRESS)) {
            return begun;
        }
        // A second `connect` reports the progress of the first; `blocking` repeats it on EAGAIN.
        let ended = engine.blocking(fd, Side::Write, true, |posix| match posix.connect(fd, addr) {
            Err(Errno(libc::EALREADY)) => Err(Errno(libc::EAGAIN)),
            ended => ended,
        });
        if ended == Err(Errno(libc::EAGAIN)) { begun } else { ended }
    })())
}

/// `shutdown(2)`: SHUT_RD, SHUT_WR or SHUT_RDWR.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_shutdown(b: *mut baton, fd: c_int, how: c_int) -> c_int {
    status((|| {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno(libc::EINVAL)),
        };
        // SAFETY: the caller's promise.
        unsafe { baton::of(b)? }.enter(|posix| posix.shutdown(fd, how))
    })())
}

/// `close(2)`, of sockets and epoll instances.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_close(b: *mut baton, fd: c_int) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        if let Some(until_ns) = engine.enter(|posix| Ok(posix.lingers_until(fd)))? {
            linger(engine, fd, until_ns)?;
        }
        engine.enter(|posix| posix.close(fd))
    })())
}

/// Waits until the peer has acknowledged everything, or until `until_ns`.
fn linger(engine: &baton, fd: Fd, until_ns: u64) -> Answer<()> {
    // A socket that is not connected is closed all the same.
    let _ = engine.enter(|posix| posix.shutdown(fd, Shutdown::Write));
    while engine.enter(|posix| posix.unsent(fd)).is_ok_and(|unsent| unsent > 0) {
        match engine.wait(until_ns) {
            Ok(()) => {}
            Err(Errno(libc::EAGAIN)) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// `getsockname(2)`.
///
/// # Safety
/// `addr` points to `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_getsockname(
    b: *mut baton,
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { give_name(b, addr, len, |posix| posix.local_name(fd)) })
}

/// `getpeername(2)`.
///
/// # Safety
/// `addr` points to `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_getpeername(
    b: *mut baton,
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { give_name(b, addr, len, |posix| posix.peer_name(fd)) })
}

/// Gets a socket's address and writes it to the caller's memory.
///
/// # Safety
/// As for [`give_address`], and `b` came from `baton_new`.
unsafe fn give_name(
    b: *mut baton,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    ask: impl FnOnce(&mut Posix) -> Answer<SocketAddr>,
) -> Answer<()> {
    // SAFETY: the caller's promise.
    let name = unsafe { baton::of(b)? }.enter(ask)?;
    // SAFETY: the caller's promise.
    unsafe { give_address(name, addr, len) }
}

/// `fcntl(2)` with F_GETFL (`arg` is ignored) or F_SETFL (only O_NONBLOCK is used).
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_fcntl(b: *mut baton, fd: c_int, cmd: c_int, arg: c_int) -> c_int {
    to_c((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        match cmd {
            libc::F_GETFL => {
                let nonblocking = engine.enter(|posix| posix.is_nonblocking(fd))?;
                Ok(libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 })
            }
            libc::F_SETFL => engine.enter(|posix| posix.set_nonblocking(fd, arg & libc::O_NONBLOCK != 0)).map(|()| 0),
            _ => Err(Errno(libc::EINVAL)),
        }
    })())
}

/// `ioctl(2)` with FIONREAD (SIOCINQ), TIOCOUTQ (SIOCOUTQ) or FIONBIO.
///
/// # Safety
/// `arg` points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_ioctl(b: *mut baton, fd: c_int, request: c_ulong, arg: *mut c_int) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        let bytes = match request as libc::Ioctl {
            libc::FIONREAD => engine.enter(|posix| posix.unread(fd))?,
            libc::TIOCOUTQ => engine.enter(|posix| posix.unsent(fd))?,
            libc::FIONBIO => {
                // SAFETY: the caller's promise.
                let on = unsafe { memory::read(arg)? } != 0;
                return engine.enter(|posix| posix.set_nonblocking(fd, on));
            }
            _ => return engine.enter(|posix| posix.is_nonblocking(fd)).and(Err(Errno(libc::ENOTTY))),
        };
        // SAFETY: the caller's promise.
        unsafe { memory::write(arg, c_int::try_from(bytes).unwrap_or(c_int::MAX)) }
    })())
}
