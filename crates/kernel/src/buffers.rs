//! Makes room for the queues while they are put back, and restores the earlier buffer sizes
//! afterwards.
//!
//! The kernel fills a queue only up to the size of its buffer, in repair mode too. So both buffers
//! are enlarged for the time being. `SO_SNDBUFFORCE` exceeds the host's limit, but sets a lock that
//! keeps the kernel from tuning the size. That lock is removed again (`SO_BUF_LOCK`).

use crate::captured::Captured;
use crate::error::{During, Failed};
use crate::socket_options::{Buffers, IntOption};
use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const SOCKET: i32 = libc::SOL_SOCKET;
/// `asm-generic/socket.h`.
const SO_BUF_LOCK: i32 = 72;
/// The program chose the size of the receive buffer.
const RECEIVE_LOCKED: i32 = 2;

/// Room for the kernel's own structures, in addition to the bytes themselves.
const SLACK: usize = 64 * 1024;

/// Makes the send buffer of a live connection large enough for `bytes` more. It stays so: the kernel takes back what
/// it does not need, and goes on to tune the size if the program did not set it.
///
/// # Errors
/// Errors of `getsockopt(2)`, `setsockopt(2)` and `ioctl(2)`.
pub fn make_room_to_send(fd: impl AsFd, bytes: usize) -> Result<(), Failed> {
    let fd = fd.as_fd();
    let enlarge = || {
        let queued = sys::length(fd, sys::Length::Unacked)? as usize;
        let locks = sys::get_int(fd, SOCKET, SO_BUF_LOCK)?;
        let size = size_for(queued + bytes).max(sys::get_int(fd, SOCKET, libc::SO_SNDBUF)?);
        set_size(fd, libc::SO_SNDBUFFORCE, size)?;
        sys::set_int(fd, SOCKET, SO_BUF_LOCK, locks)
    };
    enlarge().during("making room in the send buffer")
}

/// Makes both buffers large enough for the queues.
pub(crate) fn make_room(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<()> {
    let Buffers { send, receive, .. } = captured.options.buffers;
    if !captured.send_queue.is_empty() {
        set_size(fd, libc::SO_SNDBUFFORCE, size_for(captured.send_queue.len()).max(send))?;
        // No limit on unsent bytes meanwhile.
        IntOption::NotSentLowWater.write(fd, -1)?;
    }
    if !captured.receive_queue.is_empty() {
        set_size(fd, libc::SO_RCVBUFFORCE, size_for(captured.receive_queue.len()).max(receive))?;
    }
    Ok(())
}

/// Restores the sizes. If the program did not set the receive buffer, and the promised window and
/// the unread bytes would not fit, the buffer grows: the engine may have promised more than the
/// kernel had. (The kernel's own promise always fits.)
pub(crate) fn restore_buffers(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<()> {
    let Buffers { send, mut receive, locks } = captured.options.buffers;
    let promised = captured.receive_queue.len() + captured.protocol.rcv_wnd() as usize;
    if locks & RECEIVE_LOCKED == 0 && promised > receive as usize {
        receive = size_for(promised);
    }
    if sys::get_int(fd, SOCKET, libc::SO_SNDBUF)? != send {
        set_size(fd, libc::SO_SNDBUFFORCE, send)?;
    }
    if sys::get_int(fd, SOCKET, libc::SO_RCVBUF)? != receive {
        set_size(fd, libc::SO_RCVBUFFORCE, receive)?;
    }
    sys::set_int(fd, SOCKET, SO_BUF_LOCK, locks)
}

/// The kernel counts what it allocates, at worst about twice the bytes.
fn size_for(bytes: usize) -> i32 {
    i32::try_from(2 * (bytes + SLACK)).unwrap_or(i32::MAX)
}

/// Sets a size that the kernel reported. The kernel doubles what it is given, so half is set.
fn set_size(fd: BorrowedFd<'_>, name: i32, size: i32) -> io::Result<()> {
    sys::set_int(fd, SOCKET, name, size / 2 + size % 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_testkit::need_root;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_full_send_buffer_takes_more_once_there_is_room() {
        need_root!();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _theirs = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        sys::set_int(ours.as_fd(), SOCKET, libc::SO_SNDBUF, 10_000).unwrap();
        let locks = sys::get_int(ours.as_fd(), SOCKET, SO_BUF_LOCK).unwrap();
        while ours.write(&[1; 1000]).is_ok() {}
        let more = [2; 300_000];
        make_room_to_send(&ours, more.len()).unwrap();
        assert_eq!(ours.write(&more).unwrap(), more.len());
        assert_eq!(sys::get_int(ours.as_fd(), SOCKET, SO_BUF_LOCK).unwrap(), locks);
    }
}
