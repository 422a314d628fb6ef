//! Whether what arrived is acknowledged now, later, or not at all, by [`AckPolicy`].
//!
//! [`AckPolicy`]: crate::ack::AckPolicy

use crate::ack::Need;
use crate::rcv::Arrived;
use crate::segment::{Lengths, Segment};
use crate::tcb::{Context, Reply, Tcb};
use crate::time::Duration;
use crate::timers::Timer;

impl Tcb {
    /// In-order data: true if it is to be acknowledged now; else it will be before long.
    #[inline]
    pub(crate) fn data_in_order(&mut self, cx: &Context<'_>, lengths: &Lengths) -> bool {
        let pending = self.rcv.rcv_nxt.since(self.rcv.last_ack_sent).max(0) as u32;
        let now = self.ack.on_data(lengths, pending) == Need::Now;
        if !now && !self.timers.is_armed(Timer::DelayedAck) {
            self.arm_delayed_ack(cx);
        }
        now
    }

    /// Data beyond a gap has no buffer yet. Usually the requested buffer comes at once, and
    /// only then is there a SACK block to report. So the first duplicate ACK waits for it, no
    /// longer than other ACKs do. True if one is to go now.
    fn gap_waits(&mut self, cx: &Context<'_>) -> bool {
        if core::mem::replace(&mut self.rcv.gap_untold, true) {
            return true;
        }
        if !self.timers.is_armed(Timer::DelayedAck) {
            self.arm_delayed_ack(cx);
        }
        false
    }

    fn arm_delayed_ack(&mut self, cx: &Context<'_>) {
        // MUST-40 (RFC 9293 §3.8.6.3): less than half a second, whatever is configured.
        let delay = cx.config.delayed_ack.min(Duration::from_millis(499));
        self.timers.arm(Timer::DelayedAck, cx.now + delay);
    }

    /// Turns what arrived into a reply.
    pub(crate) fn note_arrival(&mut self, cx: &Context<'_>, seg: &Segment, arrived: Arrived, reply: &mut Reply) {
        reply.ack_now |= match arrived {
            Arrived::InOrder => self.data_in_order(cx, &seg.lengths),
            // Nothing to acknowledge yet, and no loss that a duplicate ACK would report.
            Arrived::Held => false,
            Arrived::Ahead => self.gap_waits(cx),
            // RFC 5681 §4.2: at once beyond a gap and when one is filled. Also a
            // duplicate: our ACK was lost, or the peer's timeout was spurious.
            Arrived::OutOfOrder | Arrived::FilledGap | Arrived::Duplicate => true,
        };
    }
}
