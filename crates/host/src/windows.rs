//! The windows of both directions (`TCP_REPAIR_WINDOW`).
//!
//! The receive window's right edge is a promise. Linux 6.17 and later drop data that
//! reaches beyond their idea of it, so a restore sets the edge that the peer was
//! promised, whoever promised it, and looks whether it took.

use crate::captured::Captured;
use crate::repair::{self, Windows};
use crate::sequence::Marks;
use baton_wire::seq::Seq;
use std::io;
use std::os::fd::BorrowedFd;

/// The right edge of the receive window; never before `rcv_nxt`.
pub(crate) fn right_edge(marks: &Marks) -> Seq {
    (marks.windows.rcv_wup + marks.windows.rcv_wnd).latest(marks.rcv_nxt)
}

/// What the kernel is to believe while `rcv_nxt` is its next sequence number.
pub(crate) fn windows_of(captured: &Captured, rcv_nxt: Seq) -> Windows {
    let p = &captured.protocol;
    let rcv_wup = p.last_ack_sent.earliest(rcv_nxt);
    Windows {
        snd_wl1: p.snd_wl1,
        snd_wnd: p.snd_wnd,
        max_window: p.max_wnd.max(p.snd_wnd),
        rcv_wnd: p.right_edge.since(rcv_wup).max(0) as u32,
        rcv_wup,
    }
}

/// Sets them for good. `false` if the kernel keeps another right edge.
pub(crate) fn restore_windows(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<bool> {
    repair::set_windows(fd, windows_of(captured, captured.protocol.rcv_nxt))?;
    let kept = repair::windows(fd)?;
    Ok(kept.rcv_wup + kept.rcv_wnd == captured.protocol.right_edge)
}

/// Lets the kernel offer as much as was promised; `connect` guesses anew, and less. With
/// it comes `rcv_ssthresh`, from which the window grows on.
pub(crate) fn restore_window_clamp(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<()> {
    let promised = captured.protocol.rcv_wnd().min(i32::MAX as u32) as i32;
    let clamp = captured.options.window_clamp.max(promised);
    crate::sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, clamp)
}
