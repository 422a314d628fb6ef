//! Frames of a connection that is away which bypass the engine and reach the kernel's socket.
//!
//! Steering works on the interface by which the kernel sends, and on whole segments. Frames that
//! the peer's routers deliver on another interface, or in fragments, bypass it and reach the
//! socket. The socket is deaf ([`crate::capture`](mod@crate::capture)) and drops them, so the
//! engine never receives them. Only the kernel can serve such a connection. The kernel counts what
//! a socket dropped (`sk_drops`, `tcp_v4_rcv` in net/ipv4/tcp_ipv4.c), and `SO_MEMINFO` reports it.

use crate::error::{During, Failed};
use crate::sys;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// This many bypassing frames are no accident. Fewer may have been on their way while the
/// connection moved.
const FEW: u32 = 3;
/// The time within which they are counted.
const SPAN: Duration = Duration::from_secs(600);
/// The shortest time between two queries.
const PAUSE: Duration = Duration::from_secs(1);
/// `SK_MEMINFO_VARS` of include/uapi/linux/sock_diag.h: the number of variables, of four bytes
/// each.
const VARIABLES: usize = 9;
/// `SK_MEMINFO_DROPS`.
const DROPS: usize = 8;

/// Counts the frames of a connection that bypassed its engine since it arrived there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BypassingFrames {
    looked: Option<Instant>,
    /// The number of dropped frames at the start of the period, and when that was.
    before: Option<(u32, Instant)>,
}

impl BypassingFrames {
    /// Queries the socket of a connection that is away. The first call should follow soon after the
    /// arrival; calls within a second of the last query do nothing. Returns true if the peer's
    /// segments bypass the engine.
    ///
    /// # Errors
    /// Errors from `getsockopt(2)`.
    pub fn look(&mut self, fd: impl AsFd, now: Instant) -> Result<bool, Failed> {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < PAUSE) {
            return Ok(false);
        }
        self.looked = Some(now);
        let mut words = [0; 4 * VARIABLES];
        sys::get(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words)
            .during("asking what the kernel's socket dropped")?;
        let drops = words.as_chunks().0.get(DROPS).map_or(0, |drops| u32::from_ne_bytes(*drops));
        Ok(self.count(drops, now))
    }

    fn count(&mut self, drops: u32, now: Instant) -> bool {
        match self.before {
            Some((before, since)) if now.saturating_duration_since(since) < SPAN => drops.wrapping_sub(before) >= FEW,
            _ => {
                self.before = Some((drops, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_within_a_time_are_enough_and_one_now_and_then_is_not() {
        let begun = Instant::now();
        let mut bypassing = BypassingFrames::default();
        // Drops during the move do not count. The counter wraps around.
        for (drops, past) in [(u32::MAX, false), (u32::MAX, false), (1, false), (2, true)] {
            assert_eq!(bypassing.count(drops, begun), past, "{drops}");
        }
        let mut bypassing = BypassingFrames::default();
        for n in 0..10 {
            assert!(!bypassing.count(n, begun + n * SPAN / 2), "{n}");
        }
    }
}
