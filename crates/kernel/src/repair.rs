//! `TCP_REPAIR` (`net/ipv4/tcp.c`): the mode in which Linux shows and accepts a connection's inner
//! state.
//!
//! In this mode `close`, `connect` and `connect(AF_UNSPEC)` send nothing, and reads and writes go
//! to the selected queue ([`Queue`]): a write to the send queue counts as sent, one to the receive
//! queue as received. The mode does not stop the connection: arriving segments are still processed,
//! and timers still run. With no queue selected, as on a husk, a program's reads and writes fail
//! (`EPERM`, `EINVAL`).

use crate::sys;
use baton_wire::seq::Seq;
use std::io;
use std::os::fd::BorrowedFd;

const TCP: i32 = libc::IPPROTO_TCP;

/// The queue that reads and writes go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    None = 0,
    Receive = 1,
    Send = 2,
}

/// How to leave repair mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// An established connection sends a window probe: the peer answers with its
    /// acknowledgment number, window and timestamp.
    Probing = 0,
    /// Nothing is sent.
    Quietly = -1,
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Windows {
    pub snd_wl1: Seq,
    pub snd_wnd: u32,
    pub max_window: u32,
    pub rcv_wnd: u32,
    pub rcv_wup: Seq,
}

/// A TCP option for `TCP_REPAIR_OPTIONS`: kind and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RepairOption(pub u32, pub u32);

/// Returns true if repair mode is on.
pub(crate) fn is_on(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sys::get_int(fd, TCP, libc::TCP_REPAIR)? != 0)
}

/// Turns repair mode on, with no queue selected. This also lets `bind` take an address in use
/// (`SK_FORCE_REUSE`), whatever the value of `SO_REUSEADDR`.
pub(crate) fn enter(fd: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_int(fd, TCP, libc::TCP_REPAIR, 1)
}

/// Turns repair mode off. Afterwards `SO_REUSEADDR` is off.
pub(crate) fn leave(fd: BorrowedFd<'_>, how: Leave) -> io::Result<()> {
    sys::set_int(fd, TCP, libc::TCP_REPAIR, how as i32)
}

/// Calls `f` with a queue selected, then deselects the queue.
pub(crate) fn with_queue<T>(fd: BorrowedFd<'_>, queue: Queue, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    sys::set_int(fd, TCP, libc::TCP_REPAIR_QUEUE, queue as i32)?;
    let result = f();
    sys::set_int(fd, TCP, libc::TCP_REPAIR_QUEUE, Queue::None as i32)?;
    result
}

/// Makes the next `connect` take effect at once. With TCP Fast Open (`TCP_FASTOPEN_CONNECT`) and a
/// cookie of the peer, `connect` would be deferred until something is written. Only possible on a
/// closed socket.
pub(crate) fn connect_at_once(fd: BorrowedFd<'_>) -> io::Result<()> {
    let done = sys::set_int(fd, TCP, libc::TCP_FASTOPEN_CONNECT, 0);
    done.or_else(|error| match error.raw_os_error() {
        // A system without Fast Open defers nothing.
        Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT) => Ok(()),
        _ => Err(error),
    })
}

/// The end of a queue in sequence space, FINs included: `write_seq` or `rcv_nxt`.
pub(crate) fn queue_seq(fd: BorrowedFd<'_>, queue: Queue) -> io::Result<Seq> {
    with_queue(fd, queue, || sys::get_int(fd, TCP, libc::TCP_QUEUE_SEQ)).map(|seq| Seq(seq as u32))
}

/// Sets the end of an empty queue. Only possible before `connect`.
pub(crate) fn set_queue_seq(fd: BorrowedFd<'_>, queue: Queue, seq: Seq) -> io::Result<()> {
    with_queue(fd, queue, || sys::set_int(fd, TCP, libc::TCP_QUEUE_SEQ, seq.0 as i32))
}

/// Reads the windows.
pub(crate) fn windows(fd: BorrowedFd<'_>) -> io::Result<Windows> {
    let mut bytes = [0; 20];
    sys::get(fd, TCP, libc::TCP_REPAIR_WINDOW, &mut bytes)?;
    let word = |i: usize| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    Ok(Windows {
        snd_wl1: Seq(word(0)),
        snd_wnd: word(4),
        max_window: word(8),
        rcv_wnd: word(12),
        rcv_wup: Seq(word(16)),
    })
}

/// Sets the windows. The kernel requires `snd_wnd <= max_window`, `rcv_wup` not after `rcv_nxt`,
/// and `snd_wl1` not after the receive window.
pub(crate) fn set_windows(fd: BorrowedFd<'_>, windows: Windows) -> io::Result<()> {
    let words = [windows.snd_wl1.0, windows.snd_wnd, windows.max_window, windows.rcv_wnd, windows.rcv_wup.0];
    sys::set(fd, TCP, libc::TCP_REPAIR_WINDOW, words.map(u32::to_ne_bytes).as_flattened())
}

/// Sets what the SYNs agreed on. Only possible on a connected socket that has sent nothing.
pub(crate) fn set_options(fd: BorrowedFd<'_>, options: &[RepairOption]) -> io::Result<()> {
    let bytes: Vec<u8> = options.iter().flat_map(|o| [o.0.to_ne_bytes(), o.1.to_ne_bytes()]).flatten().collect();
    sys::set(fd, TCP, libc::TCP_REPAIR_OPTIONS, &bytes)
}

/// The TSval that a segment would carry now, except for its lowest bit, which says that the clock
/// ticks in microseconds.
pub(crate) fn timestamp(fd: BorrowedFd<'_>) -> io::Result<u32> {
    sys::get_int(fd, TCP, libc::TCP_TIMESTAMP).map(|value| value as u32)
}

/// Sets the timestamp clock.
pub(crate) fn set_timestamp(fd: BorrowedFd<'_>, value: u32) -> io::Result<()> {
    sys::set_int(fd, TCP, libc::TCP_TIMESTAMP, value as i32)
}
