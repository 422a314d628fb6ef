//! Sequence numbers and the lengths of the queues.
//!
//! Linux reports the ends of the queues (`TCP_QUEUE_SEQ`) and how much they contain (`SIOCOUTQ`,
//! `SIOCOUTQNSD`, `SIOCINQ`). The rest follows from these. For a restore, the ends of the empty
//! queues are set before `connect`, and filling the queues moves them.

use crate::repair::{self, Queue, Windows};
use crate::sys::{self, Length};
use baton_wire::seq::Seq;
use std::io;
use std::os::fd::BorrowedFd;

/// A connection's position. If two readings are equal, the connection did not change between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// The end of the send queue, including our FIN.
    pub write_seq: Seq,
    /// From `snd_una` to `write_seq`.
    pub outstanding: u32,
    /// The next expected sequence number, including the peer's FIN.
    pub rcv_nxt: Seq,
    /// The number of bytes received but not read, without the peer's FIN.
    pub unread: u32,
    pub windows: Windows,
}

impl Marks {
    pub fn snd_una(&self) -> Seq {
        Seq(self.write_seq.0.wrapping_sub(self.outstanding))
    }
}

/// Reads the position. Repair mode must be on.
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
