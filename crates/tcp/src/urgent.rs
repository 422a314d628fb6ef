//! The urgent pointer, received (RFC 9293 §3.8.5, RFC 6093).
//!
//! Urgent bytes stay in the stream, as RFC 6093 §2 says TCP meant them; the
//! consumer is told where they end and finds them there. How many are still to
//! come, it learns from that sequence number and its own position.

use crate::segment::Segment;
use crate::tcb::Tcb;
use baton_wire::seq::Seq;

impl Tcb {
    /// The new end of urgent data, if the segment moves it.
    pub(crate) fn urgent_arrives(&mut self, seg: &Segment) -> Option<Seq> {
        // MUST-62 (RFC 9293 §3.8.5): the pointer is the octet after the urgent data.
        let end = seg.seq + u32::from(seg.urgent);
        let ahead = end.after(self.rcv.rcv_nxt);
        // MUST-32 (RFC 9293 §3.8.5): told when urgent data is first announced, and when its end moves.
        // MUST-31 (RFC 9293 §3.8.5): each announcement may move it by 64 KiB, as often as it likes.
        let known = self.rare.as_ref().and_then(|r| r.rcv_up);
        let pending = known.filter(|known| known.after(self.rcv.rcv_nxt));
        if !ahead || pending.is_some_and(|pending| !end.after(pending)) {
            return None;
        }
        self.rare().rcv_up = Some(end);
        // MUST-33 (RFC 9293 §3.8.5): where it ends says how much is left.
        Some(end)
    }
}
