//! Sending and receiving.

use super::{baton, done, memory};
use baton_socket::posix::{Answer, Errno, Fd, Side};
use libc::{c_int, c_void, iovec};

/// `send(2)` with MSG_DONTWAIT, MSG_MORE (ignored) and MSG_NOSIGNAL (always so).
///
/// # Safety
/// `buf` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_send(b: *mut baton, fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    done((|| {
        // SAFETY: the caller's promise.
        let (engine, data) = unsafe { (baton::of(b)?, memory::input(buf.cast(), len)?) };
        send(engine, fd, data, flags)
    })())
}

/// `recv(2)` with MSG_DONTWAIT, MSG_PEEK and MSG_WAITALL.
///
/// # Safety
/// `buf` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_recv(b: *mut baton, fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    done((|| {
        // SAFETY: the caller's promise.
        let (engine, buf) = unsafe { (baton::of(b)?, memory::output(buf.cast(), len)?) };
        recv(engine, fd, buf, flags)
    })())
}

/// `writev(2)`.
///
/// # Safety
/// `parts` leads to `count` entries, each to as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_writev(b: *mut baton, fd: c_int, parts: *const iovec, count: c_int) -> isize {
    done((|| {
        // SAFETY: the caller's promise.
        let (engine, parts) = unsafe { (baton::of(b)?, memory::parts(parts, count)?) };
        let mut total = 0;
        for part in parts {
            // SAFETY: the caller's promise.
            let data = unsafe { memory::input(part.iov_base.cast(), part.iov_len) };
            match data.and_then(|data| send(engine, fd, data, 0)) {
                Ok(sent) => {
                    total += sent;
                    if sent < part.iov_len {
                        break;
                    }
                }
                Err(errno) if total == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(total)
    })())
}

/// `readv(2)`.
///
/// # Safety
/// `parts` leads to `count` entries, each to as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_readv(b: *mut baton, fd: c_int, parts: *const iovec, count: c_int) -> isize {
    done((|| {
        // SAFETY: the caller's promise.
        let (engine, parts) = unsafe { (baton::of(b)?, memory::parts(parts, count)?) };
        let mut total = 0;
        for part in parts {
            // What came first is enough: only for that the call waits.
            let flags = if total == 0 { 0 } else { libc::MSG_DONTWAIT };
            // SAFETY: the caller's promise.
            let buf = unsafe { memory::output(part.iov_base.cast(), part.iov_len) };
            match buf.and_then(|buf| recv(engine, fd, buf, flags)) {
                Ok(got) => {
                    total += got;
                    if got < part.iov_len {
                        break;
                    }
                }
                Err(errno) if total == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(total)
    })())
}

/// Sends all of `data`, or on a non-blocking socket what fits.
fn send(engine: &baton, fd: Fd, data: &[u8], flags: c_int) -> Answer<usize> {
    let may_wait = flags & libc::MSG_DONTWAIT == 0;
    let mut sent = 0;
    loop {
        match engine.blocking(fd, Side::Write, may_wait, |posix| posix.send(fd, &data[sent..], flags)) {
            Ok(count) => sent += count,
            Err(errno) if sent == 0 => return Err(errno),
            Err(_) => return Ok(sent),
        }
        if sent == data.len() {
            return Ok(sent);
        }
    }
}

/// Receives what there is, waiting for the first of it; with MSG_WAITALL all.
fn recv(engine: &baton, fd: Fd, buf: &mut [u8], flags: c_int) -> Answer<usize> {
    let may_wait = flags & libc::MSG_DONTWAIT == 0;
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let mut got = 0;
    loop {
        match engine.blocking(fd, Side::Read, may_wait, |posix| posix.recv(fd, &mut buf[got..], flags)) {
            Ok(0) => return Ok(got),
            Ok(count) => got += count,
            // What was received is told first; the error stays for the next call.
            Err(Errno(libc::EAGAIN | libc::EINTR)) if got > 0 => return Ok(got),
            Err(errno) => return Err(errno),
        }
        if !all || got == buf.len() {
            return Ok(got);
        }
    }
}
