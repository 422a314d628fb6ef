//! Our timestamp clock (`TCP_TIMESTAMP`, RFC 7323 §3).
//!
//! The kernel reports and accepts the clock's present value, whose lowest bit says whether a tick
//! is a microsecond. So one tick is unknown in each direction. Both times the value is rounded up:
//! the peer would refuse a TSval that went back (PAWS), but does not notice one that is a tick
//! ahead.

use crate::repair;
use baton_tcp::snapshot::Timestamps;
use std::io;
use std::os::fd::BorrowedFd;

/// Reads the clock. TS.Recent cannot be read.
pub(crate) fn capture_timestamps(fd: BorrowedFd<'_>) -> io::Result<Timestamps> {
    Ok(decode(repair::timestamp(fd)?))
}

/// Sets the clock. TS.Recent cannot be set: the kernel takes the next segment's.
pub(crate) fn restore_timestamps(fd: BorrowedFd<'_>, timestamps: Timestamps) -> io::Result<()> {
    repair::set_timestamp(fd, encode(timestamps))
}

fn decode(value: u32) -> Timestamps {
    Timestamps { tsval: value | 1, microseconds: value & 1 == 1, ts_recent: None }
}

fn encode(timestamps: Timestamps) -> u32 {
    let unit = u32::from(timestamps.microseconds);
    if timestamps.tsval & 1 == unit { timestamps.tsval } else { timestamps.tsval.wrapping_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_wire::seq::Seq;

    #[test]
    fn the_clock_never_goes_back_and_gains_two_ticks_at_most() {
        for true_value in [0u32, 1, 2, 3, 1_000_000, u32::MAX - 1, u32::MAX] {
            for microseconds in [false, true] {
                let shown = if microseconds { true_value | 1 } else { true_value & !1 };
                let back = encode(decode(shown));
                assert_eq!(back & 1 == 1, microseconds);
                let gained = Seq(back).since(Seq(true_value));
                assert!((0..=2).contains(&gained), "{true_value} became {back}");
            }
        }
    }
}
