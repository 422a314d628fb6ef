//! Bytes written and not acknowledged: sent ones and unsent ones.
//!
//! With the send queue selected in repair mode, what is written counts as sent and is
//! retransmitted when it is time. Unsent bytes must not count as sent: the peer would
//! never have seen them, and would have to wait for a timeout. So they are written
//! with repair mode off, behind a window that leaves no room for them:
//! nothing leaves, repair mode comes on again, and the step can still be undone.
//!
//! ```text
//!            snd_una             snd_nxt              write_seq
//!  ------------|===================|....................|-------
//!              written in repair   written behind the
//!              mode: "sent"        closed window: unsent
//!              |<- window, gated ->|
//! ```
//!
//! The same closed window stands while the queue is read. To read it, it has to be
//! selected; and whatever then makes the kernel transmit, such as its pacing timer,
//! would count unsent bytes as sent without sending them. So what is unsent is counted
//! before the queue is selected, and cannot shrink in between.

use crate::repair::{self, Leave, Queue, Windows};
use crate::sys::{self, Length};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::BorrowedFd;

/// The kernel copies whole packets of the queue and fails if one does not fit: the
/// first may begin before `snd_una`, by less than the largest packet.
const OVERHANG: usize = 512 * 1024;

/// Bytes offered to the kernel at once.
const PIECE: usize = 1 << 20;

/// What is unsent, and whether the window had to be closed to keep it so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// Bytes written and not sent, our FIN counted.
    pub unsent: u32,
    /// The kernel believes that the peer's window is closed.
    pub closed: bool,
}

/// Keeps unsent bytes unsent, if there are any, and counts them. No queue may be selected.
///
/// Closing the window sets the receive window too, to what it was a moment before. An ACK
/// that a timer sends in that moment would promise more than is remembered; what the peer
/// then sends there is lost as if by the network. Without unsent bytes nothing is set.
pub(crate) fn hold_back(fd: BorrowedFd<'_>, windows: Windows) -> io::Result<Held> {
    let unsent = sys::length(fd, Length::Unsent)?;
    if unsent == 0 {
        return Ok(Held { unsent, closed: false });
    }
    let in_flight = sys::length(fd, Length::Unacked)?.saturating_sub(unsent);
    close_gate(fd, in_flight, windows)?;
    Ok(Held { unsent: sys::length(fd, Length::Unsent)?, closed: true })
}

/// Copies the last `len` bytes of the queue, or all if there are fewer.
pub(crate) fn capture_unacked(fd: BorrowedFd<'_>, len: u32) -> io::Result<Vec<u8>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let mut bytes: Vec<u8> = Vec::with_capacity(len as usize + OVERHANG);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    repair::with_queue(fd, Queue::Send, || {
        let room = rustix::buffer::spare_capacity(&mut bytes);
        Ok(recv(fd, room, flags)?)
    })?;
    bytes.drain(..bytes.len().saturating_sub(len as usize));
    Ok(bytes)
}

/// Writes everything, without waiting.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let piece = &bytes[..bytes.len().min(PIECE)];
        match send(fd, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// Puts back what was sent.
pub(crate) fn restore_sent(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    repair::with_queue(fd, Queue::Send, || write_all(fd, bytes))
}

/// Puts back what was not sent, behind a window of `in_flight` bytes: exactly what is
/// out already. The window stays like that; repair mode is on again afterwards.
pub(crate) fn restore_unsent(fd: BorrowedFd<'_>, bytes: &[u8], in_flight: u32, windows: Windows) -> io::Result<()> {
    close_gate(fd, in_flight, windows)?;
    if bytes.is_empty() {
        return Ok(());
    }
    repair::leave(fd, Leave::Quietly)?;
    let written = write_all(fd, bytes);
    repair::enter(fd)?;
    written
}

/// Leaves no room in the peer's window beyond what is in flight.
fn close_gate(fd: BorrowedFd<'_>, in_flight: u32, windows: Windows) -> io::Result<()> {
    repair::set_windows(fd, Windows { snd_wnd: in_flight, max_window: windows.max_window.max(in_flight), ..windows })
}
