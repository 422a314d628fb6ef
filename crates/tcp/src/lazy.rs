//! The rare state of a connection, made at its first use, and its timer.

use crate::rare::Rare;
use crate::tcb::Tcb;
use crate::time::Instant;
use crate::timers::Timer;

impl Tcb {
    pub(crate) fn rare(&mut self) -> &mut Rare {
        let heard = self.last_heard;
        self.rare.get_or_insert_with(|| Box::new(Rare::new(heard)))
    }

    pub(crate) fn reset_waits(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.reset_waits)
    }

    /// Arms the one timer for both of the rare deadlines.
    pub(crate) fn arm_rare(&mut self) {
        let at = self.rare.as_ref().map_or(Instant::NEVER, |rare| rare.user_at.min(rare.path_mtu_at));
        self.timers.arm(Timer::Rare, at);
    }

    /// Something moved: an acknowledgment of new data, or the first byte in flight.
    #[inline]
    pub(crate) fn note_progress(&mut self, now: Instant) {
        if let Some(rare) = &mut self.rare {
            rare.stalled_since = now;
        }
    }
}
