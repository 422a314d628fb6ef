//! Options that the two SYNs agreed on: MSS, window scales, SACK, timestamps.
//!
//! `TCP_REPAIR_OPTIONS` takes all of these once the socket is connected. But the kernel computed
//! its segment size in `connect`, from the default MSS (536), and never computes it again. Setting
//! `TCP_MAXSEG` before `connect` makes it right.
//!
//! Without an option for window scaling, the kernel would keep scaling its windows by the shift
//! that `connect` chose. So a connection without scaling gets shifts of 0, which is the same on the
//! wire; `ss` then shows `wscale:0,0`.
//!
//! There is no option for ECN. It survives on the same descriptor, whose flags nothing resets.

use crate::repair::{self, RepairOption};
use crate::sys;
use baton_tcp::snapshot::{Scales, Snapshot};
use std::io;
use std::os::fd::BorrowedFd;

const TCP: i32 = libc::IPPROTO_TCP;
/// Option kinds (RFC 9293 §3.1, RFC 7323, RFC 2018).
const MSS: u32 = 2;
const WINDOW_SCALE: u32 = 3;
const SACK_PERMITTED: u32 = 4;
const TIMESTAMPS: u32 = 8;

/// The least and the largest value that `TCP_MAXSEG` takes: `TCP_MIN_MSS` and `MAX_TCP_WINDOW`.
/// Only the loopback device allows a larger MSS.
const LEAST_MAXSEG: u16 = 88;
pub(crate) const MOST_MAXSEG: u16 = 32_767;

/// The MSS that the peer announced, as limited by our side. `TCP_MAXSEG` returns it in repair mode;
/// otherwise it returns the current segment size.
pub(crate) fn capture_peer_mss(fd: BorrowedFd<'_>) -> io::Result<u16> {
    let mss = sys::get_int(fd, TCP, libc::TCP_MAXSEG)?;
    Ok(mss.clamp(0, i32::from(u16::MAX)) as u16)
}

/// Call this before `connect`: the kernel computes the segment size from it.
pub(crate) fn restore_segment_size(fd: BorrowedFd<'_>, peer_mss: u16) -> io::Result<()> {
    sys::set_int(fd, TCP, libc::TCP_MAXSEG, i32::from(peer_mss.clamp(LEAST_MAXSEG, MOST_MAXSEG)))
}

/// Call this after `connect`: sets everything that was agreed on.
pub(crate) fn restore_agreed(fd: BorrowedFd<'_>, protocol: &Snapshot) -> io::Result<()> {
    let Scales { snd, rcv } = protocol.scales.unwrap_or_default();
    let shifts = u32::from(snd.shift()) | u32::from(rcv.shift()) << 16;
    let mut options = vec![RepairOption(MSS, u32::from(protocol.peer_mss)), RepairOption(WINDOW_SCALE, shifts)];
    if protocol.sack {
        options.push(RepairOption(SACK_PERMITTED, 0));
    }
    if protocol.timestamps.is_some() {
        options.push(RepairOption(TIMESTAMPS, 0));
    }
    repair::set_options(fd, &options)
}
