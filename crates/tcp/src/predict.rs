//! Header prediction: which segments take the short way through [`Tcb::handle_segment`]
//! (LA §3.2), and of which kind they are.
//!
//! ```text
//!                           4.4BSD   full
//!   data, nothing new ack'd    x       x     one way, at the receiver
//!   new ACK, no data           x       x     one way, at the sender
//!   data with a new ACK                x     requests and answers, both ways
//! ```
//!
//! LA finds that 4.4BSD's rule serves no round trips: each answer carries the
//! acknowledgment of its request.

use crate::config::Prediction;
use crate::kind::Kind;
use crate::manner::Manner;
use crate::segment::{Placement, Segment};
use crate::state::State;
use crate::tcb::Tcb;
use baton_wire::tcp::Flags;

impl Tcb {
    /// The kind of a segment that is not handled yet; for a run, the kind of its first
    /// segment: the others acknowledge the same.
    pub fn kind_of(&self, seg: &Segment) -> Kind {
        if seg.flags.without(Flags::PSH) != Flags::ACK {
            return Kind::Other;
        }
        kind_of(seg, self.acks_news(seg))
    }

    /// As [`Tcb::kind_of`], for a segment that is predicted: its flags are plain, and it
    /// acknowledges nothing that was not sent.
    #[inline]
    pub(crate) fn kind_of_predicted(&self, seg: &Segment) -> Kind {
        kind_of(seg, seg.ack.after(self.snd.snd_una()))
    }

    /// True if the rule lets a segment take the short way: at most, exactly the next bytes
    /// were placed, or it is an ACK and no more. With [`Acks::EverySecond`](crate::config::Acks),
    /// a run that is not predicted is to be given segment by segment.
    #[inline]
    pub fn is_predicted(&self, rule: Prediction, seg: &Segment, placement: Placement) -> bool {
        let plain = seg.flags.without(Flags::PSH) == Flags::ACK && !seg.ce && !self.manner.has(Manner::ECE);
        if !plain || self.state != State::Established || !self.ack_is_current(seg) {
            return false;
        }
        let in_order = match placement {
            Placement::Placed { rcv_nxt, new_bytes } => {
                new_bytes == seg.lengths.len && rcv_nxt == seg.seq + new_bytes && self.rcv.is_plain()
            }
            Placement::Empty => seg.seq == self.rcv.rcv_nxt && seg.lengths.len == 0 && self.ts_in_order(seg),
            Placement::Parked(_) => false,
        };
        in_order
            && match rule {
                Prediction::Full => true,
                Prediction::Bsd => self.is_one_way(seg),
                Prediction::Off => false,
            }
    }

    /// True if 4.4BSD predicts a segment that is in order: it brings either data or a new acknowledgment, from a peer
    /// whose window stays as it is.
    fn is_one_way(&self, seg: &Segment) -> bool {
        let same_window = seg.wnd != 0 && self.window_of(seg) == self.snd_wnd;
        let news = self.acks_news(seg);
        same_window && if seg.lengths.len == 0 { news } else { seg.ack == self.snd.snd_una() }
    }

    /// The segment acknowledges what was sent and not acknowledged before.
    #[inline]
    fn acks_news(&self, seg: &Segment) -> bool {
        seg.ack.after(self.snd.snd_una()) && seg.ack.before_eq(self.snd.snd_nxt())
    }
}

#[inline]
fn kind_of(seg: &Segment, acks_news: bool) -> Kind {
    match (acks_news, seg.lengths.len > 0) {
        (false, false) => Kind::Other,
        (false, true) => Kind::Data,
        (true, false) => Kind::Ack,
        (true, true) => Kind::DataAck,
    }
}
