//! Sending and receiving.

use super::{baton, memory, to_c};
use baton_socket::posix::{Answer, Errno, Fd, Posix, Side};
use libc::{c_int, c_void, iovec, msghdr};

/// `send(2)` with MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL (always in effect) and MSG_EOR (without
/// effect: TCP has no records).
///
/// # Safety
/// `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_send(b: *mut baton, fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        let (engine, data) = unsafe { (baton::of(b)?, memory::input(buf.cast(), len)?) };
        send(engine, fd, data, flags)
    })())
}

/// `recv(2)` with MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL and MSG_TRUNC, which discards the bytes
/// and returns their number (`buf` may be NULL).
///
/// # Safety
/// `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_recv(b: *mut baton, fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        if flags & libc::MSG_TRUNC != 0 {
            return recv_with(engine, fd, len, flags, |posix, at| posix.discard(fd, len - at, flags));
        }
        // SAFETY: the caller's promise.
        recv(engine, fd, unsafe { memory::output(buf.cast(), len)? }, flags)
    })())
}

/// `writev(2)`.
///
/// # Safety
/// `parts` points to `count` entries, each of which points to as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_writev(b: *mut baton, fd: c_int, parts: *const iovec, count: c_int) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        unsafe { send_parts(baton::of(b)?, fd, memory::parts(parts, count, libc::EINVAL)?, 0) }
    })())
}

/// `readv(2)`.
///
/// # Safety
/// `parts` points to `count` entries, each of which points to as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_readv(b: *mut baton, fd: c_int, parts: *const iovec, count: c_int) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        unsafe { recv_parts(baton::of(b)?, fd, memory::parts(parts, count, libc::EINVAL)?, 0) }
    })())
}

/// `sendmsg(2)`, with the flags of `baton_send`. An address is ignored, as on every connected
/// socket; control data is refused with EINVAL.
///
/// # Safety
/// `msg` points to a message whose parts each point to as many bytes as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_sendmsg(b: *mut baton, fd: c_int, msg: *const msghdr, flags: c_int) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        let (engine, msg) = unsafe { (baton::of(b)?, memory::read(msg)?) };
        if msg.msg_controllen != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        unsafe { send_parts(engine, fd, memory::parts(msg.msg_iov, msg.msg_iovlen, libc::EMSGSIZE)?, flags) }
    })())
}

/// `recvmsg(2)`, with the flags of `baton_recv`. `msg_namelen` becomes 0. The only control
/// message is TCP_CM_INQ, if TCP_INQ is on; otherwise `msg_controllen` becomes 0. `msg_flags`
/// becomes 0, or MSG_CTRUNC if the control buffer was too small.
///
/// # Safety
/// `msg` points to a message whose parts and control buffer each point to as many bytes as
/// they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_recvmsg(b: *mut baton, fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        let (engine, mut head) = unsafe { (baton::of(b)?, memory::read(msg)?) };
        // SAFETY: the caller's promise.
        let got =
            unsafe { recv_parts(engine, fd, memory::parts(head.msg_iov, head.msg_iovlen, libc::EMSGSIZE)?, flags)? };
        let inq = engine.enter(|posix| posix.inq(fd))?;
        let room = std::mem::take(&mut head.msg_controllen);
        (head.msg_namelen, head.msg_flags) = (0, 0);
        if let Some(left) = inq {
            // SAFETY: the caller's promise.
            match unsafe { memory::give_control(head.msg_control.cast(), room, libc::TCP_CM_INQ, left)? } {
                0 => head.msg_flags = libc::MSG_CTRUNC,
                len => head.msg_controllen = len,
            }
        }
        // SAFETY: the caller's promise.
        unsafe { memory::write(msg, head)? };
        Ok(got)
    })())
}

/// Sends all parts, or on a non-blocking socket as much as fits.
///
/// # Safety
/// Each part points to as many bytes as it says.
unsafe fn send_parts(engine: &baton, fd: Fd, parts: &[iovec], flags: c_int) -> Answer<usize> {
    in_turn(parts, |part, _| {
        // SAFETY: the caller's promise.
        let data = unsafe { memory::input(part.iov_base.cast(), part.iov_len)? };
        send(engine, fd, data, flags)
    })
}

/// Makes `call` for each part in turn, with the number of bytes moved so far, until one moves
/// less than its part. Returns the total. An error is returned only if nothing was moved.
fn in_turn(parts: &[iovec], mut call: impl FnMut(&iovec, usize) -> Answer<usize>) -> Answer<usize> {
    let mut total = 0;
    for part in parts {
        match call(part, total) {
            Ok(count) => {
                total += count;
                if count < part.iov_len {
                    break;
                }
            }
            Err(errno) if total == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(total)
}

/// Fills the parts in turn, as one [`recv`] would fill a buffer of their total length.
///
/// # Safety
/// Each part points to as many bytes as it says.
unsafe fn recv_parts(engine: &baton, fd: Fd, parts: &[iovec], flags: c_int) -> Answer<usize> {
    let len = parts.iter().map(|part| part.iov_len).sum();
    if flags & libc::MSG_TRUNC != 0 {
        return recv_with(engine, fd, len, flags, |posix, at| posix.discard(fd, len - at, flags));
    }
    if flags & libc::MSG_PEEK != 0 {
        // SAFETY: the caller's promise.
        return unsafe { peek_parts(engine, fd, parts, len, flags) };
    }
    in_turn(parts, |part, total| {
        // The call waits for the first bytes only, unless MSG_WAITALL asks for all.
        let wait = if total == 0 || flags & libc::MSG_WAITALL != 0 { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the caller's promise.
        let buf = unsafe { memory::output(part.iov_base.cast(), part.iov_len)? };
        recv(engine, fd, buf, flags | wait)
    })
}

/// Peeks once for all parts: a second peek would begin at the same byte as the first.
///
/// # Safety
/// Each part points to as many bytes as it says.
unsafe fn peek_parts(engine: &baton, fd: Fd, parts: &[iovec], len: usize, flags: c_int) -> Answer<usize> {
    let mut seen = Vec::new();
    let got = recv_with(engine, fd, len, flags, |posix, _| {
        // At least one byte, so that the end of the stream and errors are reported.
        seen.resize(posix.unread(fd).unwrap_or(0).clamp(1, len.max(1)).min(len), 0);
        posix.recv(fd, &mut seen, flags)
    })?;
    let mut rest = &seen[..got];
    for part in parts {
        let (now, later) = rest.split_at(rest.len().min(part.iov_len));
        // SAFETY: no more than the part's length, by the caller's promise.
        unsafe { memory::output(part.iov_base.cast(), now.len())? }.copy_from_slice(now);
        rest = later;
    }
    Ok(got)
}

/// Sends all of `data`, or on a non-blocking socket as much as fits.
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

/// Receives what is available, and waits for the first byte; with MSG_WAITALL it waits until
/// `buf` is full.
fn recv(engine: &baton, fd: Fd, buf: &mut [u8], flags: c_int) -> Answer<usize> {
    recv_with(engine, fd, buf.len(), flags, |posix, at| posix.recv(fd, &mut buf[at..], flags))
}

/// As [`recv`], for `len` bytes. `take(posix, at)` takes the available bytes from offset `at`
/// on.
fn recv_with(
    engine: &baton,
    fd: Fd,
    len: usize,
    flags: c_int,
    mut take: impl FnMut(&mut Posix, usize) -> Answer<usize>,
) -> Answer<usize> {
    let may_wait = flags & libc::MSG_DONTWAIT == 0;
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let mut got = 0;
    loop {
        match engine.blocking(fd, Side::Read, may_wait, |posix| take(posix, got)) {
            Ok(0) => return Ok(got),
            Ok(count) => got += count,
            // The bytes received so far are returned; the next call reports the error.
            Err(Errno(libc::EAGAIN | libc::EINTR)) if got > 0 => return Ok(got),
            Err(errno) => return Err(errno),
        }
        if !all || got == len {
            return Ok(got);
        }
    }
}
