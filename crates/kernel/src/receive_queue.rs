//! Bytes received but not read.
//!
//! They are read with `MSG_PEEK`, so that an abandoned capture leaves them in place, and written
//! back with the receive queue selected, in pieces that the kernel chooses.

use crate::repair::{self, Queue};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::BorrowedFd;

/// Copies `len` bytes, or fewer if the kernel holds fewer, or if urgent data is in the way.
pub(crate) fn capture_unread(fd: BorrowedFd<'_>, len: u32) -> io::Result<Vec<u8>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; len as usize];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (_, got) = repair::with_queue(fd, Queue::Receive, || Ok(recv(fd, bytes.as_mut_slice(), flags)?))?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Restores the bytes. The receive buffer already has room for them.
pub(crate) fn restore_unread(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    repair::with_queue(fd, Queue::Receive, || crate::send_queue::write_all(fd, bytes))
}
