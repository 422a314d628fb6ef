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

/// Sets them for good. Bytes of what the peer was promised that the kernel takes back.
pub(crate) fn restore_windows(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<u32> {
    repair::set_windows(fd, windows_of(captured, captured.protocol.rcv_nxt))?;
    Ok(taken_back(repair::windows(fd)?, captured.protocol.right_edge))
}

/// A window that reaches further is none taken back: the kernel may have acknowledged the
/// peer's FIN meanwhile, when its timer for that ran out, and with it offers what it likes.
fn taken_back(kept: Windows, promised: Seq) -> u32 {
    promised.since(kept.rcv_wup + kept.rcv_wnd).max(0) as u32
}

/// Lets the kernel offer as much as was promised; `connect` guesses anew, and less. With
/// it comes `rcv_ssthresh`, from which the window grows on.
pub(crate) fn restore_window_clamp(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<()> {
    let promised = captured.protocol.rcv_wnd().min(i32::MAX as u32) as i32;
    let clamp = captured.options.window_clamp.max(promised);
    crate::sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, clamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_taken_back_only_if_it_reaches_less_far() {
        for promised in [Seq(100_000), Seq(0), Seq(5)] {
            let of_peer = Windows { snd_wl1: Seq(1), snd_wnd: 1, max_window: 1, rcv_wnd: 0, rcv_wup: Seq(0) };
            let kept = |rcv_wnd| Windows { rcv_wup: promised - 10_000, rcv_wnd, ..of_peer };
            assert_eq!(taken_back(kept(10_000), promised), 0);
            assert_eq!(taken_back(kept(32_000), promised), 0);
            assert_eq!(taken_back(kept(9_000), promised), 1_000);
            assert_eq!(taken_back(kept(0), promised), 10_000);
        }
    }
}
