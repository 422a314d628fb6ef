//! Frames of a connection that is away, and that reach the kernel's socket all the same.
//!
//! Steering stands on the interface that the kernel sends by, and knows whole segments.
//! What a peer's routers bring in by another interface, or cut into fragments, goes past it
//! to the socket, which is deaf ([`crate::capture`](mod@crate::capture)) and drops it: the
//! engine never hears of it, and only the kernel can serve such a connection. The kernel counts what a
//! socket dropped (`sk_drops`, net/ipv4/tcp_ipv4.c `tcp_v4_rcv`; `SO_MEMINFO` tells it).

use crate::error::{During, Failed};
use crate::sys;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Frames past the steering that are no accident: a few may be on their way while a
/// connection moves.
const FEW: u32 = 3;
/// The time within which they count.
const SPAN: Duration = Duration::from_secs(600);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// `SK_MEMINFO_VARS` of include/uapi/linux/sock_diag.h, of four bytes each.
const VARIABLES: usize = 9;
/// `SK_MEMINFO_DROPS`.
const DROPS: usize = 8;

/// What is known of a connection's bypassing since it arrived in an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BypassingFrames {
    looked: Option<Instant>,
    /// What was dropped at the beginning of the time, and when that was.
    before: Option<(u32, Instant)>,
}

impl BypassingFrames {
    /// Looks at the socket of a connection that is away, for the first time soon after its
    /// arrival and then again and again; more than once a second asks nothing. True if its
    /// peer's segments go past the engine.
    ///
    /// # Errors
    /// As `getsockopt(2)`'s.
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
        // What was dropped while it moved counts for nothing; the count goes round.
        for (drops, past) in [(u32::MAX, false), (u32::MAX, false), (1, false), (2, true)] {
            assert_eq!(bypassing.count(drops, begun), past, "{drops}");
        }
        let mut bypassing = BypassingFrames::default();
        for n in 0..10 {
            assert!(!bypassing.count(n, begun + n * SPAN / 2), "{n}");
        }
    }
}
