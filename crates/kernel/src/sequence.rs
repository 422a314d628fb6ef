//! Sequence numbers and the lengths of the queues.
//!
//! Linux tells the ends of the queues (`TCP_QUEUE_SEQ`) and how much is in them
//! (`SIOCOUTQ`, `SIOCOUTQNSD`, `SIOCINQ`); the rest follows. On the way back the ends
//! of empty queues are set before `connect`, and filling the queues moves them.

use crate::repair::{self, Queue, Windows};
use crate::sys::{self, Length};
use baton_wire::seq::Seq;
use std::io;
use std::os::fd::BorrowedFd;

/// Where a connection stands. Two equal readings with nothing between them say that
/// the connection stood still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// End of the send queue, our FIN counted.
    pub write_seq: Seq,
    /// From `snd_una` to `write_seq`.
    pub outstanding: u32,
    /// The peer's FIN counted.
    pub rcv_nxt: Seq,
    /// Received and not read; the peer's FIN not counted.
    pub unread: u32,
    pub windows: Windows,
}

impl Marks {
    pub fn snd_una(&self) -> Seq {
        Seq(self.write_seq.0.wrapping_sub(self.outstanding))
    }
}

/// Reads them; repair mode is on.
pub(crate) fn capture_marks(fd: BorrowedFd<'_>) -> io::Result<Marks> {
    Ok(Marks {
        write_seq: repair::queue_seq(fd, Queue::Send)?,
        outstanding: sys::length(fd, Length::Unacked)?,
        rcv_nxt: repair::queue_seq(fd, Queue::Receive)?,
        unread: sys::length(fd, Length::Unread)?,
        windows: repair::windows(fd)?,
    })
}

/// Sets the ends of the empty queues, before `connect`.
pub(crate) fn restore_ends(fd: BorrowedFd<'_>, snd: Seq, rcv: Seq) -> io::Result<()> {
    repair::set_queue_seq(fd, Queue::Send, snd)?;
    repair::set_queue_seq(fd, Queue::Receive, rcv)
}
