//! `sendmsg`, `recvmsg`, `sendmmsg` and `recvmmsg`.
//!
//! Safety rules, besides those of [`super`]: a message's buffers and control data are as long as its header says.
//! A part of the control data is read only if it lies within (`CMSG_OK`, include/linux/socket.h), and written only if
//! the header and the number of bytes fit. Of several messages no more are touched than `count`, and none if there is
//! no list.

use super::{fail, finish};
use crate::connection::{at, bring_home};
use crate::os::buffers::{IOV_MAX, read_buffers, write_buffers};
use crate::os::cancel::{Deferred, deferred};
use crate::os::socket::TCP_INQ;
use crate::os::{real, socket};
use crate::table::is_known;
use crate::transfer::{Done, receive, send};
use baton_policy::Reason;
use libc::{c_int, c_uint, cmsghdr, mmsghdr, msghdr, ssize_t, timespec};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Brings home the connections whose descriptors a message sends to another process.
///
/// # Safety
/// `msg` is null or a message that the program sends.
unsafe fn bring_sent_home(msg: *const msghdr) {
    // SAFETY: the caller's promise; the macros stay within the control data's length, and so does what a header says.
    unsafe {
        if msg.is_null() || (*msg).msg_controllen < size_of::<cmsghdr>() {
            return;
        }
        let _deferred = Deferred::new();
        let end = ((*msg).msg_control as usize).saturating_add((*msg).msg_controllen);
        let mut head = libc::CMSG_FIRSTHDR(msg);
        while let Some(at) = head.as_ref() {
            // The kernel refuses such a message.
            if at.cmsg_len > end - head as usize {
                return;
            }
            if (at.cmsg_level, at.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let count = at.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let fds = libc::CMSG_DATA(head).cast::<RawFd>();
                for number in 0..count {
                    bring_home(fds.add(number).read_unaligned(), Reason::SentAway);
                }
            }
            head = libc::CMSG_NXTHDR(msg, head);
        }
    }
}

/// # Safety
/// `msg` is a message that the program sends.
unsafe fn send_one(fd: RawFd, msg: *const msghdr, flags: c_int) -> Done<usize> {
    // SAFETY: the caller's promise.
    let Some(head) = (unsafe { msg.as_ref() }) else { return Done::Failed(libc::EFAULT) };
    if head.msg_iovlen > IOV_MAX {
        return Done::Failed(libc::EMSGSIZE);
    }
    if head.msg_controllen > 0 {
        let _deferred = Deferred::new();
        bring_home(fd, Reason::ControlData);
    }
    // SAFETY: as above.
    match unsafe { write_buffers(head.msg_iov, head.msg_iovlen) } {
        Ok(bytes) => deferred(|| send(fd, &bytes, flags)),
        Err(errno) => Done::Failed(errno),
    }
}

/// # Safety
/// `msg` is a message that the program receives into.
unsafe fn receive_one(fd: RawFd, msg: *mut msghdr, flags: c_int) -> Done<usize> {
    // SAFETY: the caller's promise.
    let Some(head) = (unsafe { msg.as_mut() }) else { return Done::Failed(libc::EFAULT) };
    if head.msg_iovlen > IOV_MAX {
        return Done::Failed(libc::EMSGSIZE);
    }
    // SAFETY: as above.
    let done = match unsafe { read_buffers(head.msg_iov, head.msg_iovlen) } {
        Ok(mut rooms) => deferred(|| receive(fd, &mut rooms, flags)),
        Err(errno) => Done::Failed(errno),
    };
    if let Done::Carried(_) = done {
        head.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
        // A stream has no sender's address.
        head.msg_namelen = 0;
        // SAFETY: as above.
        unsafe { write_inq(fd, head) };
    }
    done
}

/// Writes the only control message of a stream: how many bytes are left, if `TCP_INQ` is on.
///
/// # Safety
/// The message's control buffer is as long as it says.
unsafe fn write_inq(fd: RawFd, head: &mut msghdr) {
    let room = std::mem::replace(&mut head.msg_controllen, 0);
    let asked = room > 0 && !head.msg_control.is_null() && socket::has_inq(fd);
    let Some(left) = asked.then(|| at(fd)).flatten().and_then(|held| Some(held.stream()?.left())) else { return };
    // SAFETY: pure arithmetic.
    let (len, space) = unsafe { (libc::CMSG_LEN(4) as usize, libc::CMSG_SPACE(4) as usize) };
    if room < len {
        head.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    let said = cmsghdr { cmsg_len: len, cmsg_level: libc::SOL_TCP, cmsg_type: TCP_INQ };
    // SAFETY: the caller's promise: the buffer has room for the header and the number.
    unsafe {
        let at = head.msg_control.cast::<cmsghdr>();
        at.write_unaligned(said);
        at.add(1).cast::<c_int>().write_unaligned(c_int::try_from(left).unwrap_or(c_int::MAX));
    }
    head.msg_controllen = room.min(space);
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    unsafe {
        bring_sent_home(msg);
        let kernel = || {
            let done = real::sendmsg(fd, msg, flags);
            if flags & libc::MSG_FASTOPEN != 0 {
                super::sockets::on_connect_call(fd, done >= 0);
            }
            done
        };
        if is_known(fd) { finish(send_one(fd, msg, flags), kernel) } else { kernel() }
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are the program's.
    unsafe {
        if !is_known(fd) {
            return real::recvmsg(fd, msg, flags);
        }
        finish(receive_one(fd, msg, flags), || real::recvmsg(fd, msg, flags))
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the arguments are the program's; `count` messages.
    unsafe {
        let listed = if msgs.is_null() { 0 } else { count as usize };
        for number in 0..listed {
            bring_sent_home(&raw const (*msgs.add(number)).msg_hdr);
        }
        if listed == 0 || !is_known(fd) {
            return real::sendmmsg(fd, msgs, count, flags);
        }
        for number in 0..listed {
            let one = &mut *msgs.add(number);
            match send_one(fd, &one.msg_hdr, flags) {
                Done::Carried(len) => one.msg_len = len as c_uint,
                Done::Failed(_) if number > 0 => return number as c_int,
                Done::Failed(errno) => return fail(errno),
                Done::Kernel(_call) => {
                    let rest = real::sendmmsg(fd, msgs.add(number), count - number as c_uint, flags);
                    return if rest < 0 && number > 0 { number as c_int } else { number as c_int + rest };
                }
            }
        }
        count as c_int
    }
}

/// # Safety
/// As for libc's function of this name.
pub(super) unsafe fn recvmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    mut flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the arguments are the program's: `count` messages, and a time or null.
    unsafe {
        if !is_known(fd) {
            return real::recvmmsg(fd, msgs, count, flags, timeout);
        }
        if msgs.is_null() && count > 0 {
            return fail(libc::EFAULT);
        }
        let is_time = |at: &timespec| at.tv_sec >= 0 && (0..1_000_000_000).contains(&at.tv_nsec);
        if !timeout.as_ref().is_none_or(is_time) {
            return fail(libc::EINVAL);
        }
        let limit = timeout.as_ref().map(|at| Duration::new(at.tv_sec as u64, at.tv_nsec as u32));
        let begun = Instant::now();
        let mut got = 0;
        while got < count {
            let one = &mut *msgs.add(got as usize);
            match receive_one(fd, &mut one.msg_hdr, flags & !libc::MSG_WAITFORONE) {
                Done::Carried(len) => one.msg_len = len as c_uint,
                Done::Failed(_) if got > 0 => break,
                Done::Failed(errno) => return fail(errno),
                Done::Kernel(_call) => {
                    let rest = real::recvmmsg(fd, msgs.add(got as usize), count - got, flags, timeout);
                    return if rest < 0 && got > 0 { got as c_int } else { got as c_int + rest };
                }
            }
            got += 1;
            // As in the kernel, the time limit is checked after each message.
            if limit.is_some_and(|limit| begun.elapsed() >= limit) {
                break;
            }
            flags |= if flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
        }
        if let (Some(timeout), Some(limit)) = (timeout.as_mut(), limit) {
            let left = limit.saturating_sub(begun.elapsed());
            *timeout = timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        }
        got as c_int
    }
}
