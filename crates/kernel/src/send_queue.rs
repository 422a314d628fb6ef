//! Bytes written but not acknowledged: sent ones and unsent ones.
//!
//! With the send queue selected in repair mode, written bytes count as sent and are retransmitted
//! when due. Unsent bytes must not count as sent, because the peer has never received them and
//! would have to wait for a timeout. So they are written with repair mode off, behind a window that
//! leaves no room for them. Nothing leaves, repair mode comes on again, and the step can still be
//! undone.
//!
//! ```text
//!            snd_una             snd_nxt              write_seq
//!  ------------|===================|....................|-------
//!              written in repair   written behind the
//!              mode: "sent"        closed window: unsent
//!              |<- window, gated ->|
//! ```
//!
//! The same closed window applies while the queue is read. To be read, the queue has to be
//! selected. Anything that then makes the kernel transmit, such as its pacing timer, would count
//! unsent bytes as sent without sending them. So the unsent bytes are counted before the queue is
//! selected, and their number cannot shrink in between.

use crate::repair::{self, Leave, Queue, Windows};
use crate::sys::{self, Length};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::BorrowedFd;

/// The kernel copies whole packets of the queue and fails if one does not fit. The first may begin
/// before `snd_una`, by less than the largest packet.
const OVERHANG: usize = 512 * 1024;

/// The bytes offered to the kernel at once.
const PIECE: usize = 1 << 20;

/// The number of unsent bytes, and whether the window was closed to keep them unsent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// Bytes written but not sent, including our FIN.
    pub unsent: u32,
    /// The kernel believes that the peer's window is closed.
    pub closed: bool,
}

/// Keeps unsent bytes unsent, if there are any, and counts them. No queue may be selected.
///
/// Closing the window also sets the receive window, to the value that was read just before. If a
/// timer sends an ACK in between, that ACK promises more than is remembered. Bytes that the peer
/// then sends there is lost, as if the network had dropped it. Without unsent bytes nothing is set.
pub(crate) fn hold_back(fd: BorrowedFd<'_>, windows: Windows) -> io::Result<Held> {
    let unsent = sys::length(fd, Length::Unsent)?;
    if unsent == 0 {
        return Ok(Held { unsent, closed: false });
    }
    let in_flight = sys::length(fd, Length::Unacked)?.saturating_sub(unsent);
    close_gate(fd, in_flight, windows)?;
    Ok(Held { unsent: sys::length(fd, Length::Unsent)?, closed: true })
}

/// Copies the last `len` bytes of the queue, or the whole queue if it has fewer.
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

/// Writes all bytes without waiting.
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

/// Restores the bytes that were sent.
pub(crate) fn restore_sent(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    repair::with_queue(fd, Queue::Send, || write_all(fd, bytes))
}

/// Restores the unsent bytes, behind a window of `in_flight` bytes, which is exactly what has been
/// sent. The window remains like that. Repair mode is on again afterwards.
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

/// Leaves no room in the peer's window beyond the bytes in flight.
fn close_gate(fd: BorrowedFd<'_>, in_flight: u32, windows: Windows) -> io::Result<()> {
    repair::set_windows(fd, Windows { snd_wnd: in_flight, max_window: windows.max_window.max(in_flight), ..windows })
}
