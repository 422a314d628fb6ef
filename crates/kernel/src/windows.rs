//! The windows of both directions (`TCP_REPAIR_WINDOW`).
//!
//! The receive window's right edge is a promise. Linux 6.17 and later drop data beyond their own
//! idea of the edge. So a restore sets the edge that the peer was promised, by the kernel or the
//! engine, and checks whether it took effect.

use crate::captured::Captured;
use crate::repair::{self, Windows};
use crate::sequence::Marks;
use baton_wire::seq::Seq;
use std::io;
use std::os::fd::BorrowedFd;

/// The right edge of the receive window, which is never before `rcv_nxt`.
pub(crate) fn right_edge(marks: &Marks) -> Seq {
    (marks.windows.rcv_wup + marks.windows.rcv_wnd).latest(marks.rcv_nxt)
}

/// The windows for the kernel while `rcv_nxt` is its next expected sequence number.
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

/// Sets the final windows. Returns how many bytes of the promised window the kernel takes back.
pub(crate) fn restore_windows(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<u32> {
    repair::set_windows(fd, windows_of(captured, captured.protocol.rcv_nxt))?;
    Ok(taken_back(repair::windows(fd)?, captured.protocol.right_edge))
}

/// A window that reaches further takes nothing back. The kernel may have acknowledged the peer's
/// FIN meanwhile, when its timer expired, and may have offered any window with that ACK.
fn taken_back(kept: Windows, promised: Seq) -> u32 {
    promised.since(kept.rcv_wup + kept.rcv_wnd).max(0) as u32
}

/// Lets the kernel offer as much as was promised, since `connect` chooses less. This also sets
/// `rcv_ssthresh`, from which the window grows.
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
