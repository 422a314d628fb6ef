//! The urgent pointer, received (RFC 9293 §3.8.5, RFC 6093).
//!
//! Urgent bytes stay in the stream, as RFC 6093 §2 says TCP meant them; the
//! consumer is told where they end and finds them there. How many are still to
//! come, it learns from that sequence number and its own position.
//!
//! A stack that the connection came from may do otherwise: Linux takes the last urgent
//! byte out of the stream. With `Config::refuse_urgent` such data is left to it. Nothing
//! of a segment that announces some counts as received, so the peer sends it again, still
//! urgent, until somebody acknowledges it.

use crate::segment::Segment;
use crate::tcb::{Context, Tcb};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

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

    /// True if the segment announces urgent data that is not to be taken. A pointer to what was
    /// received already announces nothing, wherever that was received; nobody is left to tell of
    /// an orphan's.
    pub(crate) fn refuses_urgent(&self, cx: &Context<'_>, seg: &Segment) -> bool {
        // Linux looks at the octet before the one that the pointer names (RFC 6093 §3.2;
        // net/ipv4/tcp_input.c, `tcp_check_urg`).
        let last = seg.seq + u32::from(seg.urgent).saturating_sub(1);
        cx.config.refuse_urgent
            && seg.flags.contains(Flags::URG)
            && self.state.may_receive()
            && !self.is.orphan
            && !last.before(self.rcv.rcv_nxt)
    }
}
